#include "batch/target.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/parse_number.h"

namespace headroom::batch {
namespace {

constexpr int64_t kMostBatch = 65536;

Error usage(std::string_view words) {
  return Error{
      ErrorCode::usage,
      "'" + std::string(words.substr(0, 80)) + "' is not a target that --slo takes",
      {},
      "itl=2x@32 (twice the mean time between tokens at batch 32), itl=50ms, or figures of "
      "requests as they come: ttft_p95=500ms, itl_p99=50ms, tpot=40ms, e2e_p90=20s"};
}

// What is left of `words` behind a number, or nothing where there is none.
std::optional<std::string_view> take_number(std::string_view words, double& value) {
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), value);
  if (error != std::errc() || !(value > 0) || !std::isfinite(value)) return std::nullopt;
  return words.substr(static_cast<size_t>(end - words.data()));
}

std::optional<int64_t> batch_of(std::string_view words) {
  const std::optional<int64_t> value = text::parse_number<int64_t>(words);
  if (!value || *value < 1 || *value > kMostBatch) return std::nullopt;
  return value;
}

std::optional<double> seconds_of(std::string_view words) {
  double value = 0;
  const auto unit = take_number(words, value);
  if (!unit) return std::nullopt;
  if (*unit == "ms") return value * 1e-3;
  if (*unit == "us") return value * 1e-6;
  if (*unit == "s") return value;
  return std::nullopt;
}

std::optional<ItlTarget> itl_of(std::string_view words) {
  if (const auto seconds = seconds_of(words)) return ItlTarget{.seconds = *seconds};
  double value = 0;
  const auto unit = take_number(words, value);
  if (!unit || !unit->starts_with("x@")) return std::nullopt;
  const auto batch = batch_of(unit->substr(2));
  if (!batch) return std::nullopt;
  return ItlTarget{.seconds = std::nullopt, .multiple = value, .at_batch = *batch};
}

// "ttft_p95", "e2e": a metric and its percentile; "itl" alone is an ItlTarget.
std::optional<serving::LatencyTarget> latency_named(std::string_view name) {
  using serving::LatencyMetric;
  serving::LatencyTarget target;
  std::string_view percentile;
  if (const size_t bar = name.find('_'); bar != std::string_view::npos) {
    percentile = name.substr(bar + 1);
    name = name.substr(0, bar);
  }
  bool is_known = false;
  for (const LatencyMetric metric :
       {LatencyMetric::ttft, LatencyMetric::itl, LatencyMetric::tpot, LatencyMetric::e2e}) {
    if (serving::name_of(metric) != name) continue;
    target.metric = metric;
    is_known = true;
  }
  if (!is_known) return std::nullopt;
  if (percentile.empty() || percentile == "mean") return target;
  const auto value = text::parse_number<double>(percentile.substr(1));
  if (percentile.front() != 'p' || !value || !(*value > 0) || !(*value < 100)) return std::nullopt;
  target.percentile = *value;
  return target;
}

Result<void> add_target(std::string_view words, Slo& slo) {
  const size_t equals = words.find('=');
  if (equals == std::string_view::npos) return usage(words);
  auto target = latency_named(words.substr(0, equals));
  if (!target) return usage(words);
  const bool is_itl = target->metric == serving::LatencyMetric::itl;
  const auto twice = [&] {
    Error error = usage(words);
    error.message += is_itl ? " beside another of its kind" : " twice";
    return error;
  };
  if (is_itl && target->percentile <= 0) {
    if (slo.itl) return twice();
    slo.itl = itl_of(words.substr(equals + 1));
    if (!slo.itl) return usage(words);
    return {};
  }
  const auto seconds = seconds_of(words.substr(equals + 1));
  if (!seconds) return usage(words);
  target->seconds = *seconds;
  for (const serving::LatencyTarget& other : slo.latencies) {
    const bool is_alike = other.metric == target->metric &&
                          (is_itl || std::abs(other.percentile - target->percentile) < 1e-9);
    if (is_alike) return twice();
  }
  slo.latencies.push_back(*target);
  return {};
}

}  // namespace

Result<Slo> parse_slo(std::string_view words) {
  Slo slo;
  while (true) {
    const size_t comma = std::min(words.find(','), words.size());
    HEADROOM_TRY(add_target(words.substr(0, comma), slo));
    if (comma == words.size()) return slo;
    words.remove_prefix(comma + 1);
  }
}

}  // namespace headroom::batch
