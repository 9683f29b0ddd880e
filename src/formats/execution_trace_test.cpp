#include "formats/execution_trace.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/read_trace.h"
#include "tests/tools/room_test.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

// A node as PyTorch 2.0 wrote it, and as it does today.
constexpr std::string_view kOld = R"json({"schema": "1.0.1", "pid": 1, "nodes": [
 {"name": "thread", "id": 2, "rf_id": 0, "input_shapes": [], "input_types": []},
 {"name": "aten::addmm", "id": 47, "rf_id": 21, "inputs": [[1, 2, 0, 9, 4, "cpu"], 1],
  "input_shapes": [[8], [4, 2], [2, 8], []],
  "input_types": ["Tensor(float)", "Tensor(float)", "Tensor(float)", "Int"]}]})json";
constexpr std::string_view kNew = R"json({"schema": "1.1.1-chakra.0.0.4", "nodes": [
 {"id": 5, "name": "aten::cat", "ctrl_deps": 2, "inputs": {"values": [[[1]]],
  "shapes": [[[4, 2], [4, 6]], []], "types": ["GenericList[Tensor(float),Tensor(float)]", "Int"]},
  "outputs": {"values": []}, "attrs": [{"name": "rf_id", "type": "uint64", "value": 7}]}]})json";

Result<ExecutionTrace> read(std::string_view text) {
  return read_execution_trace(text::ByteFeed(text, "test"));
}

std::string detail(const ExecutionTrace& execution, int64_t id) {
  return std::string(execution.names.at(execution.operators.at(id).detail));
}

TEST(ExecutionTrace, BothSchemas) {
  const auto old = read(kOld);
  ASSERT_TRUE(old) << old.error().to_string();
  EXPECT_EQ(old->schema, "1.0.1");
  EXPECT_EQ(old->operators.size(), 1U);
  EXPECT_EQ(detail(*old, 21), R"([[8],[4,2],[2,8],[]] ["float","float","float","Scalar"])");
  const auto today = read(kNew);
  ASSERT_TRUE(today) << today.error().to_string();
  EXPECT_EQ(detail(*today, 7), R"([[[4,2],[4,6]],[]] ["float","Scalar"])");
}

TEST(ExecutionTrace, AnotherFileIsToldWhatIsWanted) {
  const auto execution = read(R"({"traceEvents": []})");
  ASSERT_FALSE(execution);
  EXPECT_NE(execution.error().hint.find("ExecutionTraceObserver"), std::string::npos);
}

TEST(ExecutionTrace, JoinsByIdAndName) {
  const auto execution = read(kNew);
  ASSERT_TRUE(execution);
  Trace trace;
  for (const char* name : {"aten::cat", "aten::add"}) {
    TraceEvent event;
    event.correlation = 7;
    event.name = trace.names.intern(name);
    trace.events.push_back(event);
  }
  const Joined joined = join(trace, *execution);
  EXPECT_EQ(joined.operators, 2);
  EXPECT_EQ(joined.joined, 1);
  EXPECT_EQ(joined.shaped, 1);
  EXPECT_EQ(joined.others, 1);
  EXPECT_FALSE(is_same_run(joined));
  EXPECT_NE(trace.events[0].detail, kNone);
  EXPECT_EQ(trace.events[1].detail, kNone);
}

TEST(ExecutionTrace, CutAtEveryByte) {
  for (const std::string_view text : {kOld, kNew}) {
    for (size_t cut = 0; cut + 2 < text.size(); ++cut) {
      const auto part = read(text.substr(0, cut));
      if (part) {
        EXPECT_TRUE(part->is_cut) << cut;
      } else {
        EXPECT_FALSE(part.error().where.empty());
      }
    }
  }
}

// Recorded together by tests/data/record_execution.py, the trace without shapes.
TEST(ExecutionTrace, RecordedBesideATrace) {
  const std::string folder = tests::source_dir() + "/tests/data/";
  const auto execution = read_execution_trace(folder + "execution_trace.json.gz");
  ASSERT_TRUE(execution) << execution.error().to_string();
  Result<Trace> trace = read_trace(folder + "execution_kineto.json.gz");
  ASSERT_TRUE(trace) << trace.error().to_string();
  const Joined joined = join(*trace, *execution);
  EXPECT_GE(joined.joined, joined.operators * 9 / 10);
  EXPECT_GT(joined.shaped, 50);
  EXPECT_TRUE(is_same_run(joined));
}

}  // namespace
}  // namespace headroom::formats
