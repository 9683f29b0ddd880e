// A server for tests: OpenAI's streamed completions by a law of time that is known.
//
// It works like an engine with iteration-level batching. A step lasts
//
//   t = (base_ms + per_sequence_ms n + bend_ms log2(n) + kv_us k) (1 + noise z) + prefill_us p
//
// with n sequences running, k tokens in their cache, p prompt tokens that came in with this step
// and z normal by the seed;
// at its end every running sequence gets a token. A token is a word. max_running limits the batch,
// kv_tokens the cache: who does not fit waits. What it really did is kept: when each request was
// received, and when each of its chunks was handed to the kernel.
//
// One thread of its own, from start() to stop(); records() after stop() only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace headroom::testing {

using Clock = std::chrono::steady_clock;

struct TestServerOptions {
  int port = 0;  // 0: any
  double base_ms = 10;
  double per_sequence_ms = 0.1;
  double bend_ms = 0;
  double kv_us = 0;  // for each token in the cache, which is read in every step
  double prefill_us = 5;
  double noise = 0;
  int64_t max_running = 256;
  int64_t kv_tokens = 1'000'000;
  int64_t tokens_per_chunk = 1;
  // Chunks that are written together, as a reader that is behind finds them in the kernel.
  int64_t chunks_per_write = 1;
  bool has_all_fields = false;  // a chunk says what vLLM's do beside its text: some 220 bytes
  uint64_t seed = 0;
  std::string api_key = {};  // empty: anyone
  // Every so many-th request, beginning behind the first `good`; 0: none.
  int64_t good = 3;
  int64_t refuse_every = 0;     // 503
  int64_t error_every = 0;      // an error in the stream, after three tokens
  int64_t cut_every = 0;        // the connection ends after three tokens
  int64_t malformed_every = 0;  // an event that is not JSON
  int64_t stall_every = 0;      // nothing more after three tokens
  int64_t die_after = 0;        // requests; then every connection is closed, and none accepted
  bool hangs = false;           // accepts, and never answers
  bool redirects = false;
  bool has_usage = true;
  bool has_metrics = true;
  bool has_completions = true;  // else only chats
  bool takes_ignore_eos = true;
  bool absurd_metrics = false;
  // A cache of prefixes without end, in blocks of 16 words; what it has is not read again.
  bool caches_prefixes = false;
  bool has_cached_usage = true;  // usage tells what it had
};

struct ServedRequest {
  Clock::time_point received;
  std::vector<Clock::time_point> sent;  // of each chunk
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t tokens = 0;
  bool is_whole = false;
};

class TestServer {
 public:
  // Ends the program where no port can be had.
  static std::unique_ptr<TestServer> start(const TestServerOptions& options);
  ~TestServer();
  [[nodiscard]] int port() const;
  [[nodiscard]] std::string url() const;
  void stop();
  [[nodiscard]] const std::vector<ServedRequest>& records() const;
  // How late steps began, at most: the machine was too slow for the law.
  [[nodiscard]] double most_late_seconds() const;

 private:
  struct State;
  explicit TestServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace headroom::testing
