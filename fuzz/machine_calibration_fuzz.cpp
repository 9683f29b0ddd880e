// Calibrations of machines: any bytes give one whose predictions are finite, or an Error; what was
// read is written as it was read.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "timing/calibration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(text, "fuzz");
  if (!json) return 0;
  const auto read = timing::read_calibration(text::JsonView(*json, "fuzz"));
  if (!read) return 0;
  const text::Json written = timing::calibration_json(*read);
  const auto again = timing::read_calibration(text::JsonView(written, "again"));
  HEADROOM_CHECK(again.has_value(), "cannot read what was written");
  HEADROOM_CHECK(timing::calibration_json(*again).dump() == written.dump(), "changed by writing");
  if (read->points.size() > 64) return 0;  // solving for them is cubic, and bounded elsewhere
  auto catalogue = device::DeviceCatalogue::built_in();
  auto model = timing::TimingModel::built_in();
  if (!timing::adopt(*read, catalogue, model)) return 0;
  const auto device = catalogue.find(read->device);
  HEADROOM_CHECK(device.has_value(), "adopted without its device");
  for (const timing::MeasuredPoint& point : read->points) {
    const auto time = model.predict(point.call, *device);
    HEADROOM_CHECK(time && std::isfinite(time->seconds) && time->seconds > 0, "no time");
  }
  return 0;
}
