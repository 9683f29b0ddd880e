#include "batch/live_meter.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "serving/prompt.h"
#include "text/number.h"

namespace headroom::batch {
namespace {

constexpr size_t kDraws = 4096;

int64_t draw(std::mt19937_64& random, double mean, double variation) {
  if (variation <= 0) return std::max<int64_t>(1, std::llround(mean));
  const double shape = 1 / (variation * variation);
  std::gamma_distribution<double> gamma(shape, mean / shape);
  constexpr double kMost = 20;  // means; longer than any context, and rarer than one in 10^8
  return std::max<int64_t>(1, std::llround(std::min(gamma(random), kMost * mean)));
}

std::string percent(double share) { return text::formatted("%.1f %%", 100 * share); }

}  // namespace

std::vector<formats::RequestLengths> drawn_lengths(double input_mean, double output_mean,
                                                   double variation, uint64_t seed) {
  std::mt19937_64 random(serving::mixed(seed));
  std::vector<formats::RequestLengths> lengths;
  for (size_t i = 0; i < kDraws; ++i) {
    const int64_t input = draw(random, input_mean, variation);
    lengths.push_back({input, draw(random, output_mean, variation)});
  }
  return lengths;
}

Result<std::unique_ptr<ServerMeter>> ServerMeter::make(
    const LiveQuestion& question, std::vector<formats::RequestLengths> lengths) {
  auto meter = std::unique_ptr<ServerMeter>(new ServerMeter());
  HEADROOM_ASSIGN(meter->streams_, serving::HttpStreams::make());
  double input = 0;
  for (const formats::RequestLengths& request : lengths) {
    input += static_cast<double>(request.input_tokens) / static_cast<double>(lengths.size());
  }
  const serving::ServerQuestion asked{.endpoint = question.endpoint,
                                      .model = question.served_model,
                                      .api_key = question.api_key,
                                      .seed = question.seed,
                                      .input_tokens = std::llround(input)};
  HEADROOM_ASSIGN(meter->server_, serving::probe_server(*meter->streams_, asked));
  serving::LoadPlan plan;
  plan.lengths = std::move(lengths);
  plan.seed = question.seed;
  plan.prefix_share = question.prefix_hit;
  plan.most_seconds = question.window_seconds;
  meter->generator_ =
      std::make_unique<serving::LoadGenerator>(*meter->streams_, meter->server_, std::move(plan));
  return meter;
}

Result<LiveMeasurement> ServerMeter::measure(int64_t batch, Care care) {
  const serving::LoadCare watched = care == Care::brief
                                        ? serving::LoadCare{.least_seconds = 1, .precision = 0.03}
                                        : serving::LoadCare{};
  HEADROOM_ASSIGN(const serving::LoadRun run, generator_->measure(batch, watched));
  LiveMeasurement measurement;
  HEADROOM_ASSIGN(measurement.summary, serving::summarise(run));
  const serving::LoadSummary& summary = measurement.summary;
  const auto ended = static_cast<double>(summary.failed + summary.finished);
  constexpr int64_t kFew = 3;
  if (summary.failed >= kFew && static_cast<double>(summary.failed) > kMostFailed * ended) {
    return Error{ErrorCode::unavailable,
                 std::to_string(summary.failed) + " requests failed with " + std::to_string(batch) +
                     " in flight, too many to measure anything; the first: " + run.first_failure,
                 server_.endpoint.base,
                 {}};
  }
  measurement.point = point_of(summary);
  return measurement;
}

std::string prefix_hit_note(double asked, std::optional<double> found) {
  if (!found && asked > 0) {
    return "whether the server's cache of prefixes found " + percent(asked) +
           " of the prompts is not known: vLLM says it in its metrics and with "
           "--enable-prompt-tokens-details, SGLang with --enable-metrics";
  }
  constexpr double kNear = 0.05;
  if (!found || std::abs(*found - asked) <= kNear) return {};
  return percent(*found) + " of the prompts' tokens were in the server's cache of prefixes, not " +
         percent(asked) + ": it may be off, too small, or have blocks longer than what is alike";
}

std::vector<formats::RequestLengths> answered_lengths(
    const std::vector<LiveMeasurement>& measurements) {
  std::vector<formats::RequestLengths> lengths;
  for (const LiveMeasurement& measurement : measurements) {
    lengths.insert(lengths.end(), measurement.summary.lengths.begin(),
                   measurement.summary.lengths.end());
  }
  return lengths;
}

std::vector<std::string> notes_of(const std::vector<LiveMeasurement>& measurements) {
  int64_t failed = 0;
  int64_t finished = 0;
  int64_t early = 0;
  double asked = 0;
  double read = 0;
  bool has_usage = true;
  for (const LiveMeasurement& measurement : measurements) {
    const serving::LoadSummary& summary = measurement.summary;
    failed += summary.failed;
    finished += summary.finished;
    early += summary.ended_early;
    has_usage = has_usage && summary.has_usage;
    asked += summary.input_asked_mean * static_cast<double>(summary.lengths.size());
    for (const auto& request : summary.lengths) read += static_cast<double>(request.input_tokens);
  }
  std::vector<std::string> notes;
  const auto ended = static_cast<double>(std::max<int64_t>(1, failed + finished));
  if (failed > 0) {
    notes.push_back(std::to_string(failed) + " of " + std::to_string(failed + finished) +
                    " requests failed, and are in no figure");
  }
  constexpr double kMany = 0.05;
  if (static_cast<double>(early) > kMany * ended) {
    notes.push_back(percent(static_cast<double>(early) / ended) +
                    " of the answers ended before the length that was asked for: what was measured "
                    "is the traffic as it was, not as it was asked for");
  }
  if (asked > 0 && std::abs(read / asked - 1) > kMany) {
    notes.push_back("prompts were " + percent(read / asked) +
                    " of the length that was asked for, by the server's usage");
  }
  if (!has_usage) {
    notes.emplace_back(
        "some answers had no usage: their chunks were counted in place of their tokens");
  }
  return notes;
}

}  // namespace headroom::batch
