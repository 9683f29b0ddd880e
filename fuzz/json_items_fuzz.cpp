// Long JSON arrays, read item by item: any bytes give balanced items in order, or an Error with its
// place; a cursor over each item ends.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace {

using headroom::text::JsonCursor;

// Visits every member, and the members of its objects.
void visit(JsonCursor& cursor, int depth) {
  std::string_view name;
  while (cursor.next_member(name)) {
    static_cast<void>(headroom::text::unescape(name));
    std::string_view value;
    if (cursor.kind() == '{' && depth < 8) {
      cursor.enter_object();
      visit(cursor, depth + 1);
    } else if (cursor.read_raw(value)) {
      static_cast<void>(headroom::text::fixed_point(value, 3));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  text::JsonItemsLimits limits;
  limits.item = 4096;
  limits.members = 4096;
  text::ByteFeed feed(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  text::JsonItems items(std::move(feed), "traceEvents", limits);
  int64_t last = -1;
  for (;;) {
    const Result<bool> more = items.next();
    if (!more) {
      HEADROOM_CHECK(!more.error().where.empty(), "an error without a place");
      return 0;
    }
    if (!*more) return 0;
    HEADROOM_CHECK(items.offset() > last, "items are in order");
    last = items.offset();
    HEADROOM_CHECK(items.item().front() == '{' && items.item().back() == '}', "an item is whole");
    JsonCursor cursor(items.item());
    if (cursor.enter_object()) visit(cursor, 0);
  }
}
