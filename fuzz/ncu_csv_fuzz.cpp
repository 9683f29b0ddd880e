// Counters of Nsight Compute: any bytes give a profile or an Error with its place.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/ncu_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const auto profile =
      formats::parse_ncu_csv(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!profile) {
    HEADROOM_CHECK(!profile.error().where.empty(), "an error without a place");
    return 0;
  }
  for (const formats::NcuLaunch& launch : profile->launches) {
    for (const auto& [metric, value] : launch.values) {
      HEADROOM_CHECK(metric < profile->metrics.size(), "a metric that is not there");
      HEADROOM_CHECK(std::isfinite(value), "a value that is no number");
    }
  }
  return 0;
}
