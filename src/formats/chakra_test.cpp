#include "formats/chakra.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/execution_trace.h"
#include "formats/read_trace.h"

namespace headroom::formats {
namespace {

// A writer of the wire format for these tests alone; Python's protobuf encodes the same in
// tests/python/test_chakra.py.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string integer(uint32_t number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string bytes(uint32_t number, const std::string& inside) {
  return varint(number << 3 | 2) + varint(inside.size()) + inside;
}
std::string framed(const std::string& message) { return varint(message.size()) + message; }
std::string attribute(const std::string& name, const std::string& value) {
  return bytes(10, bytes(1, name) + value);
}
std::string number_attribute(const std::string& name, int64_t value) {
  return attribute(name, integer(9, static_cast<uint64_t>(value)));
}

struct Written {
  uint64_t id = 0;
  std::string name = {};
  uint64_t caller = 0;
  uint64_t wait = 0;
  uint64_t duration = 0;
  uint64_t start = 0;
  int64_t record = 0;
  bool is_host = true;
  int64_t stream = 0;
  std::string more = {};
};

std::string node(const Written& one) {
  std::string message = integer(1, one.id) + bytes(2, one.name) + integer(3, 4);
  if (one.caller != 0) message += bytes(4, varint(one.caller));
  if (one.wait != 0) message += bytes(5, varint(one.wait) + varint(one.wait + 7));
  if (one.start != 0) message += integer(6, one.start);
  message += integer(7, one.duration);
  message += attribute("is_cpu_op", integer(27, one.is_host ? 1 : 0));
  message += number_attribute("rf_id", one.record) + number_attribute("tid", 1);
  if (!one.is_host) message += number_attribute("stream", one.stream);
  return framed(message + one.more);
}

std::string metadata() {
  return framed(bytes(2, bytes(1, "schema") + bytes(29, "1.1.1-chakra.0.0.4")));
}

Result<Trace> read(const std::string& file) { return read_chakra(text::ByteFeed(file, "t.et")); }

const TraceEvent& event(const Trace& trace, std::string_view name) {
  for (const TraceEvent& one : trace.events) {
    if (trace.name_of(one) == name) return one;
  }
  ADD_FAILURE() << "no event " << name;
  return trace.events.front();
}

std::string inputs(const std::string& shapes, const std::string& types) {
  return bytes(8, bytes(1, "[]") + bytes(2, shapes) + bytes(3, types));
}

TEST(Chakra, LaysOperatorsOutWithinTheirCallersAndLinksKernels) {
  const std::string file =
      metadata() + node({.id = 3, .name = "root", .more = number_attribute("scope", 7)}) +
      node({.id = 4, .name = "aten::linear", .caller = 3, .duration = 10, .record = 8}) +
      node({.id = 5,
            .name = "aten::addmm",
            .caller = 4,
            .wait = 4,
            .duration = 20,
            .record = 9,
            .more = inputs("[[4, 8], [[2], [3]], []]",
                           "['Tensor(float)', 'GenericList[Tensor(int),Tensor(int)]', 'None']")}) +
      node({.id = 6,
            .name = "gemm_kernel",
            .caller = 5,
            .wait = 5,
            .duration = 70,
            .record = 9,
            .is_host = false,
            .stream = 7}) +
      node({.id = 7,
            .name = "Memcpy DtoH (Device -> Pinned)",
            .caller = 5,
            .wait = 5,
            .duration = 5,
            .is_host = false,
            .stream = 7}) +
      node({.id = 8, .name = "aten::relu", .caller = 3, .wait = 5, .duration = 1, .record = 10});
  const auto trace = read(file);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->format, "Chakra");
  EXPECT_FALSE(trace->has_starts);
  EXPECT_FALSE(trace->is_cut);
  EXPECT_EQ(trace->records, 6);
  const TraceEvent& linear = event(*trace, "aten::linear");
  const TraceEvent& addmm = event(*trace, "aten::addmm");
  const TraceEvent& relu = event(*trace, "aten::relu");
  EXPECT_EQ(linear.duration_ns, 30'000);  // its own and addmm's
  EXPECT_EQ(addmm.duration_ns, 20'000);
  EXPECT_GE(addmm.start_ns, linear.start_ns);
  EXPECT_EQ(addmm.end_ns(), linear.end_ns());
  EXPECT_EQ(relu.start_ns, linear.end_ns());
  EXPECT_EQ(relu.correlation, 10);
  EXPECT_EQ(event(*trace, "root").kind, TraceEventKind::annotation);
  EXPECT_EQ(event(*trace, "root").duration_ns, 31'000);
  EXPECT_EQ(trace->names.at(addmm.detail), "[[4,8],[[2],[3]],[]] [\"float\",\"int\",\"Scalar\"]");
  const TraceEvent& kernel = event(*trace, "gemm_kernel");
  EXPECT_EQ(kernel.kind, TraceEventKind::kernel);
  EXPECT_EQ(kernel.duration_ns, 70'000);
  EXPECT_EQ(kernel.external_id, addmm.external_id);
  EXPECT_EQ(trace->stream_of(kernel), "7");
  const TraceEvent& copy = event(*trace, "Memcpy DtoH (Device -> Pinned)");
  EXPECT_EQ(copy.kind, TraceEventKind::copy);
  EXPECT_EQ(copy.start_ns, kernel.end_ns());
}

TEST(Chakra, PiecesOfOldConvertersBecomeOneOperator) {
  const auto piece = [](uint64_t id, const std::string& name, uint64_t duration) {
    return node({.id = id,
                 .name = name,
                 .caller = 2,
                 .duration = duration,
                 .record = 9,
                 .more = attribute("op_schema", bytes(29, "aten::mm(Tensor self) -> Tensor"))});
  };
  // ctrl_deps are of another numbering there: 20 is the first piece by chance, not the launcher.
  const std::string file = metadata() + piece(20, "aten::mm(0)", 5) + piece(21, "aten::mm(1)", 6) +
                           node({.id = 30, .name = "aten::add", .duration = 2, .record = 11}) +
                           node({.id = 31,
                                 .name = "add_kernel",
                                 .caller = 20,
                                 .wait = 30,
                                 .duration = 3,
                                 .is_host = false}) +
                           node({.id = 32, .name = "block(3)", .duration = 2, .record = 12});
  const auto trace = read(file);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->events.size(), 4U);
  EXPECT_EQ(event(*trace, "aten::mm").duration_ns, 11'000);
  EXPECT_EQ(event(*trace, "add_kernel").external_id, event(*trace, "aten::add").external_id);
  EXPECT_EQ(event(*trace, "block(3)").duration_ns, 2'000);  // a name, not a piece
  // One id twice counts once; and no number of pieces is beyond the limits.
  const auto twice = read(metadata() + piece(20, "aten::mm(0)", 5) + piece(20, "aten::mm(1)", 6));
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(event(*twice, "aten::mm").duration_ns, 5'000);
  EXPECT_EQ(twice->fault_count, 1);
  // What is left out for its id is no piece's first either.
  const auto taken = read(metadata() + node({.id = 20, .name = "other", .duration = 4}) +
                          piece(20, "aten::mm(0)", 5) + piece(21, "aten::mm(1)", 6));
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->events.size(), 2U);
  EXPECT_EQ(event(*taken, "aten::mm").duration_ns, 6'000);
  std::string many = metadata();
  for (uint64_t i = 1; i <= 20; ++i) many += piece(i, "aten::mm(" + std::to_string(i) + ")", 1);
  TraceLimits limits;
  limits.events = 19;
  EXPECT_FALSE(read_chakra(text::ByteFeed(many, "t.et"), limits).has_value());
}

TEST(Chakra, CollectivesSayWhatTheyAre) {
  const auto trace =
      read(metadata() +
           node({.id = 1,
                 .name = "ncclDevKernel",
                 .duration = 3,
                 .is_host = false,
                 .more = number_attribute("comm_type", 7) + number_attribute("comm_size", 4096) +
                         attribute("pg_name", bytes(29, "0"))}) +
           node({.id = 2,
                 .name = "x",
                 .duration = 3,
                 .is_host = false,
                 .more = number_attribute("comm_type", 99)}));
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->names.at(event(*trace, "ncclDevKernel").detail),
            "reduce_scatter of 4096 bytes in group 0");
  EXPECT_EQ(event(*trace, "x").detail, kNone);
}

// A duration leaves out what was called, so that a start makes no span of it.
TEST(Chakra, StartsArePassedOver) {
  const auto trace =
      read(metadata() + node({.id = 1, .name = "linear", .duration = 5, .start = 100}) +
           node({.id = 2, .name = "mm", .caller = 1, .duration = 10, .start = 103}));
  ASSERT_TRUE(trace.has_value());
  EXPECT_FALSE(trace->has_starts);
  EXPECT_EQ(event(*trace, "linear").duration_ns, 15'000);
  EXPECT_EQ(event(*trace, "mm").duration_ns, 10'000);
}

TEST(Chakra, WhatAnotherThreadDoesIsNoPartOfItsCaller) {
  const auto trace =
      read(metadata() +
           node({.id = 1, .name = "linear", .duration = 5, .more = number_attribute("tid", 1)}) +
           node({.id = 2,
                 .name = "mm",
                 .caller = 1,
                 .duration = 100,
                 .more = number_attribute("tid", 2)}));
  ASSERT_TRUE(trace.has_value());
  EXPECT_NE(event(*trace, "linear").track, event(*trace, "mm").track);
  EXPECT_EQ(event(*trace, "linear").duration_ns, 5'000);
  EXPECT_EQ(event(*trace, "mm").duration_ns, 100'000);
}

TEST(Chakra, CallersInARingAndTimesBeyondTimeAreNoTrap) {
  const auto ring = read(metadata() + node({.id = 1, .name = "a", .caller = 3, .duration = 1}) +
                         node({.id = 2, .name = "b", .caller = 1, .duration = 1}) +
                         node({.id = 3, .name = "c", .caller = 2, .duration = 1}) +
                         node({.id = 4, .name = "self", .caller = 4, .duration = 1}));
  ASSERT_TRUE(ring.has_value());
  EXPECT_EQ(ring->events.size(), 4U);
  EXPECT_EQ(event(*ring, "a").duration_ns, 3'000);
  const uint64_t most = static_cast<uint64_t>(kMaxTraceNs) / 1000;
  const auto huge = read(metadata() + node({.id = 1, .name = "a", .duration = most}) +
                         node({.id = 2, .name = "b", .duration = most}) +
                         node({.id = 3, .name = "c", .duration = UINT64_MAX}));
  ASSERT_TRUE(huge.has_value());
  EXPECT_EQ(huge->events.size(), 2U);
  EXPECT_EQ(huge->fault_count, 1);
}

TEST(Chakra, WhatIsCutOrBrokenIsToldWithItsPlace) {
  const std::string whole = metadata() + node({.id = 1, .name = "a", .duration = 1});
  const std::string second = node({.id = 2, .name = "b", .duration = 1});
  for (size_t cut = 1; cut < second.size(); ++cut) {
    const auto trace = read(whole + second.substr(0, cut));
    ASSERT_TRUE(trace.has_value()) << cut;
    EXPECT_TRUE(trace->is_cut) << cut;
    EXPECT_EQ(trace->events.size(), 1U) << cut;
  }
  const auto broken = read(whole + framed("\x08") + framed(bytes(7, "x") + "") + second);
  ASSERT_FALSE(broken.has_value());  // field 7 held a text before 0.0.4
  const auto bad = read(whole + framed("\x08") + framed(integer(2, 5)) + second);
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->fault_count, 2);
  EXPECT_EQ(bad->faults[0].place, "byte " + std::to_string(whole.size() + 1));
  EXPECT_EQ(bad->events.size(), 2U);
  const auto claims = read(whole + varint(uint64_t{1} << 30));
  ASSERT_TRUE(claims.has_value());
  EXPECT_TRUE(claims->is_cut);
  EXPECT_NE(claims->faults[0].message.find("1073741824 bytes"), std::string::npos);
  const auto same = read(whole + node({.id = 1, .name = "b", .duration = 1}));
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->fault_count, 1);
}

TEST(Chakra, LimitsHold) {
  std::string file = metadata();
  for (uint64_t i = 1; i <= 20; ++i) file += node({.id = i, .name = "a" + std::to_string(i)});
  TraceLimits limits;
  limits.events = 19;
  EXPECT_FALSE(read_chakra(text::ByteFeed(file, "t.et"), limits).has_value());
  limits = {};
  limits.names = 19;
  EXPECT_FALSE(read_chakra(text::ByteFeed(file, "t.et"), limits).has_value());
}

TEST(Chakra, IsToldByItsContent) {
  const std::string one = node({.id = 1, .name = "a", .duration = 1});
  EXPECT_TRUE(is_chakra(metadata()));
  EXPECT_TRUE(is_chakra(metadata() + one));
  EXPECT_TRUE(is_chakra(framed("") + one));
  EXPECT_TRUE(is_chakra(framed(bytes(1, "0.0.4")) + one));
  // Attributes had the version's number for a while.
  EXPECT_TRUE(is_chakra(framed(bytes(1, bytes(1, "schema") + bytes(29, "1.0.1"))) + one));
  const std::string large =
      framed("") + node({.id = 1, .name = "a", .more = inputs(std::string(5000, '['), "[]")});
  for (const size_t seen : {size_t{100}, size_t{1024}}) {
    EXPECT_TRUE(is_chakra(std::string_view(large).substr(0, seen)));
  }
  for (size_t seen = 100; seen < 200; ++seen) {
    const std::string many = metadata() + one + one + one + one;
    EXPECT_TRUE(is_chakra(std::string_view(many).substr(0, seen))) << seen;
  }
  for (const std::string& other :
       {std::string(), std::string("{\"traceEvents\": []}"), std::string("[\n{\"name\": 1}]"),
        std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0}", 12), std::string("a\n\n\n\n\n\n\n\n"),
        std::string("\x08\x07\x12\x07pytorch", 11), std::string("id,name\nhello\n"),
        std::string("SQLite format 3\0", 16), std::string(100, '\0'), std::string("\n\n\n\n"),
        framed("")}) {
    EXPECT_FALSE(is_chakra(other)) << other;
  }
}

TEST(Chakra, IsJoinedLikeTheJsonThatItWasMadeOf) {
  const std::string file =
      metadata() +
      node({.id = 4,
            .name = "aten::add(0)",
            .duration = 1,
            .record = 8,
            .more = inputs("[[2]]", "['Tensor(float)']") +
                    attribute("op_schema", bytes(29, "aten::add.Tensor(Tensor a) -> Tensor"))}) +
      node({.id = 5, .name = "kernel", .caller = 4, .duration = 1, .record = 8, .is_host = false});
  const auto execution = read_execution_trace(text::ByteFeed(file, "t.et"));
  ASSERT_TRUE(execution.has_value());
  EXPECT_EQ(execution->schema, "1.1.1-chakra.0.0.4");
  ASSERT_EQ(execution->operators.size(), 1U);
  const ExecutedOperator& add = execution->operators.at(8);
  EXPECT_EQ(execution->names.at(add.name), "aten::add");
  EXPECT_EQ(execution->names.at(add.detail), "[[2]] [\"float\"]");
  const auto none = read_execution_trace(text::ByteFeed(metadata(), "t.et"));
  ASSERT_FALSE(none.has_value());
}

}  // namespace
}  // namespace headroom::formats
