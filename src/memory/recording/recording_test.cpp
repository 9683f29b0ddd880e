#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "base/units.h"
#include "memory/packing/recorded_requests.h"
#include "memory/recording/reader.h"
#include "memory/recording/writer.h"

namespace headroom::memory {
namespace {

using Frame = RecordingWriter::Frame;

std::string path_of(const std::string& name) {
  return testing::TempDir() + "headroom_recording_" + name + "_" + std::to_string(::getpid());
}

std::string content_of(const std::string& path) {
  auto content = read_file(path, Bytes{kGiB});
  EXPECT_TRUE(content);
  return content ? *content : std::string();
}

const std::vector<Frame> kForward = {{"forward", "model.py", 12}, {"main", "train.py", 3}};
const std::vector<Frame> kOptimizer = {{"step", "adam.py", 80}, {"main", "train.py", 4}};

// Two iterations on two streams.
void write_run(RecordingWriter& writer) {
  writer.setting("torch", "2.13.0");
  const uint32_t forward = writer.stack(kForward);
  const uint32_t optimizer = writer.stack(kOptimizer);
  int64_t time = 0;
  const auto add = [&](RecordKind kind, RecordingWriter::Event event) {
    event.time_ns = time += 1000;
    writer.event(kind, event);
  };
  add(RecordKind::segment_alloc, {.stream = 0, .stack = forward, .address = 4096, .size = 2 << 20});
  for (int iteration = 0; iteration < 2; ++iteration) {
    add(RecordKind::iteration, {.address = iteration});
    writer.phase("forward", time);
    add(RecordKind::alloc, {.stack = writer.stack(kForward), .address = 4096, .size = 1000});
    add(RecordKind::alloc, {.stream = 0x7001, .stack = optimizer, .address = 8192, .size = 600});
    add(RecordKind::stream_use, {.stream = 0x7001, .address = 4096});
    add(RecordKind::event_record, {.stream = 0x7001, .address = 99});
    add(RecordKind::event_wait, {.stream = 0, .address = 99});
    add(RecordKind::free_requested, {.address = 4096, .size = 1000});
    add(RecordKind::free_completed, {.address = 4096, .size = 1000});
    if (iteration == 0) {
      add(RecordKind::free_completed, {.stream = 0x7001, .address = 8192, .size = 600});
    }
  }
}

std::string recorded_run(const std::string& name) {
  const std::string path = path_of(name);
  auto writer = RecordingWriter::open(
      path, {.device = 1, .rank = 3, .world_size = 8, .device_total_bytes = 80 * kGiB});
  EXPECT_TRUE(writer);
  write_run(**writer);
  (*writer)->close();
  std::string content = content_of(path);
  ::unlink(path.c_str());
  return content;
}

TEST(Recording, SaysWhatWasWritten) {
  const auto read = parse_recording(recorded_run("whole"), "run.hdr");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_TRUE(read->is_complete);
  EXPECT_TRUE(read->notes.empty());
  EXPECT_EQ(read->device, 1);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->world_size, 8);
  EXPECT_EQ(read->device_total_bytes, 80 * kGiB);
  ASSERT_EQ(read->settings.size(), 1u);
  EXPECT_EQ(read->settings[0], (std::pair<std::string, std::string>("torch", "2.13.0")));
  EXPECT_EQ(read->streams, (std::vector<int64_t>{0, 0x7001}));
  ASSERT_EQ(read->events.size(), 1u + 2 * 9 + 1);
  EXPECT_EQ(read->sites.stack_count(), 3u);  // the empty one and two, each written once
  const RecordingSlot& alloc = read->events[3];
  EXPECT_EQ(alloc.kind, RecordKind::alloc);
  EXPECT_EQ(alloc.size, 1000);
  EXPECT_EQ(alloc.time_ns, 3000);
  const auto stack = read->sites.stack(alloc.stack);
  ASSERT_EQ(stack.size(), 2u);
  EXPECT_EQ(read->sites.text(read->sites.frame(stack[0]).function), "forward");
  EXPECT_EQ(read->sites.frame(stack[1]).line, 3);
  EXPECT_EQ(read->sites.text(read->events[2].stack), "forward");  // the phase
}

TEST(Recording, IsASnapshotToo) {
  const auto read = parse_recording(recorded_run("snapshot"), "run.hdr");
  ASSERT_TRUE(read);
  const Snapshot snapshot = snapshot_of(*read);
  EXPECT_EQ(snapshot.trace.size(), read->events.size());
  ASSERT_EQ(snapshot.segments.size(), 1u);
  ASSERT_EQ(snapshot.segments[0].blocks.size(), 1u);  // the second iteration's is still there
  EXPECT_EQ(snapshot.segments[0].blocks[0].address, 8192);
  EXPECT_EQ(snapshot.segments[0].allocated_size, 1024);
  const RecordedRequests requests = recorded_requests(snapshot);
  EXPECT_EQ(requests.requests.size(), 4u);
  EXPECT_EQ(requests.at_start, 0u);
  EXPECT_EQ(requests.contradictions, 0u);
  const RecordedPeaks peaks = recorded_peaks(snapshot, {});
  EXPECT_EQ(peaks.reserved_bytes, 2 << 20);
  EXPECT_EQ(peaks.allocated_bytes, 2048);
}

// Wherever the file was cut: an error within the header, behind it what is whole, and a note.
TEST(Recording, CutAtEveryByte) {
  const std::string whole = recorded_run("cut");
  size_t events = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto read = parse_recording(std::string_view(whole).substr(0, length), "run.hdr");
    if (length < kRecordingHeaderBytes) {
      ASSERT_FALSE(read) << length;
      EXPECT_EQ(read.error().where, "run.hdr: byte 0");
      continue;
    }
    ASSERT_TRUE(read) << length;
    EXPECT_FALSE(read->is_complete);
    EXPECT_TRUE(read->is_partial) << length;
    ASSERT_EQ(read->notes.size(), 1u) << length;
    EXPECT_NE(read->notes[0].find("without its last word"), std::string::npos);
    EXPECT_GE(read->events.size(), events);
    events = read->events.size();
  }
  EXPECT_EQ(events, 20u);
}

TEST(Recording, DamagedBytesAreSurvived) {
  const std::string whole = recorded_run("damage");
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto read = parse_recording(damaged, "run.hdr");
      if (!read) continue;
      const Snapshot snapshot = snapshot_of(*read);
      static_cast<void>(recorded_requests(snapshot));
      static_cast<void>(recorded_peaks(snapshot, {}));
    }
  }
}

TEST(Recording, AKilledRunLosesNothing) {
  const std::string path = path_of("killed");
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = RecordingWriter::open(path, {});
    if (writer) write_run(**writer);
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto read = parse_recording(content_of(path), "run.hdr");
  ::unlink(path.c_str());
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->is_complete);
  EXPECT_EQ(read->events.size(), 20u);
  ASSERT_EQ(read->notes.size(), 1u);
}

// Across windows, with stacks and texts at their ends, from several threads.
TEST(Recording, ALongRunOfThreads) {
  const std::string path = path_of("long");
  auto opened = RecordingWriter::open(path, {});
  ASSERT_TRUE(opened);
  RecordingWriter& writer = **opened;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&writer, thread] {
      for (int i = 0; i < 40'000; ++i) {
        const std::string name = "f" + std::to_string(i % 5000);
        const std::array<Frame, 2> frames = {Frame{name, "a.py", i % 5000}, Frame{"g", "b.py", 1}};
        writer.event(RecordKind::alloc, {.stream = thread,
                                         .stack = writer.stack(frames),
                                         .address = i * 512,
                                         .size = 1 + i % 5000,
                                         .time_ns = i});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.close();
  const auto read = parse_recording(content_of(path), "run.hdr");
  ::unlink(path.c_str());
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->is_complete);
  EXPECT_TRUE(read->notes.empty());
  ASSERT_EQ(read->events.size(), 120'000u);
  EXPECT_EQ(read->sites.stack_count(), 5001u);
  for (const RecordingSlot& event : read->events) {
    const CallFrame frame = read->sites.frame(read->sites.stack(event.stack)[0]);
    ASSERT_EQ(frame.line + 1, event.size);
    ASSERT_EQ(read->sites.text(frame.function), "f" + std::to_string(frame.line));
  }
}

// The limit of a file's size stands for a full disk.
TEST(Recording, AFullDiskEndsTheRecordingOnly) {
  const std::string path = path_of("full");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3 << 19, 3 << 19};  // one window and a half
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = RecordingWriter::open(path, {});
    if (!writer) ::_exit(2);
    for (int i = 0; i < 50'000; ++i) {
      (*writer)->event(RecordKind::alloc, {.address = i * 512, .size = 512});
    }
    (*writer)->close();
    ::_exit((*writer)->dropped_events() > 0 ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const auto read = parse_recording(content_of(path), "run.hdr");
  ::unlink(path.c_str());
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->is_complete);
  EXPECT_EQ(static_cast<int64_t>(read->events.size()) + read->dropped_events, 50'000);
  EXPECT_GT(read->events.size(), 32'000u);
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_NE(read->notes[0].find("disk was full"), std::string::npos);
}

TEST(Recording, KindsFromTheFutureArePassedOver) {
  std::string content = recorded_run("future");
  RecordingSlot slot{.kind = static_cast<RecordKind>(60)};
  std::string newer = content.substr(0, kRecordingHeaderBytes);
  newer.append(reinterpret_cast<const char*>(&slot), sizeof(slot));
  slot = {.kind = static_cast<RecordKind>(200), .stream = 3};
  newer.append(reinterpret_cast<const char*>(&slot), sizeof(slot));
  newer.append(2 * kRecordingSlotBytes, 'x');
  newer += content.substr(kRecordingHeaderBytes);
  const auto read = parse_recording(newer, "run.hdr");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->events.size(), 20u);
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_EQ(read->notes[0], "2 records are of a kind that is not known here");
  content[8] = 2;  // another version
  EXPECT_FALSE(parse_recording(content, "run.hdr"));
}

TEST(Recording, WhatCannotBeTrueIsPassedOver) {
  std::string content = recorded_run("untrue").substr(0, kRecordingHeaderBytes);
  const auto add = [&content](const RecordingSlot& slot) {
    content.append(reinterpret_cast<const char*>(&slot), sizeof(slot));
  };
  add({.kind = RecordKind::alloc, .stream = 0, .address = 512, .size = 1});  // no such stream
  add({.kind = RecordKind::stream, .stream = 1});                            // not the next one
  add({.kind = RecordKind::stream, .stream = 0});
  add({.kind = RecordKind::alloc, .stack = 9, .address = 512, .size = 1});  // no such stack
  add({.kind = RecordKind::alloc, .address = -1, .size = 1});
  add({.kind = RecordKind::alloc, .address = 512, .size = -1});
  add({.kind = RecordKind::text, .stream = 1, .stack = 1, .address = 17});  // longer than its slots
  add({.kind = RecordKind::alloc, .address = 512, .size = 1});
  add({.kind = RecordKind::end});
  const auto read = parse_recording(content, "run.hdr");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->events.size(), 1u);
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_EQ(read->notes[0], "6 records cannot be true and were passed over, the first at byte 64");
}

}  // namespace
}  // namespace headroom::memory
