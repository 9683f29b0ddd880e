// ONNX files run on sizes, held against what ONNX Runtime says that it ran: its profiles of the
// same files, without optimization, name every node with the sizes of its inputs.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "formats/read_trace.h"
#include "model/onnx_run.h"
#include "ops/onnx_step.h"
#include "ops/operator_work.h"
#include "tests/tools/room_test.h"
#include "text/ascii.h"

namespace headroom::ops {
namespace {

std::filesystem::path folder() { return tests::data_dir() / "operator_traces/ort"; }

struct Counted {
  int64_t nodes = 0;
  double input_elements = 0;
};

// Of one run of the profile; an operator's inputs as the profiler writes them.
std::map<std::string, Counted> recorded(const std::filesystem::path& profile, double runs) {
  const auto trace = formats::read_trace(profile.string());
  EXPECT_TRUE(trace) << trace.error().to_string();
  std::map<std::string, Counted> all;
  for (const formats::TraceEvent& event : trace->events) {
    if (event.kind != formats::TraceEventKind::host_operator) continue;
    Counted& counted = all[text::lower(trace->name_of(event))];
    ++counted.nodes;
    if (event.detail == formats::kNone) continue;
    const auto inputs = parse_inputs(trace->names.at(event.detail));
    for (const RecordedInput& input : inputs.value_or(std::vector<RecordedInput>())) {
      double elements = 1;
      for (const int64_t size : input.sizes) elements *= static_cast<double>(size);
      counted.input_elements += elements;
    }
  }
  for (auto& [name, counted] : all) {
    counted.nodes = static_cast<int64_t>(static_cast<double>(counted.nodes) / runs);
    counted.input_elements /= runs;
  }
  return all;
}

class OnnxProfiles : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(OnnxProfiles, SameNodesOfTheSameSizes) {
  const auto [file, profile] = GetParam();
  if (!std::filesystem::exists(folder())) GTEST_SKIP() << "no " << folder();
  const auto model = model::read_onnx((folder() / file).string());
  ASSERT_TRUE(model) << model.error().to_string();
  const auto run = model::run_onnx(*model, {1, 256});
  ASSERT_TRUE(run) << run.error().to_string();
  EXPECT_TRUE(run->unknown.empty());
  constexpr double kRuns = 4;
  auto theirs = recorded(folder() / profile, kRuns);
  std::map<std::string, Counted> ours;
  for (const model::OnnxWork& work : run->work) {
    Counted& counted = ours["onnx::" + text::lower(work.operation)];
    ++counted.nodes;
    const bool is_product = work.kind == model::OnnxWorkKind::product;
    if (!is_product) continue;
    counted.input_elements +=
        static_cast<double>(work.count) * static_cast<double>(work.m * work.k + work.k * work.n);
  }
  for (const auto& [name, counted] : ours) {
    EXPECT_EQ(counted.nodes, theirs[name].nodes) << name;
  }
  // The other way round: what ran there and is no work here says only sizes, looks at memory in
  // another shape, or is made of weights alone (ViT's token of the class, expanded).
  const std::set<std::string> no_work{"onnx::constant", "onnx::shape",     "onnx::reshape",
                                      "onnx::squeeze",  "onnx::unsqueeze", "onnx::identity",
                                      "onnx::expand"};
  for (const auto& [name, counted] : theirs) {
    if (counted.nodes == 0 || no_work.contains(name)) continue;
    EXPECT_EQ(counted.nodes, ours[name].nodes) << name;
  }
  // Elements that products read, by the sizes that the run had.
  EXPECT_NEAR(ours["onnx::matmul"].input_elements, theirs["onnx::matmul"].input_elements,
              1e-9 * theirs["onnx::matmul"].input_elements);
}

INSTANTIATE_TEST_SUITE_P(Unoptimized, OnnxProfiles,
                         ::testing::Values(std::pair{"gpt2.onnx", "p_gpt2_s256_fp32_opt0.json.gz"},
                                           std::pair{"vit_b16.onnx",
                                                     "p_vit_b16_fp32_opt0.json.gz"}));

// A transformer of 12 layers of 768, whose products and their biases' sizes are public knowledge.
constexpr double kLayerWeights = 4 * 768.0 * 768 + 2 * 768.0 * 3072;

double encoder_flops(double tokens) {
  return 12 * (2 * tokens * kLayerWeights + 4 * tokens * tokens * 768);
}

TEST(OnnxModels, TheFourOfTheData) {
  if (!std::filesystem::exists(folder())) GTEST_SKIP() << "no " << folder();
  const double gpt2 = encoder_flops(256) + 2 * 256.0 * 768 * 50257;
  // 196 patches of 16 x 16 x 3 and a class.
  const double vit = encoder_flops(197) + 2 * 196.0 * 768 * 768 + 2 * 768.0 * 1000;
  const std::pair<const char*, double> files[] = {{"gpt2.onnx", gpt2},
                                                  {"gpt2_int8.onnx", gpt2},
                                                  {"vit_b16.onnx", vit},
                                                  {"vit_b16_int8.onnx", vit}};
  for (const auto& [file, expected] : files) {
    const auto step = step_of_onnx((folder() / file).string(), {}, *OperatorRules::load(""));
    ASSERT_TRUE(step) << step.error().to_string();
    double flops = 0;
    for (const StepCall& call : step->calls) {
      EXPECT_NE(call.group_name, "unclassified");
      flops += call.group == op::OpGroup::gemm ? call.flops : 0;
    }
    EXPECT_NEAR(flops, expected, 1e-3 * expected) << file;
  }
}

}  // namespace
}  // namespace headroom::ops
