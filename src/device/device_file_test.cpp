#include "device/device_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "device/catalogue.h"
#include "tests/tools/room_test.h"

namespace headroom::device {
namespace {

// A file with one device that has `body`.
std::string file_with(const std::string& body) {
  return R"({"schema": "headroom.devices/1",
             "sources": {"s": {"provenance": "measured", "text": "my bench"}},
             "devices": [{"name": "x", "memory_bytes": {"value": 1e10, "source": "s"})" +
         body + "}]}";
}

Error merge_error(const std::string& text) {
  DeviceCatalogue catalogue = DeviceCatalogue::built_in();
  const size_t before = catalogue.devices().size();
  const Result<void> merged = catalogue.merge(text, "u.json");
  EXPECT_FALSE(merged) << text;
  EXPECT_EQ(catalogue.devices().size(), before);
  return merged ? Error{} : merged.error();
}

TEST(DeviceFile, AddsAndChangesDevices) {
  DeviceCatalogue catalogue = DeviceCatalogue::built_in();
  ASSERT_TRUE(
      catalogue.merge(file_with(R"(, "l2_bytes": {"value": 4096, "source": "s"})"), "u.json"));
  const Device added = *catalogue.find("x");
  EXPECT_EQ(added.memory.value, Bytes(10'000'000'000));
  EXPECT_EQ(added.usable_memory.value, added.memory.value);
  EXPECT_EQ(added.l2.source, "my bench");
  EXPECT_EQ(added.l2.provenance, Provenance::measured);
  EXPECT_FALSE(added.bandwidth.known());

  ASSERT_TRUE(catalogue.merge(
      R"({"schema": "headroom.devices/1", "devices": [{"name": "h200-sxm-141gb",
          "bandwidth_bytes_per_second": {"value": 4.1e12, "source": "stream test",
                                         "provenance": "measured"}}]})",
      "u.json"));
  const Device changed = *catalogue.find("h200");
  EXPECT_EQ(changed.bandwidth.value.value, 4.1e12);
  EXPECT_EQ(changed.bandwidth.source, "stream test");
  EXPECT_EQ(changed.product, "NVIDIA H200");
}

TEST(DeviceFile, LikeCopiesFiguresButNoNames) {
  DeviceCatalogue catalogue = DeviceCatalogue::built_in();
  ASSERT_TRUE(catalogue.merge(
      R"({"schema": "headroom.devices/1", "devices": [{"name": "mine", "like": "l40s-48gb"}]})",
      "u.json"));
  EXPECT_EQ(catalogue.find("mine")->l2.value, catalogue.find("l40s")->l2.value);
  EXPECT_EQ(catalogue.find("NVIDIA L40S")->name, "l40s-48gb");
}

TEST(DeviceFile, ErrorsNameThePlace) {
  EXPECT_EQ(merge_error("{").where, "u.json:1:2");
  EXPECT_EQ(merge_error("{}").where, "u.json#/schema");
  EXPECT_EQ(merge_error(R"({"schema": "headroom.devices/2"})").where, "u.json#/schema");
  EXPECT_EQ(merge_error(R"({"schema": "headroom.devices/1"})").where, "u.json#/devices");
  EXPECT_EQ(merge_error(file_with(R"(, "sm_count": {"value": -1, "source": "s"})")).where,
            "u.json#/devices/0/sm_count/value");
  EXPECT_EQ(merge_error(file_with(R"(, "sm_count": 5)")).where, "u.json#/devices/0/sm_count");
  EXPECT_EQ(merge_error(file_with(R"(, "sm_count": {"value": 5})")).where,
            "u.json#/devices/0/sm_count/source");
  EXPECT_EQ(merge_error(file_with(R"(, "like": "nothing")")).where, "u.json#/devices/0/like");
}

TEST(DeviceFile, RefusesFiguresThatNoMachineHas) {
  for (const char* body :
       {R"(, "l2_bytes": {"value": 1e30, "source": "s"})",
        R"(, "l2_bytes": {"value": "5", "source": "s"})",
        R"(, "bandwidth_bytes_per_second": {"value": 8, "source": "s"})",
        R"(, "usable_memory_bytes": {"value": 2e10, "source": "s"})",
        R"(, "compute_capability": {"value": "9", "source": "s"})",
        R"(, "compute_capability": {"value": "9.-1", "source": "s"})",
        R"(, "compute_capability": {"value": "9.0x", "source": "s"})",
        R"(, "compute_capability": {"value": 9.0, "source": "s"})",
        R"(, "context_bytes": {"low": 5, "expected": 4, "high": 6, "source": "s"})",
        R"(, "dense_flops_per_second": {"fp16": {"value": 1e30, "source": "s"}})",
        R"(, "link_bytes_per_second": {"value": 1e9, "source": "s"})",
        R"(, "pcie_bytes_per_second": {"value": 1e9, "generation": 0, "source": "s"})",
        R"(, "l2_bytes": {"value": 4096, "source": "unknown key"})",
        R"(, "l2_bytes": {"value": 4096, "source": "free text", "provenance": "guessed"})",
        R"(, "vendor": "acme")", R"(, "aliases": [""])", R"(, "aliases": "a")",
        R"(, "product": "")", R"(, "memory_bytes": {"value": 0, "source": "s"})"}) {
    EXPECT_FALSE(merge_error(file_with(body)).where.empty()) << body;
  }
  for (const char* name : {"", "auto", "A100", "a,b", "a=b", "a b"}) {
    EXPECT_EQ(merge_error(R"({"schema": "headroom.devices/1", "devices": [{"name": ")" +
                          std::string(name) + "\"}]}")
                  .where,
              "u.json#/devices/0/name");
  }
}

TEST(DeviceFile, TheBuiltInOneIsTheOneInTheRepository) {
  const Result<std::string> text =
      read_file(tests::source_dir() + "/data/devices.json", Bytes(kMiB));
  ASSERT_TRUE(text) << text.error().to_string();
  DeviceCatalogue from_file;
  ASSERT_TRUE(from_file.merge(*text, "devices.json"));
  const DeviceCatalogue built_in = DeviceCatalogue::built_in();
  ASSERT_EQ(from_file.devices().size(), built_in.devices().size());
  for (size_t i = 0; i < built_in.devices().size(); ++i) {
    EXPECT_EQ(from_file.devices()[i].name, built_in.devices()[i].name);
    EXPECT_EQ(from_file.devices()[i].memory.value, built_in.devices()[i].memory.value);
  }
}

}  // namespace
}  // namespace headroom::device
