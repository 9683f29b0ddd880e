// What a question of `fit` costs, part by part: the graph, the step, the replay.
//
// Mistral-7B's shape, full fine-tuning, every layer checkpointed, two steps from construction on.
#include <benchmark/benchmark.h>

#include <memory>

#include "base/heap.h"
#include "fit/fit.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"
#include "fit/scenario/shared_steps.h"
#include "memory/planned_replay.h"
#include "memory/replay.h"
#include "model/load.h"
#include "step/train_step.h"

namespace {

using headroom::fit::FitQuestion;
using headroom::model::BuildOptions;

const headroom::text::Json& config() {
  static const headroom::text::Json kConfig =
      headroom::text::parse_json(R"({"model_type": "mistral", "vocab_size": 32000,
          "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768})",
                                 "benchmark")
          .value();
  return kConfig;
}

BuildOptions build_options() {
  BuildOptions options;
  options.batch = 4;
  options.sequence = 4096;
  options.attention = headroom::model::Attention::flash_attention_2;
  return options;
}

headroom::step::TrainOptions train_options() {
  headroom::step::TrainOptions options;
  options.checkpointing = headroom::step::CheckpointPolicy::full;
  return options;
}

void build_graph(benchmark::State& state) {
  for (auto _ : state) {
    auto graph = headroom::model::build_graph({config(), "benchmark"}, build_options());
    benchmark::DoNotOptimize(graph);
  }
}
BENCHMARK(build_graph)->Name("graph/headroom")->Unit(benchmark::kMillisecond);

void trace_step(benchmark::State& state) {
  const auto graph = headroom::model::build_graph({config(), "benchmark"}, build_options());
  for (auto _ : state) {
    auto trace = headroom::step::trace_training(*graph, train_options());
    benchmark::DoNotOptimize(trace);
  }
}
BENCHMARK(trace_step)->Name("step/headroom")->Unit(benchmark::kMillisecond);

void replay_step(benchmark::State& state) {
  const auto graph = headroom::model::build_graph({config(), "benchmark"}, build_options());
  const auto trace = headroom::step::trace_training(*graph, train_options()).value();
  for (auto _ : state) {
    headroom::memory::DeviceMemory device;
    auto result = headroom::memory::replay(trace.memory, {}, device);
    benchmark::DoNotOptimize(result);
  }
  state.counters["events"] = static_cast<double>(trace.memory.events.size());
}
BENCHMARK(replay_step)->Name("replay/headroom")->Unit(benchmark::kMillisecond);

// The same events under a plan made from them.
void replay_planned_step(benchmark::State& state) {
  const auto graph = headroom::model::build_graph({config(), "benchmark"}, build_options());
  const auto trace = headroom::step::trace_training(*graph, train_options()).value();
  for (auto _ : state) {
    auto result = headroom::memory::replay_planned(trace.memory);
    benchmark::DoNotOptimize(result);
  }
  state.counters["events"] = static_cast<double>(trace.memory.events.size());
}
BENCHMARK(replay_planned_step)->Name("replay_planned/headroom")->Unit(benchmark::kMillisecond);

// As the program itself does (src/cli/main.cpp).
const bool kHeapIsKept = (headroom::keep_freed_memory(), true);

FitQuestion mistral() {
  FitQuestion question;
  question.model = "mistralai/Mistral-7B-v0.1";
  question.device = "a100-sxm-80gb";
  question.batch = 4;
  question.seq = 4096;
  return question;
}

void check(benchmark::State& state, bool worked) {
  if (!worked) state.SkipWithError("no prediction");
}

// One question without its search: graph, two steps, replay.
void predict_one(benchmark::State& state) {
  FitQuestion question = mistral();
  question.checkpointing.kind = headroom::fit::CheckpointingKind::full;
  const auto resolved = headroom::fit::resolve(question);
  for (auto _ : state) {
    // Nothing of the iterations before.
    headroom::fit::Scenario scenario = resolved.value();
    scenario.steps = std::make_shared<headroom::fit::SharedSteps>();
    const auto prediction = headroom::fit::predict(scenario);
    check(state, prediction.has_value());
  }
  state.counters["target_seconds"] = 0.02;
}
BENCHMARK(predict_one)->Name("predict/headroom")->Unit(benchmark::kMillisecond);

// A thousand settings of one model on one thread: batch x sequence x checkpointing.
void sweep(benchmark::State& state) {
  const auto scenario = headroom::fit::resolve(mistral());
  for (auto _ : state) {
    for (int i = 0; i < 1000; ++i) {
      FitQuestion question = mistral();
      question.batch = 1 + i % 25;
      question.seq = 512 * (1 + i / 25 % 20);
      question.checkpointing.kind =
          i < 500 ? headroom::fit::CheckpointingKind::none : headroom::fit::CheckpointingKind::full;
      const auto varied = headroom::fit::vary(scenario.value(), question);
      const auto prediction = headroom::fit::predict(varied.value());
      check(state, prediction.has_value());
    }
  }
  state.counters["target_seconds"] = 5;
}
BENCHMARK(sweep)->Name("sweep_1000/headroom")->Unit(benchmark::kSecond);

// A question with remedies, each with its own largest batch, and the two searches.
void answer_with_search(benchmark::State& state) {
  for (auto _ : state) {
    const auto answer = headroom::fit::answer(mistral());
    check(state, answer.has_value());
  }
  state.counters["target_seconds"] = 0.06;
}
BENCHMARK(answer_with_search)
    ->Name("answer/headroom")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
