#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "memory/generated/generated_snapshot.h"
#include "memory/generated/training_run.h"
#include "memory/packing/recorded_requests.h"
#include "memory/snapshot_replay.h"

namespace headroom::memory::generated {
namespace {

std::vector<TrainingShape> shapes() {
  return {
      {},
      {.seed = 2, .micro_batches = 3, .evaluate_every = 2},
      {.seed = 3, .shortest_sequence = 128, .recomputes = true},
      {.seed = 4, .micro_batches = 2, .experts = 8},
      {.seed = 5, .micro_batches = 8, .stages = 4, .rank = 1, .communicates = true},
      {.seed = 6,
       .micro_batches = 8,
       .stages = 4,
       .model_chunks = 2,
       .rank = 0,
       .recomputes = true},
      {.seed = 7, .micro_batches = 6, .stages = 4, .model_chunks = 2, .rank = 3},
      {.seed = 8,
       .shortest_sequence = 64,
       .experts = 4,
       .evaluate_every = 1,
       .communicates = true,
       .keeps_gradients = true},
  };
}

// The multiset of sizes that one iteration asks for.
std::multiset<int64_t> requests_of(const TrainingRun& run, size_t iteration) {
  const size_t begin = run.iterations[iteration];
  const size_t end = iteration + 1 < run.iterations.size() ? run.iterations[iteration + 1]
                                                           : run.trace.events.size();
  std::multiset<int64_t> sizes;
  for (size_t i = begin; i < end; ++i) {
    const MemoryEvent& event = run.trace.events[i];
    if (event.kind != EventKind::alloc) continue;
    sizes.insert(run.trace.buffers[event.buffer].requested_bytes);
  }
  return sizes;
}

TEST(TrainingRun, IsAValidTraceWhoseIterationsLeaveNothingBehind) {
  for (const TrainingShape& shape : shapes()) {
    const TrainingRun run = generate_training_run(shape);
    ASSERT_TRUE(validate_trace(run.trace)) << "seed " << shape.seed;
    ASSERT_EQ(std::ssize(run.iterations), shape.iterations);
    // What lives at the end of each iteration but the first: the same.
    std::vector<int64_t> live_at_end;
    int64_t live = 0;
    for (size_t i = 0; i < run.trace.events.size(); ++i) {
      if (std::ranges::binary_search(run.iterations, i)) live_at_end.push_back(live);
      const MemoryEvent& event = run.trace.events[i];
      const int64_t bytes = run.trace.buffers[event.buffer].requested_bytes;
      live += event.kind == EventKind::alloc ? bytes : -bytes;
    }
    live_at_end.push_back(live);
    for (size_t i = 2; i < live_at_end.size(); ++i) {
      EXPECT_EQ(live_at_end[i], live_at_end[1]) << "seed " << shape.seed;
    }
  }
}

TEST(TrainingRun, TheSameShapeGivesTheSameRun) {
  for (const TrainingShape& shape : shapes()) {
    const TrainingRun one = generate_training_run(shape);
    const TrainingRun two = generate_training_run(shape);
    ASSERT_EQ(one.trace.events.size(), two.trace.events.size());
    for (size_t i = 0; i < one.trace.buffers.size(); ++i) {
      ASSERT_EQ(one.trace.buffers[i].requested_bytes, two.trace.buffers[i].requested_bytes);
    }
  }
}

// Iterations of a dense model with one length ask for the same; drawn lengths and routing do not.
TEST(TrainingRun, VariesWhereTheShapeSaysSo) {
  const auto are_alike = [](const TrainingShape& shape) {
    const TrainingRun run = generate_training_run(shape);
    for (size_t i = 2; i < run.iterations.size(); ++i) {
      if (requests_of(run, i) != requests_of(run, 1)) return false;
    }
    return true;
  };
  EXPECT_TRUE(are_alike({}));
  EXPECT_TRUE(are_alike({.micro_batches = 8, .stages = 4, .model_chunks = 2, .rank = 1}));
  EXPECT_FALSE(are_alike({.shortest_sequence = 64}));
  EXPECT_FALSE(are_alike({.experts = 8}));
  const TrainingRun routed = generate_training_run({.experts = 8});
  for (size_t i = 0; i < routed.trace.buffers.size(); ++i) {
    const std::string& label = routed.labels[routed.trace.buffers[i].label];
    if (label.find("expert ") != std::string::npos) {
      EXPECT_TRUE(routed.varies[i]) << label;
    }
    if (label.find("weight") != std::string::npos) {
      EXPECT_FALSE(routed.varies[i]) << label;
    }
  }
}

// A stage further from the end of the pipeline holds more micro-batches at once.
TEST(TrainingRun, EarlierStagesHoldMore) {
  const auto most_ahead = [](int64_t rank, int64_t chunks) {
    const TrainingRun run = generate_training_run(
        {.layers = 4, .micro_batches = 12, .stages = 4, .model_chunks = chunks, .rank = rank});
    int64_t ahead = 0;
    int64_t most = 0;
    for (const PhaseBegin& phase : run.phases) {
      if (phase.phase == RunPhase::forward) most = std::max(most, ++ahead);
      if (phase.phase == RunPhase::backward) --ahead;
    }
    EXPECT_EQ(ahead, 0);
    return most;
  };
  EXPECT_EQ(most_ahead(3, 1), 1);
  EXPECT_EQ(most_ahead(0, 1), 4);
  EXPECT_EQ(most_ahead(3, 2), 5);
  EXPECT_EQ(most_ahead(0, 2), 11);
}

// The replay of recordings, which knows nothing of this, finds every block at its address.
TEST(GeneratedSnapshot, ReplaysExactly) {
  for (const TrainingShape& shape : shapes()) {
    for (const char* const conf : {"", "expandable_segments:True", "max_split_size_mb:32"}) {
      const TrainingRun run = generate_training_run(shape);
      const auto settings = parse_allocator_config(conf);
      ASSERT_TRUE(settings);
      const GeneratedSnapshot made =
          record_snapshot(run.trace, {.settings = *settings, .release_delay = run.release_delay});
      const SnapshotReplay replay = replay_snapshot(made.snapshot, {.settings = *settings});
      EXPECT_TRUE(replay.is_exact())
          << "seed " << shape.seed << ", '" << conf
          << "': " << (replay.divergence ? replay.divergence->message : "contradictions");
      EXPECT_EQ(std::ssize(made.snapshot.trace), static_cast<std::ptrdiff_t>(replay.entries));
    }
  }
}

TEST(GeneratedSnapshot, MayBeginInMidRunOrLoseItsBeginning) {
  for (const TrainingShape& shape : shapes()) {
    const TrainingRun run = generate_training_run(shape);
    const size_t middle = run.iterations[2] + 17;
    for (const size_t keep : {size_t{100'000'000}, size_t{300}}) {
      const GeneratedSnapshot made = record_snapshot(
          run.trace,
          {.first_event = middle, .keep_entries = keep, .release_delay = run.release_delay});
      EXPECT_LE(made.snapshot.trace.size(), keep);
      const RecordedRequests requests = recorded_requests(made.snapshot);
      EXPECT_EQ(requests.contradictions, 0u) << "seed " << shape.seed;
      EXPECT_GT(requests.at_start, 0u);
      const SnapshotReplay replay = replay_snapshot(made.snapshot, {});
      EXPECT_TRUE(replay.is_exact()) << "seed " << shape.seed;
    }
  }
}

TEST(GeneratedSnapshot, EntriesAreTheEvents) {
  const TrainingRun run = generate_training_run({.communicates = true});
  const GeneratedSnapshot made = record_snapshot(run.trace, {.release_delay = run.release_delay});
  for (size_t i = 0; i < run.trace.events.size(); ++i) {
    const MemoryEvent& event = run.trace.events[i];
    const TraceEntry& entry = made.snapshot.trace.at(made.entry_of_event[i]);
    EXPECT_EQ(entry.size, run.trace.buffers[event.buffer].requested_bytes);
    EXPECT_EQ(entry.action == TraceAction::alloc, event.kind == EventKind::alloc);
    EXPECT_EQ(entry.stack, run.trace.buffers[event.buffer].label);
  }
}

}  // namespace
}  // namespace headroom::memory::generated
