#include "ops/timeline.h"

#include <gtest/gtest.h>

#include "ops/accounts.h"
#include "ops/tiny_trace.h"

namespace headroom::ops {
namespace {

using Kind = formats::TraceEventKind;

RecordedRun run_with(TinyTrace& tiny) {
  static const OperatorRules kRules = *OperatorRules::load("");
  return *run_of(tiny.build(), kRules);
}

const TimelineRow* row_of(const Timeline& timeline, RowKind kind) {
  for (const TimelineRow& row : timeline.rows) {
    if (row.kind == kind) return &row;
  }
  return nullptr;
}

TEST(Timeline, RowsAndGaps) {
  TinyTrace tiny;
  tiny.step(1, 100, 1100)
      .add(Kind::host_operator, "aten::linear", 110, 140)
      .launched("aten::mm", 112, 130, "sgemm", 150, 300)
      .launched("aten::add", 500, 510, "add elementwise", 520, 600)
      .launched("aten::mul", 520, 530, "mul elementwise", 800, 900);
  const Timeline timeline = timeline_of(run_with(tiny));
  EXPECT_EQ(timeline.length_ns, 1'000'000);
  ASSERT_EQ(timeline.rows.size(), 4U);
  const TimelineRow* host = row_of(timeline, RowKind::host);
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(host->marks.size(), 3U);  // mm lies in linear
  EXPECT_EQ(host->marks[0].start_ns, 10'000);
  EXPECT_EQ(timeline.names[host->marks[0].name], "aten::linear");
  EXPECT_EQ(row_of(timeline, RowKind::calls)->marks.size(), 3U);
  EXPECT_EQ(row_of(timeline, RowKind::stream)->marks.size(), 3U);
  const TimelineRow* gaps = row_of(timeline, RowKind::gaps);
  ASSERT_NE(gaps, nullptr);
  ASSERT_EQ(gaps->marks.size(), 4U);
  // 300 to 520: mostly until the launch at 501 was done.
  EXPECT_EQ(gaps->marks[1].start_ns, 200'000);
  EXPECT_EQ(gaps->marks[1].span_ns, 220'000);
  EXPECT_EQ(gaps->marks[1].group, 0U);
  // 600 to 800: the launch was done before.
  EXPECT_EQ(gaps->marks[2].group, 1U);
  EXPECT_EQ(gaps->marks[3].start_ns + gaps->marks[3].span_ns, timeline.length_ns);
}

TEST(Timeline, TheShortestAreLeftOut) {
  TinyTrace tiny;
  const auto most = static_cast<int64_t>(kMostMarks);
  for (int64_t i = 0; i < most + 100; ++i) {
    tiny.add(Kind::kernel, "k", i * 10, i * 10 + (i % 1000 == 0 ? 9 : 1 + i % 2), 0, "7");
  }
  const Timeline timeline = timeline_of(run_with(tiny));
  size_t marks = 0;
  for (const TimelineRow& row : timeline.rows) marks += row.marks.size();
  EXPECT_GT(timeline.left_out, 0U);
  EXPECT_GT(marks, kMostMarks / 4);
  for (const Mark& mark : row_of(timeline, RowKind::stream)->marks) EXPECT_GE(mark.span_ns, 2000);
}

TEST(Timeline, EquallyLongOnesAreBoundedToo) {
  TinyTrace tiny;
  const auto most = static_cast<int64_t>(kMostMarks);
  for (int64_t i = 0; i < most + 100; ++i) {
    const bool is_beyond = i >= most;
    tiny.add(Kind::kernel, is_beyond ? "beyond" : "k", i * 2, i * 2 + 2, 0, "7");
  }
  const Timeline timeline = timeline_of(run_with(tiny));
  EXPECT_EQ(row_of(timeline, RowKind::stream)->marks.size(), kMostMarks);
  EXPECT_EQ(timeline.left_out, 100U);
  EXPECT_EQ(timeline.names, std::vector<std::string>{"k"});  // not of what is left out
}

TEST(Timeline, StreamsHaveRowsBeforeThreads) {
  TinyTrace tiny;
  tiny.launched("aten::mm", 10, 20, "sgemm", 30, 40);
  for (size_t thread = 0; thread < 2 * kMostRows; ++thread) {
    tiny.add(Kind::host_operator, "aten::relu", 5, 9, 0, "thread " + std::to_string(thread));
  }
  const Timeline timeline = timeline_of(run_with(tiny));
  ASSERT_EQ(timeline.rows.size(), kMostRows);
  EXPECT_EQ(timeline.rows.back().kind, RowKind::stream);
  EXPECT_EQ(timeline.rows.front().kind, RowKind::host);
  // 129 threads and one row of calls, a mark each, where 62 have room beside stream and gaps.
  EXPECT_EQ(timeline.left_out, 130U - (kMostRows - 2));
}

// As wall_time() counts it.
TEST(Timeline, AGapBeforeAnUnknownLaunchIsNobodys) {
  TinyTrace tiny;
  tiny.step(1, 0, 100)
      .add(Kind::kernel, "a", 0, 20, 0, "7")
      .add(Kind::kernel, "b", 60, 100, 0, "7");
  const RecordedRun run = run_with(tiny);
  const Timeline timeline = timeline_of(run);
  ASSERT_EQ(row_of(timeline, RowKind::gaps)->marks.size(), 1U);
  EXPECT_EQ(row_of(timeline, RowKind::gaps)->marks[0].group, 2U);
  const WallTime wall = wall_time(run.trace, run.work, run.links, *OperatorRules::load(""));
  EXPECT_EQ(wall.idle_unknown_ns, 40'000);
  EXPECT_EQ(wall.idle_launch_ns, 0);
  EXPECT_EQ(wall.idle_host_ns, 0);
}

// "b" begins 0.9 ms behind its launch, "c" 30: that is no launch, whatever held it up.
TEST(Timeline, AGapThatNoLaunchTakesIsNobodys) {
  TinyTrace tiny;
  tiny.step(1, 0, 40'000)
      .launched("aten::a", 0, 10, "a", 20, 100, "7")
      .launched("aten::b", 90, 100, "b", 1'000, 2'000, "7")
      .launched("aten::c", 110, 120, "c", 32'000, 40'000, "7");
  const RecordedRun run = run_with(tiny);
  const Timeline timeline = timeline_of(run);
  const auto& gaps = row_of(timeline, RowKind::gaps)->marks;
  ASSERT_EQ(gaps.size(), 3U);
  EXPECT_EQ(gaps[1].group, 1U);
  EXPECT_EQ(gaps[2].group, 2U);
  const WallTime wall = wall_time(run.trace, run.work, run.links, *OperatorRules::load(""));
  EXPECT_EQ(wall.idle_unknown_ns, 30'000'000);
  EXPECT_EQ(wall.idle_launch_ns, 917'000);
  EXPECT_EQ(wall.idle_host_ns, 3'000);
}

}  // namespace
}  // namespace headroom::ops
