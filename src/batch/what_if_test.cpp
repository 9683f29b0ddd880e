#include "batch/what_if.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "batch/batch.h"
#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::batch {
namespace {

BatchQuestion question_of(const std::string& model, const std::string& device) {
  BatchQuestion question;
  question.model = model;
  question.device = *device::DeviceCatalogue::built_in().find(device);
  question.other_devices = device::DeviceCatalogue::built_in().devices();
  question.weights = op::DType::f16;
  question.slo = ItlTarget{.seconds = std::nullopt, .multiple = 2, .at_batch = 32};
  return question;
}

BatchAnswer ask(const BatchQuestion& question, const std::string& second = "") {
  const timing::TimingModel timing_model = timing::TimingModel::built_in();
  const auto resolved = *model::resolve_model(question.model);
  const text::JsonView config = resolved.view();
  if (second.empty()) return *answer(question, &config, timing_model);
  const auto beside = *model::resolve_model(second);
  const Companion companion{second, beside.view()};
  return *answer(question, &config, timing_model, &companion);
}

const WhatIf& named(const BatchAnswer& answer, const std::string& name) {
  const auto found = std::ranges::find_if(
      answer.what_ifs, [&](const WhatIf& what) { return what.name.starts_with(name); });
  EXPECT_NE(found, answer.what_ifs.end()) << name;
  return *found;
}

// Half the bytes a token: half the cache for as many sequences; and a what-if is what its flag
// says.
TEST(WhatIf, IsWhatTheFlagAnswers) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  const BatchAnswer base = ask(question);
  const WhatIf& small_cache = named(base, "cache in fp8");
  // The target in seconds, as it was.
  question.slo = ItlTarget{.seconds = base.itl_target_seconds};
  question.variant.cache_element_bytes = 1;
  const BatchAnswer flagged = ask(question);
  EXPECT_EQ(flagged.advice.batch, small_cache.advice.batch);
  EXPECT_NEAR(static_cast<double>(flagged.kv.needed->count), small_cache.kv_needed_bytes, 1e6);
  const auto& point = flagged.curve[*flagged.chosen].point;
  EXPECT_NEAR(point.throughput_tokens_per_second.expected,
              small_cache.throughput_tokens_per_second.expected, 1e-6);
  // A sequence needs half.
  const double before = static_cast<double>(base.kv.needed->count) /
                        kv_tokens_needed(base.curve[*base.chosen].point.running, base.workload);
  const double after = small_cache.kv_needed_bytes / kv_tokens_needed(point.running, base.workload);
  EXPECT_NEAR(after / before, 0.5, 1e-6);
}

TEST(WhatIf, ThoseThatChangeNothingAreNotThere) {
  // It has as many key-value heads as GQA would leave it.
  const BatchAnswer llama = ask(question_of("meta-llama/Meta-Llama-3-8B", "h100-sxm-80gb"));
  for (const WhatIf& what : llama.what_ifs) {
    EXPECT_FALSE(what.name.starts_with("GQA, 8")) << what.name;
    EXPECT_FALSE(what.name.starts_with("a window")) << what.name;
    ASSERT_TRUE(what.speedup) << what.name;
    EXPECT_LE(what.speedup->low, what.speedup->expected);
    EXPECT_GE(what.speedup->high, what.speedup->expected);
  }
}

TEST(WhatIf, WeightsAreOtherThanThoseThatAreAskedFor) {
  BatchQuestion question = question_of("meta-llama/Meta-Llama-3-8B", "h100-sxm-80gb");
  const auto has = [&](const std::string& name) {
    return std::ranges::any_of(ask(question).what_ifs,
                               [&](const WhatIf& what) { return what.name == name; });
  };
  question.variant.weight_element_bytes = timing::kInt4Bytes;
  EXPECT_FALSE(has("weights in int4"));
  EXPECT_TRUE(has("weights in fp8"));
  question.variant.weight_element_bytes = 1;
  question.variant.product_rate = device::Rate::int8;
  EXPECT_TRUE(has("weights in int4"));
  EXPECT_FALSE(has("weights in fp8"));
}

TEST(Freed, SmallerCardsMeetTheSameTargetWithLessMemory) {
  const BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  const BatchAnswer answer = ask(question);
  ASSERT_FALSE(answer.freed.smaller_devices.empty());
  for (const SmallerDevice& device : answer.freed.smaller_devices) {
    EXPECT_LT(device.memory, question.device->usable_memory.value);
    EXPECT_LE(device.itl_seconds.expected, *answer.itl_target_seconds);
    EXPECT_LE(device.share, 1);
  }
  ASSERT_TRUE(answer.freed.prefix_cache);
  EXPECT_GT(answer.freed.prefix_cache->speedup_at_most.expected, 1);
}

// Percentiles: what a card or a setting keeps is what the question about it answers, but for the
// requests that are drawn; a card that keeps them at no rate is not there.
TEST(Freed, PercentilesAreTheTargetOfWhatElseThereIs) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.slo.reset();
  question.output_tokens = 16;  // and one limit: which is soon simulated
  question.open_load.limit = 64;
  question.open_load.targets = {{serving::LatencyMetric::ttft, 95, 0.5},
                                {serving::LatencyMetric::itl, 99, 0.03}};
  const BatchAnswer answer = ask(question);
  const double own = answer.open_load->highest_rate.expected;
  ASSERT_TRUE(answer.load_baseline);
  EXPECT_NEAR(answer.load_baseline->highest_rate.expected / own, 1, 0.1);
  ASSERT_FALSE(answer.freed.smaller_devices.empty());
  for (const SmallerDevice& device : answer.freed.smaller_devices) {
    ASSERT_TRUE(device.load) << device.name;
    EXPECT_GT(device.load->highest_rate.expected, 0) << device.name;
    EXPECT_LT(*device.share, 1) << device.name;
  }
  const SmallerDevice& first = answer.freed.smaller_devices.front();
  BatchQuestion of_card = question;
  of_card.device = *device::DeviceCatalogue::built_in().find(first.name);
  constexpr double kDrawing = 0.1;  // one of few requests is so far from many
  EXPECT_NEAR(first.load->highest_rate.expected / ask(of_card).open_load->highest_rate.expected, 1,
              kDrawing);
  const WhatIf& small_cache = named(answer, "cache in fp8");
  ASSERT_TRUE(small_cache.load && small_cache.speedup);
  EXPECT_NEAR(small_cache.speedup->expected,
              small_cache.load->highest_rate.expected / answer.load_baseline->highest_rate.expected,
              1e-9);
  BatchQuestion flagged = question;
  flagged.variant.cache_element_bytes = 1;
  EXPECT_NEAR(
      small_cache.load->highest_rate.expected / ask(flagged).open_load->highest_rate.expected, 1,
      kDrawing);
  // A target that none keeps: no card, and no gain over nothing.
  question.open_load.targets = {{serving::LatencyMetric::itl, 99, 0.0005}};
  const BatchAnswer none = ask(question);
  EXPECT_TRUE(none.freed.smaller_devices.empty());
  for (const WhatIf& what : none.what_ifs) EXPECT_FALSE(what.speedup) << what.name;
}

// Answers so long that few of them are a drawing: by chance more come than end in its window, at
// rates far below what a server answers.
TEST(Freed, FewLongRequestsAreNotTakenForTooMany) {
  BatchQuestion question = question_of("meta-llama/Meta-Llama-3-8B", "h100-sxm-80gb");
  question.input_tokens = 316;
  question.output_tokens = 665;
  const timing::TimingModel timing_model = timing::TimingModel::built_in();
  const auto resolved = *model::resolve_model(question.model);
  const text::JsonView config = resolved.view();
  const Workload workload =
      workload_of(question.input_tokens, question.output_tokens, question.length_variation);
  const auto predicted = *Predicted::make(
      config, *question.device, {.context = mean_context(workload), .weights = question.weights},
      workload, timing_model);
  // A target that each request has far below what a full server answers.
  const serving::OpenLoadGoal loose{{{serving::LatencyMetric::ttft, 95, 5}}, std::nullopt};
  const auto best = *load_of(question, workload, predicted, {}, {loose, {}});
  double most = 0;
  for (const int64_t batch : predicted.curve().candidates()) {
    most = std::max(most, predicted.curve().at(batch)->throughput_tokens_per_second.expected /
                              question.output_tokens);
  }
  EXPECT_GT(best.highest_rate.expected, 0.75 * most);
}

TEST(Freed, ASecondModelTakesTurnsWithTheFirst) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.variant.engine = "vllm-0.6.3";  // in whose host's time the other one works
  const BatchAnswer answer = ask(question, "facebook/opt-2.7b");
  ASSERT_TRUE(answer.freed.colocated && answer.freed.colocated->fits);
  const Colocated& both = *answer.freed.colocated;
  // Neither waits for more than the other's whole step.
  EXPECT_GT(both.slowdown, 1);
  EXPECT_LT(both.slowdown, 2);
  EXPECT_LT(both.throughput_tokens_per_second.expected,
            answer.curve[*answer.chosen].point.throughput_tokens_per_second.expected);
  const double memory = both.weights_bytes + both.kv_bytes +
                        static_cast<double>(answer.weights->count + answer.kv.needed->count);
  EXPECT_LE(memory,
            timing::kMemoryShare * static_cast<double>(question.device->usable_memory.value.count));
  const BatchAnswer full = ask(question, "meta-llama/Llama-2-70b-hf");
  ASSERT_TRUE(full.freed.colocated);
  EXPECT_FALSE(full.freed.colocated->fits);
}

TEST(Parallel, WhatDoesNotFitOneCardFitsSeveral) {
  BatchQuestion question = question_of("meta-llama/Llama-2-70b-hf", "h100-sxm-80gb");
  const BatchAnswer one = ask(question);
  ASSERT_TRUE(one.curve.empty());
  ASSERT_FALSE(one.notes.empty());
  EXPECT_NE(one.notes.back().find("--tp 2"), std::string::npos) << one.notes.back();
  EXPECT_NE(one.notes.back().find("--quantize fp8"), std::string::npos) << one.notes.back();
  question.variant.tensor_parallel = 4;
  const BatchAnswer tensor = ask(question);
  ASSERT_TRUE(tensor.chosen);
  EXPECT_TRUE(tensor.replicas.empty());
  EXPECT_GT(tensor.steps.front().collectives.time.seconds, 0);
  // A stage has a layer at least.
  question.variant = {};
  question.variant.pipeline_parallel = 64;
  const auto resolved = *model::resolve_model("meta-llama/Llama-3.1-8B");
  const text::JsonView small = resolved.view();
  const auto stages = answer(question, &small, timing::TimingModel::built_in());
  ASSERT_FALSE(stages);
  EXPECT_NE(stages.error().message.find("32 layers"), std::string::npos);
  question.variant.pipeline_parallel = 4;
  const BatchAnswer pipeline = ask(question);
  ASSERT_TRUE(pipeline.chosen);
  // One token of one sequence goes through all stages in a row, whatever their number: tensor
  // parallelism shortens it, a pipeline does not.
  EXPECT_LT(tensor.curve.front().point.itl_seconds.expected,
            0.5 * pipeline.curve.front().point.itl_seconds.expected);
  EXPECT_NE(tensor.commands.front().line.find("--tensor-parallel-size 4"), std::string::npos);
  EXPECT_NE(pipeline.commands.front().line.find("--pipeline-parallel-size 4"), std::string::npos);
}

}  // namespace
}  // namespace headroom::batch
