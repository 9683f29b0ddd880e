#include "formats/request_lengths.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>

#include "text/csv.h"
#include "text/gzip.h"
#include "text/json.h"

namespace headroom::formats {
namespace {

constexpr Bytes kMostBytes{kGiB};
constexpr Bytes kMostLine{kMiB};

struct ColumnNames {
  std::string_view input;
  std::string_view output;
  std::string_view time;
};
constexpr std::array<ColumnNames, 4> kColumns{{
    {"input_tokens", "output_tokens", "arrival_seconds"},
    {"ContextTokens", "GeneratedTokens", "TIMESTAMP"},          // Azure
    {"Request tokens", "Response tokens", "Timestamp"},         // BurstGPT
    {"num_prefill_tokens", "num_decode_tokens", "arrived_at"},  // Vidur
}};

struct Row {
  RequestLengths lengths;
  std::optional<double> seconds = std::nullopt;
  std::vector<uint64_t> hashes = {};
};

// A trace while it is read: rows as they stand in the file.
class Rows {
 public:
  explicit Rows(std::string file) : file_(std::move(file)) {}

  [[nodiscard]] bool is_full() const {
    return trace_.requests.size() == kMostTraceRequests ||
           trace_.times.hashes.size() >= kMostTraceHashes;
  }
  void add(Row row, int64_t line) {
    if (row.lengths.output_tokens == 0) {
      ++trace_.without_output;
      return;
    }
    trace_.requests.push_back(row.lengths);
    RequestTimes& times = trace_.times;
    if (row.seconds) {
      times.arrived_seconds.push_back(*row.seconds);
    } else if (first_without_time_ == 0) {
      first_without_time_ = line;
    }
    times.first_hash.push_back(times.hashes.size());
    times.hashes.insert(times.hashes.end(), row.hashes.begin(), row.hashes.end());
  }
  Result<RequestTrace> finish() &&;

 private:
  void finish_times();
  void finish_hashes();
  void sort();

  std::string file_;
  RequestTrace trace_;
  int64_t first_without_time_ = 0;  // line
};

void Rows::finish_times() {
  RequestTimes& times = trace_.times;
  if (times.arrived_seconds.empty()) return;
  const auto [first, last] =
      std::minmax_element(times.arrived_seconds.begin(), times.arrived_seconds.end());
  const double begin = *first;
  if (first_without_time_ > 0) {
    times.without_times = file_ + ":" + std::to_string(first_without_time_) + " has no time";
  } else if (!(*last > begin)) {
    times.without_times = "all requests have one time";
  }
  if (!times.without_times.empty()) {
    times.arrived_seconds.clear();
    return;
  }
  for (double& seconds : times.arrived_seconds) seconds -= begin;
}

void Rows::finish_hashes() {
  RequestTimes& times = trace_.times;
  times.first_hash.push_back(times.hashes.size());
  const bool has_any = !times.hashes.empty();
  std::optional<int64_t> tokens;
  if (has_any) {
    std::vector<int64_t> inputs;
    for (const RequestLengths& request : trace_.requests) inputs.push_back(request.input_tokens);
    tokens = tokens_of_a_hash(inputs, times.first_hash);
  }
  if (tokens) {
    times.hash_tokens = *tokens;
    return;
  }
  if (has_any) times.without_hashes = "prompts have other numbers of hash_ids than of blocks";
  times.hashes.clear();
  times.first_hash.clear();
}

// By time; what came at one time stays in the order of the file.
void Rows::sort() {
  const RequestTimes& times = trace_.times;
  const std::vector<double>& seconds = times.arrived_seconds;
  if (std::is_sorted(seconds.begin(), seconds.end())) return;
  std::vector<size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return seconds[a] < seconds[b]; });
  RequestTrace sorted;
  sorted.without_output = trace_.without_output;
  sorted.times.hash_tokens = times.hash_tokens;
  sorted.times.without_hashes = times.without_hashes;
  for (const size_t at : order) {
    sorted.requests.push_back(trace_.requests[at]);
    sorted.times.arrived_seconds.push_back(seconds[at]);
    if (times.first_hash.empty()) continue;
    std::vector<uint64_t>& hashes = sorted.times.hashes;
    sorted.times.first_hash.push_back(hashes.size());
    hashes.insert(hashes.end(), times.hashes.begin() + static_cast<ptrdiff_t>(times.first_hash[at]),
                  times.hashes.begin() + static_cast<ptrdiff_t>(times.first_hash[at + 1]));
  }
  if (!times.first_hash.empty()) sorted.times.first_hash.push_back(sorted.times.hashes.size());
  trace_ = std::move(sorted);
}

Result<RequestTrace> Rows::finish() && {
  if (trace_.requests.empty()) {
    return Error{ErrorCode::bad_input, "no request that wrote anything", file_, {}};
  }
  finish_times();
  finish_hashes();
  sort();
  return std::move(trace_);
}

Result<RequestTrace> parse_csv(std::string_view text, const std::string& file) {
  HEADROOM_ASSIGN(text::CsvReader reader, text::CsvReader::open(text, file));
  std::optional<size_t> input;
  std::optional<size_t> output;
  std::optional<size_t> time;
  for (const ColumnNames& names : kColumns) {
    input = reader.find_column(names.input);
    output = reader.find_column(names.output);
    time = reader.find_column(names.time);
    if (input && output) break;
  }
  if (!input || !output) {
    Error error = reader.error("no columns with the lengths of requests");
    error.hint = "input_tokens and output_tokens, or those of the Azure, BurstGPT or Vidur traces";
    return error;
  }
  Rows rows(file);
  for (;;) {
    HEADROOM_ASSIGN(const bool has_row, reader.next());
    if (!has_row) break;
    HEADROOM_ASSIGN(const int64_t in, reader.get_int(*input, 0, kMostRequestTokens));
    HEADROOM_ASSIGN(const int64_t out, reader.get_int(*output, 0, kMostRequestTokens));
    if (rows.is_full()) return reader.error("too many requests");
    Row row{.lengths = {in, out}};
    if (time) row.seconds = seconds_of_timestamp(reader.field(*time));
    rows.add(std::move(row), reader.line());
  }
  return std::move(rows).finish();
}

Result<Row> row_of(const text::JsonView& view) {
  Row row;
  HEADROOM_ASSIGN(row.lengths.input_tokens, view.get_int("input_length", 0, kMostRequestTokens));
  HEADROOM_ASSIGN(row.lengths.output_tokens, view.get_int("output_length", 0, kMostRequestTokens));
  constexpr double kMostMilliseconds = 1e15;
  HEADROOM_ASSIGN(const auto at, view.optional_double("timestamp", 0, kMostMilliseconds));
  if (at) row.seconds = *at * 1e-3;
  HEADROOM_ASSIGN(const auto hashes, view.optional_array("hash_ids"));
  if (!hashes) return row;
  for (const text::JsonView& hash : *hashes) {
    HEADROOM_ASSIGN(const int64_t id, hash.to_int(0, std::numeric_limits<int64_t>::max()));
    row.hashes.push_back(static_cast<uint64_t>(id));
  }
  return row;
}

Result<RequestTrace> parse_json_lines(std::string_view text, const std::string& file) {
  Rows rows(file);
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = file + ":" + std::to_string(number);
    const text::JsonLimits limits{.bytes = kMostLine, .values = 100'000};
    HEADROOM_ASSIGN(const text::Json json, text::parse_json(line, place, limits));
    const text::JsonView view(json, place);
    HEADROOM_ASSIGN(Row row, row_of(view));
    if (rows.is_full()) return view.error("too many requests");
    rows.add(std::move(row), number);
  }
  return std::move(rows).finish();
}

}  // namespace

Result<RequestTrace> read_request_lengths(const std::string& path) {
  HEADROOM_ASSIGN(const std::string text, text::read_input(path, kMostBytes));
  return parse_request_lengths(text, path);
}

Result<RequestTrace> parse_request_lengths(std::string_view text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  return is_json ? parse_json_lines(text, file) : parse_csv(text, file);
}

}  // namespace headroom::formats
