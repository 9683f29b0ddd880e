#include "formats/torch_snapshot.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "memory/snapshot_replay.h"
#include "tests/tools/room_test.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

using std::string_literals::operator""s;

std::string data_file(const std::string& name) {
  return tests::source_dir() + "/tests/data/" + name;
}

std::string content_of(const std::string& name) {
  auto content = read_file(data_file(name), Bytes{kMiB});
  EXPECT_TRUE(content) << name;
  return content ? *content : std::string();
}

Result<TorchSnapshot> parse(std::string_view bytes) {
  ByteSource source(bytes, "test.pickle");
  return parse_torch_snapshot(source);
}

TEST(TorchSnapshot, ReadsWhatTheFileSays) {
  const auto snapshot = read_torch_snapshot(data_file("snapshot_whole.pickle"));
  ASSERT_TRUE(snapshot) << snapshot.error().to_string();
  ASSERT_EQ(snapshot->devices.size(), 1u);
  const memory::Snapshot& device = snapshot->devices[0];
  EXPECT_EQ(device.trace.size(), 211u);
  EXPECT_EQ(device.trace[0].action, memory::TraceAction::segment_alloc);
  EXPECT_EQ(device.trace[1].action, memory::TraceAction::alloc);
  EXPECT_EQ(device.trace[1].address, device.trace[0].address);
  EXPECT_EQ(device.trace[1].time_us, 1'700'000'000'000'014);
  ASSERT_TRUE(snapshot->settings);
  EXPECT_EQ(*snapshot->settings, memory::AllocatorSettings{});
  EXPECT_TRUE(snapshot->notes.empty());
  ASSERT_EQ(snapshot->annotations.size(), 1u);
  EXPECT_TRUE(snapshot->annotations[0].is_start);
  EXPECT_EQ(snapshot->sites.text(snapshot->annotations[0].name), "Optimizer.step");
}

TEST(TorchSnapshot, KeepsEachStackOnce) {
  const auto snapshot = read_torch_snapshot(data_file("snapshot_whole.pickle"));
  ASSERT_TRUE(snapshot);
  const memory::CallSites& sites = snapshot->sites;
  EXPECT_EQ(sites.stack_count(), 7u);  // the empty one and one a layer
  EXPECT_EQ(sites.frame_count(), 7u);  // one a layer, and main
  const auto stack = sites.stack(snapshot->devices[0].trace[1].stack);
  ASSERT_EQ(stack.size(), 2u);
  const memory::CallFrame frame = sites.frame(stack[0]);
  EXPECT_EQ(sites.text(frame.function), "layer0");
  EXPECT_EQ(sites.text(frame.file), "model.py");
  EXPECT_EQ(frame.line, 10);
}

// Everything that a snapshot says, call stacks spelled out.
std::string words_of(const TorchSnapshot& snapshot) {
  std::string out;
  const auto add = [&out](auto... values) { ((out += std::to_string(values) + " "), ...); };
  const auto add_stack = [&](uint32_t number) {
    for (const uint32_t index : snapshot.sites.stack(number)) {
      const memory::CallFrame frame = snapshot.sites.frame(index);
      out += std::string(snapshot.sites.text(frame.function)) + "@" +
             std::string(snapshot.sites.text(frame.file)) + ":" + std::to_string(frame.line) + " ";
    }
    out += "\n";
  };
  for (const memory::Snapshot& device : snapshot.devices) {
    add(device.device, device.segments.size(), device.trace.size());
    for (const auto& segment : device.segments) {
      add(segment.address, segment.total_size, segment.allocated_size, segment.active_size,
          segment.stream, segment.pool_first, segment.pool_second, segment.is_small,
          segment.is_expandable);
      add_stack(segment.stack);
      for (const auto& block : segment.blocks) {
        add(block.address, block.size, block.requested, static_cast<int>(block.state));
        for (const auto& [address, size] : block.history) add(address, size);
        add_stack(block.stack);
      }
    }
    for (const auto& entry : device.trace) {
      add(static_cast<int>(entry.action), entry.address, entry.size, entry.stream, entry.time_us);
      add_stack(entry.stack);
    }
  }
  for (const auto& annotation : snapshot.annotations) {
    out += snapshot.sites.text(annotation.name);
    add(annotation.is_start, annotation.device, annotation.time_us);
  }
  return out;
}

TEST(TorchSnapshot, EveryProtocolSaysTheSame) {
  const auto protocol4 = read_torch_snapshot(data_file("snapshot_whole.pickle"));
  ASSERT_TRUE(protocol4);
  const std::string words = words_of(*protocol4);
  EXPECT_GT(words.size(), 10'000u);
  for (const std::string protocol : {"2", "3", "5"}) {
    const std::string content = content_of("snapshot_protocol" + protocol + ".pickle");
    ASSERT_EQ(content.substr(0, 2), "\x80" + std::string(1, static_cast<char>(protocol[0] - '0')));
    const auto other = parse(content);
    ASSERT_TRUE(other) << other.error().to_string();
    EXPECT_EQ(words_of(*other), words) << protocol;
    EXPECT_EQ(other->settings, protocol4->settings);
    EXPECT_EQ(other->sites.stack_count(), protocol4->sites.stack_count());
  }
}

TEST(TorchSnapshot, ReadsWhatNewerVersionsAdd) {
  const auto snapshot = read_torch_snapshot(data_file("snapshot_newest.pickle"));
  ASSERT_TRUE(snapshot) << snapshot.error().to_string();
  ASSERT_EQ(snapshot->devices.size(), 1u);
  const auto& trace = snapshot->devices[0].trace;
  ASSERT_EQ(trace.size(), 72u);
  EXPECT_EQ(trace[5].action, memory::TraceAction::other);  // "annotate"
  EXPECT_EQ(trace[71].action, memory::TraceAction::out_of_memory);
  EXPECT_EQ(trace[71].address, 3 * kMiB);  // free on the device
  EXPECT_EQ(trace[71].size, 64 * kMiB);
  ASSERT_EQ(snapshot->notes.size(), 1u);
  EXPECT_EQ(snapshot->notes[0], "pinned host memory is recorded too and was passed over");
}

// What is wrong is named with its place, but only where it matters.
TEST(TorchSnapshot, AWrongEntryIsAnError) {
  const auto snapshot = parse(
      "\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](}("
      "X\x06\0\0\0actionX\x05\0\0\0allocX"
      "\x04\0\0\0addrK\x01ueeu."s);
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().message, "'size' is missing (in what ends at byte 74)");
}

// The files were made by another simulator of the same rules (tests/data/make_snapshot.py).
TEST(TorchSnapshot, EveryVersionReplaysExactly) {
  for (const char* const name : {"snapshot_whole.pickle", "snapshot_protocol2.pickle",
                                 "snapshot_ring.pickle", "snapshot_torch20.pickle"}) {
    const auto snapshot = read_torch_snapshot(data_file(name));
    ASSERT_TRUE(snapshot) << snapshot.error().to_string();
    const memory::SnapshotReplay replay = memory::replay_snapshot(
        snapshot->devices.at(0),
        {.settings = snapshot->settings.value_or(memory::AllocatorSettings{})});
    EXPECT_TRUE(replay.is_exact()) << name;
    EXPECT_GE(replay.allocations, 20u);
    EXPECT_GE(replay.segment_events, 6u);
    EXPECT_EQ(replay.blocks_at_end, 16u);
  }
}

TEST(TorchSnapshot, ReadsGzip) {
  const std::string packed = text::gzip(content_of("snapshot_ring.pickle"));
  const std::string path = testing::TempDir() + "headroom_snapshot_test.pickle.gz";
  ASSERT_TRUE(write_file_atomic(path, packed));
  const auto snapshot = read_torch_snapshot(path);
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->devices.at(0).trace.size(), 70u);
}

TEST(TorchSnapshot, TruncatedAnywhereIsAnErrorWithItsPlace) {
  for (const char* const name :
       {"snapshot_whole.pickle", "snapshot_protocol2.pickle", "snapshot_protocol3.pickle",
        "snapshot_protocol5.pickle", "snapshot_ring.pickle", "snapshot_torch20.pickle",
        "snapshot_newest.pickle"}) {
    const std::string whole = content_of(name);
    ASSERT_TRUE(parse(whole)) << name;
    for (size_t length = 0; length < whole.size(); ++length) {
      const auto snapshot = parse(std::string_view(whole).substr(0, length));
      ASSERT_FALSE(snapshot) << name << " " << length;
      EXPECT_EQ(snapshot.error().where.substr(0, 17), "test.pickle: byte") << name << " " << length;
      EXPECT_FALSE(snapshot.error().message.empty()) << name << " " << length;
    }
  }
}

// One byte changed: an error or another snapshot, and the replay survives either.
TEST(TorchSnapshot, DamagedBytesAreSurvived) {
  const std::string whole = content_of("snapshot_ring.pickle");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    const auto snapshot = parse(damaged);
    if (!snapshot) continue;
    for (const memory::Snapshot& device : snapshot->devices) {
      static_cast<void>(memory::replay_snapshot(device, {}));
    }
  }
}

// tests/tools/generate_recording.cpp writes the key; PyTorch does not.
TEST(TorchSnapshot, SaysWhenItIsGenerated) {
  using std::string_literals::operator""s;
  const auto snapshot =
      parse("\x80\x04}(X\x0c\0\0\0generated_byX\x02\0\0\0usX\x08\0\0\0segments]u."s);
  ASSERT_TRUE(snapshot) << snapshot.error().to_string();
  EXPECT_EQ(snapshot->notes, (std::vector<std::string>{"generated, not recorded: us"}));
}

TEST(TorchSnapshot, OtherPicklesAreNotSnapshots) {
  using std::string_literals::operator""s;
  for (const std::string& bytes : {"\x80\x04N."s, "\x80\x04}."s, "\x80\x04]K\x01"s + "a."}) {
    const auto snapshot = parse(bytes);
    ASSERT_FALSE(snapshot);
    EXPECT_EQ(snapshot.error().where, "test.pickle");
  }
  EXPECT_TRUE(parse("\x80\x04]."s));  // torch.cuda.memory_snapshot() of an idle device
}

}  // namespace
}  // namespace headroom::formats
