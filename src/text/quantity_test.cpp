#include "text/quantity.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

TEST(Quantity, BytesKeepBinaryAndDecimalApart) {
  EXPECT_EQ(parse_bytes("80GiB", "m")->count, 80 * kGiB);
  EXPECT_EQ(parse_bytes("80GB", "m")->count, 80 * kGB);
  EXPECT_EQ(parse_bytes(" 1.5 mib ", "m")->count, kMiB * 3 / 2);
  EXPECT_EQ(parse_bytes("512B", "m")->count, 512);
  EXPECT_EQ(parse_bytes("0B", "m")->count, 0);
}

TEST(Quantity, Rates) {
  EXPECT_EQ(parse_bytes_per_second("8TB/s", "b")->value, 8e12);
  EXPECT_EQ(parse_bytes_per_second("900 GB/s", "b")->value, 9e11);
  EXPECT_EQ(parse_flops_per_second("989 TFLOPS", "r")->value, 989e12);
  EXPECT_EQ(parse_flops_per_second("1.979pflop/s", "r")->value, 1.979e15);
}

TEST(Quantity, RefusesWhatHasNoClearMeaning) {
  for (const char* bad : {"", "80", "GiB", "80 G", "-1GiB", "nanGiB", "infGiB", "1e300GiB",
                          "1e30GB", "0x10GiB", "80GiBs", "80GB/s", "8 0GiB"}) {
    EXPECT_FALSE(parse_bytes(bad, "memory")) << bad;
  }
  for (const char* bad : {"8TB", "/s", "8/s", "1e30TB/s"}) {
    EXPECT_FALSE(parse_bytes_per_second(bad, "b")) << bad;
  }
  EXPECT_FALSE(parse_flops_per_second("8TB/s", "r"));
  const Error error = parse_bytes("\x1B[31m" + std::string(9999, 'x'), "memory").error();
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_EQ(error.message.find('\x1B'), std::string::npos);
  EXPECT_LT(error.message.size(), 200U);
}

}  // namespace
}  // namespace headroom::text
