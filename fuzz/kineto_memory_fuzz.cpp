// Memory events of profiler traces, whole, cut or gzip-compressed: any bytes give traces of devices
// or an Error with a place, and requests can be made of any trace.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/kineto_memory.h"
#include "memory/packing/recorded_requests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto read = formats::parse_kineto_memory(text::ByteFeed(bytes, "fuzz"));
  if (!read) {
    HEADROOM_CHECK(!read.error().where.empty(), "an error without a place");
    return 0;
  }
  HEADROOM_CHECK(read->totals.size() == read->snapshot.devices.size(), "totals of each device");
  for (const memory::Snapshot& device : read->snapshot.devices) {
    static_cast<void>(memory::recorded_requests(device));
    static_cast<void>(memory::recorded_peaks(device, {}));
  }
  return 0;
}
