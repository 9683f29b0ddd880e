// Readers of databases, on those that tests/data/make_databases.py makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/file.h"
#include "formats/read_trace.h"
#include "formats/tiny_database.h"
#include "formats/trace_words.h"
#include "tests/tools/room_test.h"

namespace headroom::formats {
namespace {

std::string path_of(const char* name) { return tests::source_dir() + "/tests/data/" + name; }

size_t count(const Trace& trace, TraceEventKind kind) {
  return static_cast<size_t>(
      std::count_if(trace.events.begin(), trace.events.end(),
                    [&](const TraceEvent& event) { return event.kind == kind; }));
}

const TraceEvent* find(const Trace& trace, std::string_view name) {
  for (const TraceEvent& event : trace.events) {
    if (trace.name_of(event) == name) return &event;
  }
  return nullptr;
}

TEST(NsightSystems, EverythingThatIsKept) {
  const Result<Trace> trace = read_trace(path_of("nsight_systems.sqlite"));
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->format, "Nsight Systems");
  EXPECT_EQ(trace->fault_count, 0);
  EXPECT_EQ(count(*trace, TraceEventKind::step), 2U);
  EXPECT_EQ(count(*trace, TraceEventKind::annotation), 2U);
  EXPECT_EQ(count(*trace, TraceEventKind::host_operator), 4U);
  EXPECT_EQ(count(*trace, TraceEventKind::call), 10U);
  EXPECT_EQ(count(*trace, TraceEventKind::kernel), 6U);
  EXPECT_EQ(count(*trace, TraceEventKind::copy), 2U);
  EXPECT_EQ(count(*trace, TraceEventKind::fill), 2U);
  ASSERT_EQ(trace->devices.size(), 1U);
  EXPECT_EQ(trace->devices[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(trace->devices[0].multiprocessors, 132);
  const TraceEvent* const operation = find(*trace, "aten::mm");
  ASSERT_NE(operation, nullptr);
  EXPECT_EQ(trace->names.at(operation->detail), "[[64,512],[512,64]] []");
  const TraceEvent* const kernel = find(*trace, "void sgemm_128x64_nn(float*, float*, int)");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->start_ns, 1'040'000);
  EXPECT_EQ(kernel->duration_ns, 100'000);
  EXPECT_EQ(trace->stream_of(*kernel), "7");
  const TraceEvent* const call = find(*trace, "cudaLaunchKernel");
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->correlation, kernel->correlation);
  EXPECT_EQ(trace->tracks[call->track].process, "4100");
  EXPECT_EQ(trace->tracks[call->track].thread, "4188");
  EXPECT_NE(find(*trace, "Memcpy HtoD"), nullptr);
  EXPECT_NE(find(*trace, "CUDA graph 42"), nullptr);
}

// Two processes of one report, each with one GPU that it calls 0, with the same numbers for its
// calls and its stream: a kernel belongs to the call of its own process, and runs on the device
// that this process means.
TEST(NsightSystems, SeveralProcesses) {
  const std::string bytes = database_of(R"(
    CREATE TABLE StringIds (id INTEGER, value TEXT);
    INSERT INTO StringIds VALUES (1,'cudaLaunchKernel_v7000'),(2,'one'),(3,'other');
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
    INSERT INTO TARGET_INFO_GPU VALUES (0,'H100'),(1,'H200');
    CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
    INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0,0,4100),(1,0,4101);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
      (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
      (1000,2000,(1 << 56) | (4100 << 24) | 4188,5,1),
      (3000,4000,(1 << 56) | (4101 << 24) | 4189,5,1);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
      streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
      (5000,6000,0,7,5,(1 << 56) | (4100 << 24),2),
      (5000,6000,0,7,5,(1 << 56) | (4101 << 24),3);)");
  const auto file = SqliteFile::from_bytes(bytes, "test");
  ASSERT_TRUE(file);
  const Result<Trace> trace = read_database_trace(*file);
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->events.size(), 4U);
  const TraceEvent* const one = find(*trace, "one");
  const TraceEvent* const other = find(*trace, "other");
  ASSERT_TRUE(one != nullptr && other != nullptr);
  EXPECT_EQ(one->correlation, trace->events[0].correlation);
  EXPECT_EQ(other->correlation, trace->events[1].correlation);
  EXPECT_NE(one->correlation, other->correlation);
  EXPECT_EQ(trace->tracks[one->track].process, "0");
  EXPECT_EQ(trace->tracks[other->track].process, "1");
  EXPECT_EQ(trace->stream_of(*one), "7 of process 4100");
}

// Old exports say no process of kernels: with one that called there is no doubt.
TEST(NsightSystems, KernelsOfNoProcess) {
  const std::string bytes = database_of(R"(
    CREATE TABLE StringIds (id INTEGER, value TEXT);
    INSERT INTO StringIds VALUES (1,'cudaLaunchKernel_v7000'),(2,'one');
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
      (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1000,2000,(4100 << 24) | 4188,5,1);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
      streamId INTEGER, correlationId INTEGER, shortName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5000,6000,0,7,5,2);)");
  const auto file = SqliteFile::from_bytes(bytes, "test");
  ASSERT_TRUE(file);
  const Result<Trace> trace = read_database_trace(*file);
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->events.size(), 2U);
  EXPECT_NE(trace->events[0].correlation, 0);
  EXPECT_EQ(trace->events[0].correlation, trace->events[1].correlation);
  EXPECT_EQ(trace->stream_of(trace->events[1]), "7");
}

TEST(Rocpd, BothRunsOfTheFile) {
  const Result<Trace> trace = read_trace(path_of("rocpd.db"));
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->format, "rocpd");
  EXPECT_TRUE(trace->is_rocm);
  EXPECT_EQ(count(*trace, TraceEventKind::kernel), 12U);
  EXPECT_EQ(count(*trace, TraceEventKind::copy), 6U);
  EXPECT_EQ(count(*trace, TraceEventKind::call), 18U);
  EXPECT_EQ(count(*trace, TraceEventKind::annotation), 2U);
  ASSERT_EQ(trace->devices.size(), 2U);
  EXPECT_EQ(trace->devices[0].name, "AMD Instinct MI300X");
  const TraceEvent* const kernel = find(*trace, "Memcpy HtoD");
  const TraceEvent* const call = find(*trace, "hipMemcpyAsync");
  ASSERT_TRUE(kernel != nullptr && call != nullptr);
  EXPECT_EQ(kernel->correlation, call->correlation);
  EXPECT_NE(kernel->correlation, 0);
}

TEST(Databases, OfNoKnownProfiler) {
  const auto bytes = read_file(path_of("nsight_systems.sqlite"), Bytes(kMiB));
  ASSERT_TRUE(bytes);
  std::string renamed = *bytes;
  for (size_t at = renamed.find("StringIds"); at != std::string::npos;
       at = renamed.find("StringIds")) {
    renamed.replace(at, 9, "StringXds");
  }
  const auto file = SqliteFile::from_bytes(renamed, "test");
  ASSERT_TRUE(file);
  const Result<Trace> trace = read_database_trace(*file);
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("no profiler"), std::string::npos);
}

// Any cut, and any byte changed, gives a trace or an Error with its place.
class DamagedDatabase : public ::testing::TestWithParam<const char*> {
 protected:
  static void read(const std::string& bytes) {
    const auto file = SqliteFile::from_bytes(bytes, "test");
    if (!file) {
      EXPECT_FALSE(file.error().where.empty());
      return;
    }
    const Result<Trace> trace = read_database_trace(*file);
    EXPECT_TRUE(trace || !trace.error().where.empty());
  }
};

TEST_P(DamagedDatabase, IsReadOrRefused) {
  const auto bytes = read_file(path_of(GetParam()), Bytes(kMiB));
  ASSERT_TRUE(bytes);
  std::mt19937 random(7);
  for (size_t cut = 0; cut < bytes->size(); cut += cut < 1024 ? 1 : 97) read(bytes->substr(0, cut));
  for (int i = 0; i < 1000; ++i) {
    std::string changed = *bytes;
    for (int k = 0; k < 4; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    read(changed);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, DamagedDatabase,
                         ::testing::Values("nsight_systems.sqlite", "rocpd.db"));

TEST(TraceWords, StepsByTheirName) {
  for (const char* name : {"ProfilerStep#3", "step 12", "Iteration: 4", "iter_7", "STEP-1"}) {
    EXPECT_TRUE(is_step_name(name)) << name;
  }
  for (const char* name : {"step", "stepping 3", "forward", "iteration x", "3"}) {
    EXPECT_FALSE(is_step_name(name)) << name;
  }
}

TEST(TraceWords, CallsWithoutTheirVersion) {
  EXPECT_EQ(plain_call_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(plain_call_name("cudaMalloc"), "cudaMalloc");
  EXPECT_EQ(plain_call_name("cuMemAlloc_v2"), "cuMemAlloc");
  EXPECT_EQ(plain_call_name("_v"), "_v");
}

}  // namespace
}  // namespace headroom::formats
