// JsonCursor: reads one small JSON text in place, without building values.
//
// For items of JsonItems: a profiler's events by the million, of which a reader wants a few
// members. Members are visited in order; what nobody asks for is skipped. A fault (cut text, a
// colon missing) makes every later call return false, and failed() true. Nothing is copied; strings
// come as they stand in the text, escapes and all: unescape() makes plain text of those that have
// any. Not thread-safe; the text must outlive the cursor and what it returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::text {

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  // Steps into the object or array that is here.
  bool enter_object() { return enter('{'); }
  bool enter_array() { return enter('['); }
  // Goes to the next member and stands at its value; false behind the last one, which also steps
  // out. REQUIRES: the value before was read or skipped.
  bool next_member(std::string_view& name);
  // The same for the items of an array.
  bool next_item();

  // What is here: one of { [ " t f n, or '0' for a number; 0 at the end or after a fault.
  [[nodiscard]] char kind();
  // The string that is here, without its quotation marks.
  bool read_string(std::string_view& raw);
  // The text of the value that is here, whatever it is.
  bool read_raw(std::string_view& raw);
  bool skip();

  [[nodiscard]] bool failed() const { return failed_; }
  // Where it stands, in bytes from the beginning of the text.
  [[nodiscard]] size_t position() const { return at_; }

 private:
  bool enter(char opening);
  bool fail() {
    failed_ = true;
    return false;
  }
  void skip_space();

  std::string_view text_;
  size_t at_ = 0;
  bool is_first_ = false;
  bool failed_ = false;
};

[[nodiscard]] inline bool has_escape(std::string_view raw) {
  return raw.find('\\') != std::string_view::npos;
}
// The plain text of a string's inside, in UTF-8; what is no valid escape stays as it is.
[[nodiscard]] std::string unescape(std::string_view raw);

// A number's text as an integer of units of 10^-decimals, the nearest one: ("12.3456", 3) is 12346.
// Nothing where it is not a JSON number or does not fit. Exact as long as it has no exponent.
[[nodiscard]] std::optional<int64_t> fixed_point(std::string_view number, int decimals);

}  // namespace headroom::text
