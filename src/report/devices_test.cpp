#include "report/devices.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"

namespace headroom::report {
namespace {

TEST(Devices, WhatIsPrintedCanBeGivenBack) {
  const device::DeviceCatalogue built_in = device::DeviceCatalogue::built_in();
  const text::Json printed = devices_json(built_in.devices());
  device::DeviceCatalogue read = device::DeviceCatalogue::built_in();
  const Result<void> merged = read.merge(printed.dump(), "printed.json");
  ASSERT_TRUE(merged) << merged.error().to_string();
  EXPECT_EQ(devices_json(read.devices()).dump(2), printed.dump(2));
}

TEST(Devices, EveryFigureOfOneDeviceSaysWhereItComesFrom) {
  const Result<device::Device> device =
      device::DeviceCatalogue::built_in().find("h100-sxm-80gb,bandwidth=8TB/s");
  ASSERT_TRUE(device) << device.error().to_string();
  const std::string text = device_text(*device, {});
  EXPECT_NE(text.find("8 TB/s"), std::string::npos) << text;
  EXPECT_NE(text.find("datasheet"), std::string::npos) << text;
}

}  // namespace
}  // namespace headroom::report
