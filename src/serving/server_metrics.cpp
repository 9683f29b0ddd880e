#include "serving/server_metrics.h"

#include <algorithm>
#include <array>

#include "text/parse_number.h"

namespace headroom::serving {
namespace {

// What values of one name become when there are several.
enum class Merge : uint8_t { sum, most };

struct Name {
  std::string_view name;
  std::optional<double> ServerMetrics::*field;
  Merge merge;
  double most;  // larger values are absurd, and passed over
};

constexpr double kMostRequests = 1e7;
constexpr double kMostCount = 1e15;

// vLLM's names in its metrics documentation (gpu_cache_usage_perc until 0.9); SGLang's with
// --enable-metrics; llama.cpp's server with --metrics.
constexpr std::array<Name, 10> kNames = {{
    {"vllm:num_requests_running", &ServerMetrics::running, Merge::sum, kMostRequests},
    {"vllm:num_requests_waiting", &ServerMetrics::waiting, Merge::sum, kMostRequests},
    {"vllm:kv_cache_usage_perc", &ServerMetrics::kv_share, Merge::most, 1.0},
    {"vllm:gpu_cache_usage_perc", &ServerMetrics::kv_share, Merge::most, 1.0},
    {"vllm:num_preemptions_total", &ServerMetrics::preemptions, Merge::sum, kMostCount},
    {"sglang:num_running_reqs", &ServerMetrics::running, Merge::sum, kMostRequests},
    {"sglang:num_queue_reqs", &ServerMetrics::waiting, Merge::sum, kMostRequests},
    {"sglang:token_usage", &ServerMetrics::kv_share, Merge::most, 1.0},
    {"llamacpp:requests_processing", &ServerMetrics::running, Merge::sum, kMostRequests},
    {"llamacpp:requests_deferred", &ServerMetrics::waiting, Merge::sum, kMostRequests},
}};

// Behind the labels, which may hold anything in quotation marks.
std::string_view behind_labels(std::string_view rest) {
  if (!rest.starts_with('{')) return rest;
  bool is_quoted = false;
  for (size_t i = 1; i < rest.size(); ++i) {
    if (is_quoted && rest[i] == '\\') {
      ++i;
    } else if (rest[i] == '"') {
      is_quoted = !is_quoted;
    } else if (rest[i] == '}' && !is_quoted) {
      return rest.substr(i + 1);
    }
  }
  return {};
}

void take(std::string_view line, ServerMetrics& metrics) {
  const size_t end = line.find_first_of("{ \t");
  if (end == std::string_view::npos) return;
  const auto known = std::find_if(kNames.begin(), kNames.end(), [&](const Name& name) {
    return name.name == line.substr(0, end);
  });
  if (known == kNames.end()) return;
  std::string_view rest = behind_labels(line.substr(end));
  const size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return;
  rest.remove_prefix(begin);
  const std::optional<double> value =
      text::parse_number<double>(rest.substr(0, rest.find_first_of(" \t\r")));
  if (!value || !(*value >= 0) || *value > known->most) return;
  std::optional<double>& field = metrics.*known->field;
  if (!field) {
    field = value;
  } else {
    field = known->merge == Merge::sum ? *field + *value : std::max(*field, *value);
  }
}

}  // namespace

ServerMetrics parse_metrics(std::string_view text) {
  ServerMetrics metrics;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.starts_with('#')) take(line, metrics);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return metrics;
}

}  // namespace headroom::serving
