#include "timing/law.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/catalogue.h"

namespace headroom::timing {
namespace {

Features with(Feature feature, double value) {
  Features features;
  features.values[static_cast<size_t>(feature)] = value;
  return features;
}

TEST(Table, InterpolatesAndHoldsItsBoundary) {
  const Table table{{Feature::k}, {{0, 1, 3}}, {10, 20, 40}};
  EXPECT_DOUBLE_EQ(table.at(with(Feature::k, 0)), 10);
  EXPECT_DOUBLE_EQ(table.at(with(Feature::k, 0.5)), 15);
  EXPECT_DOUBLE_EQ(table.at(with(Feature::k, 2)), 30);
  EXPECT_DOUBLE_EQ(table.at(with(Feature::k, 3)), 40);
  EXPECT_DOUBLE_EQ(table.at(with(Feature::k, 99)), 40);
  EXPECT_DOUBLE_EQ(table.at(with(Feature::k, -99)), 10);
  EXPECT_FALSE(table.holds_boundary(with(Feature::k, 3)));
  EXPECT_TRUE(table.holds_boundary(with(Feature::k, 3.1)));
}

TEST(Table, IsBilinearInTwoFeatures) {
  const Table table{{Feature::m, Feature::n}, {{0, 1}, {0, 1, 2}}, {0, 1, 2, 10, 11, 12}};
  Features features = with(Feature::m, 0.5);
  features.values[static_cast<size_t>(Feature::n)] = 1.5;
  EXPECT_DOUBLE_EQ(table.at(features), 6.5);
}

TEST(Law, RoofIsTheSoftMaximum) {
  EXPECT_DOUBLE_EQ(roof_seconds({1e-3, 0}), 1e-3);
  EXPECT_DOUBLE_EQ(roof_seconds({1e-3, 1e-3}), 1e-3 * std::pow(2, 0.25));
  EXPECT_DOUBLE_EQ(roof_seconds({1e-300, 1e-300}), 1e-300 * std::pow(2, 0.25));
  EXPECT_EQ(roof_seconds({0, 0}), 0);
}

TEST(Law, AddsStartAndTables) {
  Law law;
  law.start_seconds = 2e-6;
  law.intercept = std::log(1.25);
  law.tables = {{{Feature::k}, {{0, 1}}, {0, std::log(2)}}};
  Features features = with(Feature::k, 1);
  features.roofline = {0, 8e-6};
  EXPECT_NEAR(law.seconds(features), 10e-6 * 1.25 * 2, 1e-15);
}

TEST(Features, OfAProduct) {
  const device::Device h100 = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const Call call = gemm_call({.m = 4096, .n = 4096, .k = 4096}, device::Rate::bf16, 2);
  EXPECT_DOUBLE_EQ(call.flops, 2.0 * 4096 * 4096 * 4096);
  EXPECT_DOUBLE_EQ(call.bytes, 3.0 * 2 * 4096 * 4096);
  const Features features = *features_of(call, h100);
  EXPECT_DOUBLE_EQ(features.roofline.compute_seconds, call.flops / 989.4e12);
  EXPECT_DOUBLE_EQ(features.roofline.traffic_seconds, call.bytes / 3.35e12);
  EXPECT_DOUBLE_EQ(features[Feature::waves], std::log(1024.0 / 132));
  EXPECT_DOUBLE_EQ(features[Feature::wave_fill], std::log(1024.0 / 132 / 8));
  EXPECT_DOUBLE_EQ(features[Feature::m_fill], 0);
  EXPECT_FALSE(features.large);  // 96 MiB beside 2 x 50
}

TEST(Features, OfDecodeAttention) {
  const device::Device h100 = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const Call call =
      attention_call({.batch = 128, .heads = 32, .kv_heads = 8, .head_dim = 128, .context = 4096},
                     device::Rate::bf16, 2);
  EXPECT_EQ(call.kind, OperatorClass::attention_decode);
  EXPECT_DOUBLE_EQ(call.flops, 4.0 * 128 * 32 * 128 * 4096);
  EXPECT_DOUBLE_EQ(call.bytes, 2.0 * 128 * (2 * 4096.0 * 8 * 128 + 2 * 32 * 128));
  const Features features = *features_of(call, h100);
  EXPECT_TRUE(features.large);
  EXPECT_DOUBLE_EQ(features[Feature::sequences], std::log(128.0 * 8 / 132));
  EXPECT_DOUBLE_EQ(features[Feature::sharing], std::log(4));
}

TEST(Features, OfACollective) {
  const device::Device h100 = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const Call call = all_reduce_call(OperatorClass::all_reduce, {.group = 8, .message = 64 * kMiB});
  EXPECT_DOUBLE_EQ(call.bytes, 2.0 * 7 / 8 * 64 * kMiB);
  const Features features = *features_of(call, h100);
  EXPECT_DOUBLE_EQ(features.roofline.traffic_seconds, call.bytes / 450e9);
  EXPECT_DOUBLE_EQ(features[Feature::group], std::log(8));
  EXPECT_TRUE(features.large);
  // The L4 has no link, and says so.
  const device::Device l4 = *device::DeviceCatalogue::built_in().find("l4-24gb");
  const auto none = features_of(call, l4);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("link of l4"), std::string::npos);
}

TEST(Features, NameTheFigureThatTheDeviceLacks) {
  device::Device unknown;
  unknown.name = "mine";
  const Call call = gemm_call({.m = 8, .n = 8, .k = 8}, device::Rate::bf16, 2);
  const auto features = features_of(call, unknown);
  ASSERT_FALSE(features);
  EXPECT_NE(features.error().message.find("bf16 of mine"), std::string::npos);
  EXPECT_EQ(features.error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace headroom::timing
