// What the reader makes of a small trace, and of every kind of damage to it.
#include "model/traced_graph.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/tracer.h"
#include "tests/tools/room_test.h"

namespace headroom::model {
namespace {

std::string small_trace() {
  const std::string path = tests::source_dir() + "/fuzz/corpus/traced_graph/small.json";
  const auto text = read_file(path, Bytes(1 << 20));
  EXPECT_TRUE(text) << path;
  return text ? *text : "{}";
}

Result<TracedGraph> read(const std::string& text) {
  HEADROOM_ASSIGN(const text::Json json, text::parse_json(text, "trace"));
  return read_traced_graph({json, "trace"});
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(TracedGraph, ReadsWhatTheTracerWrote) {
  const auto traced = read(small_trace());
  ASSERT_TRUE(traced) << traced.error().to_string();
  EXPECT_EQ(traced->source, "train.py:build");
  EXPECT_EQ(traced->batch, 3);
  EXPECT_FALSE(traced->sequence);
  EXPECT_TRUE(traced->unknown_operators.empty());
  const Graph& graph = traced->graph;
  ASSERT_EQ(graph.parameters.size(), 3U);
  EXPECT_EQ(graph.parameters[0].name, "0.weight");
  EXPECT_EQ(graph.parameters[1].role, ParameterRole::bias);
  EXPECT_EQ(graph.parameters[2].role, ParameterRole::lm_head);
  EXPECT_EQ(parameter_count(graph, true), 8 * 16 + 16 + 16 * 5);
  EXPECT_NE(graph.loss, kNoValue);
}

// A forward pass alone: its outputs are whatever it made, and there is no loss.
TEST(TracedGraph, OfAForwardPass) {
  const auto traced =
      read(replaced(small_trace(), "\"keywords\"", "\"forward_only\": true, \"keywords\""));
  ASSERT_TRUE(traced) << traced.error().to_string();
  EXPECT_EQ(traced->graph.loss, kNoValue);
  EXPECT_EQ(traced->graph.outputs, std::vector<ValueId>{11});
}

constexpr const char* kLoss = "\"outputs\": [11], \"data_answers\"";
constexpr const char* kGradient = "{\"gradient\": 0,";

struct Damage {
  const char* what;
  const char* from;
  const char* to;
};

// Each must be refused, with the place.
TEST(TracedGraph, RefusesDamage) {
  const Damage cases[] = {
      {"another schema", "headroom.graph/1", "headroom.graph/9"},
      {"a view of a gradient that is not handed in", kGradient, "{\"gradient\": 5,"},
      {"no storages", "\"storages\"", "\"stores\""},
      {"no operators", "\"operators\"", "\"operations\""},
      {"no outputs", kLoss, "\"outputs\": [], \"data_answers\""},
      {"a value that is none", kLoss, "\"outputs\": [4000], \"data_answers\""},
      {"a negative value", kLoss, "\"outputs\": [-1], \"data_answers\""},
      {"a parameter as loss", kLoss, "\"outputs\": [0], \"data_answers\""},
      {"an astronomic storage", "\"bytes\": 512", "\"bytes\": 9000000000000000000"},
      {"a negative storage", "\"bytes\": 512", "\"bytes\": -512"},
      {"an astronomic size", "\"shape\": [16, 8]", "\"shape\": [1099511627776, 1099511627776]"},
      {"a size beyond int64", "\"shape\": [16, 8]", "\"shape\": [1e30, 8]"},
      {"a negative size", "\"shape\": [16, 8]", "\"shape\": [-16, 8]"},
      {"fewer strides than sizes", "\"strides\": [8, 1]", "\"strides\": [8]"},
      {"sizes as text", "\"shape\": [16, 8]", "\"shape\": \"16x8\""},
      {"no such type", "\"dtype\": \"float32\"", "\"dtype\": \"float31\""},
      {"no such storage", "\"storage\": 0", "\"storage\": 400"},
      {"keywords of the wrong kind", "\"batch\": 3", "\"batch\": \"three\""},
      {"an argument that is no value", "{\"value\": 1}", "{\"value\": 1000000}"},
      {"an argument that is a fraction", "{\"value\": 1}", "{\"value\": 1.5}"},
      {"a gradient from an own output", "\"edges\": [1, null, 4]", "\"edges\": [1, null, 5]"},
      {"a gradient of another shape", "\"edges\": [1, null, 4]", "\"edges\": [0, null, 4]"},
      {"a block of the backward that is none", "\"block\": 0", "\"block\": 77"},
      {"a release of what is not there", "{\"bytes\": 512}", "{\"free\": 3}"},
      {"a result before the first", kGradient, "{\"result\": 0,"},
      {"a gradient that is not handed in", kGradient, "{\"same\": 5,"},
  };
  const std::string whole = small_trace();
  for (const Damage& damage : cases) {
    const auto traced = read(replaced(whole, damage.from, damage.to));
    ASSERT_FALSE(traced) << damage.what;
    EXPECT_EQ(traced.error().code, ErrorCode::bad_input) << damage.what;
    EXPECT_NE(traced.error().where.find("trace"), std::string::npos) << damage.what;
  }
}

TEST(TracedGraph, RefusesATruncatedFile) {
  const std::string whole = small_trace();
  for (size_t size = 0; size < whole.size() - 2; size += 97) {
    EXPECT_FALSE(read(whole.substr(0, size))) << size;
  }
}

// Nobody makes it, so it was there before: as a constant of the user's code.
TEST(TracedGraph, TakesAValueThatNobodyMadeForAConstant) {
  const auto traced =
      read(replaced(small_trace(), "\"inputs\": [{", "\"inputs\": [], \"others\": [{"));
  ASSERT_TRUE(traced) << traced.error().to_string();
  EXPECT_TRUE(traced->graph.inputs.empty());
  EXPECT_FALSE(traced->graph.buffers.empty());
}

TEST(TracedGraph, NamesOperatorsThatItDoesNotKnow) {
  const auto traced = read(replaced(small_trace(), "aten.relu.default", "mine.relu.default"));
  ASSERT_TRUE(traced) << traced.error().to_string();
  EXPECT_EQ(traced->unknown_operators, std::vector<std::string>{"mine.relu.default"});
}

TEST(Tracer, GivesTheUserTheirOwnTraceback) {
  const Error error = tracer_error("train.py:build", 3,
                                   "W: something of a library\nheadroom: ValueError: wrong\n"
                                   "/home/me/train.py:3 in build: raise ValueError\n");
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_EQ(error.where, "train.py:build");
  EXPECT_EQ(error.message, "ValueError: wrong");
  EXPECT_EQ(error.hint, "/home/me/train.py:3 in build: raise ValueError");
}

TEST(Tracer, TellsWhatIsMissing) {
  const Error error = tracer_error("train.py:build", 4, "headroom: PyTorch is not installed\n");
  EXPECT_EQ(error.code, ErrorCode::unavailable);
  EXPECT_NE(error.hint.find("HEADROOM_PYTHON"), std::string::npos);
}

TEST(Tracer, ShowsWhatPythonSaidWhereTheTracerSaidNothing) {
  const Error error = tracer_error("train.py:build", 1, "Traceback\nSyntaxError: invalid syntax\n");
  EXPECT_EQ(error.message, "the trace ended with exit code 1");
  EXPECT_EQ(error.hint, "Traceback\nSyntaxError: invalid syntax");
  EXPECT_NE(tracer_error("t", 137, "").message.find("killed"), std::string::npos);
}

}  // namespace
}  // namespace headroom::model
