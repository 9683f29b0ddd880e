#include "cli/batch_question.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "batch/batch.h"
#include "formats/serving_results.h"
#include "timing/checkpoint_type.h"

namespace headroom::cli {
namespace {

// The number of a flag, or nothing where the flag is not there.
template <typename T>
Result<std::optional<T>> number(const Words& words, const std::string& flag) {
  if (!words.has(flag)) return std::optional<T>();
  HEADROOM_ASSIGN(const T value, number_of<T>(words.value(flag), flag));
  return std::optional<T>(value);
}

Result<void> read_numbers(const Words& words, batch::BatchQuestion& question) {
  HEADROOM_ASSIGN(const auto efficiency, number<double>(words, "min-efficiency"));
  question.min_efficiency = efficiency.value_or(question.min_efficiency);
  HEADROOM_ASSIGN(const auto input, number<double>(words, "input-tokens"));
  question.input_tokens = input.value_or(question.input_tokens);
  HEADROOM_ASSIGN(const auto output, number<double>(words, "output-tokens"));
  question.output_tokens = output.value_or(question.output_tokens);
  HEADROOM_ASSIGN(const auto variation, number<double>(words, "length-variation"));
  question.length_variation = variation.value_or(question.length_variation);
  HEADROOM_ASSIGN(question.host_gap, number<double>(words, "host-gap"));
  HEADROOM_ASSIGN(const auto replicas, number<int>(words, "most-replicas"));
  question.most_replicas = replicas.value_or(question.most_replicas);
  return {};
}

// "2,4,recorded".
Result<std::vector<double>> rates_of(std::string_view words, const formats::RequestTimes& times) {
  std::vector<double> rates;
  while (true) {
    const size_t comma = std::min(words.find(','), words.size());
    const std::string_view word = words.substr(0, comma);
    if (word == "recorded") {
      if (times.arrived_seconds.empty()) {
        return Error{ErrorCode::usage, "no times of requests were given", "--rate recorded",
                     times.without_times.empty()
                         ? "--requests FILE, a trace that says when they came"
                         : times.without_times};
      }
      rates.push_back(batch::recorded_rate(times));
    } else {
      HEADROOM_ASSIGN(const double rate, number_of<double>(word, "rate"));
      rates.push_back(rate);
    }
    if (comma == words.size()) return rates;
    words.remove_prefix(comma + 1);
  }
}

// "4@0.7" or "4@0.7@0.05": drafted tokens, how often one is accepted, and what drafting one takes.
Result<serving::Speculation> speculation_of(std::string_view words) {
  if (words.find('@') == std::string_view::npos) {
    return Error{ErrorCode::usage, "'" + std::string(words.substr(0, 80)) + "' says no acceptance",
                 "--speculate", "4@0.7: four drafted tokens, each accepted with 70 %"};
  }
  serving::Speculation speculation;
  const auto next = [&words]() {
    const size_t at = std::min(words.find('@'), words.size());
    const std::string_view word = words.substr(0, at);
    words.remove_prefix(std::min(at + 1, words.size()));
    return word;
  };
  constexpr auto kMost = serving::Speculation::kMostDrafts;
  HEADROOM_ASSIGN(speculation.draft_tokens, number_of<int64_t>(next(), "speculate", 1, kMost));
  HEADROOM_ASSIGN(speculation.acceptance, number_of<double>(next(), "speculate", 0, 1));
  if (!words.empty()) {
    HEADROOM_ASSIGN(speculation.draft_share, number_of<double>(words, "speculate", 0, 1));
  }
  return speculation;
}

Result<void> read_open_load(const Words& words, batch::OpenLoadQuestion& open) {
  open.is_search = words.value("rate") == "search";
  if (open.is_search && !words.has("url")) {
    return Error{ErrorCode::usage, "it is for a running server", "--rate search",
                 "--url http://localhost:8000; of a simulated one --slo with percentiles tells the "
                 "highest rate"};
  }
  if (words.has("rate") && !open.is_search) {
    HEADROOM_ASSIGN(open.rates, rates_of(words.value("rate"), open.times));
  }
  if (!words.has("watch")) {
    HEADROOM_ASSIGN(open.limit, number<int64_t>(words, "limit"));
  }
  HEADROOM_ASSIGN(open.attain, number<double>(words, "attain"));
  HEADROOM_ASSIGN(open.prefill_tokens_per_second, number<double>(words, "prefill-rate"));
  HEADROOM_ASSIGN(const auto tokens, number<int64_t>(words, "max-num-batched-tokens"));
  open.max_num_batched_tokens = tokens.value_or(open.max_num_batched_tokens);
  HEADROOM_ASSIGN(const auto seed, number<uint64_t>(words, "seed"));
  open.seed = seed.value_or(open.seed);
  if (words.has("window") && open.is_recorded() && !words.has("url")) {
    return Error{ErrorCode::usage, "a recorded trace has its own length", "--window",
                 "it without --window; or a --rate without recorded times"};
  }
  if (words.has("rate") && !open.is_recorded()) {
    HEADROOM_ASSIGN(open.window_seconds, number<double>(words, "window"));
    constexpr double kUsualWindow = 30;
    if (words.has("url") && !open.window_seconds) open.window_seconds = kUsualWindow;
    if (open.window_seconds && !(*open.window_seconds >= 0.5 && *open.window_seconds <= 3600)) {
      return Error{ErrorCode::usage, "seconds from 0.5 to 3600", "--window", {}};
    }
  }
  open.has_chunked_prefill = !words.has("no-chunked-prefill");
  if (words.has("speculate")) {
    HEADROOM_ASSIGN(open.speculation, speculation_of(words.value("speculate")));
  }
  if (open.is_asked()) return {};
  for (const std::string_view flag : {"limit", "attain", "prefill-rate", "max-num-batched-tokens",
                                      "no-chunked-prefill", "speculate"}) {
    if (!words.has(flag) || (flag == "limit" && words.has("watch"))) continue;
    return Error{ErrorCode::usage, "it is for requests that come by themselves",
                 "--" + std::string(flag),
                 flag == "limit" ? "--rate 4, --slo ttft_p95=500ms, or --watch URL"
                                 : "--rate 4, or --slo ttft_p95=500ms"};
  }
  return {};
}

// The flag's value, one of these; "" where it was not given.
Result<std::string> type_of(const Words& words, const std::string& flag,
                            std::span<const std::string_view> types, std::string_view hint) {
  const std::string name = words.value(flag);
  if (!words.has(flag) || std::ranges::find(types, name) != types.end()) return name;
  return Error{ErrorCode::usage, "'" + name.substr(0, 80) + "' is not a type that it takes",
               "--" + flag, std::string(hint)};
}

Result<void> read_variant(const Words& words, batch::BatchQuestion& question) {
  constexpr std::array<std::string_view, 3> kOfCaches{"fp8", "int8", "int4"};
  constexpr std::array<std::string_view, 4> kOfWeights{"fp8", "int8", "fp4", "int4"};
  HEADROOM_ASSIGN(question.cache_type, type_of(words, "kv-dtype", kOfCaches,
                                               "fp8, int8 or int4; without it that of --dtype"));
  HEADROOM_ASSIGN(question.weight_type,
                  type_of(words, "quantize", kOfWeights,
                          "fp8, int8, fp4 or int4; without it that of the checkpoint, or --dtype"));
  if (!question.cache_type.empty()) {
    question.variant.cache_element_bytes = question.cache_type == "int4" ? 0.5 : 1.0;
  }
  if (!question.weight_type.empty())
    timing::set_weight_type(question.weight_type, question.variant);
  question.variant.host_share = question.host_gap;
  HEADROOM_ASSIGN(const auto tensor, number<int64_t>(words, "tp"));
  question.variant.tensor_parallel = tensor.value_or(1);
  HEADROOM_ASSIGN(const auto pipeline, number<int64_t>(words, "pp"));
  question.variant.pipeline_parallel = pipeline.value_or(1);
  return {};
}

}  // namespace

Result<batch::BatchQuestion> batch_question(const Words& words, const Machines& machines) {
  batch::BatchQuestion question;
  if (words.has("points")) {
    question.points_file = words.value("points");
    HEADROOM_ASSIGN(auto results, formats::read_serving_results(question.points_file));
    question.points = std::move(results.points);
    question.points_left_out = std::move(results.left_out);
    question.points_partial = results.is_partial;
  }
  if (words.has("requests")) {
    question.requests_file = words.value("requests");
    HEADROOM_ASSIGN(auto trace, formats::read_request_lengths(question.requests_file));
    question.requests = std::move(trace.requests);
    question.open_load.times = std::move(trace.times);
  }
  const bool is_measured = words.has("points") || words.has("url");
  if (words.has("device") || (!is_measured && !words.operands.empty())) {
    HEADROOM_ASSIGN(question.device, machines.catalogue.find(machines.device_for(words)));
    question.other_devices = machines.catalogue.devices();
  }
  if (words.has("slo")) {
    HEADROOM_ASSIGN(batch::Slo slo, batch::parse_slo(words.value("slo")));
    question.slo = slo.itl;
    question.open_load.targets = std::move(slo.latencies);
  }
  if (words.has("dtype")) {
    HEADROOM_ASSIGN(question.weights, dtype_of(words, question.weights));
    question.dtype = op::dtype_name(question.weights);
  }
  if (words.has("engine")) {
    HEADROOM_ASSIGN(const AskedEngine asked, read_engine(words.value("engine"), machines.timing));
    question.engine = asked.engine;
    question.engine_version = asked.version;
    question.variant.engine = asked.law;
  }
  if (words.has("price")) {
    HEADROOM_ASSIGN(question.price, batch::parse_price(words.value("price")));
  }
  HEADROOM_TRY(read_numbers(words, question));
  HEADROOM_TRY(read_variant(words, question));
  HEADROOM_TRY(read_open_load(words, question.open_load));
  if (words.has("url") && words.has("rate") && question.slo && !question.slo->seconds) {
    return Error{ErrorCode::usage, "a multiple of a batch is nothing that a rate has", "--slo",
                 "a time: itl=50ms"};
  }
  return question;
}

}  // namespace headroom::cli
