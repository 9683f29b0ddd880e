// The CSV is made up after NVIDIA's guide to Nsight Compute; no recorded one was at hand.
#include "bench/decode_counters.h"

#include <gtest/gtest.h>

namespace headroom::bench {
namespace {

constexpr std::string_view kCsv =
    R"csv("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","dram__bytes_read.sum","dram__bytes_write.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","sm__sass_thread_inst_executed_op_ffma_pred_on.sum","sm__sass_thread_inst_executed_op_fadd_pred_on.sum","sm__ops_path_tensor_src_bf16_dst_fp32.sum","smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio","smsp__average_warps_issue_stalled_long_scoreboard_not_issued_per_issue_active.ratio","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
"","","","","","","","Mbyte","Mbyte","%","usecond","inst","inst","","inst","inst","inst"
"0","7","p","h","flash_fwd","1","7","90","10","80","50","1000000","500000","200000000","9","8","1"
"1","7","p","h","flash_fwd","1","7","190","10","90","100","1000000","500000","200000000","6","5","4"
"2","7","p","h","gemm_1","1","7","50","0","50","25","0","0","1000000000","2","2","2"
)csv";

KernelClass class_of(std::string_view kernel) {
  return kernel.starts_with("gemm") ? KernelClass::matmul : KernelClass::attention;
}

TEST(DecodeCounters, ByClass) {
  const auto profile = formats::parse_ncu_csv(kCsv, "ncu.csv");
  ASSERT_TRUE(profile) << profile.error().to_string();
  const auto counters = decode_counters(*profile, 64, "ncu.csv", class_of);
  ASSERT_TRUE(counters) << counters.error().to_string();
  EXPECT_TRUE(counters->missing.empty());
  const ClassCounters& attention = counters->classes[0];
  EXPECT_EQ(attention.launches, 2);
  EXPECT_DOUBLE_EQ(*attention.seconds, 150e-6);
  EXPECT_DOUBLE_EQ(*attention.dram_bytes, 300e6);
  EXPECT_DOUBLE_EQ(*attention.bytes_per_second(), 2e12);
  EXPECT_DOUBLE_EQ(*attention.dram_pct, (80 * 50 + 90 * 100) / 150.0);
  EXPECT_DOUBLE_EQ(*attention.thread_flops, 2 * (2 * 1e6 + 0.5e6));
  EXPECT_DOUBLE_EQ(*attention.thread_flops_per_byte(), 5e6 / 300e6);
  EXPECT_DOUBLE_EQ(*attention.flops_per_byte(), 405e6 / 300e6);
  ASSERT_EQ(attention.stalls.size(), 2U);  // not_issued is the same waiting
  EXPECT_EQ(attention.stalls[0].reason, "long_scoreboard");
  EXPECT_DOUBLE_EQ(attention.stalls[0].pct, 70);  // (9 * 50 + 6 * 100) of (10 * 150)
  EXPECT_EQ(counters->classes[1].launches, 1);
  EXPECT_DOUBLE_EQ(*counters->classes[1].flops_per_byte(), 20);
  EXPECT_EQ(counters->classes[2].launches, 0);
  EXPECT_FALSE(counters->classes[2].bytes_per_second());
}

TEST(DecodeCounters, WhatTheFileLacksIsNamed) {
  const auto profile = formats::parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"dram__bytes.sum\",\"dram__bytes_read.sum\"\n"
      "\"\",\"\",\"byte\",\"byte\"\n\"0\",\"gemm\",\"100\",\"60\"\n",
      "ncu.csv");
  ASSERT_TRUE(profile) << profile.error().to_string();
  const auto counters = decode_counters(*profile, 1, "ncu.csv", class_of);
  ASSERT_TRUE(counters) << counters.error().to_string();
  EXPECT_DOUBLE_EQ(*counters->classes[1].dram_bytes, 100);  // the whole, not with its parts again
  EXPECT_FALSE(counters->classes[1].seconds);
  EXPECT_FALSE(counters->classes[1].tensor_flops);
  ASSERT_FALSE(counters->missing.empty());
  EXPECT_EQ(counters->missing.front(), "gpu__time_duration.sum");
}

// Found by fuzzing: a share of such a time was below nothing.
TEST(DecodeCounters, ATimeBelowNothingWeighsNothing) {
  const auto profile = formats::parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\","
      "\"dram__throughput.avg.pct_of_peak_sustained_elapsed\"\n"
      "\"\",\"\",\"usecond\",\"%\"\n"
      "\"0\",\"gemm\",\"-3\",\"50\"\n\"1\",\"gemm\",\"1\",\"80\"\n",
      "ncu.csv");
  ASSERT_TRUE(profile) << profile.error().to_string();
  const auto counters = decode_counters(*profile, 1, "ncu.csv", class_of);
  ASSERT_TRUE(counters) << counters.error().to_string();
  EXPECT_DOUBLE_EQ(*counters->classes[1].dram_pct, 80);
}

// What ncu's own regular expressions bring along: parts, sums of several types, and the four parts
// of each multiprocessor beside it.
TEST(DecodeCounters, NothingIsCountedTwice) {
  const auto profile = formats::parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"sm__ops_path_tensor_src_bf16_dst_fp32.sum\","
      "\"sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum\","
      "\"sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_on.sum\","
      "\"sm__ops_path_tensor_src_fp16_bf16_tf32_dst_fp32.sum\","
      "\"sm__ops_path_tensor_src_fp16_dst_fp16.sum\","
      "\"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum\","
      "\"sm__sass_thread_inst_executed_op_ffma_pred_on.sum\","
      "\"smsp__sass_thread_inst_executed_op_fadd_pred_on.sum\"\n"
      "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"inst\",\"inst\",\"inst\"\n"
      "\"0\",\"gemm\",\"1000\",\"900\",\"100\",\"1000\",\"7\",\"20\",\"20\",\"3\"\n",
      "ncu.csv");
  ASSERT_TRUE(profile) << profile.error().to_string();
  const auto counters = decode_counters(*profile, 1, "ncu.csv", class_of);
  ASSERT_TRUE(counters) << counters.error().to_string();
  EXPECT_DOUBLE_EQ(*counters->classes[1].tensor_flops, 1007);
  EXPECT_DOUBLE_EQ(*counters->classes[1].thread_flops, 2 * 20 + 3);
}

TEST(DecodeCounters, NothingToCountIsAnError) {
  const auto none = formats::parse_ncu_csv(
      "\"ID\",\"Kernel Name\",\"launch__grid_size\"\n\"\",\"\",\"\"\n\"0\",\"gemm\",\"100\"\n",
      "ncu.csv");
  ASSERT_TRUE(none) << none.error().to_string();
  const auto counters = decode_counters(*none, 1, "ncu.csv", class_of);
  ASSERT_FALSE(counters);
  EXPECT_NE(counters.error().message.find("no counter"), std::string::npos);
  EXPECT_FALSE(decode_counters({}, 1, "ncu.csv", class_of));
}

}  // namespace
}  // namespace headroom::bench
