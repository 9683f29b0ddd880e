#include "cli/batch_live.h"

#include <algorithm>

#include "base/environment.h"
#include "base/file.h"
#include "batch/batch.h"
#include "batch/live_meter.h"
#include "text/number.h"
#include "text/utf8.h"

namespace headroom::cli {
namespace {

using batch::LiveMeasurement;

constexpr const char* kKeyVariable = "HEADROOM_API_KEY";

double seconds_since(serving::Clock::time_point began) {
  return std::chrono::duration<double>(serving::Clock::now() - began).count();
}

// "1,8,32", or "all": the usual limits up to the largest.
Result<std::vector<int64_t>> batches_of(std::string_view words, int64_t most) {
  if (words == "all") return batch::usual_limits(1, most);
  std::vector<int64_t> batches;
  while (true) {
    const size_t comma = std::min(words.find(','), words.size());
    HEADROOM_ASSIGN(const auto batch, number_of<int64_t>(words.substr(0, comma), "batches", 1,
                                                         serving::kMostConcurrency));
    batches.push_back(batch);
    if (comma == words.size()) break;
    words.remove_prefix(comma + 1);
  }
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  if (batches.size() > 1) return batches;
  return Error{ErrorCode::usage, "one batch alone makes no law", "--batches",
               "two at least: 1,32; or all"};
}

Result<batch::LiveQuestion> live_question(const Words& words) {
  batch::LiveQuestion live;
  HEADROOM_ASSIGN(live.endpoint, serving::parse_endpoint(words.value("url")));
  HEADROOM_ASSIGN(live.api_key, api_key());
  live.served_model = words.value("served-model");
  if (words.has("seed")) {
    HEADROOM_ASSIGN(live.seed, number_of<uint64_t>(words.value("seed"), "seed"));
  }
  if (words.has("most-batch")) {
    HEADROOM_ASSIGN(live.most_batch, number_of<int64_t>(words.value("most-batch"), "most-batch", 2,
                                                        serving::kMostConcurrency));
  }
  if (words.has("batches")) {
    HEADROOM_ASSIGN(live.batches, batches_of(words.value("batches"), live.most_batch));
    live.most_batch = live.batches.back();
  }
  if (words.has("prefix-hit")) {
    HEADROOM_ASSIGN(live.prefix_hit,
                    number_of<double>(words.value("prefix-hit"), "prefix-hit", 0, 0.99));
  }
  if (words.has("window")) {
    HEADROOM_ASSIGN(live.window_seconds,
                    number_of<double>(words.value("window"), "window", 0.5, 3600));
  }
  if (words.has("time-limit")) {
    HEADROOM_ASSIGN(live.most_seconds,
                    number_of<double>(words.value("time-limit"), "time-limit", 1, 86400));
  }
  return live;
}

// Lengths to ask for: those of a trace, or drawn by their means.
Result<std::vector<formats::RequestLengths>> lengths_of(const batch::BatchQuestion& question,
                                                        uint64_t seed) {
  std::vector<formats::RequestLengths> lengths = question.requests;
  if (lengths.empty()) {
    HEADROOM_TRY(batch::check_workload(question));
    lengths = batch::drawn_lengths(question.input_tokens, question.output_tokens,
                                   question.length_variation, seed);
  }
  constexpr int64_t kMostAsked = 1'000'000;
  for (formats::RequestLengths& request : lengths) {
    request.input_tokens = std::clamp<int64_t>(request.input_tokens, 1, kMostAsked);
    request.output_tokens = std::clamp<int64_t>(request.output_tokens, 1, kMostAsked);
  }
  return lengths;
}

std::string measured_words(const LiveMeasurement& measurement) {
  const serving::LoadSummary& summary = measurement.summary;
  std::string words = "batch " + std::to_string(summary.concurrency) + ": ";
  words += text::formatted("%.4g tokens/s, ", summary.throughput_tokens_per_second);
  words += text::formatted("%.4g ms between tokens, ", summary.itl_seconds * 1e3);
  words += std::to_string(summary.requests) + " requests in ";
  words += text::formatted("%.1f s", summary.window_seconds);
  if (summary.failed > 0) words += ", " + std::to_string(summary.failed) + " failed";
  return words;
}

std::string rate_words(const serving::MeasuredLoad& load) {
  const serving::OpenLoadSummary& summary = load.summary;
  std::string words = text::formatted("%.4g requests/s: ", load.asked_requests_per_second);
  words += std::to_string(summary.requests) + " requests, ";
  words += text::formatted("first tokens after %.4g ms (p95), ",
                           summary.of(serving::LatencyMetric::ttft).p95 * 1e3);
  words += text::formatted("%.4g ms between tokens (p99)",
                           summary.of(serving::LatencyMetric::itl).p99 * 1e3);
  if (load.failed > 0) words += ", " + std::to_string(load.failed) + " failed";
  if (load.is_void) words += "; void: the generator was too slow";
  return words;
}

}  // namespace

Result<std::string> api_key() {
  std::string key = environment_value(kKeyVariable);
  const bool is_odd =
      std::any_of(key.begin(), key.end(), [](char c) { return c <= ' ' || c > '~'; });
  if (!is_odd) return key;
  return Error{ErrorCode::usage, "the key has a space or an odd character in it", kKeyVariable,
               "it goes into an HTTP header as it is"};
}

Result<batch::LoadRecord> measure_rates(const Words& words, const Console& console,
                                        const batch::BatchQuestion& question) {
  HEADROOM_ASSIGN(const batch::LiveQuestion live, live_question(words));
  return batch::measure_open_load(
      live, question, [&](const serving::MeasuredLoad& load) { console.note(rate_words(load)); });
}

Result<LiveOutcome> measure_server(const Words& words, const Console& console,
                                   batch::BatchQuestion& question) {
  HEADROOM_ASSIGN(const batch::LiveQuestion live, live_question(words));
  HEADROOM_ASSIGN(auto lengths, lengths_of(question, live.seed));
  const serving::Clock::time_point began = serving::Clock::now();
  HEADROOM_ASSIGN(const auto meter, batch::ServerMeter::make(live, std::move(lengths)));
  batch::LiveOptions options;
  options.slo = question.slo;
  options.min_efficiency = question.min_efficiency;
  options.most_batch = live.most_batch;
  options.batches = live.batches;
  options.is_late = [&] { return seconds_since(began) > live.most_seconds; };
  options.on_measured = [&](const std::vector<LiveMeasurement>& measurements) -> Result<void> {
    console.note(measured_words(measurements.back()));
    if (!words.has("save-points") || words.value("save-points") == "-") return {};
    return write_file_atomic(words.value("save-points"),
                             formats::serving_points_csv(batch::points_of(measurements)));
  };
  batch::LiveResult result = batch::measure_live(*meter, options);
  if (result.measurements.empty()) {
    if (result.error) return *std::move(result.error);
    return Error{ErrorCode::unavailable, "there was no time to measure anything", "--time-limit",
                 "more seconds"};
  }
  question.points = batch::points_of(result.measurements);
  question.points_file = live.endpoint.base;
  if (auto answered = batch::answered_lengths(result.measurements); !answered.empty()) {
    question.requests = std::move(answered);
    question.open_load.times = {};  // were those of others
    question.requests_file = live.endpoint.base;
  }
  if (question.model.empty()) question.model = meter->server().model;
  LiveOutcome outcome;
  outcome.error = std::move(result.error);
  outcome.notes = std::move(result.notes);
  for (std::string& note : batch::notes_of(result.measurements)) {
    outcome.notes.push_back(std::move(note));
  }
  const auto& last = result.measurements.back().summary;
  if (auto note = batch::prefix_hit_note(live.prefix_hit, last.prefix_hit_share); !note.empty()) {
    outcome.notes.push_back(std::move(note));
  }
  outcome.record = {.url = live.endpoint.base,
                    .api = std::string(serving::name_of(meter->server().api)),
                    .served_model = meter->server().model,
                    .prefix_hit = live.prefix_hit,
                    .measurements = std::move(result.measurements),
                    .is_named = words.has("batches") && words.value("batches") != "all",
                    .is_sure = result.is_sure,
                    .is_stopped = result.is_stopped,
                    .seconds = seconds_since(began)};
  return outcome;
}

}  // namespace headroom::cli
