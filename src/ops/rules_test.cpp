#include "ops/rules.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

namespace headroom::ops {
namespace {

TEST(NamePattern, StarsAndQuestionMarks) {
  const auto matches = [](const char* pattern, const char* name) {
    return NamePattern(pattern).matches(name);
  };
  EXPECT_TRUE(matches("aten::mm", "aten::mm"));
  EXPECT_FALSE(matches("aten::mm", "aten::mm2"));
  EXPECT_FALSE(matches("aten::mm", "xaten::mm"));
  EXPECT_TRUE(matches("aten::*norm", "aten::layer_norm"));
  EXPECT_FALSE(matches("aten::*norm", "aten::layer_norm_backward"));
  EXPECT_TRUE(matches("*Flash*", "void flash_fwd"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a__b__c"));
  EXPECT_FALSE(matches("a*b*c", "a__c__b"));
  EXPECT_FALSE(matches("ab*ba", "aba"));
  EXPECT_TRUE(matches("fused_?", "fused_7"));
  EXPECT_FALSE(matches("fused_?", "fused_"));
  EXPECT_TRUE(matches("*x?z*", "aaxyzb"));
}

Result<OperatorRules> read(std::string_view text, const OperatorRules* base = nullptr) {
  const Result<text::Json> json = text::parse_json(text, "rules.json");
  EXPECT_TRUE(json);
  return OperatorRules::read(text::JsonView(*json, "rules.json"), base);
}

// Names of a small trace, by what they are.
class Sorted : public ::testing::Test {
 protected:
  std::string group(const std::vector<std::string>& chain, const std::string& kernel) {
    std::vector<uint32_t> ids;
    for (const std::string& name : chain) ids.push_back(names_.intern(name));
    const uint32_t id = names_.intern(kernel);
    Classifier classifier(rules_, names_);
    return rules_.groups()[classifier.classify(ids, id)].name;
  }

  OperatorRules rules_ = *OperatorRules::load("");
  formats::Names names_;
};

TEST_F(Sorted, ByTheInnermostOperator) {
  EXPECT_EQ(group({"aten::addmm", "aten::linear"}, "anything"), "gemm");
  EXPECT_EQ(group({"aten::native_layer_norm", "aten::layer_norm"}, "x"), "normalization");
  EXPECT_EQ(group({"aten::mul"}, "ampere_sgemm_128x64_nn"), "elementwise");
}

TEST_F(Sorted, ByWhatIsAround) {
  EXPECT_EQ(group({"aten::bmm", "aten::_scaled_dot_product_attention_math"}, "gemm"), "attention");
  EXPECT_EQ(group({"aten::clamp_min", "aten::relu"}, "x"), "activation");
  EXPECT_EQ(group({"aten::add_", "Optimizer.step#SGD.step"}, "x"), "optimizer");
  // A product in the optimizer is a product.
  EXPECT_EQ(group({"aten::mm", "Optimizer.step#Muon.step"}, "x"), "gemm");
}

TEST_F(Sorted, ByTheKernelsName) {
  EXPECT_EQ(group({}, "sm90_xmma_gemm_bf16bf16_bf16f32"), "gemm");
  EXPECT_EQ(group({}, "void pytorch_flash::flash_fwd_kernel<cutlass::half_t>"), "attention");
  EXPECT_EQ(group({}, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"), "communication");
  EXPECT_EQ(group({}, "triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1"), "normalization");
  EXPECT_EQ(group({}, "triton_poi_fused__unsafe_view_mul_silu_2"), "activation");
  EXPECT_EQ(group({}, "triton_poi_fused__to_copy_1"), "memory");
  EXPECT_EQ(group({}, "void fbgemm_gpu::permute_2D_data_kernel<int>"), "memory");
  EXPECT_EQ(group({"my::operator"}, "Cijk_Alik_Bljk_BBS_BH"), "gemm");
  EXPECT_EQ(group({"Torch-Compiled Region: 0/0"}, "Cijk_Alik_Bljk_BBS_BH"), "gemm");
}

// Other engines' kernels, by names that their sources have.
TEST_F(Sorted, ByTheNamesOfOtherEngines) {
  for (const auto& [kernel, expected] : std::initializer_list<std::pair<const char*, const char*>>{
           {"void flashinfer::BatchDecodeWithPagedKVCacheKernel<2u, 8u>(flashinfer::P)",
            "attention"},
           {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"},
           {"triton_tem_fused_flex_attention_0", "attention"},
           {"triton_tem_fused_addmm_0", "gemm"},
           {"chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "attention"},
           {"_chunk_scan_fwd_kernel", "attention"},
           {"void mul_mat_vec_q<(ggml_type)12, 1>(void const*, void const*)", "gemm"},
           {"fused_moe_kernel", "gemm"},
           {"void marlin::Marlin<__nv_bfloat16, 256, 1>(int4 const*)", "gemm"},
           {"Custom_Cijk_Alik_Bljk_BBS_BH", "gemm"},
           {"void deep_gemm::sm90_fp8_gemm_1d2d_impl<1u>(float*)", "gemm"},
           {"void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "communication"},
           {"dequant_nf4_kernel", "quantize"},
           {"fused_qkv_rope_forward_kernel", "elementwise"},
           {"void vllm::moe::topkGatingSoftmax<8, 64>(float const*)", "routing"},
           {"kOptimizerStatic8bit2StateBlockwise", "optimizer"}}) {
    EXPECT_EQ(group({}, kernel), expected) << kernel;
  }
}

// A namespace says who wrote it, not what it does; a word is asked last.
TEST_F(Sorted, ByTheKernelsOwnPart) {
  EXPECT_EQ(group({}, "void x::cutlass_kernels::doActivationKernel<f16>(cutlass::f16*)"),
            "activation");
  EXPECT_EQ(group({}, "void cutlass::device_kernel<a::GemmUniversal<b>>(a::P)"), "gemm");
  EXPECT_EQ(group({}, "void deep_ep::legacy::clean_mask_buffer(int*)"), "communication");
  EXPECT_EQ(group({}, "my_add_kernel"), "elementwise");
  EXPECT_EQ(group({"my::operator", "aten::linear"}, "my_add_kernel"), "gemm");
}

TEST_F(Sorted, ACopyIsMemoryWhoeverAsksForIt) {
  EXPECT_EQ(group({"aten::mm"}, "Memset (Device)"), "memory");
  EXPECT_EQ(group({"c10d::allgather_"}, "Memcpy DtoD (Device -> Device)"), "memory");
  EXPECT_EQ(group({}, "Memcpy PtoP (Device -> Device)"), "communication");
}

TEST_F(Sorted, OurOwnOperatorsAreNamedWhateverTheyAreMadeOf) {
  EXPECT_EQ(group({"aten::grid_sampler_2d", "headroom::roi_align"}, "mystery"), "roi");
  EXPECT_EQ(group({"aten::bitwise_and", "headroom::nms"}, "mystery"), "roi");
}

TEST_F(Sorted, WhatNoRuleKnowsStaysUnclassified) {
  EXPECT_EQ(group({}, "mystery"), "unclassified");
  EXPECT_EQ(group({"my::operator"}, "mystery"), "unclassified");
  EXPECT_EQ(group({"my::operator", "aten::linear"}, "mystery"), "gemm");
}

TEST_F(Sorted, OnTheHostABackwardNodeIsBookkeeping) {
  const uint32_t node = names_.intern("autograd::engine::evaluate_function: AddBackward0");
  const uint32_t add = names_.intern("aten::add");
  Classifier classifier(rules_, names_);
  EXPECT_EQ(rules_.groups()[classifier.on_host({node})].name, "other");
  EXPECT_EQ(rules_.groups()[classifier.on_host({add, node})].name, "elementwise");
  EXPECT_EQ(group({"AddBackward0"}, "mystery"), "unclassified");
}

TEST(OperatorRules, PaperGroupsAreByExactName) {
  const OperatorRules rules = *OperatorRules::load("");
  const auto group = [&](const char* name) {
    return rules.paper_groups()[rules.paper_group_of(name)];
  };
  EXPECT_EQ(group("aten::linear"), "GEMM");
  EXPECT_EQ(group("aten::scaled_dot_product_attention"), "GEMM");
  EXPECT_EQ(group("torchvision::nms"), "RoI");
  EXPECT_EQ(group("aten::softmax"), "logit computation");
  EXPECT_EQ(group("vllm::unified_attention"), "missed");
}

TEST(OperatorRules, AFileComesBeforeTheBuiltInRules) {
  const OperatorRules base = *OperatorRules::load("");
  const Result<OperatorRules> rules = read(R"({"schema": "headroom.operator_rules/1",
    "groups": [{"name": "mamba", "title": "state space"}],
    "operators": [{"group": "mamba", "names": ["my::scan*"]}, {"group": "memory", "names": ["aten::mm"]}],
    "kernels": [{"group": "mamba", "names": ["*selective_scan*", "my_space::*"]}],
    "words": [{"group": "mamba", "names": ["*segment*"]}]})",
                                           &base);
  ASSERT_TRUE(rules) << rules.error().to_string();
  EXPECT_EQ(rules->groups().back().name, "unclassified");
  const auto name = [&](std::optional<GroupIndex> group) {
    return group ? rules->groups()[*group].name : "";
  };
  EXPECT_EQ(name(rules->of_operator("my::scan_fwd")), "mamba");
  EXPECT_EQ(name(rules->of_operator("aten::mm")), "memory");
  EXPECT_EQ(name(rules->of_operator("aten::bmm")), "gemm");
  EXPECT_EQ(name(rules->of_kernel("selective_scan_fwd")), "mamba");
  EXPECT_EQ(name(rules->of_kernel("my_space::add_rms_norm_kernel(int)")), "mamba");
  EXPECT_EQ(name(rules->of_word("my_segment_add_kernel")), "mamba");
  EXPECT_EQ(rules->paper_groups(), base.paper_groups());
}

// A list under a mistyped key would be left out, and nobody would know.
TEST(OperatorRules, UnknownKeysAreErrors) {
  const OperatorRules base = *OperatorRules::load("");
  const auto error = [&](const std::string& members) {
    const auto rules = read(R"({"schema": "headroom.operator_rules/1", )" + members + "}", &base);
    return rules ? std::string() : rules.error().to_string();
  };
  const std::string mistyped = error(R"("operaters": [{"group": "gemm", "names": ["my::mm"]}])");
  EXPECT_TRUE(mistyped.starts_with("rules.json#/operaters: there is no key 'operaters' here"))
      << mistyped;
  EXPECT_NE(mistyped.find("always, subtrees, operators, kernels"), std::string::npos) << mistyped;
  const auto place = [&](const std::string& members) {
    const std::string words = error(members);
    return words.substr(0, words.find(':'));
  };
  EXPECT_EQ(place(R"("groups": [{"name": "a", "title": "b", "colour": "c"}])"),
            "rules.json#/groups/0/colour");
  EXPECT_EQ(place(R"("kernels": [{"group": "gemm", "name": [], "names": []}])"),
            "rules.json#/kernels/0/name");
  EXPECT_EQ(place(R"("kernels": [{"group": "gemm", "names": [], "except": ["softmax"]}])"),
            "rules.json#/kernels/0/except");
  EXPECT_EQ(place(R"("nongemm_bench": {"group": [], "groups": []})"),
            "rules.json#/nongemm_bench/group");
  EXPECT_EQ(error(R"("about": "mine", "kernels": [{"about": "x", "group": "gemm", "names": []}])"),
            "");
}

TEST(OperatorRules, WithoutASchemaTheErrorSaysWhichIsWanted) {
  for (const char* text : {"{}", R"({"operators": []})", R"({"schema": "headroom.fit/1"})"}) {
    const Result<OperatorRules> rules = read(text);
    ASSERT_FALSE(rules);
    const std::string words = rules.error().to_string();
    EXPECT_NE(words.find("\"headroom.operator_rules/1\""), std::string::npos) << words;
    EXPECT_NE(words.find("docs/formats/operator_rules.md"), std::string::npos) << words;
  }
}

TEST(OperatorRules, ErrorsNameThePlace) {
  const OperatorRules base = *OperatorRules::load("");
  for (
      const char* text : {
          R"({})",
          R"({"schema": "headroom.fit/1"})",
          R"({"schema": "headroom.operator_rules/1", "operators": [{"group": "x", "names": []}]})",
          R"({"schema": "headroom.operator_rules/1", "operators": [{"group": "unclassified", "names": []}]})",
          R"({"schema": "headroom.operator_rules/1", "groups": [{"name": "gemm", "title": "x"}]})",
          R"({"schema": "headroom.operator_rules/1", "kernels": [{"group": "gemm", "names": [7]}]})",
          R"({"schema": "headroom.operator_rules/1", "transparent": [7]})",
          R"({"schema": "headroom.operator_rules/1", "loops": {"views": [7]}})",
          R"({"schema": "headroom.operator_rules/1", "loops": {"view": []}})",
          R"({"schema": "headroom.operator_rules/1", "subtrees": [{"group": "gemm", "names": [], "except": ["x"]}]})",
      }) {
    const Result<OperatorRules> rules = read(text, &base);
    ASSERT_FALSE(rules) << text;
    EXPECT_TRUE(rules.error().where.starts_with("rules.json#")) << rules.error().where;
  }
}

}  // namespace
}  // namespace headroom::ops
