// What a closed loop's window says, by exact definitions:
//
//   TTFT   from the start of a request to its first chunk with a token; of requests that began in
//          the window (not those that began in the middle of their lives) and were answered in it
//   ITL    the mean: time between first and last chunk of every stream, as far as it lies in the
//          window, over the tokens that came in it. Percentiles: of the gaps between two chunks, as
//          vLLM's and SGLang's clients take them; with several tokens a chunk these are longer
//   TPOT   (last chunk - first chunk) / (tokens - 1), of requests that ended in the window.
//   GuideLLM
//          counts the first token too
//   E2E    from the start of a request to its end; of requests that began and ended in the window:
//          where answers take as long as it does, short ones are favoured
//   tokens what usage says; a chunk stands for its request's tokens over its chunks, and where a
//          request is not finished, for the mean of those that are
//   throughput   output tokens that came in the window, over its length
//   running      streams between their first and their last chunk, mean over the window
//
// Failures are counted, and their requests are in none of these. Pure; thread-safe; linear.
#pragma once

#include "serving/load.h"

namespace headroom::serving {

struct Spread {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

struct LoadSummary {
  int64_t concurrency = 1;
  double window_seconds = 0;
  int64_t requests = 0;  // that were begun
  int64_t finished = 0;
  int64_t failed = 0;
  std::array<int64_t, kFailures> failures{};  // by Failure
  int64_t ended_early = 0;                    // with fewer tokens than asked for
  double running_mean = 0;
  double throughput_tokens_per_second = 0;
  double throughput_error = 0;  // relative standard errors
  double itl_seconds = 0;
  double itl_error = 0;
  Spread ttft;
  Spread first_visible;
  Spread itl_chunks;
  Spread tpot;
  Spread e2e;
  double tokens_per_chunk = 1;
  bool has_usage = true;  // of every finished request
  GeneratorLag lag;
  bool is_void = false;                                 // the generator itself was too slow
  std::optional<double> server_running = std::nullopt;  // by its own metrics, mean
  std::optional<double> server_waiting = std::nullopt;
  std::optional<double> kv_share = std::nullopt;  // the most
  // Of prompt tokens, those that a cache of prefixes had: by usage (requests that began whole in
  // the window), or where that does not say, by the server's metrics in the window.
  std::optional<double> prefix_hit_share = std::nullopt;
  std::vector<formats::RequestLengths> lengths;  // of finished requests that began whole
  double input_asked_mean = 0;                   // of the same
  double output_asked_mean = 0;
};

// The generator is too slow where its stamps may be late by this share of the time between tokens,
// or where it hardly ever waited for the network.
inline constexpr double kMostLagShare = 0.05;
inline constexpr double kMostBusyShare = 0.9;

// An Error where no token came in the window.
Result<LoadSummary> summarise(const LoadRun& run);

}  // namespace headroom::serving
