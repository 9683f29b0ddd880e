#include "formats/rocprof.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/read_trace.h"
#include "tests/tools/room_test.h"

namespace headroom::formats {
namespace {

std::string made() {
  const auto text = read_file(tests::source_dir() + "/tests/data/rocprofv3.json", Bytes(kMiB));
  EXPECT_TRUE(text);
  return text ? *text : "";
}

Result<Trace> read(std::string_view text) { return read_rocprof(text::ByteFeed(text, "test")); }

TEST(Rocprof, KernelsCallsAndCopies) {
  const std::string text = made();
  EXPECT_TRUE(is_rocprof(text.substr(0, 200)));
  const Result<Trace> trace = read(text);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->format, "rocprofv3");
  EXPECT_EQ(trace->fault_count, 0);
  EXPECT_EQ(trace->records, 18);
  ASSERT_EQ(trace->events.size(), 18U);
  ASSERT_EQ(trace->devices.size(), 1U);
  EXPECT_EQ(trace->devices[0].name, "AMD Instinct MI300X");
  EXPECT_EQ(trace->devices[0].multiprocessors, 304);
  EXPECT_EQ(trace->name_of(trace->events[0]), "hipMemcpyAsync");
  EXPECT_EQ(trace->name_of(trace->events[1]), "Memcpy HtoD");
  EXPECT_EQ(trace->events[1].kind, TraceEventKind::copy);
  EXPECT_EQ(trace->events[1].correlation, trace->events[0].correlation);
  EXPECT_EQ(trace->tracks[trace->events[1].track].process, "0");
  const TraceEvent& kernel = trace->events[3];
  EXPECT_TRUE(trace->name_of(kernel).starts_with("Cijk_"));
  EXPECT_EQ(kernel.duration_ns, 60'000);
  EXPECT_TRUE(trace->tracks[kernel.track].is_device);
}

TEST(Rocprof, SymbolsMayStandBehind) {
  const Result<Trace> trace = read(R"({"rocprofiler-sdk-tool":[{"buffer_records":{
    "kernel_dispatch":[
     {"start_timestamp":5,"end_timestamp":9,"dispatch_info":{"kernel_id":3,"queue_id":{"handle":2}}},
     {"start_timestamp":9,"end_timestamp":8,"dispatch_info":{"kernel_id":3}},
     {"start_timestamp":10,"end_timestamp":12,"dispatch_info":{"kernel_id":4}}]},
    "kernel_symbols":[{"kernel_id":3,"formatted_kernel_name":"gemm<\"x\">"}]}]})");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->events.size(), 2U);
  EXPECT_EQ(trace->name_of(trace->events[0]), "gemm<\"x\">");
  EXPECT_EQ(trace->stream_of(trace->events[0]), "2");
  EXPECT_EQ(trace->name_of(trace->events[1]), "kernel 4");
  EXPECT_EQ(trace->fault_count, 1);
}

TEST(Rocprof, CutAtEveryByte) {
  const std::string text = made();
  const size_t whole = read(text)->events.size();
  for (size_t cut = 0; cut + 2 < text.size(); ++cut) {
    const Result<Trace> part = read(std::string_view(text).substr(0, cut));
    if (!part) {
      EXPECT_FALSE(part.error().where.empty());
      continue;
    }
    EXPECT_TRUE(part->is_cut) << cut;
    EXPECT_LE(part->events.size(), whole);
  }
}

}  // namespace
}  // namespace headroom::formats
