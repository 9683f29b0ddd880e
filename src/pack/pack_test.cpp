#include "pack/pack.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "memory/plan/plan_file.h"
#include "memory/recording/writer.h"
#include "tests/tools/room_test.h"

namespace headroom::pack {
namespace {

std::string data(const char* name) { return tests::source_dir() + "/tests/data/" + name; }

const AllocatorFigures& allocator(const PackAnswer& answer, const std::string& name) {
  for (const AllocatorFigures& figures : answer.allocators) {
    if (figures.name == name) return figures;
  }
  ADD_FAILURE() << "no allocator " << name;
  return answer.allocators.front();
}

TEST(Pack, ARecordingIsPlanned) {
  const auto result = answer({.file = data("snapshot_whole.pickle")});
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->alignment, 512);
  ASSERT_TRUE(result->recorded);
  EXPECT_GE(result->recorded->peak_reserved, result->recorded->peak_allocated);
  EXPECT_GE(result->plan.size, result->lower_bound);
  EXPECT_LE(result->plan.gap_pct, 1);
  EXPECT_EQ(allocator(*result, "planned").peak_reserved, result->plan.size);
  EXPECT_GE(allocator(*result, "torch").peak_reserved, allocator(*result, "torch").peak_allocated);
}

// One made-up training step in every layout and protocol of the file: the same requests each time.
TEST(Pack, TheProtocolDoesNotMatter) {
  const auto one = answer({.file = data("snapshot_whole.pickle")});
  const auto two = answer({.file = data("snapshot_protocol2.pickle")});
  ASSERT_TRUE(one && two);
  EXPECT_EQ(placements_of(*one), placements_of(*two));
}

// What PyTorch itself counted at most, to the byte, where its peak is the moment that is looked at.
TEST(Pack, BlocksAtThePeakAreWhatPyTorchCounts) {
  for (const char* const name :
       {"snapshot_whole.pickle", "snapshot_ring.pickle", "snapshot_torch20.pickle"}) {
    const auto result = answer({.file = data(name)});
    ASSERT_TRUE(result && result->recorded && result->loss) << name;
    EXPECT_EQ(result->loss->allocated, result->recorded->max_memory_allocated) << name;
  }
}

// One numerator for the recorded run, every setting and the plan: what lives at one moment.
TEST(Pack, EfficienciesCanBeCompared) {
  for (const char* const name : {"snapshot_whole.pickle", "snapshot_ring.pickle",
                                 "snapshot_torch20.pickle", "snapshot_newest.pickle"}) {
    const auto result = answer({.file = data(name)});
    ASSERT_TRUE(result && result->recorded) << name;
    const Bytes lives = result->recorded->peak_allocated;
    EXPECT_GT(lives, Bytes(0)) << name;
    EXPECT_LE(lives, result->lower_bound) << name;  // which adds up the peaks of streams
    if (result->streams == 1) {
      EXPECT_EQ(lives, result->lower_bound) << name;
    }
    for (const AllocatorFigures& figures : result->allocators) {
      EXPECT_EQ(figures.peak_allocated, lives) << name << " " << figures.name;
    }
    const RecordedFigures& recorded = *result->recorded;
    EXPECT_LE(recorded.efficiency, 1) << name;
    EXPECT_DOUBLE_EQ(recorded.efficiency * static_cast<double>(recorded.peak_reserved.count),
                     static_cast<double>(lives.count))
        << name;
  }
}

// A ring buffer that lost the beginning still gives every block that was live.
TEST(Pack, ALostBeginningIsNoted) {
  const auto result = answer({.file = data("snapshot_ring.pickle")});
  ASSERT_TRUE(result) << result.error().to_string();
  ASSERT_FALSE(result->notes.empty());
  EXPECT_NE(result->notes[0].find("before the recording began"), std::string::npos);
}

TEST(Pack, AnOlderLayoutIsPlanned) {
  const auto result = answer({.file = data("snapshot_torch20.pickle")});
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_GE(result->plan.size, result->lower_bound);
}

// Sizes that no machine has are an error or a plan, never a wrapped sum.
TEST(Pack, HugeSizesAreNoTrouble) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "headroom_pack_huge.csv").string();
  std::ofstream out(path);
  out << "id,lower,upper,size\n";
  for (int i = 0; i < 15; ++i) out << i << "," << i << "," << i + 3 << "," << (1LL << 56) << "\n";
  out.close();
  const auto result = answer({.file = path});
  const auto rounded = answer({.file = path, .alignment = int64_t{1} << 40});
  std::ofstream(path, std::ios::app) << "x,0,9," << (1LL << 56) + 1 << "\n";
  const auto wrapped = answer({.file = path});
  std::remove(path.c_str());
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_EQ(result->plan.size, Bytes(3LL << 56));
  EXPECT_TRUE(rounded);
  for (const AllocatorFigures& figures : result->allocators) {
    EXPECT_GE(figures.peak_reserved, Bytes(3LL << 56)) << figures.name;
  }
  EXPECT_FALSE(wrapped);
}

// A run names its streams by their first use, as their handles are others each time.
TEST(Pack, StreamsOfThePlanFileAreInTheOrderOfTheirFirstUse) {
  using memory::RecordKind;
  const std::string path =
      (std::filesystem::temp_directory_path() / "headroom_pack_streams.hrec").string();
  for (const int iterations : {1, 12}) {
    auto writer = memory::RecordingWriter::open(path, {});
    ASSERT_TRUE(writer);
    for (int i = 0; i < iterations; ++i) {
      // The handle that is used first is the higher one; 3 MiB of it live together, 512 KiB of the
      // other.
      for (int64_t block = 0; block < 6; ++block) {
        const int64_t size = block % 2 == 0 ? 1 << 20 : 512 << 10;
        const int64_t stream = block % 2 == 0 ? 0x9000 : 0x100;
        (*writer)->event(RecordKind::alloc,
                         {.stream = stream, .address = (block + 1) << 24, .size = size});
        if (block % 2 == 0 || block == 5) continue;
        for (const RecordKind kind : {RecordKind::free_requested, RecordKind::free_completed}) {
          (*writer)->event(kind, {.stream = stream, .address = (block + 1) << 24, .size = size});
        }
      }
      for (const int64_t block : {0, 2, 4, 5}) {
        const int64_t stream = block % 2 == 0 ? 0x9000 : 0x100;
        for (const RecordKind kind : {RecordKind::free_requested, RecordKind::free_completed}) {
          (*writer)->event(kind, {.stream = stream, .address = (block + 1) << 24});
        }
      }
    }
    (*writer)->close();
    const auto result = answer({.file = path});
    std::remove(path.c_str());
    ASSERT_TRUE(result) << result.error().to_string();
    EXPECT_EQ(result->understanding && result->understanding->plan, iterations > 1);
    const auto bytes = plan_file_of(*result);
    ASSERT_TRUE(bytes) << bytes.error().to_string();
    const auto plan = memory::parse_plan_file(*bytes, "test");
    ASSERT_TRUE(plan) << plan.error().to_string();
    ASSERT_EQ(plan->streams.size(), 2u);
    EXPECT_EQ(plan->streams[0].range.size, 3 << 20);
    EXPECT_EQ(plan->streams[1].range.size, 512 << 10);
    ASSERT_FALSE(plan->signatures.empty());
    EXPECT_EQ(plan->signatures[0].slots[0].stream, 0u);
  }
}

// The plan file says of each request what the placements say, on the clock of slots.
TEST(Pack, ThePlanFileHoldsThePlacements) {
  for (const char* const name : {"snapshot_whole.pickle", "snapshot_ring.pickle"}) {
    const auto result = answer({.file = data(name)});
    ASSERT_TRUE(result) << result.error().to_string();
    ASSERT_TRUE(result->understanding);
    if (result->understanding->plan) continue;  // of its iterations, tested in memory/plan
    const auto bytes = plan_file_of(*result);
    ASSERT_TRUE(bytes) << bytes.error().to_string();
    const auto plan = memory::parse_plan_file(*bytes, "test");
    ASSERT_TRUE(plan) << plan.error().to_string();
    EXPECT_EQ(plan->bytes, result->plan.size.count);
    ASSERT_EQ(plan->signatures.size(), 1u);
    const auto& slots = plan->signatures[0].slots;
    ASSERT_EQ(slots.size(), result->requests.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      EXPECT_EQ(slots[i].largest, result->requests[i].request.size);
      EXPECT_EQ(slots[i].offset, result->requests[i].offset);
    }
  }
}

TEST(Pack, WhatAnotherStreamKeptIsKeptLonger) {
  EXPECT_EQ(safe_upper(10, 10), 10);
  EXPECT_EQ(safe_upper(10, 11), 12);
  EXPECT_EQ(safe_upper(10, 20), 25);
}

TEST(Pack, FilesThatAreNeitherAreErrors) {
  EXPECT_FALSE(answer({.file = "/nonexistent"}));
  const std::string path =
      (std::filesystem::temp_directory_path() / "headroom_pack_test.csv").string();
  std::ofstream(path) << "id,lower,upper,size\na,0,2,3\nb,1,3,5\n";
  const auto instance = answer({.file = path, .capacity = Bytes(7)});
  std::ofstream(path) << "id,lower\n";
  const auto broken = answer({.file = path});
  std::remove(path.c_str());
  ASSERT_TRUE(instance) << instance.error().to_string();
  EXPECT_EQ(instance->plan.size, Bytes(8));
  EXPECT_FALSE(instance->fits());
  EXPECT_TRUE(instance->plan.is_optimal);
  EXPECT_FALSE(broken);
}

}  // namespace
}  // namespace headroom::pack
