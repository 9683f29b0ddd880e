#include "pack/recorded_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/packing_csv.h"
#include "memory/recording/writer.h"
#include "pack/pack.h"
#include "tests/tools/room_test.h"
#include "text/gzip.h"

namespace headroom::pack {
namespace {

std::string data_file(const std::string& name) {
  return tests::source_dir() + "/tests/data/" + name;
}

std::string content_of(const std::string& path) {
  auto content = read_file(path, Bytes{kGiB});
  EXPECT_TRUE(content) << path;
  return content ? *content : std::string();
}

std::string written_recording() {
  const std::string path =
      testing::TempDir() + "headroom_recorded_file_" + std::to_string(::getpid());
  auto writer = memory::RecordingWriter::open(path, {.device = 2});
  EXPECT_TRUE(writer);
  using memory::RecordKind;
  (*writer)->setting("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64");
  (*writer)->event(RecordKind::segment_alloc, {.address = 4096, .size = 2 << 20, .time_ns = 1000});
  (*writer)->event(RecordKind::iteration, {.address = 7, .time_ns = 2000});
  (*writer)->event(RecordKind::alloc, {.address = 4096, .size = 700, .time_ns = 3000});
  (*writer)->event(RecordKind::free_requested, {.address = 4096, .size = 700, .time_ns = 4000});
  (*writer)->event(RecordKind::free_completed, {.address = 4096, .size = 700, .time_ns = 5000});
  (*writer)->close();
  std::string content = content_of(path);
  ::unlink(path.c_str());
  return content;
}

TEST(RecordedFile, KnowsEachKindByItsFirstBytes) {
  const auto kind_of = [](const std::string& content) {
    const auto read = parse_recorded_file(content, "test");
    EXPECT_TRUE(read) << read.error().to_string();
    return read && *read ? (*read)->kind : "none";
  };
  const std::string pickle = content_of(data_file("snapshot_ring.pickle"));
  const std::string trace = content_of(data_file("profiler_memory_cpu.json"));
  const std::string recording = written_recording();
  EXPECT_EQ(kind_of(pickle), "PyTorch snapshot");
  EXPECT_EQ(kind_of(trace), "profiler trace");
  EXPECT_EQ(kind_of(recording), "recording");
  EXPECT_EQ(kind_of(text::gzip(pickle)), "PyTorch snapshot");
  EXPECT_EQ(kind_of(text::gzip(trace)), "profiler trace");
  EXPECT_EQ(kind_of(text::gzip(recording)), "recording");
  EXPECT_EQ(kind_of("id,lower,upper,size\n"), "none");
  EXPECT_EQ(kind_of(""), "none");
}

TEST(RecordedFile, ARecordingBringsItsSettingsAndIterations) {
  const auto read = parse_recorded_file(written_recording(), "run.hdr");
  ASSERT_TRUE(read);
  const formats::TorchSnapshot& snapshot = (*read)->snapshot;
  ASSERT_EQ(snapshot.devices.size(), 1u);
  EXPECT_EQ(snapshot.devices[0].device, 2);
  ASSERT_TRUE(snapshot.settings);
  EXPECT_EQ(snapshot.settings->max_split_size_bytes, 64 * kMiB);
  ASSERT_EQ(snapshot.annotations.size(), 1u);
  EXPECT_EQ(snapshot.sites.text(snapshot.annotations[0].name), "ProfilerStep#7");
  EXPECT_EQ(snapshot.annotations[0].time_us, 2);
  EXPECT_TRUE((*read)->counted.empty());
}

// Whatever is cut, and wherever: an error that names the file, or what could be read, marked as a
// part.
TEST(RecordedFile, CutAnywhereIsAnErrorOrAPart) {
  struct Whole {
    std::string content;
    bool may_be_partial;  // a pickle is whole or nothing, and so is what is packed in one piece
  };
  const std::string pickle = content_of(data_file("snapshot_ring.pickle"));
  const std::string trace =
      R"({"traceEvents":[{"ph":"i","name":"[memory]","ts":1,"args":{"Device Type":1,"Device Id":0,)"
      R"("Addr":512,"Bytes":512,"Total Allocated":512,"Total Reserved":2097152}},{"ph":"X"}],"x":0})";
  const Whole wholes[] = {{pickle, false},
                          {written_recording(), true},
                          {trace, true},
                          {text::gzip(trace), false},
                          {text::gzip(written_recording()), false}};
  for (const Whole& whole : wholes) {
    ASSERT_FALSE((*parse_recorded_file(whole.content, "a.file"))->is_partial);
    size_t parts = 0;
    for (size_t length = 0; length < whole.content.size(); ++length) {
      const std::string_view part = std::string_view(whole.content).substr(0, length);
      const auto read = parse_recorded_file(part, "a.file");
      if (!read) {
        EXPECT_EQ(read.error().where.substr(0, 6), "a.file") << length;
        EXPECT_FALSE(read.error().message.empty()) << length;
      } else if (*read) {
        const bool is_marked = (*read)->is_partial && !(*read)->snapshot.notes.empty();
        // A trace whose events are whole lacks nothing that is read of it.
        const bool has_all = whole.content == trace && length >= trace.find("]}") + 1;
        EXPECT_TRUE(is_marked || has_all) << length;
        ++parts;
      } else {
        EXPECT_FALSE(formats::parse_packing_csv(part, "a.file")) << length;
      }
    }
    EXPECT_EQ(parts > 0, whole.may_be_partial);
  }
}

TEST(RecordedFile, EachIsAnswered) {
  const std::string path =
      testing::TempDir() + "headroom_recorded_file_answer_" + std::to_string(::getpid());
  ASSERT_TRUE(write_file_atomic(path, written_recording()));
  PackQuestion question;
  question.file = path;
  const auto recording = answer(question);
  ::unlink(path.c_str());
  ASSERT_TRUE(recording) << recording.error().to_string();
  EXPECT_EQ(recording->kind, "recording");
  EXPECT_EQ(recording->requests.size(), 1u);
  EXPECT_EQ(recording->plan.size, Bytes(1024));
  ASSERT_TRUE(recording->recorded);
  EXPECT_EQ(recording->recorded->peak_reserved, Bytes(2 << 20));
  question.file = data_file("profiler_memory_cpu.json");
  const auto trace = answer(question);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->kind, "profiler trace");
  EXPECT_FALSE(trace->recorded);  // a CPU's allocator reserves nothing
  EXPECT_GT(trace->requests.size(), 100u);
}

}  // namespace
}  // namespace headroom::pack
