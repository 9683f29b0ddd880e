// What a question of `fit` costs, part by part: the graph, the step, the replay.
//
// Mistral-7B's shape, full fine-tuning, every layer checkpointed, two steps from construction on.
#include <benchmark/benchmark.h>

#include "memory/replay.h"
#include "model/load.h"
#include "step/train_step.h"

namespace {

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

}  // namespace

