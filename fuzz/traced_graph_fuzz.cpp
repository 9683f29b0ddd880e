// A traced graph from anybody, through its reader and one training step.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/traced_graph.h"
#include "step/train_step.h"

namespace {

// Large graphs are slow, not wrong: a step is only run for what a fuzzer can run often.
constexpr size_t kInstructionsMax = 20'000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(text, "fuzz", {.bytes = Bytes(1 << 20)});
  if (!json) return 0;
  const auto traced = model::read_traced_graph({*json, "fuzz"});
  if (!traced || traced->graph.instructions.size() > kInstructionsMax) return 0;
  step::TrainOptions train;
  train.checkpointing = size % 2 == 0 ? step::CheckpointPolicy::none : step::CheckpointPolicy::full;
  train.checkpoint_kind =
      size % 4 < 2 ? step::CheckpointKind::reentrant : step::CheckpointKind::non_reentrant;
  train.accumulation = size % 3 == 0 ? 2 : 1;
  train.steps = 1;
  static_cast<void>(step::trace_training(traced->graph, train));
  return 0;
}
