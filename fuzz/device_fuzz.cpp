// Device files and device words: any bytes give devices or an Error, and no figure beyond bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "device/catalogue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::device::DeviceCatalogue;
  static const DeviceCatalogue kBuiltIn = DeviceCatalogue::built_in();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto no_gpu = [] {
    return headroom::Error{headroom::ErrorCode::unavailable, "no GPU", {}, {}};
  };
  const auto device = kBuiltIn.find(text, no_gpu);
  if (device && device->memory.known()) {
    HEADROOM_CHECK(device->usable_memory.value <= device->memory.value,
                   "more usable than there is");
  }
  static_cast<void>(kBuiltIn.find_for_measurement(text));
  if (!text.starts_with('{')) return 0;
  DeviceCatalogue catalogue = kBuiltIn;
  if (!catalogue.merge(text, "fuzz")) {
    HEADROOM_CHECK(catalogue.devices().size() == kBuiltIn.devices().size(), "a bad file stayed");
  }
  return 0;
}
