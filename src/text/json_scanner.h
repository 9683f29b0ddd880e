// JsonScanner: where strings, objects and arrays of a JSON document begin and end, piece by piece.
//
// What readers of documents larger than memory stand on (JsonItems, JsonWalk). It holds a stretch
// of the document, from hold() to where it stands, and lets go of what lies before. It finds ends
// by quotation marks and braces; nothing else is checked. Not thread-safe; about 1.3 GB/s from
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/byte_feed.h"

namespace headroom::text {

// A place of the document (of the unpacked one, where it is gzip) and what is wrong with it.
struct JsonFault {
  int64_t offset = 0;
  std::string message;
};

class JsonScanner {
 public:
  enum class Extent { whole, cut, too_long };
  static constexpr int kEnd = -1;

  // A value may be `longest` bytes long.
  JsonScanner(ByteFeed feed, size_t longest);

  // The byte that is here, or kEnd.
  int peek();
  void advance() { ++scan_; }
  // To the next byte that is not white space, letting go of what was held.
  int skip_space();
  void hold() { begin_ = scan_; }
  void rewind() { scan_ = begin_; }  // to where hold() was

  // Behind the value that begins here. REQUIRES: hold() here; of the kind that the name says.
  Extent take_string();
  Extent take_balanced();  // an object or array
  Extent take_value();

  [[nodiscard]] std::string_view held() const { return {buffer_.data() + begin_, scan_ - begin_}; }
  [[nodiscard]] int64_t offset() const { return base_ + static_cast<int64_t>(begin_); }
  [[nodiscard]] int64_t place() const { return base_ + static_cast<int64_t>(scan_); }
  [[nodiscard]] const std::string& name() const { return feed_.name(); }
  // Why the document ended early: gzip data that is cut, a disk that fails.
  [[nodiscard]] const std::optional<JsonFault>& failure() const { return failure_; }

 private:
  bool refill();

  ByteFeed feed_;
  size_t longest_;
  std::vector<char> buffer_;
  int64_t base_ = 0;  // the place of buffer_[0] in the document
  size_t begin_ = 0;  // what is held: buffer_[begin_, scan_)
  size_t scan_ = 0;
  size_t end_ = 0;
  bool is_drained_ = false;
  std::optional<JsonFault> failure_;
};

[[nodiscard]] constexpr bool is_json_space(int c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

}  // namespace headroom::text
