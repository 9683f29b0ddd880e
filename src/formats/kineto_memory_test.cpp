#include "formats/kineto_memory.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "memory/packing/recorded_requests.h"
#include "tests/tools/room_test.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

using memory::TraceAction;

Result<KinetoMemory> parse(std::string_view text) {
  return parse_kineto_memory(text::ByteFeed(text, "trace.json"));
}

std::string event(const std::string& arguments, const std::string& time = "10.5") {
  return R"({"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":)" +
         time + R"(,"args":{)" + arguments + "}}";
}

std::string trace(const std::vector<std::string>& events) {
  std::string text = R"({"schemaVersion":1,"traceEvents":[)";
  for (const std::string& each : events) text += (text.back() == '[' ? "" : ",") + each;
  return text + "]}";
}

// Of torch 2.13 on a CPU: two steps of a small network with Adam, its other events thinned out.
TEST(KinetoMemory, ReadsARealTrace) {
  const std::string path = tests::source_dir() + "/tests/data/profiler_memory_cpu.json";
  const auto read = read_kineto_memory(path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_TRUE(read->is_cpu);
  ASSERT_EQ(read->snapshot.devices.size(), 1u);
  const auto& entries = read->snapshot.devices[0].trace;
  size_t allocations = 0;
  int64_t live = 0;
  int64_t peak = 0;
  for (const auto& entry : entries) {
    if (entry.action == TraceAction::alloc) ++allocations;
    if (entry.action == TraceAction::alloc) live += entry.size;
    if (entry.action == TraceAction::free_completed) live -= entry.size;
    peak = std::max(peak, live);
  }
  EXPECT_EQ(allocations, 136u);
  EXPECT_EQ(peak, read->totals[0].peak_allocated_bytes);  // what torch counted itself
  EXPECT_EQ(read->totals[0].peak_reserved_bytes, 0);
  const auto requests = memory::recorded_requests(read->snapshot.devices[0]);
  EXPECT_EQ(requests.contradictions, 0u);
  EXPECT_EQ(requests.requests.size(), allocations + requests.at_start);
}

// The allocator counts 10,240 B more than the blocks that the events name; of a block that is given
// back and was never seen to be allocated, the size is known.
TEST(KinetoMemory, KnowsWhatWasThereBefore) {
  const auto read = parse(trace({
      event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":1024,"Total Allocated":13312)",
            "1.0"),
      event(R"("Device Type":1,"Device Id":0,"Addr":4096,"Bytes":-2048,"Total Allocated":11264)",
            "2.0"),
      event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":-1024,"Total Allocated":10240)",
            "3.0"),
  }));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->totals[0].unnamed_bytes, 10240);
  // What no device has is not believed: eight releases add up to the least of 64 bits.
  std::vector<std::string> huge;
  for (int i = 0; i < 8; ++i) {
    huge.push_back(event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":1)"));
    huge.push_back(
        event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":-1152921504606846975)"));
  }
  const auto hostile = parse(trace(huge));
  ASSERT_TRUE(hostile) << hostile.error().to_string();
  EXPECT_EQ(hostile->totals[0].unnamed_bytes, 0);
  EXPECT_FALSE(read->is_partial);
}

TEST(KinetoMemory, TakesGpusBeforeTheCpuAndSortsByTime) {
  const auto read = parse(trace({
      event(R"("Device Type":0,"Device Id":-1,"Addr":5,"Bytes":64,"Total Allocated":64)", "1.0"),
      event(R"("Device Type":1,"Device Id":2,"Addr":512,"Bytes":-1024,"Total Allocated":0)",
            "9.75"),
      event(R"("Device Type":1,"Device Id":2,"Addr":512,"Bytes":1024,"Total Allocated":1024,)"
            R"("Total Reserved":2097152)",
            "3.25"),
      R"({"name":"aten::mm","args":{"Bytes":7,"note":"[memory]"}})",
  }));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_FALSE(read->is_cpu);
  ASSERT_EQ(read->snapshot.devices.size(), 1u);
  const memory::Snapshot& device = read->snapshot.devices[0];
  EXPECT_EQ(device.device, 2);
  ASSERT_EQ(device.trace.size(), 3u);
  EXPECT_EQ(device.trace[0].action, TraceAction::alloc);
  EXPECT_EQ(device.trace[0].time_us, 3);
  EXPECT_EQ(device.trace[1].action, TraceAction::free_requested);
  EXPECT_EQ(device.trace[2].action, TraceAction::free_completed);
  EXPECT_EQ(device.trace[2].size, 1024);
  EXPECT_EQ(read->totals[0].peak_allocated_bytes, 1024);
  EXPECT_EQ(read->totals[0].peak_reserved_bytes, 2097152);
}

TEST(KinetoMemory, WithoutMemoryEvents) {
  const auto read = parse(trace({R"({"name":"aten::mm"})"}));
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().hint.find("profile_memory=True"), std::string::npos);
  EXPECT_FALSE(parse("[1,2]"));
  EXPECT_FALSE(parse(""));
}

TEST(KinetoMemory, PassesOverWhatSaysNothing) {
  const auto read = parse(trace({
      event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":512)"),
      event(R"("Device Type":1,"Device Id":0,"Addr":512)"),
      event(R"("Device Type":1,"Device Id":0,"Addr":-512,"Bytes":512)"),
      event(R"("Device Type":1,"Device Id":99999,"Addr":512,"Bytes":512)"),
      event(R"("Device Type":1,"Device Id":0,"Addr":"512","Bytes":512)"),
      event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":9e300)"),
  }));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->snapshot.devices.at(0).trace.size(), 1u);
  ASSERT_GE(read->snapshot.notes.size(), 2u);
  EXPECT_EQ(read->snapshot.notes[1], "5 memory events without an address or a size");
}

// Cut anywhere: an error, or what is whole with a note.
TEST(KinetoMemory, CutAtEveryByte) {
  const std::string whole = trace({
      event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":512)"),
      event(R"("Device Type":1,"Device Id":0,"Addr":512,"Bytes":-512)", "11"),
  });
  for (size_t length = 0; length + 2 < whole.size(); ++length) {
    const auto read = parse(std::string_view(whole).substr(0, length));
    if (!read) {
      EXPECT_FALSE(read.error().where.empty()) << length;
      continue;
    }
    EXPECT_TRUE(read->is_partial) << length;
    EXPECT_GE(read->snapshot.notes.size(), 2u) << length;
    EXPECT_LE(read->snapshot.devices.at(0).trace.size(), 3u);
  }
  const std::string packed = text::gzip(whole);
  const auto unpacked = parse(packed);
  ASSERT_TRUE(unpacked);
  EXPECT_EQ(unpacked->snapshot.devices.at(0).trace.size(), 3u);
  EXPECT_FALSE(unpacked->is_partial);
  for (size_t length = 0; length < packed.size(); ++length) {
    const auto read = parse(std::string_view(packed).substr(0, length));
    // Where only the checksum behind the events is missing, nothing of them is.
    const bool has_all = read && read->snapshot.devices.at(0).trace.size() == 3u;
    EXPECT_TRUE(read ? read->is_partial || has_all : !read.error().where.empty()) << length;
  }
}

}  // namespace
}  // namespace headroom::formats
