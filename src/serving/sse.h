// Server-sent events, read as they arrive: any cut of the bytes gives the same events.
//
// Of the stream format (WHATWG HTML, "Server-sent events") what answers of language models use: the
// `data` of each event, its lines joined by '\n', at the blank line that ends it. Comments and
// other fields are passed over; an event that the stream's end cuts is none. Lines end with CR, LF
// or both; a leading byte order mark is skipped.
//
// Invariants:
//   1. at most kMostBytes of an unfinished event are held, whatever comes;
//   2. every byte is looked at a fixed number of times; a line that came whole is not copied.
//
// Not thread-safe; linear in the bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom::serving {

class SseParser {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;  // of one event

  // Calls on_event(std::string_view data) for each event that `bytes` completes; false once an
  // event was too long, and for ever after.
  template <typename OnEvent>
  bool feed(std::string_view bytes, OnEvent&& on_event) {
    while (!bytes.empty()) {
      std::string_view line;
      if (!take_line(bytes, line)) return !is_too_long_;
      if (take_field(line)) {
        on_event(std::string_view(data_));
        data_.clear();
        has_data_ = false;
      }
      held_.clear();
      if (is_too_long_) return false;
    }
    return !is_too_long_;
  }

  // Whether an event was begun and not ended.
  [[nodiscard]] bool is_inside() const { return has_data_ || !held_.empty(); }

 private:
  // The next whole line, taken off `bytes`; without one the rest is held.
  bool take_line(std::string_view& bytes, std::string_view& line);
  // Whether the line ended an event that has data.
  bool take_field(std::string_view line);

  std::string held_;  // of a line whose end has not come
  std::string data_;  // of the event so far
  bool has_data_ = false;
  bool is_first_line_ = true;
  bool skips_newline_ = false;  // the line before ended with CR: an LF here belongs to it
  bool is_too_long_ = false;
};

}  // namespace headroom::serving
