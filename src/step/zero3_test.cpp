// What must hold of ZeRO's third stage around checkpoints. That its blocks are DeepSpeed's is held
// in tests/python/test_parallel.py.
#include <gtest/gtest.h>

#include <algorithm>

#include "step/tiny_llama.h"
#include "step/train_step.h"
#include "step/transform/lora.h"
#include "step/transform/quantize.h"

namespace headroom::step {
namespace {

using memory::Category;

// The most temporary bytes that are there at a time, of adapters on weights of four bits.
int64_t most_temporary(int64_t layers, CheckpointKind kind) {
  TrainOptions options;
  options.checkpointing = CheckpointPolicy::full;
  options.checkpoint_kind = kind;
  ZeroOptions zero;
  zero.stage = 3;
  zero.ranks = 2;
  zero.reduce_bucket_elements = 1 << 14;
  zero.persistence_elements = 100;
  options.parallel = zero;
  QuantizeOptions quantize;
  quantize.storage = model::DType::bf16;
  LoraOptions lora;
  lora.rank = 4;
  lora.targets = {"q_proj", "v_proj"};
  lora.model_type = "llama";
  lora.adapter_dtype = model::DType::bf16;
  lora.require_input_gradients = true;
  const model::Graph base =
      apply_quantization(tiny_llama({.layers = layers, .checkpointing = true}), quantize).value();
  const StepTrace trace = trace_training(apply_lora(base, lora).value(), options).value();
  int64_t live = 0;
  int64_t most = 0;
  for (const memory::MemoryEvent& event : trace.memory.events) {
    const memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    if (buffer.category != Category::temporary) continue;
    const bool is_alloc = event.kind == memory::EventKind::alloc;
    live += is_alloc ? buffer.requested_bytes : -buffer.requested_bytes;
    most = std::max(most, live);
  }
  return most;
}

// A layer that runs again is cut off inside its modules, which hold nothing of it then.
TEST(Zero3, WhatALayerMadeAgainGoesWithIt) {
  for (const CheckpointKind kind : {CheckpointKind::non_reentrant, CheckpointKind::reentrant}) {
    EXPECT_EQ(most_temporary(8, kind), most_temporary(4, kind));
  }
}

}  // namespace
}  // namespace headroom::step
