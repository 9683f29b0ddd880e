#include "text/json_items.h"

namespace headroom::text {

using Extent = JsonScanner::Extent;
constexpr int kEnd = JsonScanner::kEnd;

JsonItems::JsonItems(ByteFeed feed, std::string key, const JsonItemsLimits& limits)
    : scan_(std::move(feed), limits.item), key_(std::move(key)), limits_(limits) {}

// What ended the document early comes before what that broke.
void JsonItems::take_failure() {
  if (!scan_.failure() || is_failure_taken_) return;
  is_failure_taken_ = true;
  faults_.push_back(*scan_.failure());
}

void JsonItems::fault(int64_t offset, std::string message) {
  take_failure();
  faults_.push_back({offset, std::move(message)});
}

Error JsonItems::not_readable(std::string message) const {
  return Error{ErrorCode::bad_input, std::move(message),
               scan_.name() + ": byte " + std::to_string(scan_.place()),
               "a profiler trace is one JSON document with \"" + key_ + "\""};
}

Result<void> JsonItems::enter() {
  if (scan_.skip_space() == 0xEF) {  // a byte order mark
    for (int i = 0; i < 3 && scan_.peek() != kEnd; ++i) scan_.advance();
  }
  const int c = scan_.skip_space();
  if (c == kEnd) {
    take_failure();
    if (!faults_.empty()) return not_readable(faults_.front().message);
    return not_readable("is empty");
  }
  if (c != '{' && c != '[') return not_readable("is not a JSON document");
  scan_.advance();
  is_member_ = c == '{';
  found_ = c == '[';
  where_ = c == '[' ? Where::array : Where::members;
  return {};
}

// One member of the document's object: kept as text, or the array entered, or the end.
Result<void> JsonItems::next_member() {
  int c = scan_.skip_space();
  if (c == ',') {
    scan_.advance();
    c = scan_.skip_space();
  }
  if (c == '}') {
    where_ = Where::end;
    return {};
  }
  if (c != '"' || scan_.take_string() != Extent::whole) {
    if (!found_) return not_readable("expected a member's name");
    is_cut_ = c == kEnd;
    fault(scan_.place(), is_cut_ ? "ends before its closing brace" : "expected a member's name");
    where_ = Where::end;
    return {};
  }
  std::string name(scan_.held().substr(1, scan_.held().size() - 2));
  c = scan_.skip_space();
  if (c == ':') {
    scan_.advance();
    c = scan_.skip_space();
  }
  if (name == key_ && c == '[') {
    scan_.advance();
    found_ = true;
    where_ = Where::array;
    return {};
  }
  const Extent extent = scan_.take_value();
  if (extent != Extent::whole) {
    if (!found_) {
      return not_readable(extent == Extent::cut
                              ? "ends inside the member '" + name.substr(0, 80) + "'"
                              : "has a member too long to be read");
    }
    fault(scan_.offset(), "the member '" + name.substr(0, 80) + "' is cut or too long");
    is_cut_ = extent == Extent::cut;
    where_ = Where::end;
    return {};
  }
  const std::string_view value = scan_.held();
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
    scan_.hold();
    const int c = scan_.peek();
    if (c == kEnd) return false;
    if (c == '{' && (before == ',' || before == '\n' || before == '[')) {
      scan_.advance();
      int next = scan_.peek();
      while (is_json_space(next) && scan_.held().size() < 256) {
        scan_.advance();
        next = scan_.peek();
      }
      const bool is_item = next == '"';
      if (is_item) {
        scan_.rewind();
        return true;
      }
      scan_.rewind();
    }
    if (c != ' ' && c != '\t' && c != '\r') before = c;
    scan_.advance();
  }
}

// Notes the fault at the item that is held. Too many are an Error.
Result<void> JsonItems::note(std::string message) {
  fault(scan_.offset(), std::move(message));
  if (static_cast<int64_t>(faults_.size()) < limits_.faults) return {};
  return not_readable("has more than " + std::to_string(limits_.faults) +
                      " places that cannot be read; the first: " + faults_.front().message +
                      " at byte " + std::to_string(faults_.front().offset));
}

// Notes the fault at the item that is held, and goes to where the next one seems to begin.
Result<void> JsonItems::recover(std::string message) {
  HEADROOM_TRY(note(std::move(message)));
  scan_.rewind();
  scan_.advance();
  if (!seek_item()) {
    is_cut_ = true;
    where_ = Where::end;
  }
  return {};
}

Result<bool> JsonItems::next_item() {
  for (;;) {
    int c = scan_.skip_space();
    if (c == ',') {
      scan_.advance();
      c = scan_.skip_space();
    }
    if (c == kEnd) {
      fault(scan_.place(), "ends before its array does");
      is_cut_ = true;
      where_ = Where::end;
      return false;
    }
    if (c == ']') {
      scan_.advance();
      where_ = is_member_ ? Where::members : Where::end;
      return false;
    }
    if (c == '{') {
      const Extent extent = scan_.take_balanced();
      if (extent == Extent::whole) return true;
      HEADROOM_TRY(recover(extent == Extent::cut ? "an object is cut off"
                                                 : "an object does not end where it should"));
    } else if (scan_.take_value() == Extent::whole && !scan_.held().empty()) {
      HEADROOM_TRY(note("expected an object"));
    } else {
      HEADROOM_TRY(recover("expected an object"));
    }
    if (where_ == Where::end) return false;
  }
}

Result<bool> JsonItems::next() {
  scan_.hold();
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
