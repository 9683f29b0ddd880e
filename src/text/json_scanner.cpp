#include "text/json_scanner.h"

#include <cstring>

#include "text/json_bytes.h"

namespace headroom::text {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;

}  // namespace

JsonScanner::JsonScanner(ByteFeed feed, size_t longest)
    : feed_(std::move(feed)), longest_(longest), buffer_(kBuffer) {}

// Makes room behind what is held and reads on; false at the end of the input.
bool JsonScanner::refill() {
  if (is_drained_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    base_ += static_cast<int64_t>(begin_);
    scan_ -= begin_;
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  const Result<size_t> count = feed_.read(buffer_.data() + end_, buffer_.size() - end_);
  if (!count) failure_ = {base_ + static_cast<int64_t>(end_), count.error().to_string()};
  is_drained_ = !count || *count == 0;
  if (!is_drained_) end_ += *count;
  return !is_drained_;
}

int JsonScanner::peek() {
  if (scan_ == end_ && !refill()) return kEnd;
  return static_cast<unsigned char>(buffer_[scan_]);
}

int JsonScanner::skip_space() {
  for (;;) {
    while (scan_ < end_ && is_json_space(static_cast<unsigned char>(buffer_[scan_]))) ++scan_;
    hold();
    if (scan_ < end_) return static_cast<unsigned char>(buffer_[scan_]);
    if (!refill()) return kEnd;
  }
}

JsonScanner::Extent JsonScanner::take_string() {
  advance();
  for (;;) {
    scan_ = find_quote(buffer_.data(), scan_, end_);
    if (scan_ - begin_ > longest_) return Extent::too_long;
    if (scan_ == end_) {
      if (!refill()) return Extent::cut;
      continue;
    }
    const char c = buffer_[scan_++];
    if (c == '"') return Extent::whole;
    if (scan_ == end_ && !refill()) return Extent::cut;  // an escape, and what it escapes
    ++scan_;
  }
}

JsonScanner::Extent JsonScanner::take_balanced() {
  int64_t depth = 0;
  for (;;) {
    scan_ = find_structure(buffer_.data(), scan_, end_);
    if (scan_ - begin_ > longest_) return Extent::too_long;
    if (scan_ == end_) {
      if (!refill()) return Extent::cut;
      continue;
    }
    const char c = buffer_[scan_];
    if (c == '"') {
      const Extent extent = take_string();
      if (extent != Extent::whole) return extent;
      continue;
    }
    ++scan_;
    depth += c == '{' || c == '[' ? 1 : -1;
    // A brace that a bracket closes is no object; kinds further in are JsonCursor's to check.
    const bool matches = (buffer_[begin_] == '{') == (c == '}');
    if (depth == 0) return matches ? Extent::whole : Extent::too_long;
  }
}

JsonScanner::Extent JsonScanner::take_value() {
  const int c = peek();
  if (c == '"') return take_string();
  if (c == '{' || c == '[') return take_balanced();
  for (;;) {
    const int next = peek();
    if (next == kEnd) return Extent::cut;
    if (next == ',' || next == '}' || next == ']' || is_json_space(next)) return Extent::whole;
    if (scan_ - begin_ > longest_) return Extent::too_long;
    advance();
  }
}

}  // namespace headroom::text
