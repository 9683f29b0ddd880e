#include "ops/ranks.h"

#include <gtest/gtest.h>

#include "ops/tiny_trace.h"
#include "tests/tools/room_test.h"

namespace headroom::ops {
namespace {

const OperatorRules& rules() {
  static const OperatorRules kRules = *OperatorRules::load("");
  return kRules;
}

// Four all-reduces a rank, which end together at 1000, 2000, ... us on its own clock; `starts_us`
// before that each began.
RankSummary rank_with(int64_t rank, std::vector<int64_t> lengths_us, int64_t clock_us = 0,
                      size_t missing = SIZE_MAX) {
  TinyTrace tiny;
  tiny.step(1, clock_us, clock_us + 5000);
  for (size_t i = 0; i < lengths_us.size(); ++i) {
    if (i == missing) continue;
    const int64_t end = clock_us + 1000 * static_cast<int64_t>(i + 1);
    tiny.launched("c10d::allreduce_", end - 900, end - 890, "ncclDevKernel_AllReduce_Sum_f32",
                  end - lengths_us[i], end, "20");
  }
  formats::Trace trace = tiny.build();
  trace.rank = rank;
  trace.world_size = 2;
  return summary_of(*run_of(std::move(trace), rules()), rules());
}

TEST(Ranks, WaitingAndTransferAndTheStraggler) {
  const auto answer =
      answer_ranks({rank_with(1, {50, 50, 50, 400}), rank_with(0, {450, 250, 50, 100})});
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_EQ(answer->ranks.size(), 2U);
  EXPECT_EQ(answer->ranks[0].rank, 0);
  EXPECT_NEAR(answer->ranks[0].waiting_ms, 0.400 + 0.200, 1e-9);
  EXPECT_NEAR(answer->ranks[1].waiting_ms, 0.300, 1e-9);
  EXPECT_NEAR(answer->ranks[0].transfer_ms, 0.050 * 3 + 0.100, 1e-9);
  EXPECT_EQ(answer->straggler, 1U);
  EXPECT_NEAR(answer->straggler_pct, 100 * 0.6 / 0.9, 1e-9);
  EXPECT_NEAR(answer->matched_pct, 100, 1e-9);
  ASSERT_EQ(answer->collectives.size(), 1U);
  EXPECT_EQ(answer->collectives[0].count, 4);
  EXPECT_EQ(answer->collectives[0].straggler, 1);
  EXPECT_TRUE(answer->notes.empty());
}

// Who comes with another was not the last; what a third waits is for both.
TEST(Ranks, ATieCountsForNobody) {
  const auto same = answer_ranks({rank_with(0, {50, 60}), rank_with(1, {50, 60})});
  ASSERT_TRUE(same) << same.error().to_string();
  EXPECT_FALSE(same->straggler);
  for (const RankTimes& rank : same->ranks) EXPECT_EQ(rank.last_count, 0);
  const auto both =
      answer_ranks({rank_with(0, {50, 90}), rank_with(1, {50, 60}), rank_with(2, {450, 60})});
  ASSERT_TRUE(both) << both.error().to_string();
  EXPECT_EQ(both->ranks[0].last_count + both->ranks[1].last_count + both->ranks[2].last_count, 0);
  EXPECT_NEAR(both->ranks[0].caused_ms, 0.2, 1e-9);
  EXPECT_NEAR(both->ranks[1].caused_ms, 0.2 + 0.015, 1e-9);
  EXPECT_NEAR(both->ranks[2].caused_ms, 0.015, 1e-9);
}

TEST(Ranks, ClocksNeedNotAgree) {
  const auto answer =
      answer_ranks({rank_with(0, {450, 250, 50, 100}), rank_with(1, {50, 50, 50, 400}, 7'000'000)});
  ASSERT_TRUE(answer);
  EXPECT_NEAR(answer->ranks[0].waiting_ms, 0.6, 1e-9);
}

// By order the second of one would meet the third of the other: the ends say no.
TEST(Ranks, ACollectiveThatOneFileLacks) {
  std::vector<RankSummary> ranks = {rank_with(0, {450, 250, 60, 100}, 0, 3),
                                    rank_with(1, {50, 50, 50, 400}, 0, 1)};
  for (RankSummary& rank : ranks) {
    for (RankCollective& one : rank.collectives) {
      one.start_ns *= 10;  // further apart than ends may differ
      one.end_ns *= 10;
    }
  }
  const auto answer = answer_ranks(ranks);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->collectives[0].count, 2);
  EXPECT_NEAR(answer->ranks[0].waiting_ms, 4.0 + 0.1, 1e-9);
  EXPECT_NEAR(answer->ranks[1].waiting_ms, 0, 1e-9);
  EXPECT_LT(answer->matched_pct, 100);
}

TEST(Ranks, TracesThatShareNothing) {
  TinyTrace alone;
  alone.launched("aten::mm", 0, 10, "sgemm", 20, 30);
  const RankSummary other = summary_of(*run_of(alone.build(), rules()), rules());
  EXPECT_FALSE(answer_ranks({rank_with(0, {50}), other}));
  EXPECT_FALSE(answer_ranks(std::vector<RankSummary>{}));
}

TEST(Ranks, NotesOnWhoIsThere) {
  std::vector<RankSummary> ranks = {rank_with(0, {50}), rank_with(0, {60})};
  ranks[0].world_size = 8;
  const auto answer = answer_ranks(ranks);
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->notes.size(), 2U);
}

// Recorded by tests/data/record_ranks.py: rank 2 slept 20 ms of each step before a reduction.
TEST(Ranks, ARecordedRunWhoseStragglerIsKnown) {
  std::vector<std::string> files;
  for (const char* rank : {"0", "1", "2"}) {
    files.push_back(tests::source_dir() + "/tests/data/ranks/rank" + rank + ".json.gz");
  }
  const auto answer = answer_ranks(files, rules());
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_TRUE(answer->straggler);
  EXPECT_EQ(answer->ranks[*answer->straggler].rank, 2);
  EXPECT_GT(answer->straggler_pct, 80);
  EXPECT_EQ(answer->collectives.size(), 1U);
  EXPECT_EQ(answer->collectives[0].count, 12);
  EXPECT_EQ(answer->collectives[0].rank_count, 3U);
  for (const int64_t rank : {0, 1}) {
    EXPECT_NEAR(answer->ranks[static_cast<size_t>(rank)].waiting_ms, 20, 6) << rank;
  }
  EXPECT_LT(answer->ranks[2].waiting_ms, 4);
}

TEST(Ranks, TwoTracesSayThatTheyAreRanksOfOneRun) {
  TinyTrace tiny;
  tiny.launched("aten::mm", 0, 10, "sgemm", 20, 30);
  RecordedRun one = *run_of(tiny.build(), rules());
  RecordedRun other = *run_of(tiny.build(), rules());
  EXPECT_FALSE(are_ranks_of_one_run(one, other));
  one.trace.rank = 0;
  other.trace.rank = 1;
  EXPECT_TRUE(are_ranks_of_one_run(one, other));
  other.trace.world_size = 4;
  EXPECT_FALSE(are_ranks_of_one_run(one, other));
  other.trace = one.trace;
  EXPECT_FALSE(are_ranks_of_one_run(one, other));
}

TEST(Ranks, AFileThatWasCutIsNamed) {
  RankSummary cut = rank_with(1, {50, 50, 50});
  cut.times.is_partial = true;
  cut.times.file = "rank1.json";
  const auto answer = answer_ranks({rank_with(0, {50, 50, 50}), cut});
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_EQ(answer->notes.size(), 1U);
  EXPECT_NE(answer->notes[0].find("rank1.json"), std::string::npos);
}

}  // namespace
}  // namespace headroom::ops
