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
constexpr std::array<Name, 25> kNames = {{
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
    {"vllm:prompt_tokens_total", &ServerMetrics::prompt_tokens, Merge::sum, kMostCount},
    {"vllm:generation_tokens_total", &ServerMetrics::output_tokens, Merge::sum, kMostCount},
    {"vllm:request_success_total", &ServerMetrics::answered, Merge::sum, kMostCount},
    {"vllm:inter_token_latency_seconds_sum", &ServerMetrics::itl_seconds, Merge::sum, kMostCount},
    {"vllm:inter_token_latency_seconds_count", &ServerMetrics::itl_count, Merge::sum, kMostCount},
    {"sglang:prompt_tokens_total", &ServerMetrics::prompt_tokens, Merge::sum, kMostCount},
    {"sglang:generation_tokens_total", &ServerMetrics::output_tokens, Merge::sum, kMostCount},
    {"sglang:num_requests_total", &ServerMetrics::answered, Merge::sum, kMostCount},
    {"sglang:inter_token_latency_seconds_sum", &ServerMetrics::itl_seconds, Merge::sum, kMostCount},
    {"sglang:inter_token_latency_seconds_count", &ServerMetrics::itl_count, Merge::sum, kMostCount},
    {"vllm:prefix_cache_queries_total", &ServerMetrics::prefix_queries, Merge::sum, kMostCount},
    {"vllm:prefix_cache_hits_total", &ServerMetrics::prefix_hits, Merge::sum, kMostCount},
    {"vllm:gpu_prefix_cache_queries_total", &ServerMetrics::prefix_queries, Merge::sum, kMostCount},
    {"vllm:gpu_prefix_cache_hits_total", &ServerMetrics::prefix_hits, Merge::sum, kMostCount},
    {"sglang:cached_tokens_total", &ServerMetrics::prefix_hits, Merge::sum, kMostCount},
}};

// What vLLM called its histogram of times between tokens until 0.10; later versions write both, so
// that these count only where the new name is not there.
constexpr std::string_view kFormerItlSum = "vllm:time_per_output_token_seconds_sum";
constexpr std::string_view kFormerItlCount = "vllm:time_per_output_token_seconds_count";

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

struct Former {
  std::optional<double> itl_seconds;
  std::optional<double> itl_count;
};

// The value of a line behind the name that ends at `end`.
std::optional<double> value_of(std::string_view line, size_t end, double most) {
  std::string_view rest = behind_labels(line.substr(end));
  const size_t begin = rest.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(begin);
  const std::optional<double> value =
      text::parse_number<double>(rest.substr(0, rest.find_first_of(" \t\r")));
  if (!value || !(*value >= 0) || *value > most) return std::nullopt;
  return value;
}

void merge(std::optional<double>& field, double value, Merge how) {
  if (!field) {
    field = value;
  } else {
    field = how == Merge::sum ? *field + value : std::max(*field, value);
  }
}

void take(std::string_view line, ServerMetrics& metrics, Former& former) {
  const size_t end = line.find_first_of("{ \t");
  if (end == std::string_view::npos) return;
  const std::string_view word = line.substr(0, end);
  const bool is_former_sum = word == kFormerItlSum;
  if (is_former_sum || word == kFormerItlCount) {
    const auto value = value_of(line, end, kMostCount);
    if (value) merge(is_former_sum ? former.itl_seconds : former.itl_count, *value, Merge::sum);
    return;
  }
  const auto known = std::find_if(kNames.begin(), kNames.end(),
                                  [&](const Name& name) { return name.name == word; });
  if (known == kNames.end()) return;
  const std::optional<double> value = value_of(line, end, known->most);
  if (!value) return;
  merge(metrics.*known->field, *value, known->merge);
  if (known->field == &ServerMetrics::running) ++metrics.engines;
}

}  // namespace

ServerMetrics parse_metrics(std::string_view text) {
  ServerMetrics metrics;
  Former former;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.starts_with('#')) take(line, metrics, former);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (!metrics.itl_seconds || !metrics.itl_count) {
    metrics.itl_seconds = former.itl_seconds;
    metrics.itl_count = former.itl_count;
  }
  // SGLang looks every prompt up.
  if (metrics.prefix_hits && !metrics.prefix_queries)
    metrics.prefix_queries = metrics.prompt_tokens;
  return metrics;
}

}  // namespace headroom::serving
