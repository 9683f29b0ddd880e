// Pickles: any bytes give a document of plain data or an Error, and every value can be walked.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::formats;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const PickleLimits limits{.max_depth = 100, .max_values = 1 << 20, .max_containers = 1 << 18};
  // By the input's own length: with every third item recycled, left out and kept.
  uint32_t turn = 0;
  const PickleSink sink = [&turn](PickleDocument& document, PickleValue,
                                  PickleValue item) -> headroom::Result<PickleVerdict> {
    static_cast<void>(document.items(item).size());
    static_cast<void>(document.find(item, "a"));
    return static_cast<PickleVerdict>(turn++ % 3);
  };
  for (const bool with_sink : {false, true}) {
    ByteSource source(bytes, "fuzz");
    const auto document = read_pickle(source, with_sink ? sink : PickleSink{}, limits);
    if (!document) {
      HEADROOM_CHECK(!document.error().where.empty(), "an error without a place");
      continue;
    }
    for (const PickleValue& value : document->items(document->root())) {
      static_cast<void>(document->text(value).size() + document->items(value).size());
      static_cast<void>(document->find(value, "a"));
    }
  }
  return 0;
}
