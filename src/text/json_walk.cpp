#include "text/json_walk.h"

namespace headroom::text {

using Extent = JsonScanner::Extent;

JsonWalk::JsonWalk(ByteFeed feed, std::vector<std::string> arrays, size_t longest)
    : scan_(std::move(feed), longest), arrays_(std::move(arrays)) {}

bool JsonWalk::fail(std::string message) {
  fault_ = scan_.failure() ? *scan_.failure() : JsonFault{scan_.place(), std::move(message)};
  open_.clear();
  return false;
}

std::optional<size_t> JsonWalk::wanted(std::string_view name) const {
  for (size_t i = 0; i < arrays_.size(); ++i) {
    if (arrays_[i] == name) return i;
  }
  return std::nullopt;
}

// The value that begins with `c`: a wanted object is taken, another object or array entered, the
// rest passed over.
bool JsonWalk::enter_value(int c, std::string_view name) {
  const bool is_wanted = !open_.empty() && open_.back().wanted.has_value();
  if (c == '{' && is_wanted) {
    scan_.hold();
    if (scan_.take_balanced() != Extent::whole) return fail("an object is cut or too long");
    is_item_ = true;
    return true;
  }
  if (c == '{' || c == '[') {
    if (open_.size() == kDepth) return fail("is nested too deep");
    scan_.advance();
    open_.push_back({c == '{', c == '[' ? wanted(name) : std::nullopt});
    return true;
  }
  scan_.hold();
  if (scan_.take_value() != Extent::whole) return fail("a value is cut or too long");
  return !scan_.held().empty() || fail("expected a value");
}

// What stands at `c` inside of the innermost object or array.
bool JsonWalk::step(int c) {
  if (c == (open_.back().is_object ? '}' : ']')) {
    scan_.advance();
    open_.pop_back();
    return true;
  }
  if (!open_.back().is_object) return enter_value(c, {});
  if (c != '"' || scan_.take_string() != Extent::whole) return fail("expected a member's name");
  const std::string name(scan_.held().substr(1, scan_.held().size() - 2));
  if (scan_.skip_space() != ':') return fail("expected a colon");
  scan_.advance();
  c = scan_.skip_space();
  if (c == JsonScanner::kEnd) return fail("ends inside a member");
  return enter_value(c, name);
}

bool JsonWalk::next() {
  is_item_ = false;
  if (!is_begun_) {
    is_begun_ = true;
    const int c = scan_.skip_space();
    if (c != '{' && c != '[') return fail(c == JsonScanner::kEnd ? "is empty" : "is not JSON");
    if (!enter_value(c, {})) return false;
  }
  while (!open_.empty() && !is_item_) {
    int c = scan_.skip_space();
    if (c == ',') {
      scan_.advance();
      c = scan_.skip_space();
    }
    if (c == JsonScanner::kEnd) return fail("ends before its last brace");
    if (!step(c)) return false;
  }
  return is_item_;
}

}  // namespace headroom::text
