#include "timing/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "timing/device_law.h"

namespace headroom::timing {
namespace {

using text::Json;
using text::JsonView;

Json devices_json() {
  const auto measured = [](double value) {
    return Json::object().set("value", value).set("source", "bench").set("provenance", "measured");
  };
  return Json::object()
      .set("schema", "headroom.devices/1")
      .set("devices",
           Json::array().push_back(
               Json::object()
                   .set("name", "cpu")
                   .set("bandwidth_bytes_per_second", measured(2e10))
                   .set("l2_bytes", Json::object()
                                        .set("value", 33554432)
                                        .set("source", "bench")
                                        .set("provenance", "measured"))
                   .set("sm_count", Json::object()
                                        .set("value", 2)
                                        .set("source", "bench")
                                        .set("provenance", "measured"))
                   .set("dense_flops_per_second", Json::object().set("fp32", measured(1e11)))));
}

Calibration example() {
  Calibration calibration;
  calibration.machine = {.product = "A processor",
                         .kind = "cpu",
                         .memory = Bytes(kGiB),
                         .cache = Bytes(32 * kMiB),
                         .units = 2,
                         .torch = "2.13.0",
                         .python = "3.11.7",
                         .load = 0.25};
  calibration.device = "cpu";
  calibration.devices = devices_json();
  for (int64_t i = 0; i < 24; ++i) {
    const RowsShape shape{.rows = 8 << (i % 12), .width = 512 << (i % 3)};
    const double bytes = 12.0 * static_cast<double>(shape.rows * shape.width);
    MeasuredPoint point{rows_call(OperatorClass::elementwise, shape, bytes), 2e-6 + bytes / 1.5e10};
    point.uncertainty = 0.01;
    point.samples = 7;
    calibration.points.push_back(point);
  }
  auto catalogue = device::DeviceCatalogue::built_in();
  EXPECT_TRUE(catalogue.merge(JsonView(calibration.devices, "test")));
  auto law = fit_device_law(*catalogue.find("cpu"), calibration.points);
  EXPECT_TRUE(law);
  calibration.laws.laws.push_back(*law);
  return calibration;
}

TEST(Calibration, ReadsBackAsItWasWritten) {
  Calibration calibration = example();
  calibration.fresh_memory = {{Bytes(48 * kMiB), 0.02}};
  const Json written = calibration_json(calibration);
  const auto read = read_calibration(JsonView(written, "test"));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(calibration_json(*read).dump(), written.dump());
  ASSERT_EQ(read->fresh_memory.size(), 1U);
  EXPECT_EQ(read->fresh_memory[0].size, Bytes(48 * kMiB));
  EXPECT_DOUBLE_EQ(read->fresh_memory[0].seconds, 0.02);
}

TEST(Calibration, AdoptedItPredictsTheMachine) {
  auto catalogue = device::DeviceCatalogue::built_in();
  TimingModel model = TimingModel::built_in();
  const Calibration calibration = example();
  ASSERT_TRUE(adopt(calibration, catalogue, model));
  const auto device = catalogue.find("cpu");
  ASSERT_TRUE(device);
  const RowsShape shape{.rows = 3000, .width = 1536};
  const double bytes = 12.0 * 3000 * 1536;
  const auto time = model.predict(rows_call(OperatorClass::elementwise, shape, bytes), *device);
  ASSERT_TRUE(time) << time.error().to_string();
  EXPECT_NEAR(time->seconds, 2e-6 + bytes / 1.5e10, 0.05 * time->seconds);
  EXPECT_EQ(time->provenance, Provenance::calibrated);
}

TEST(Calibration, RefusesWhatIsNotOne) {
  const Json good = calibration_json(example());
  const auto refused = [](const Json& json) { return !read_calibration(JsonView(json, "test")); };
  const auto with = [&](std::string_view key, Json value) {
    Json changed = good;
    changed.set(key, std::move(value));
    return changed;
  };
  EXPECT_TRUE(refused(with("schema", "headroom.calibration/2")));
  EXPECT_TRUE(refused(with("timing", nullptr)));
  // What steps add is of all devices, and would replace ours.
  Json laws = *good.find("timing");
  const auto step = Json::object()
                        .set("name", "eager-training")
                        .set("source", "a test")
                        .set("devices", Json::array({"cpu"}))
                        .set("ratio", 2.0)
                        .set("half_width_log", 0.1)
                        .set("half_width_log_elsewhere", 0.2)
                        .set("median_error_pct", 1.0);
  laws.set("steps", Json::array({step}));
  EXPECT_TRUE(refused(with("timing", laws)));
  EXPECT_TRUE(refused(with("machine", Json::object())));
  EXPECT_TRUE(refused(with("device", "a100-sxm-80gb")));  // its laws are of another
  for (const auto& [key, value] : {std::pair<std::string, Json>{"seconds", 0.0},
                                   {"seconds", -1.0},
                                   {"bytes", 1e30},
                                   {"class", "gemm"},
                                   {"rate", "fp128"},
                                   {"shape", Json::object()}}) {
    Json points = *good.find("points");
    Json first = points.items().front();
    first.set(key, value);
    EXPECT_TRUE(refused(with("points", Json::array({first})))) << key;
  }
}

}  // namespace
}  // namespace headroom::timing
