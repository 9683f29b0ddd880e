#include "batch/target.h"

#include <charconv>
#include <cmath>

#include "text/parse_number.h"

namespace headroom::batch {
namespace {

constexpr int64_t kMostBatch = 65536;

Error usage(std::string_view words) {
  return Error{ErrorCode::usage,
               "'" + std::string(words.substr(0, 80)) + "' is not a target that --slo takes",
               {},
               "itl=2x@32 (twice the mean time between tokens at batch 32), or itl=50ms"};
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

bool needs_a_distribution(std::string_view metric) {
  return metric.starts_with("ttft") || metric.starts_with("itl_p") || metric.starts_with("e2e") ||
         metric.starts_with("tpot");
}

}  // namespace

Result<ItlTarget> parse_slo(std::string_view words) {
  const size_t equals = words.find('=');
  const std::string_view metric = words.substr(0, equals);
  if (needs_a_distribution(metric)) {
    return Error{ErrorCode::unavailable,
                 "targets of " + std::string(metric.substr(0, 40)) + " are not built yet",
                 {},
                 "means say nothing of first tokens and percentiles; itl= bounds the mean"};
  }
  if (equals == std::string_view::npos || (metric != "itl" && metric != "itl_mean")) {
    return usage(words);
  }
  double value = 0;
  const auto unit = take_number(words.substr(equals + 1), value);
  if (!unit) return usage(words);
  if (*unit == "ms") return ItlTarget{.seconds = value * 1e-3};
  if (*unit == "s") return ItlTarget{.seconds = value};
  if (!unit->starts_with("x@")) return usage(words);
  const auto batch = batch_of(unit->substr(2));
  if (!batch) return usage(words);
  return ItlTarget{.seconds = std::nullopt, .multiple = value, .at_batch = *batch};
}

}  // namespace headroom::batch
