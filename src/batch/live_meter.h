// A running server as a BatchMeter: the load generator with the question's lengths.
//
// Made once the server has answered two probes. The lengths of a workload that is given by its
// means are drawn from gamma distributions, as batch/workload.h takes them. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batch/live.h"
#include "serving/load.h"

namespace headroom::batch {

struct LiveQuestion {
  serving::Endpoint endpoint;
  std::string served_model;  // empty: the first that the server names
  std::string api_key;
  uint64_t seed = 0;
  double window_seconds = 30;  // at most, of a measurement
  int64_t most_batch = 256;
  std::vector<int64_t> batches;  // these alone; empty: those that the decision needs
  double most_seconds = 900;     // of all measurements
  double prefix_hit = 0;         // share of each prompt that begins alike in all
};

class ServerMeter : public BatchMeter {
 public:
  // `lengths`: of the requests that will be sent, drawn from uniformly; not empty.
  static Result<std::unique_ptr<ServerMeter>> make(const LiveQuestion& question,
                                                   std::vector<formats::RequestLengths> lengths);
  // An Error too where more than kMostFailed of the requests failed.
  Result<LiveMeasurement> measure(int64_t batch, Care care) override;
  [[nodiscard]] const serving::Server& server() const { return server_; }

  static constexpr double kMostFailed = 0.05;

 private:
  ServerMeter() = default;
  std::unique_ptr<serving::HttpStreams> streams_;
  serving::Server server_;
  std::unique_ptr<serving::LoadGenerator> generator_;
};

// So many requests of these means and this coefficient of variation.
[[nodiscard]] std::vector<formats::RequestLengths> drawn_lengths(double input_mean,
                                                                 double output_mean,
                                                                 double variation, uint64_t seed);

// What the measurements say that no figure of the answer does: failures, lengths that differ from
// what was asked for, a server without metrics.
[[nodiscard]] std::vector<std::string> notes_of(const std::vector<LiveMeasurement>& measurements);

// How far a cache of prefixes is from what was asked for; "" where it is not.
[[nodiscard]] std::string prefix_hit_note(double asked, std::optional<double> found);

// Of the requests that were answered whole, by the server's usage.
[[nodiscard]] std::vector<formats::RequestLengths> answered_lengths(
    const std::vector<LiveMeasurement>& measurements);

}  // namespace headroom::batch
