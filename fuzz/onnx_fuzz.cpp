// An ONNX file and a run of its graph: any bytes give work that is counted or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/onnx_run.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const auto model =
      model::parse_onnx(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!model) {
    HEADROOM_CHECK(!model.error().where.empty(), "an error without a place");
    return 0;
  }
  const auto run = model::run_onnx(*model, {2, 7});
  if (!run) {
    HEADROOM_CHECK(!run.error().message.empty(), "an error without words");
    return 0;
  }
  for (const model::OnnxWork& work : run->work) {
    HEADROOM_CHECK(std::isfinite(work.flops) && work.flops >= 0, "work that is no number");
    HEADROOM_CHECK(work.bytes_read >= 0 && work.bytes_written >= 0, "negative traffic");
    HEADROOM_CHECK(std::isfinite(work.bytes_read) && std::isfinite(work.bytes_written),
                   "traffic that is no number");
    HEADROOM_CHECK(work.m >= 0 && work.n >= 0 && work.k >= 0 && work.count >= 0, "negative sizes");
  }
  return 0;
}
