#include "formats/serving_results.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "text/json.h"

namespace headroom::formats {
namespace {

using text::Json;

constexpr Bytes kMostBytes{64 * kMiB};
constexpr size_t kMostFiles = 4096;
constexpr size_t kMostEntries = 65536;
constexpr int kMostDepth = 4;
constexpr size_t kMostLeftOut = 64;  // sentences; the rest are counted

// One run as its file has it, before it is known to be a point.
struct Run {
  std::optional<double> limit;       // of the concurrency
  std::optional<double> rate;        // of arrivals per second, where the run was held to one
  std::optional<double> throughput;  // output tokens per second
  std::optional<double> gap_ms;      // the mean time between chunks
  std::optional<double> token_ms;    // the mean time per token after the first
  std::optional<double> running;     // the mean in flight
};

// A positive number somewhere below `json`; nothing where there is none.
std::optional<double> number_at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* at = &json;
  for (const std::string_view key : path) {
    at = at->find(key);
    if (at == nullptr) return std::nullopt;
  }
  if (!at->is_numeric()) return std::nullopt;
  const double value = at->as_double();
  return std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> first_of(std::initializer_list<std::optional<double>> values) {
  for (const auto& value : values) {
    if (value) return value;
  }
  return std::nullopt;
}

// Little's law: what is in flight is what arrives, times how long it stays.
std::optional<double> in_flight(std::optional<double> requests_per_second,
                                std::optional<double> latency_ms) {
  if (!requests_per_second || !latency_ms) return std::nullopt;
  return *requests_per_second * *latency_ms * 1e-3;
}

// vLLM's and SGLang's objects have the same names.
Run run_of_vllm(const Json& json) {
  Run run;
  run.limit = number_at(json, {"max_concurrency"});
  run.rate = number_at(json, {"request_rate"});
  run.throughput = number_at(json, {"output_throughput"});
  run.gap_ms = number_at(json, {"mean_itl_ms"});
  run.token_ms = number_at(json, {"mean_tpot_ms"});
  const auto latency =
      first_of({number_at(json, {"mean_e2el_ms"}), number_at(json, {"mean_e2e_latency_ms"})});
  const auto requests = number_at(json, {"request_throughput"});
  run.running = first_of({number_at(json, {"concurrency"}), in_flight(requests, latency)});
  if (run.running || !requests || !run.throughput || !run.token_ms) return run;
  // Without a latency of its own: the first token, and the others of a mean request.
  const auto first = number_at(json, {"mean_ttft_ms"});
  if (!first) return run;
  const double tokens = *run.throughput / *requests;
  run.running = in_flight(requests, *first + *run.token_ms * std::max(0.0, tokens - 1));
  return run;
}

Run run_of_aiperf(const Json& json) {
  Run run;
  run.throughput = number_at(json, {"output_token_throughput", "avg"});
  run.token_ms = number_at(json, {"inter_token_latency", "avg"});
  run.running = in_flight(number_at(json, {"request_throughput", "avg"}),
                          number_at(json, {"request_latency", "avg"}));
  run.limit = number_at(json, {"input_config", "loadgen", "concurrency"});
  run.rate = number_at(json, {"input_config", "loadgen", "request_rate"});
  const Json* config = json.find("input_config");
  const Json* phases = config != nullptr ? config->find("phases") : nullptr;
  if (phases == nullptr || !phases->is_array()) return run;
  for (const Json& phase : phases->items()) {
    const Json* excluded = phase.find("exclude_from_results");
    const bool is_warm_up = excluded != nullptr && *excluded == Json(true);
    if (is_warm_up) continue;
    run.limit = number_at(phase, {"concurrency"});
    run.rate = first_of({number_at(phase, {"rate"}), number_at(phase, {"request_rate"})});
  }
  return run;
}

Run run_of_guidellm(const Json& json) {
  const auto strategy = [&](std::string_view name) {
    return first_of({number_at(json, {"config", "strategy", name}),
                     number_at(json, {"args", "strategy", name})});
  };
  const auto metric = [&](std::string_view name) {
    return first_of({number_at(json, {"metrics", name, "successful", "mean"}),
                     number_at(json, {"metrics", name, "total", "mean"})});
  };
  const auto type_is = [&](std::string_view wanted) {
    for (const std::string_view part : {"config", "args"}) {
      const Json* at = json.find(part);
      if (at != nullptr) at = at->find("strategy");
      if (at != nullptr) at = at->find("type_");
      if (at != nullptr && *at == Json(wanted)) return true;
    }
    return false;
  };
  Run run;
  // A rate's max_concurrency is no concurrency that it was held to.
  if (type_is("concurrent"))
    run.limit = first_of({strategy("streams"), strategy("max_concurrency")});
  if (type_is("synchronous")) run.limit = 1;
  run.throughput = metric("output_tokens_per_second");
  run.token_ms = metric("inter_token_latency_ms");
  run.running = metric("request_concurrency");
  return run;
}

// What keeps a run from being a point; empty: nothing.
std::string fault_of(const Run& run) {
  if (!run.limit) return "was held to no concurrency (an arrival rate makes no batch)";
  const double limit = *run.limit;
  if (limit != std::floor(limit) || limit > static_cast<double>(kMostServingBatch)) {
    return "has a concurrency beyond 65,536, or no whole one";
  }
  // Below half of its limit it was the rate that decided how many ran.
  if (run.rate && (!run.running || *run.running < 0.5 * limit)) {
    return "came at an arrival rate that left its concurrency far from reached";
  }
  if (!run.throughput) return "has no output throughput above zero";
  if (!run.gap_ms && !run.token_ms) return "has no time between tokens above zero";
  if (*run.throughput > 1e12 || run.gap_ms.value_or(0) > 1e9 || run.token_ms.value_or(0) > 1e9) {
    return "has figures beyond all bounds";
  }
  return {};
}

// REQUIRES: no fault.
ServingPoint point_of(const Run& run) {
  constexpr double kSeveralTokens = 1.2;
  const bool is_chunked =
      run.gap_ms && run.token_ms && *run.gap_ms > kSeveralTokens * *run.token_ms;
  ServingPoint point;
  point.batch = static_cast<int64_t>(*run.limit);
  point.throughput_tokens_per_second = *run.throughput;
  point.itl_seconds = 1e-3 * (run.gap_ms && !is_chunked ? *run.gap_ms : *run.token_ms);
  if (run.running) point.running_mean = std::clamp(*run.running, 1e-3, *run.limit);
  return point;
}

class Collector {
 public:
  void add(const Run& run, const std::string& where) {
    const std::string fault = fault_of(run);
    if (!fault.empty()) {
      leave_out(where + " " + fault);
    } else {
      add_point(point_of(run), where);
    }
  }
  void add_point(const ServingPoint& point, const std::string& where) {
    if (results_.points.size() < kMostServingPoints) {
      results_.points.push_back(point);
    } else {
      leave_out(where + " is beyond the first 1,000 points");
    }
  }
  void leave_out(std::string sentence) {
    if (results_.left_out.size() < kMostLeftOut) {
      results_.left_out.push_back(std::move(sentence));
    } else {
      ++more_;
    }
  }
  void damaged(std::string sentence) {
    results_.is_partial = true;
    leave_out(std::move(sentence));
  }
  ServingResults take() && {
    if (more_ > 0) results_.left_out.push_back(std::to_string(more_) + " more");
    return std::move(results_);
  }

 private:
  ServingResults results_;
  int64_t more_ = 0;
};

// False where the object is of none of the four.
bool collect(const Json& json, const std::string& where, Collector& collector) {
  if (const Json* runs = json.find("benchmarks"); runs != nullptr && runs->is_array()) {
    int64_t number = 0;
    for (const Json& run : runs->items()) {
      ++number;
      collector.add(run_of_guidellm(run), where + ", run " + std::to_string(number) + ",");
    }
    return true;
  }
  if (json.find("output_token_throughput") != nullptr) {
    collector.add(run_of_aiperf(json), where);
    return true;
  }
  if (json.find("output_throughput") == nullptr) return false;
  const Json* number = json.find("run_number");  // of vLLM's sweeps: -1 is the warm-up
  if (number != nullptr && number->is_integer() && number->as_int() < 0) {
    collector.leave_out(where + " is a warm-up");
  } else {
    collector.add(run_of_vllm(json), where);
  }
  return true;
}

// vLLM's sweeps gather their runs in a list.
bool collect_all(const Json& json, const std::string& where, Collector& collector) {
  if (!json.is_array()) return collect(json, where, collector);
  bool is_known = false;
  int64_t number = 0;
  for (const Json& run : json.items()) {
    ++number;
    is_known |= collect(run, where + ", run " + std::to_string(number) + ",", collector);
  }
  return is_known;
}

Error not_results(const std::string& where) {
  return {ErrorCode::bad_input, "no result of a load generator that is known here", where,
          "vLLM's, SGLang's, GuideLLM's and AIPerf's JSON are, and CSV with the columns batch, "
          "throughput_tokens_per_second and itl_ms"};
}

// Python's json writes Infinity and NaN, which JSON has not (an arrival rate without a limit is
// one): null stands in their place.
std::string without_infinities(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (!in_text && (rest.starts_with("Infinity") || rest.starts_with("NaN"))) {
      if (!plain.empty() && plain.back() == '-') plain.pop_back();
      plain += "null";
      i += (rest.front() == 'I' ? std::string_view("Infinity") : "NaN").size() - 1;
      continue;
    }
    if (text[i] == '"') in_text = !in_text;
    plain += text[i];
    if (in_text && text[i] == '\\' && i + 1 < text.size()) plain += text[++i];
  }
  return plain;
}

Result<Json> parse_python_json(std::string_view text, const std::string& where) {
  return text::parse_json(without_infinities(text), where);
}

// One object a line, where the first line is a whole one.
bool is_lines(std::string_view text) {
  if (!text.starts_with('{')) return false;
  std::string_view first = text.substr(0, text.find('\n'));
  while (!first.empty() && (first.back() == '\r' || first.back() == ' ')) first.remove_suffix(1);
  return first.ends_with('}');
}

// A line that cannot be read is left out by name, and the rest is kept. False where no line is
// known.
bool collect_lines(std::string_view text, const std::string& file, Collector& collector) {
  bool is_known = false;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = file + ", line " + std::to_string(number);
    const Result<Json> json = parse_python_json(line, where);
    if (!json) {
      collector.damaged(where + ": " + json.error().message);
    } else {
      is_known |= collect(*json, where, collector);
    }
  }
  return is_known;
}

// The text without what may stand before JSON (blanks, a byte order mark); empty where it is none.
std::string_view json_part(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  return text.starts_with('{') || text.starts_with('[') ? text : std::string_view();
}

// False where the text is of no kind that is known.
Result<bool> collect_text(std::string_view text, const std::string& file, Collector& collector) {
  const std::string_view json_text = json_part(text);
  if (!json_text.empty()) {
    if (is_lines(json_text)) return collect_lines(json_text, file, collector);
    HEADROOM_ASSIGN(const Json json, parse_python_json(json_text, file));
    return collect_all(json, file, collector);
  }
  const std::string_view header = text.substr(0, text.find('\n'));
  if (header.find("throughput_tokens_per_second") == std::string_view::npos) return false;
  HEADROOM_ASSIGN(const std::vector<ServingPoint> points, parse_serving_points(text, file));
  for (const ServingPoint& point : points) collector.add_point(point, file);
  return true;
}

// What has points, or the reason why it has none.
Result<ServingResults> with_points(Collector collector, const std::string& path) {
  ServingResults results = std::move(collector).take();
  if (!results.points.empty()) return results;
  std::string message = "no run that makes a point of a batch";
  if (!results.left_out.empty()) message += ": " + results.left_out.front();
  return Error{ErrorCode::bad_input, message, path,
               "runs at several fixed concurrencies do (vllm bench serve --max-concurrency N)"};
}

bool is_of_interest(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".json" || extension == ".jsonl" || extension == ".csv";
}

// In the order of their names. Links are not followed.
Result<std::vector<std::string>> files_of(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(folder, error);
  const std::filesystem::recursive_directory_iterator end;
  size_t visited = 0;
  for (; !error && at != end; at.increment(error)) {
    if (++visited > kMostEntries) {
      return Error{ErrorCode::bad_input, "more than 65,536 entries", folder,
                   "name a folder within"};
    }
    if (at.depth() >= kMostDepth) at.disable_recursion_pending();
    std::error_code ignored;
    const auto status = at->symlink_status(ignored);
    if (!std::filesystem::is_regular_file(status) || !is_of_interest(at->path())) continue;
    if (files.size() == kMostFiles) {
      return Error{ErrorCode::bad_input, "more than 4,096 files", folder, "name a folder within"};
    }
    files.push_back(at->path().string());
  }
  if (error) return Error{ErrorCode::bad_input, error.message(), folder, {}};
  std::ranges::sort(files);
  return files;
}

// A damaged file is named, what is of another kind counted.
Result<ServingResults> read_folder(const std::string& folder) {
  HEADROOM_ASSIGN(const std::vector<std::string> files, files_of(folder));
  Collector collector;
  int64_t others = 0;
  for (const std::string& file : files) {
    const Result<std::string> text = read_file(file, kMostBytes);
    const Result<bool> read =
        text ? collect_text(*text, file, collector) : Result<bool>(text.error());
    if (!read) collector.damaged(file + ": " + read.error().message);
    if (read && !*read) ++others;
  }
  if (others > 0) {
    collector.leave_out(std::to_string(others) + " of " + std::to_string(files.size()) +
                        " files are no results of a load generator that is known here");
  }
  return with_points(std::move(collector), folder);
}

}  // namespace

Result<ServingResults> parse_serving_results(std::string_view text, const std::string& file) {
  Collector collector;
  HEADROOM_ASSIGN(const bool is_known, collect_text(text, file, collector));
  if (is_known) return with_points(std::move(collector), file);
  if (!json_part(text).empty()) return not_results(file);
  // Which column is missing.
  HEADROOM_TRY(parse_serving_points(text, file));
  return not_results(file);
}

Result<ServingResults> read_serving_results(const std::string& path) {
  std::error_code ignored;
  if (path != "-" && std::filesystem::is_directory(path, ignored)) return read_folder(path);
  HEADROOM_ASSIGN(const std::string text, read_file(path, kMostBytes));
  return parse_serving_results(text, path);
}

}  // namespace headroom::formats
