#include "formats/kineto.h"

#include <gtest/gtest.h>

#include "text/gzip.h"

namespace headroom::formats {
namespace {

Result<Trace> read(std::string_view text, const TraceLimits& limits = {}) {
  return read_kineto(text::ByteFeed(text, "test"), limits);
}

// As today's profiler writes: fractions of microseconds, device and stream in the arguments.
constexpr std::string_view kToday = R"({"schemaVersion": 1,
 "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85, "numSms": 132}],
 "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
 "traceEvents": [
  {"ph": "X", "cat": "kernel", "name": "gemm<\"x\">", "pid": 0, "tid": 7, "ts": 110.250, "dur": 5.5,
   "args": {"External id": 2, "device": 0, "stream": 7, "correlation": 15, "grid": [1, 1, 1]}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 41, "tid": 42, "ts": 100, "dur": 9.001,
   "args": {"External id": 2, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 41, "tid": 42, "ts": 104,
   "dur": 3, "args": {"cbid": 211, "correlation": 15}},
  {"ph": "X", "cat": "python_function", "name": "f", "pid": 41, "tid": 42, "ts": 99, "dur": 20},
  {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 24, "ts": 120,
   "dur": 0, "args": {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 7, "stream": 24,
   "wait_on_cuda_event_record_corr_id": 14, "correlation": 16, "device": 0}},
  {"ph": "s", "id": 15, "pid": 41, "tid": 42, "ts": 104, "cat": "ac2g", "name": "ac2g"},
  {"name": "process_name", "ph": "M", "ts": 0, "pid": 41, "tid": 0, "args": {"name": "python"}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 41, "tid": 42, "ts": 100,
   "dur": 50}
 ], "traceName": "x.json"})";

TEST(Kineto, ReadsWhatMatters) {
  const Result<Trace> trace = read(kToday);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->records, 8);
  EXPECT_EQ(trace->rank, 3);
  EXPECT_EQ(trace->world_size, 8);
  EXPECT_TRUE(trace->has_stacks);
  EXPECT_FALSE(trace->is_rocm);
  ASSERT_EQ(trace->devices.size(), 1U);
  EXPECT_EQ(trace->devices[0].name, "NVIDIA H100");
  EXPECT_EQ(trace->devices[0].multiprocessors, 132);
  ASSERT_EQ(trace->events.size(), 4U);
  // By start, and the longer one first.
  EXPECT_EQ(trace->name_of(trace->events[0]), "ProfilerStep#3");
  EXPECT_EQ(trace->events[0].kind, TraceEventKind::step);
  const TraceEvent& operation = trace->events[1];
  EXPECT_EQ(trace->name_of(operation), "aten::mm");
  EXPECT_EQ(operation.start_ns, 100'000);
  EXPECT_EQ(operation.duration_ns, 9'001);
  EXPECT_EQ(operation.external_id, 2);
  EXPECT_EQ(trace->names.at(operation.detail), R"([[4,8],[8,2]] ["float","float"])");
  const TraceEvent& call = trace->events[2];
  EXPECT_EQ(call.kind, TraceEventKind::call);
  EXPECT_EQ(call.correlation, 15);
  EXPECT_EQ(call.track, operation.track);
  const TraceEvent& kernel = trace->events[3];
  EXPECT_EQ(trace->name_of(kernel), "gemm<\"x\">");
  EXPECT_EQ(kernel.start_ns, 110'250);
  EXPECT_EQ(kernel.correlation, 15);
  EXPECT_EQ(trace->stream_of(kernel), "7");
  EXPECT_TRUE(trace->tracks[kernel.track].is_device);
  ASSERT_EQ(trace->waits.size(), 1U);
  EXPECT_EQ(trace->waits[0].stream, 24);
  EXPECT_EQ(trace->waits[0].wait_on_stream, 7);
  EXPECT_EQ(trace->waits[0].record_correlation, 14);
  EXPECT_EQ(trace->fault_count, 0);
}

TEST(Kineto, PackedIsTheSame) {
  const std::string packed = text::gzip(kToday);
  const Result<Trace> trace = read(packed);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->events.size(), 4U);
}

TEST(Kineto, OldLayouts) {
  const Result<Trace> trace = read(R"([
    {"ph":"X","cat":"Operator","name":"aten::add","pid":"1","tid":"1","ts":1661938466265032,"dur":25},
    {"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1661938466265035,"dur":5,
     "args":{"correlation":7}},
    {"ph":"X","cat":"Kernel","name":"add","pid":0,"tid":7,"ts":1661938466265040,"dur":3,
     "args":{"stream":7,"device":0,"correlation":7}},
    {"ph":"X","cat":"cpu_op","name":"ProfilerStep#2","pid":1,"tid":1,"ts":1661938466265030,"dur":99}])");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->events.size(), 4U);
  EXPECT_EQ(trace->events[0].kind, TraceEventKind::step);
  EXPECT_EQ(trace->events[1].start_ns, 1661938466265032000);
  EXPECT_EQ(trace->events[1].track, trace->events[2].track);
  EXPECT_EQ(trace->events[3].kind, TraceEventKind::kernel);
}

TEST(Kineto, ROCmNamesTheKernelAtTheLaunch) {
  const Result<Trace> trace = read(R"({"roctracer_version": 4.1, "traceEvents": [
    {"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":1,"tid":1,"ts":1,"dur":1,
     "args":{"kernel":"add","correlation":7}}]})");
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->is_rocm);
  EXPECT_EQ(trace->names.at(trace->events[0].detail), "add");
}

TEST(Kineto, ACollectivesKernelSaysWhichItIs) {
  const Result<Trace> trace = read(R"({"traceEvents": [
    {"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":0,"tid":20,"ts":1,"dur":1,
     "args":{"stream":20,"Collective name":"allreduce","In msg nelems":64,
             "Process Group Name":"tp"}}]})");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->names.at(trace->events[0].detail), "allreduce of 64 in group tp");
}

// An uneven one has another number of elements on each rank, and is the same collective.
TEST(Kineto, AnUnevenCollectiveHasNoNumberOfElements) {
  for (const char* elements : {"64", "65"}) {
    const Result<Trace> trace = read(std::string(R"({"traceEvents": [
    {"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":0,"tid":20,"ts":1,"dur":1,
     "args":{"stream":20,"Collective name":"all_to_allv","In msg nelems":)") +
                                     elements + R"(,"Process Group Name":"ep"}}]})");
    ASSERT_TRUE(trace);
    EXPECT_EQ(trace->names.at(trace->events[0].detail), "all_to_allv in group ep");
  }
}

TEST(Kineto, ABadEventIsRecordedWithItsPlace) {
  const std::string text = R"({"traceEvents": [
    {"ph":"X","cat":"kernel","name":"a","ts":1,"dur":1},
    {"ph":"X","cat":"kernel","name":"no time","dur":1},
    {"ph":"X","cat":"kernel","name":"backwards","ts":5,"dur":-1},
    {"ph":"X","cat":"kernel","name":"far","ts":9e30,"dur":1},
    {"ph":"X" "cat":"kernel"},
    {"ph":"X","cat":"kernel","name":"b","ts":3,"dur":1}]})";
  const Result<Trace> trace = read(text);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->events.size(), 2U);
  EXPECT_EQ(trace->fault_count, 4);
  ASSERT_EQ(trace->faults.size(), 4U);
  const size_t place = text.find("{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"no time\"");
  EXPECT_EQ(trace->faults[0].place, "byte " + std::to_string(place));
}

TEST(Kineto, ACutFileGivesItsBeginning) {
  const size_t half = kToday.find("\"cuda_sync\"");
  const Result<Trace> trace = read(kToday.substr(0, half));
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->is_cut);
  EXPECT_EQ(trace->events.size(), 3U);
  EXPECT_GT(trace->fault_count, 0);
  const std::string packed = text::gzip(kToday);
  const Result<Trace> cut = read(std::string_view(packed).substr(0, packed.size() * 2 / 3));
  EXPECT_TRUE(!cut || cut->is_cut);
}

// Who writes the list of devices behind the events loses it; an empty one is of a CPU.
TEST(Kineto, ACutFileMayNotGetToItsDevices) {
  const std::string events = R"("traceEvents":[
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":2},)";
  const Result<Trace> cut = read("{" + events);
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->lacks_devices);
  const Result<Trace> of_a_cpu = read(R"({"deviceProperties":[],)" + events);
  ASSERT_TRUE(of_a_cpu && of_a_cpu->is_cut);
  EXPECT_FALSE(of_a_cpu->lacks_devices);
  const Result<Trace> whole = read("{" + events.substr(0, events.size() - 1) + "]}");
  ASSERT_TRUE(whole && !whole->is_cut);
  EXPECT_FALSE(whole->lacks_devices);
}

TEST(Kineto, NotATrace) {
  for (const char* text :
       {"", "{}", "[1,2]", "{\"traceEvents\": 1}", "id,lower,upper", "{\"nodes\":[]}"}) {
    const Result<Trace> trace = read(text);
    ASSERT_FALSE(trace) << text;
    EXPECT_FALSE(trace.error().where.empty());
  }
  EXPECT_TRUE(read("[]"));
}

TEST(Kineto, LimitsHold) {
  TraceLimits limits;
  limits.events = 3;
  EXPECT_FALSE(read(kToday, limits));
  limits = {};
  limits.names = 2;
  EXPECT_FALSE(read(kToday, limits));
  limits = {};
  limits.name = 4;
  const Result<Trace> trace = read(kToday, limits);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->name_of(trace->events[0]), "Prof");
}

}  // namespace
}  // namespace headroom::formats
