// The only file that sees Boost.JSON: its incremental parser drives a builder of our values.
#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <numeric>

#include "text/gzip.h"
#include "text/json.h"

namespace headroom::text {
namespace {

using boost::json::error_code;
using BoostText = boost::json::string_view;

// Keeps the last value of each name at the place of the first. O(n log n), since a hostile object
// may have a million members.
void drop_duplicates(Json::Object& members) {
  std::vector<uint32_t> order(members.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return members[a].first < members[b].first; });
  std::vector<bool> drop(members.size(), false);
  bool any = false;
  for (size_t i = 0, group = 0; i < order.size(); ++i) {
    if (members[order[i]].first != members[order[group]].first) group = i;
    if (i == group) continue;
    members[order[group]].second = std::move(members[order[i]].second);
    drop[order[i]] = any = true;
  }
  if (!any) return;
  size_t kept = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    if (drop[i]) continue;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.resize(kept);
}

// Receives the parser's events. A false return with `ec` set stops the parser; `complaint` then
// says why in our words.
struct Builder {
  // NOLINTBEGIN(readability-identifier-naming): the parser asks for these names.
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();
  // NOLINTEND(readability-identifier-naming)

  struct Frame {
    Json::Array items;
    Json::Object members;
    std::string key;
    bool is_object = false;
  };

  int64_t values_left = 0;
  std::string complaint;
  std::string pending;  // the parts of a string, key or number seen so far
  std::vector<Frame> frames;
  Json root;

  bool fail(std::string text, error_code& ec) {
    complaint = std::move(text);
    ec = boost::json::error::syntax;
    return false;
  }

  bool add(Json value, error_code& ec) {
    if (--values_left < 0) return fail("holds more values than the limit", ec);
    if (frames.empty()) {
      root = std::move(value);
    } else if (frames.back().is_object) {
      frames.back().members.emplace_back(std::move(frames.back().key), std::move(value));
    } else {
      frames.back().items.push_back(std::move(value));
    }
    return true;
  }
  std::string take_pending(BoostText last) {
    pending.append(last.data(), last.size());
    return std::exchange(pending, {});
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    frames.emplace_back().is_object = true;
    return true;
  }
  bool on_object_end(size_t, error_code& ec) {
    Json::Object members = std::move(frames.back().members);
    frames.pop_back();
    drop_duplicates(members);
    return add(Json::object(std::move(members)), ec);
  }
  bool on_array_begin(error_code&) {
    frames.emplace_back();
    return true;
  }
  bool on_array_end(size_t, error_code& ec) {
    Json::Array items = std::move(frames.back().items);
    frames.pop_back();
    return add(Json::array(std::move(items)), ec);
  }
  bool on_key_part(BoostText part, size_t, error_code&) {
    pending.append(part.data(), part.size());
    return true;
  }
  bool on_key(BoostText last, size_t, error_code&) {
    frames.back().key = take_pending(last);
    return true;
  }
  bool on_string_part(BoostText part, size_t, error_code&) { return on_key_part(part, 0, unused); }
  bool on_string(BoostText last, size_t, error_code& ec) { return add(take_pending(last), ec); }
  bool on_number_part(BoostText part, error_code&) { return on_key_part(part, 0, unused); }
  bool on_int64(int64_t value, BoostText, error_code& ec) {
    pending.clear();
    return add(value, ec);
  }
  bool on_uint64(uint64_t value, BoostText, error_code& ec) {
    pending.clear();
    return add(static_cast<double>(value), ec);
  }
  // Boost 1.81 may be off by a few units in the last place, so the text is converted again.
  bool on_double(double, BoostText last, error_code& ec) {
    const std::string text = take_pending(last);
    double value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool underflow = status == std::errc::result_out_of_range && is_tiny(text);
    if (underflow) value = 0;
    if ((status != std::errc() && !underflow) || !std::isfinite(value)) {
      return fail("number " + text.substr(0, 40) + " is out of range", ec);
    }
    return add(value, ec);
  }
  bool on_bool(bool value, error_code& ec) { return add(value, ec); }
  bool on_null(error_code& ec) { return add(nullptr, ec); }
  bool on_comment_part(BoostText, error_code&) { return true; }
  bool on_comment(BoostText, error_code&) { return true; }

  // Of the numbers that from_chars refuses, the small ones have a negative exponent.
  static bool is_tiny(const std::string& text) {
    const size_t exponent = text.find_first_of("eE");
    if (exponent == std::string::npos) return text.starts_with("0.") || text.starts_with("-0.");
    return text.compare(exponent + 1, 1, "-") == 0;
  }
  error_code unused;
};

// "file:line:column" of a byte, both counted from 1 and the column in bytes.
std::string place_of(std::string_view text, size_t offset, const std::string& file) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return file + ":" + std::to_string(line) + ":" + std::to_string(offset - line_start + 1);
}

std::string describe(error_code ec, std::string_view rest) {
  using boost::json::error;
  if (ec == error::incomplete) return "ends in the middle of a value; the file looks truncated";
  if (ec == error::too_deep) {
    return "is nested deeper than " + std::to_string(JsonLimits::kDepth) + " levels";
  }
  if (ec == error::extra_data) return "expected the end of the file after the JSON value";
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
    if (rest.starts_with(word)) return std::string(word) + " is not a number in JSON";
  }
  return "is not valid JSON: " + ec.message();
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& file, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.bytes.count) {
    return Error{ErrorCode::bad_input, "is larger than the limit of " + format_bytes(limits.bytes),
                 file, "is this the right file?"};
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return Error{ErrorCode::bad_input, "is empty, expected JSON", file, {}};
  }
  boost::json::parse_options options;
  options.max_depth = JsonLimits::kDepth;
  boost::json::basic_parser<Builder> parser(options);
  Builder& builder = parser.handler();
  builder.values_left = limits.values;
  error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) ec = boost::json::error::extra_data;
  if (!ec) return std::move(builder.root);
  const size_t offset = std::min(used, text.size());
  std::string message = builder.complaint;
  if (message.empty()) message = describe(ec, text.substr(offset));
  return Error{ErrorCode::bad_input, std::move(message), place_of(text, offset, file), {}};
}

Result<Json> read_json_file(const std::string& path, const JsonLimits& limits) {
  HEADROOM_ASSIGN(const std::string content, read_input(path, limits.bytes));
  return parse_json(content, path == "-" ? "standard input" : path, limits);
}

}  // namespace headroom::text
