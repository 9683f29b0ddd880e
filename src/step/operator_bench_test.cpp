#include "step/operator_bench.h"

#include <gtest/gtest.h>

namespace headroom::step {
namespace {

OperatorRow row(std::string_view kernel, std::string_view provider, std::string_view setting) {
  return {kernel, provider, "op full", setting, "Liger-Kernel 0.2.1 benchmark"};
}

TEST(OperatorBench, ReadsARow) {
  const auto bench = parse_operator_bench(
      {"fused_linear_cross_entropy", "liger", "op full",
       R"(BT=4096 {"H": 1024, "V": 32000, "mode": "forward", "dtype": "torch.bfloat16"})",
       "Liger-Kernel 0.4.2 benchmark"});
  ASSERT_TRUE(bench) << bench.error().to_string();
  EXPECT_TRUE(bench->is_liger);
  EXPECT_EQ(bench->batch * bench->sequence, 4096);
  EXPECT_EQ(bench->width, 1024);
  EXPECT_EQ(bench->classes, 32000);
  EXPECT_EQ(bench->dtype, op::DType::bf16);
  EXPECT_EQ(bench->liger, (op::Version{0, 4}));
}

TEST(OperatorBench, NamesWhatIsWrong) {
  EXPECT_EQ(parse_operator_bench(row("softmax", "liger", "V=1 {}")).error().where, "model");
  EXPECT_EQ(parse_operator_bench(row("rope", "torch", "H=1 {}")).error().where, "method");
  for (const std::string_view setting :
       {"", "V", "V=4", "Q=4 {}", "V=0 {}", "V=-4 {}", "V=x {}", R"(V=4 {"B": 1e30})",
        R"(V=4 {"B": [})", R"(V=16777216 {"B": 16777216, "T": 16777216})"}) {
    EXPECT_FALSE(parse_operator_bench(row("cross_entropy", "liger", setting))) << setting;
  }
  EXPECT_FALSE(parse_operator_bench(row("rope", "liger", R"(H=33 {"num_q_heads": 11})")));
}

// By hand, 64 rows of 1,024 classes: the logits, which become their own gradient; targets; losses;
// which targets count, as booleans and widened to be summed, and their sum.
TEST(OperatorBench, LigerCrossEntropyWritesOverItsLogits) {
  const auto bench =
      parse_operator_bench(row("cross_entropy", "liger", R"(V=1024 {"B": 8, "T": 8})"));
  ASSERT_TRUE(bench);
  const auto peak = operator_peak(*bench, operator_bench_environment());
  ASSERT_TRUE(peak);
  EXPECT_EQ(*peak, 64 * 1024 * 4 + 512 + 512 + 512 + 512 + 512);
}

// The same in torch: logits, their gradient, log probabilities, and a gradient of each.
TEST(OperatorBench, PlainCrossEntropyHoldsFiveTensorsOfLogits) {
  const auto bench =
      parse_operator_bench(row("cross_entropy", "huggingface", R"(V=65536 {"B": 8, "T": 8})"));
  ASSERT_TRUE(bench);
  const auto peak = operator_peak(*bench, operator_bench_environment());
  ASSERT_TRUE(peak);
  EXPECT_EQ(*peak, int64_t{5} * 64 * 65536 * 4 + 3 * 512);  // targets, loss, its gradient
}

}  // namespace
}  // namespace headroom::step
