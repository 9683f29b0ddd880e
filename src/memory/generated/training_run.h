// Generated training runs (tests only): what a program asks of the allocator over several
// iterations, for where nobody recorded one. Nothing here was measured, and everything made from it
// says that it is generated.
//
// A transformer of a made-up size runs on one rank: pipelines (1F1B, interleaved), recomputation,
// gradient accumulation, random routing to experts, sequences of varying length, evaluation between
// iterations, communication on a second stream. The truth that a reader of recordings has to find
// again (iterations, phases, which requests vary and why) comes with it. The same shape gives the
// same run. Tens of nanoseconds an event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/events.h"

namespace headroom::memory::generated {

struct TrainingShape {
  uint64_t seed = 1;
  int64_t iterations = 5;
  int64_t layers = 4;  // on this rank; a multiple of model_chunks
  int64_t hidden = 1024;
  int64_t vocabulary = 16'000;
  int64_t batch = 2;              // sequences a micro-batch
  int64_t sequence = 512;         // tokens, at most
  int64_t shortest_sequence = 0;  // 0: all are `sequence` long; else each micro-batch draws its own
  int64_t sequence_step = 64;     // drawn lengths are the shortest and multiples of this above it
  int64_t micro_batches = 1;      // gradients add up over them
  int64_t experts = 0;            // a layer; 0: dense
  int64_t experts_per_token = 2;
  int64_t stages = 1;          // of the pipeline
  int64_t model_chunks = 1;    // of this rank: above 1 the pipeline is interleaved
  int64_t rank = 0;            // the stage; routing differs by rank, lengths do not
  int64_t evaluate_every = 0;  // iterations; 0: never
  int64_t evaluation_batches = 2;
  bool recomputes = false;       // a layer keeps its input and runs again in backward
  bool communicates = false;     // buffers on a second stream, and blocks that it uses, too
  bool offloads = false;         // what a layer keeps waits in host memory, and is fetched again
  bool keeps_gradients = false;  // zeroed in place, not released after the optimizer
};

enum class RunPhase : uint8_t { setup, forward, backward, optimizer, evaluation };

struct PhaseBegin {
  RunPhase phase{};
  int64_t iteration = 0;    // of setup: 0
  int64_t micro_batch = 0;  // of forward, backward and evaluation
  int64_t chunk = 0;
  size_t first_event = 0;
};

struct TrainingRun {
  MemoryTrace trace;                // BufferInfo::label indexes `labels`; streams 0 and 1
  std::vector<std::string> labels;  // "layer 3: mlp gate"; [0] is ""
  std::vector<PhaseBegin> phases;
  std::vector<size_t> iterations;  // the first event of each
  // By buffer: whether its size or whether it is made at all differs between iterations (drawn
  // lengths, routing), and how many events after its release a second stream still uses it.
  std::vector<bool> varies;
  std::vector<uint32_t> release_delay;
};

// REQUIRES: counts and sizes are at least 1 where the default is, rank < stages.
[[nodiscard]] TrainingRun generate_training_run(const TrainingShape& shape);

}  // namespace headroom::memory::generated
