// Calibration files: any bytes give laws within their bounds or an Error, and are written as read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fit/measured/calibration_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(text, "fuzz");
  if (!json) return 0;
  const auto read = fit::read_calibration(text::JsonView(*json, "fuzz"));
  if (!read) return 0;
  for (const fit::CalibrationLaw& law : read->laws) {
    const Bytes most = law.apply(Bytes(INT64_MAX));
    HEADROOM_CHECK(law.kind == fit::LawKind::none || most <= Bytes(int64_t{1} << 62), "beyond");
    HEADROOM_CHECK(law.apply(Bytes(0)) >= Bytes(0), "less than nothing");
    static_cast<void>(law.sentence());
  }
  static_cast<void>(fit::learn(read->points));
  const text::Json written = fit::calibration_json(*read);
  const auto again = fit::read_calibration(text::JsonView(written, "again"));
  HEADROOM_CHECK(again.has_value(), "cannot read what was written");
  HEADROOM_CHECK(fit::calibration_json(*again).dump() == written.dump(), "changed by writing");
  return 0;
}
