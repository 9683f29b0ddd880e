// JSON text: any bytes give a value or an Error, and a value survives being written and read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::text::Json;
  using headroom::text::JsonView;
  using headroom::text::parse_json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const headroom::Result<Json> json = parse_json(text, "fuzz");
  if (!json) {
    HEADROOM_CHECK(!json.error().message.empty(), "an error without words");
    return 0;
  }
  const headroom::Result<Json> again = parse_json(json->dump(2), "again");
  HEADROOM_CHECK(again && *again == *json, "a value changed by being written and read");
  const JsonView view(*json, "fuzz");
  if (const auto members = view.get_members()) {
    for (const auto& [key, value] : *members) {
      static_cast<void>(view.get_int(key, 0, 1'000'000));
      static_cast<void>(value.to_double(0, 1));
    }
  }
  return 0;
}
