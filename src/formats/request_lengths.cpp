#include "formats/request_lengths.h"

#include <array>
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
};
constexpr std::array<ColumnNames, 4> kColumns{{
    {"input_tokens", "output_tokens"},
    {"ContextTokens", "GeneratedTokens"},         // Azure
    {"Request tokens", "Response tokens"},        // BurstGPT
    {"num_prefill_tokens", "num_decode_tokens"},  // Vidur
}};

void add(RequestTrace& trace, int64_t input, int64_t output) {
  if (output == 0) {
    ++trace.without_output;
  } else {
    trace.requests.push_back({input, output});
  }
}

Result<RequestTrace> parse_csv(std::string_view text, const std::string& file) {
  HEADROOM_ASSIGN(text::CsvReader reader, text::CsvReader::open(text, file));
  std::optional<size_t> input;
  std::optional<size_t> output;
  for (const ColumnNames& names : kColumns) {
    input = reader.find_column(names.input);
    output = reader.find_column(names.output);
    if (input && output) break;
  }
  if (!input || !output) {
    Error error = reader.error("no columns with the lengths of requests");
    error.hint = "input_tokens and output_tokens, or those of the Azure, BurstGPT or Vidur traces";
    return error;
  }
  RequestTrace trace;
  for (;;) {
    HEADROOM_ASSIGN(const bool has_row, reader.next());
    if (!has_row) break;
    HEADROOM_ASSIGN(const int64_t in, reader.get_int(*input, 0, kMostRequestTokens));
    HEADROOM_ASSIGN(const int64_t out, reader.get_int(*output, 0, kMostRequestTokens));
    if (trace.requests.size() == kMostTraceRequests) return reader.error("too many requests");
    add(trace, in, out);
  }
  return trace;
}

Result<RequestTrace> parse_json_lines(std::string_view text, const std::string& file) {
  RequestTrace trace;
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
    HEADROOM_ASSIGN(const int64_t in, view.get_int("input_length", 0, kMostRequestTokens));
    HEADROOM_ASSIGN(const int64_t out, view.get_int("output_length", 0, kMostRequestTokens));
    if (trace.requests.size() == kMostTraceRequests) return view.error("too many requests");
    add(trace, in, out);
  }
  return trace;
}

}  // namespace

Result<RequestTrace> read_request_lengths(const std::string& path) {
  HEADROOM_ASSIGN(const std::string text, text::read_input(path, kMostBytes));
  return parse_request_lengths(text, path);
}

Result<RequestTrace> parse_request_lengths(std::string_view text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  HEADROOM_ASSIGN(RequestTrace trace,
                  is_json ? parse_json_lines(text, file) : parse_csv(text, file));
  if (trace.requests.empty()) {
    return Error{ErrorCode::bad_input, "no request that wrote anything", file, {}};
  }
  return trace;
}

}  // namespace headroom::formats
