// A config.json from anybody, through its family and one tiny training step.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/load.h"
#include "step/train_step.h"

namespace {

// Deep models are slow, not wrong: a step is only run for graphs that a fuzzer can run often.
constexpr size_t kInstructionsMax = 20'000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(text, "fuzz", {.bytes = Bytes(1 << 16)});
  if (!json) return 0;
  model::BuildOptions options;
  options.batch = 2;
  options.sequence = 8;
  options.attention = static_cast<model::Attention>(size % 3);
  const auto graph = model::build_graph({*json, "fuzz"}, options);
  if (!graph || graph->instructions.size() > kInstructionsMax) return 0;
  step::TrainOptions train;
  train.checkpointing = size % 2 == 0 ? step::CheckpointPolicy::none : step::CheckpointPolicy::full;
  train.checkpoint_kind =
      size % 4 < 2 ? step::CheckpointKind::reentrant : step::CheckpointKind::non_reentrant;
  train.steps = 1;
  static_cast<void>(step::trace_training(*graph, train));
  return 0;
}
