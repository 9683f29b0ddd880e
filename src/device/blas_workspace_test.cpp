#include "device/blas_workspace.h"

#include <gtest/gtest.h>

namespace headroom::device {
namespace {

Device gpu(int major, int minor, Vendor vendor = Vendor::nvidia) {
  Device device;
  device.vendor = vendor;
  device.compute_capability = {{major, minor}, Provenance::datasheet, "test"};
  return device;
}

TEST(BlasWorkspace, FollowsGenerationAndRelease) {
  EXPECT_EQ(blas_workspace(gpu(8, 0), {1, 12}).main, Bytes(0));
  EXPECT_EQ(blas_workspace(gpu(9, 0), {1, 13}).main, Bytes(4 * kMiB));
  EXPECT_EQ(blas_workspace(gpu(8, 0), {2, 0}).main, Bytes(8'519'680));
  EXPECT_EQ(blas_workspace(gpu(8, 9), {2, 13}).main, Bytes(8'519'680));
  EXPECT_EQ(blas_workspace(gpu(9, 0), {2, 4}).main, Bytes(32 * kMiB));
  EXPECT_EQ(blas_workspace(gpu(10, 0), {2, 8}).main, Bytes(8'519'680));
  EXPECT_EQ(blas_workspace(gpu(12, 0), {2, 12}).main, Bytes(32 * kMiB));
  EXPECT_EQ(blas_workspace(gpu(9, 4, Vendor::amd), {2, 9}).main, Bytes(128 * kMiB));
}

TEST(BlasWorkspace, LtIsTemporaryThenPersistentThenShared) {
  EXPECT_EQ(blas_workspace(gpu(8, 0), {2, 4}).lt_kind, BlasWorkspace::Lt::temporary);
  EXPECT_EQ(blas_workspace(gpu(8, 0), {2, 4}).lt, Bytes(kMiB));
  EXPECT_EQ(blas_workspace(gpu(8, 0), {2, 9}).lt_kind, BlasWorkspace::Lt::persistent);
  EXPECT_EQ(blas_workspace(gpu(8, 0), {2, 11}).lt_kind, BlasWorkspace::Lt::shared);
  EXPECT_EQ(blas_workspace(gpu(8, 0), {2, 11}).lt, Bytes(0));
}

TEST(BlasWorkspace, ConfigurationVariable) {
  EXPECT_EQ(*parse_cublas_workspace_config(":4096:8"), Bytes(32 * kMiB));
  EXPECT_EQ(*parse_cublas_workspace_config(":4096:2:16:8"), Bytes(8'519'680));
  EXPECT_EQ(*parse_cublas_workspace_config(":0:0"), Bytes(0));
  for (const char* bad : {"", ":", "4096:8", ":4096", ":4096:8:", ":-1:8", ":4096:x",
                          ":99999999999999999999:1", ":1048576:1025", ":1048577:1"}) {
    EXPECT_FALSE(parse_cublas_workspace_config(bad)) << bad;
  }
}

}  // namespace
}  // namespace headroom::device
