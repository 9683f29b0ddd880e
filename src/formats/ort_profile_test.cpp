#include "formats/ort_profile.h"

#include <gtest/gtest.h>

#include "formats/read_trace.h"
#include "tests/tools/room_test.h"

namespace headroom::formats {
namespace {

constexpr std::string_view kProfile = R"([
{"cat":"Session","pid":1,"tid":5,"dur":40,"ts":2,"ph":"X","name":"model_loading_uri","args":{}},
{"cat":"Node","pid":1,"tid":5,"dur":30,"ts":110,"ph":"X","name":"/a/MatMul_kernel_time","args":{
 "op_name":"MatMul","provider":"CPUExecutionProvider","thread_scheduling_stats":{"main_thread":{}},
 "input_type_shape":[{"float":[1,64,128]},{"int64":[]}]}},
{"cat":"Node","pid":1,"tid":5,"dur":5,"ts":100,"ph":"X","name":"no_op","args":{}},
{"cat":"Session","pid":1,"tid":5,"dur":100,"ts":90,"ph":"X","name":"model_run","args":{}}])";

Result<Trace> read(std::string_view text) {
  return read_ort_profile(text::ByteFeed(text, "profile.json"));
}

TEST(OrtProfile, NodesAndRuns) {
  const Result<Trace> trace = read(kProfile);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->format, "ONNX Runtime");
  ASSERT_EQ(trace->events.size(), 2U);
  EXPECT_EQ(trace->records, 4);
  EXPECT_EQ(trace->name_of(trace->events[0]), "model_run");
  EXPECT_EQ(trace->events[0].kind, TraceEventKind::step);
  const TraceEvent& node = trace->events[1];
  EXPECT_EQ(trace->name_of(node), "onnx::MatMul");
  EXPECT_EQ(node.start_ns, 110'000);
  EXPECT_EQ(node.duration_ns, 30'000);
  EXPECT_EQ(trace->names.at(node.detail), R"([[1,64,128],[]] ["float","int64"])");
}

// Constants that were packed when the model was loaded are not among the inputs.
TEST(OrtProfile, PackedWeightsFollowFromTheResult) {
  const auto detail_of = [](std::string_view operation, std::string_view inputs,
                            std::string_view outputs) {
    std::string text = R"([{"cat":"Node","ts":1,"dur":2,"ph":"X","name":"n","args":{"op_name":")";
    text += std::string(operation) + R"(","input_type_shape":)" + std::string(inputs);
    text += R"(,"output_type_shape":)" + std::string(outputs) + "}}]";
    const Result<Trace> trace = read(text);
    EXPECT_TRUE(trace) << trace.error().to_string();
    return std::string(trace->names.at(trace->events.back().detail));
  };
  const char* const result = R"([{"float":[1,64,32]}])";
  EXPECT_EQ(detail_of("MatMul", R"([{"float":[1,64,128]}])", result),
            R"([[1,64,128],[128,32]] ["float","float"])");
  EXPECT_EQ(detail_of("Gemm", R"([{"float":[64,128]},{"float":[32]}])", R"([{"float":[64,32]}])"),
            R"([[64,128],[128,32],[32]] ["float","float","float"])");
  EXPECT_EQ(detail_of("MatMul", R"([{"float":[1,64,128]},{"float":[128,32]}])", result),
            R"([[1,64,128],[128,32]] ["float","float"])");
  EXPECT_EQ(detail_of("Relu", R"([{"float":[1,64,32]}])", result), R"([[1,64,32]] ["float"])");
}

// Times of nodes on a device are those of launching: answered as if they were kernels', a GPU's run
// would look like a processor's.
TEST(OrtProfile, ADevicesProviderIsRefused) {
  const auto error_of = [](std::string_view category, std::string_view arguments) {
    const Result<Trace> trace =
        read(R"([{"cat":")" + std::string(category) +
             R"(","tid":1,"ts":1,"dur":4,"name":"n","args":{"op_name":"Conv")" +
             std::string(arguments) + "}}]");
    if (trace) return std::string();
    EXPECT_EQ(trace.error().code, ErrorCode::unavailable);
    return trace.error().message;
  };
  EXPECT_EQ(error_of("Node", R"(,"provider":"CPUExecutionProvider")"), "");
  EXPECT_EQ(error_of("Node", R"(,"provider":"XnnpackExecutionProvider")"), "");
  EXPECT_EQ(error_of("Node", ""), "");
  EXPECT_EQ(error_of("Node", R"(,"provider":"CUDAExecutionProvider")").substr(0, 37),
            "is of a run on CUDAExecutionProvider:");
  EXPECT_EQ(error_of("Kernel", "").substr(0, 25), "is of a run on a device: ");
}

TEST(OrtProfile, IsToldFromATrace) {
  EXPECT_TRUE(is_ort_profile(kProfile));
  EXPECT_FALSE(is_ort_profile(R"([{"ph":"X","cat":"cpu_op","name":"aten::mm"}])"));
  EXPECT_FALSE(is_ort_profile(R"({"traceEvents":[{"cat":"Node"}]})"));
  EXPECT_FALSE(is_ort_profile(""));
  EXPECT_FALSE(is_ort_profile("[ ]"));
}

TEST(OrtProfile, WhatCannotBeRead) {
  EXPECT_FALSE(read("[]"));
  EXPECT_FALSE(read("{}"));
  EXPECT_FALSE(read(R"([{"cat":"Session","ts":1,"dur":1,"name":"model_loading_uri"}])"));
  const Result<Trace> partly = read(R"([
{"cat":"Node","tid":1,"ts":1,"dur":-4,"args":{"op_name":"Add"}},
{"cat":"Node","tid":1,"ts":1e300,"dur":4,"args":{"op_name":"Add"}},
{"cat":"Node","tid":1,"ts":1,"dur":4,"args":{"op_name":"Add","input_type_shape":[7]}},
{"cat":"Node","tid":1,"ts":9,"dur":)");
  ASSERT_TRUE(partly);
  EXPECT_EQ(partly->events.size(), 1U);
  EXPECT_EQ(partly->events[0].detail, kNone);
  EXPECT_TRUE(partly->is_cut);
  EXPECT_GE(partly->fault_count, 2);
}

// Recorded by tests/data/record_onnx.py.
TEST(OrtProfile, Recorded) {
  const std::string folder = tests::source_dir() + "/tests/data/";
  for (const char* name : {"onnx_fp32.json.gz", "onnx_int8.json.gz"}) {
    const Result<Trace> trace = read_trace(folder + name);
    ASSERT_TRUE(trace) << trace.error().to_string();
    EXPECT_EQ(trace->format, "ONNX Runtime");
    EXPECT_EQ(trace->fault_count, 0);
    size_t runs = 0;
    for (const TraceEvent& event : trace->events) runs += trace->name_of(event) == "model_run";
    EXPECT_EQ(runs, 3U);
  }
  EXPECT_EQ(read_trace(folder + "trace_gpu.json")->format, "Kineto");
}

}  // namespace
}  // namespace headroom::formats
