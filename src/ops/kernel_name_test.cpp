#include "ops/kernel_name.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace {

TEST(KernelName, FunctionAndArgumentsWithoutNamespacesResultAndParameters) {
  EXPECT_EQ(own_part("void at::native::elementwise_kernel<128, a::b(int)::{lambda(x)#1}>(int, C)"),
            "elementwise_kernel<128, a::b(int)::{lambda(x)#1}>");
  EXPECT_EQ(own_part("void cutlass_kernels::(anonymous namespace)::expandRows<f16>(cutlass::f16*)"),
            "expandRows<f16>");
  EXPECT_EQ(own_part("std::enable_if<!(false), void>::type flash::kernel<T>(T)"), "kernel<T>");
  EXPECT_EQ(own_part("flash::fwd<(anonymous namespace)::T, (bool)1>"),
            "fwd<(anonymous namespace)::T, (bool)1>");
}

TEST(KernelName, WhatIsNoDeclarationStaysWhole) {
  for (const char* name :
       {"", "fused_moe_kernel", "_ZN5flash3fwdIfEEvT_", "Cijk_Alik_Bljk", "void a::b<c::d<e",
        "void a::b::", "a>b::c", "void f)", "(int)", "triton_poi_fused_add_0"}) {
    EXPECT_EQ(own_part(name), name);
  }
  EXPECT_EQ(own_part("attn_fwd.kd"), "attn_fwd.kd");
}

}  // namespace
}  // namespace headroom::ops
