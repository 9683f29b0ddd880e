#include "text/json_items.h"

#include <array>
#include <cstring>

namespace headroom::text {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;
constexpr int kEnd = -1;

// The bytes at which a scan for the end of an object has to think.
constexpr std::array<bool, 256> marks_of_structure() {
  std::array<bool, 256> marks{};
  for (const char c : {'"', '{', '}', '[', ']'}) marks[static_cast<unsigned char>(c)] = true;
  return marks;
}
constexpr std::array<bool, 256> kStructure = marks_of_structure();

bool is_space(int c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

JsonItems::JsonItems(ByteFeed feed, std::string key, const JsonItemsLimits& limits)
    : feed_(std::move(feed)), key_(std::move(key)), limits_(limits), buffer_(kBuffer) {}

// Makes room behind what is held and reads on; false at the end of the input.
bool JsonItems::refill() {
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
  if (!count) fault(base_ + static_cast<int64_t>(end_), count.error().to_string());
  is_drained_ = !count || *count == 0;
  if (!is_drained_) end_ += *count;
  return !is_drained_;
}

int JsonItems::peek() {
  if (scan_ == end_ && !refill()) return kEnd;
  return static_cast<unsigned char>(buffer_[scan_]);
}

// To the next byte that is not white space, letting go of what was held.
int JsonItems::skip_space() {
  for (;;) {
    while (scan_ < end_ && is_space(static_cast<unsigned char>(buffer_[scan_]))) ++scan_;
    hold();
    if (scan_ < end_) return static_cast<unsigned char>(buffer_[scan_]);
    if (!refill()) return kEnd;
  }
}

// Behind the string that begins here. REQUIRES: a quotation mark is here.
JsonItems::Extent JsonItems::take_string() {
  advance();
  for (;;) {
    if (scan_ == end_ && !refill()) return Extent::cut;
    if (scan_ - begin_ > limits_.item) return Extent::too_long;
    const char c = buffer_[scan_++];
    if (c == '"') return Extent::whole;
    if (c == '\\') {
      if (scan_ == end_ && !refill()) return Extent::cut;
      ++scan_;
    }
  }
}

// Behind the object or array that begins here.
JsonItems::Extent JsonItems::take_balanced() {
  int64_t depth = 0;
  for (;;) {
    while (scan_ < end_ && !kStructure[static_cast<unsigned char>(buffer_[scan_])]) ++scan_;
    if (scan_ - begin_ > limits_.item) return Extent::too_long;
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

JsonItems::Extent JsonItems::take_value() {
  const int c = peek();
  if (c == '"') return take_string();
  if (c == '{' || c == '[') return take_balanced();
  for (;;) {
    const int next = peek();
    if (next == kEnd) return Extent::cut;
    if (next == ',' || next == '}' || next == ']' || is_space(next)) return Extent::whole;
    if (scan_ - begin_ > limits_.item) return Extent::too_long;
    advance();
  }
}

void JsonItems::fault(int64_t offset, std::string message) {
  faults_.push_back({offset, std::move(message)});
}

Error JsonItems::not_readable(std::string message) const {
  return Error{ErrorCode::bad_input, std::move(message),
               feed_.name() + ": byte " + std::to_string(place()),
               "a profiler trace is one JSON document with \"" + key_ + "\""};
}

Result<void> JsonItems::enter() {
  if (skip_space() == 0xEF) {  // a byte order mark
    for (int i = 0; i < 3 && peek() != kEnd; ++i) advance();
  }
  const int c = skip_space();
  if (c == kEnd) {
    if (!faults_.empty()) return not_readable(faults_.front().message);
    return not_readable("is empty");
  }
  if (c != '{' && c != '[') return not_readable("is not a JSON document");
  advance();
  is_member_ = c == '{';
  found_ = c == '[';
  where_ = c == '[' ? Where::array : Where::members;
  return {};
}

// One member of the document's object: kept as text, or the array entered, or the end.
Result<void> JsonItems::next_member() {
  int c = skip_space();
  if (c == ',') {
    advance();
    c = skip_space();
  }
  if (c == '}') {
    where_ = Where::end;
    return {};
  }
  if (c != '"' || take_string() != Extent::whole) {
    if (!found_) return not_readable("expected a member's name");
    is_cut_ = c == kEnd;
    fault(place(), is_cut_ ? "ends before its closing brace" : "expected a member's name");
    where_ = Where::end;
    return {};
  }
  std::string name(buffer_.data() + begin_ + 1, scan_ - begin_ - 2);
  c = skip_space();
  if (c == ':') {
    advance();
    c = skip_space();
  }
  if (name == key_ && c == '[') {
    advance();
    found_ = true;
    where_ = Where::array;
    return {};
  }
  const Extent extent = take_value();
  if (extent != Extent::whole) {
    if (!found_) {
      return not_readable(extent == Extent::cut
                              ? "ends inside the member '" + name.substr(0, 80) + "'"
                              : "has a member too long to be read");
    }
    fault(offset(), "the member '" + name.substr(0, 80) + "' is cut or too long");
    is_cut_ = extent == Extent::cut;
    where_ = Where::end;
    return {};
  }
  const std::string_view value = item();
  if (members_bytes_ + name.size() + value.size() <= limits_.members) {
    members_bytes_ += name.size() + value.size();
    members_.emplace_back(std::move(name), std::string(value));
  }
  return {};
}

// Moves to where the next item seems to begin: a brace that opens behind a comma or a line end and
// before a quotation mark, as a nested object never does in what profilers write.
bool JsonItems::seek_item() {
  int before = 0;  // the last byte that was neither a space nor a tabulator
  for (;;) {
    hold();
    const int c = peek();
    if (c == kEnd) return false;
    if (c == '{' && (before == ',' || before == '\n' || before == '[')) {
      advance();
      int next = peek();
      while (is_space(next) && scan_ - begin_ < 256) {
        advance();
        next = peek();
      }
      const bool is_item = next == '"';
      if (is_item) {
        scan_ = begin_;
        return true;
      }
      scan_ = begin_;
    }
    if (c != ' ' && c != '\t' && c != '\r') before = c;
    advance();
  }
}

// Notes the fault at the item that is held. Too many are an Error.
Result<void> JsonItems::note(std::string message) {
  fault(offset(), std::move(message));
  if (static_cast<int64_t>(faults_.size()) < limits_.faults) return {};
  return not_readable("has more than " + std::to_string(limits_.faults) +
                      " places that cannot be read; the first: " + faults_.front().message +
                      " at byte " + std::to_string(faults_.front().offset));
}

// Notes the fault at the item that is held, and goes to where the next one seems to begin.
Result<void> JsonItems::recover(std::string message) {
  HEADROOM_TRY(note(std::move(message)));
  scan_ = begin_;
  advance();
  if (!seek_item()) {
    is_cut_ = true;
    where_ = Where::end;
  }
  return {};
}

Result<bool> JsonItems::next_item() {
  for (;;) {
    int c = skip_space();
    if (c == ',') {
      advance();
      c = skip_space();
    }
    if (c == kEnd) {
      fault(place(), "ends before its array does");
      is_cut_ = true;
      where_ = Where::end;
      return false;
    }
    if (c == ']') {
      advance();
      where_ = is_member_ ? Where::members : Where::end;
      return false;
    }
    if (c == '{') {
      const Extent extent = take_balanced();
      if (extent == Extent::whole) return true;
      HEADROOM_TRY(recover(extent == Extent::cut ? "an object is cut off"
                                                 : "an object does not end where it should"));
    } else if (take_value() == Extent::whole && scan_ > begin_) {
      HEADROOM_TRY(note("expected an object"));
    } else {
      HEADROOM_TRY(recover("expected an object"));
    }
    if (where_ == Where::end) return false;
  }
}

Result<bool> JsonItems::next() {
  hold();
  for (;;) {
    switch (where_) {
      case Where::start:
        HEADROOM_TRY(enter());
        break;
      case Where::members:
        HEADROOM_TRY(next_member());
        break;
      case Where::array: {
        HEADROOM_ASSIGN(const bool is_item, next_item());
        if (is_item) return true;
        break;
      }
      case Where::end:
        if (!found_) return not_readable("has no \"" + key_ + "\"");
        return false;
    }
  }
}

}  // namespace headroom::text
