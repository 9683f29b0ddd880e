#include "ops/convolution_work.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

std::optional<OperatorWork> work(std::string_view name, std::string_view detail) {
  const auto inputs = parse_inputs(detail);
  return inputs ? work_of_operator(name, *inputs) : std::nullopt;
}

// ResNet's first: 7 x 7 of stride 2 over 3 channels, 112 x 112 results of 64 channels.
constexpr double kFlops = 2.0 * 8 * 64 * 112 * 112 * 3 * 7 * 7;
constexpr double kBytes = 2.0 * (8.0 * 3 * 224 * 224 + 64.0 * 3 * 7 * 7 + 8.0 * 64 * 112 * 112);

TEST(ConvolutionWork, ByStrideAndPadding) {
  const auto whole =
      work("aten::convolution", R"([[8,3,224,224],[64,3,7,7],[],[],[],[],[],[],[]] )"
                                R"(["c10::Half","c10::Half","","","","","","",""] )"
                                R"(["","","","[2,2]","[3,3]","[1,1]","False","[0,0]","1"])");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->flops, kFlops);
  EXPECT_EQ(whole->bytes, kBytes);
  EXPECT_EQ(whole->written_bytes, 2.0 * 8 * 64 * 112 * 112);
  EXPECT_TRUE(whole->is_product);
  EXPECT_EQ(whole->dtype, op::DType::f16);
  const auto cudnn = work("aten::cudnn_convolution",
                          R"([[8,3,224,224],[64,3,7,7],[],[],[],[],[],[],[]] )"
                          R"(["c10::Half","c10::Half","","","","","","",""] )"
                          R"(["","","[3,3]","[2,2]","[1,1]","1","False","False","True"])");
  ASSERT_TRUE(cudnn);
  EXPECT_EQ(cudnn->flops, kFlops);
}

TEST(ConvolutionWork, BackwardIsAProductForEachGradient) {
  const auto backward = [](const std::string& wanted) {
    return work("aten::convolution_backward",
                R"([[8,64,112,112],[8,3,224,224],[64,3,7,7],[],[],[],[],[],[],[],[]] )"
                R"(["c10::Half","c10::Half","c10::Half","","","","","","","",""] )"
                R"(["","","","","[2,2]","[3,3]","[1,1]","False","[0,0]","1",")" +
                    wanted + R"("])");
  };
  ASSERT_TRUE(backward("[True,True,False]"));
  EXPECT_EQ(backward("[True,True,False]")->flops, 2 * kFlops);
  EXPECT_EQ(backward("[False,True,False]")->flops, kFlops);
  // What is written is the gradients, not results of forward.
  constexpr double kInput = 2.0 * 8 * 3 * 224 * 224;
  constexpr double kWeight = 2.0 * 64 * 3 * 7 * 7;
  EXPECT_EQ(backward("[True,True,False]")->bytes, 2 * kBytes);
  EXPECT_EQ(backward("[True,True,False]")->written_bytes, kInput + kWeight);
  EXPECT_EQ(backward("[False,True,True]")->written_bytes, kWeight);
  EXPECT_EQ(backward("")->written_bytes, kInput + kWeight);  // not known which
}

TEST(ConvolutionWork, OneDimensionAndDepthwise) {
  const auto conv1d =
      work("aten::convolution", R"([[2,16,100],[16,1,5],[],[],[],[],[],[],[]] )"
                                R"(["float","float","","","","","","",""] )"
                                R"(["","","","[1]","[2]","[1]","False","[0]","16"])");
  ASSERT_TRUE(conv1d);
  EXPECT_EQ(conv1d->flops, 2.0 * 2 * 16 * 100 * 5);
  const auto depthwise =
      work("aten::_conv_depthwise2d", R"([[1,8,10,10],[8,1,3,3],[],[],[],[],[]] )"
                                      R"(["float","float","","","","",""] )"
                                      R"(["","","[3,3]","","[1,1]","[1,1]","[1,1]"])");
  ASSERT_TRUE(depthwise);
  EXPECT_EQ(depthwise->flops, 2.0 * 8 * 100 * 9);
}

TEST(ConvolutionWork, NothingWithoutItsNumbersOrOfKindsThatAreNotCounted) {
  const std::string shapes = R"([[8,3,24,24],[64,3,7,7],[],[],[],[],[],[],[]] )"
                             R"(["float","float","","","","","","",""])";
  for (const char* numbers :
       {"", " [",
        R"( ["","","","[2,2]","[3,3]","[2,2]","False","[0,0]","1"])",    // dilated
        R"( ["","","","[2,2]","[3,3]","[1,1]","True","[0,0]","1"])",     // transposed
        R"( ["","","","[0,2]","[3,3]","[1,1]","False","[0,0]","1"])",    // no stride
        R"( ["","","","[2,2]","[3,3]","[1,1]","False","[0,0]","2"])",    // no such groups
        R"( ["","","","[2,2,2]","[3,3]","[1,1]","False","[0,0]","1"])",  // another rank
        R"( ["","","","[2,2]","[-9,-9]","[1,1]","False","[0,0]","1"])",  // negative
        R"( ["","","","[2,2]","[3e9,3]","[1,1]","False","[0,0]","1"])"}) {
    EXPECT_FALSE(work("aten::convolution", shapes + numbers)) << numbers;
  }
  EXPECT_FALSE(work("aten::convolution", R"([[8,3]] ["float"])"));
}

}  // namespace
}  // namespace headroom::ops
