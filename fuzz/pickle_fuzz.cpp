// Pickles: any bytes give a document of plain data or an Error, and every value can be walked.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/pickle.h"

namespace {

using headroom::formats::PickleDocument;
using headroom::formats::PickleValue;

// Makes a record of every third container, and keeps the rest.
class ThirdSink : public headroom::formats::PickleSink {
 public:
  Made on_dict(const PickleDocument& document, int64_t place, uint32_t,
               std::span<const PickleValue> items) override {
    HEADROOM_CHECK(place >= 0, "a place before the file");
    for (const PickleValue item : items) static_cast<void>(document.text(item).size());
    if (turn_++ % 3 == 0) return {turn_, turn_ % 2 == 0};
    return {};
  }
  Made on_list(const PickleDocument& document, int64_t, Record known,
               std::span<const PickleValue> items) override {
    for (const PickleValue item : items) static_cast<void>(document.record(item));
    if (known || turn_++ % 3 == 0) return {turn_, turn_ % 2 == 0};
    return {};
  }

 private:
  uint64_t turn_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom::formats;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const PickleLimits limits{.max_depth = 100, .max_values = 1 << 20, .max_containers = 1 << 18};
  ThirdSink sink;
  for (const bool with_sink : {false, true}) {
    ByteSource source(bytes, "fuzz");
    const auto document = read_pickle(source, with_sink ? &sink : nullptr, limits);
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
