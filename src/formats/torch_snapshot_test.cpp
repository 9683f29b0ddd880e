#include "formats/torch_snapshot.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "memory/snapshot_replay.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

std::string data_file(const std::string& name) {
  return std::string(HEADROOM_SOURCE_DIR) + "/tests/data/" + name;
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
  EXPECT_EQ(snapshot->texts[snapshot->annotations[0].name], "Optimizer.step");
}

TEST(TorchSnapshot, KeepsEachStackOnce) {
  const auto snapshot = read_torch_snapshot(data_file("snapshot_whole.pickle"));
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->stacks.size(), 7u);  // the empty one and one a layer
  EXPECT_EQ(snapshot->frames.size(), 12u);
  const auto& stack = snapshot->stacks[snapshot->devices[0].trace[1].stack];
  ASSERT_EQ(stack.size(), 2u);
  const TorchFrame& frame = snapshot->frames[stack[0]];
  EXPECT_EQ(snapshot->texts[frame.function], "layer0");
  EXPECT_EQ(snapshot->texts[frame.file], "model.py");
  EXPECT_EQ(frame.line, 10);
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
  const std::string whole = content_of("snapshot_ring.pickle");
  for (size_t length = 0; length < whole.size(); length += 37) {
    const auto snapshot = parse(std::string_view(whole).substr(0, length));
    ASSERT_FALSE(snapshot) << length;
    EXPECT_EQ(snapshot.error().where.substr(0, 17), "test.pickle: byte") << length;
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
