#include "fit/search/methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "fit/fit.h"
#include "fit/scenario/zero.h"
#include "fit/search/divisions.h"

namespace headroom::fit {
namespace {

FitQuestion small_question() {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.batch = 2;
  question.seq = 256;
  return question;
}

TEST(Methods, EveryDivisorIsAGroupOnce) {
  EXPECT_EQ(divisions_among(8),
            (std::vector<std::string>{"ddp:8", "zero1:8", "zero2:8", "zero3:8", "fsdp2:8",
                                      "fsdp2:4,replicate:2", "fsdp2:2,replicate:4", "fsdp1:8",
                                      "fsdp1:4,replicate:2", "fsdp1:2,replicate:4"}));
  EXPECT_EQ(divisions_among(2), (std::vector<std::string>{"ddp:2", "zero1:2", "zero2:2", "zero3:2",
                                                          "fsdp2:2", "fsdp1:2"}));
  EXPECT_EQ(divisions_among(7).size(), 6U);
}

TEST(Methods, TensorParallelGroupsStayWithinAMachine) {
  EXPECT_EQ(tensor_divisions_among(8, 8),
            (std::vector<std::string>{"tp:8", "fsdp2:2,tp:4", "ddp:2,tp:4", "fsdp2:4,tp:2",
                                      "ddp:4,tp:2"}));
  EXPECT_EQ(tensor_divisions_among(6, 4),
            (std::vector<std::string>{"fsdp2:2,tp:3", "ddp:2,tp:3", "fsdp2:3,tp:2", "ddp:3,tp:2"}));
  EXPECT_TRUE(tensor_divisions_among(7, 4).empty());
}

TEST(Methods, SequencesAreDividedWithinFullyShardAndItsStages) {
  EXPECT_EQ(sequence_divisions_among(16, 8),
            (std::vector<std::string>{
                "ddp:2,tp:8", "fsdp2:2,tp:8", "fsdp2:1,tp:8,pp:2", "ddp:4,tp:4", "fsdp2:4,tp:4",
                "fsdp2:2,tp:4,pp:2", "fsdp2:1,tp:4,pp:4", "ddp:8,tp:2", "fsdp2:8,tp:2",
                "fsdp2:4,tp:2,pp:2", "fsdp2:2,tp:2,pp:4", "fsdp2:1,tp:2,pp:8"}));
  EXPECT_EQ(sequence_divisions_among(4, 8),
            (std::vector<std::string>{"tp:4", "ddp:2,tp:2", "fsdp2:2,tp:2", "fsdp2:1,tp:2,pp:2"}));
}

TEST(Methods, SequencesAreSharedAmongSomeOrAll) {
  EXPECT_EQ(context_divisions_among(8),
            (std::vector<std::string>{"fsdp2:1,cp:8", "fsdp2:2,cp:4", "fsdp2:4,cp:2"}));
  EXPECT_TRUE(context_divisions_among(1).empty());
}

TEST(Methods, SequencesAreSharedBesideEveryOtherDivision) {
  using Ways = std::vector<WayToDivide>;
  EXPECT_EQ(shared_divisions_among(4, 8), (Ways{{"fsdp2:1,replicate:2,cp:2", false},
                                                {"fsdp2:1,cp:2,pp:2", false},
                                                {"fsdp2:1,cp:2,tp:2", true}}));
  const Ways eight = shared_divisions_among(8, 2);
  EXPECT_EQ(std::ranges::count(eight, WayToDivide{"fsdp2:1,cp:2,tp:2,pp:2", true}), 1);
  EXPECT_EQ(std::ranges::count(eight, WayToDivide{"fsdp2:1,cp:2,tp:4", true}), 0);
}

// Asked for, sequences are divided in every way with tensor parallelism; refused, in none.
TEST(Methods, WhoSaysWhetherSequencesAreDividedIsHeard) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-3.2-1B";
  ASSERT_TRUE(question.set("checkpointing", "full"));
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  const auto divided_rows = [&](const char* words) {
    FitQuestion asked = question;
    if (*words != 0) {
      EXPECT_TRUE(asked.set("sequence-parallel", words));
    }
    const auto chosen = choose_method(asked, 8);
    EXPECT_TRUE(chosen) << chosen.error().to_string();
    int64_t plain = 0;
    int64_t divided = 0;
    for (const MethodRow& row : chosen->rows) {
      if (row.method.find("tp:") != std::string::npos) ++(row.divides_sequences ? divided : plain);
    }
    return std::pair(plain, divided);
  };
  const auto [plain, divided] = divided_rows("");
  EXPECT_EQ(plain, 5);
  // tp:8, fsdp2:2,tp:4, fsdp2:4,tp:2, ddp:2,tp:4, ddp:4,tp:2; with stages fsdp2:2,tp:2,pp:2,
  // fsdp2:1,tp:4,pp:2, fsdp2:1,tp:2,pp:4
  EXPECT_EQ(divided, 8);
  EXPECT_EQ(divided_rows("true"), std::pair(int64_t{0}, divided));
  EXPECT_EQ(divided_rows("false"), std::pair(plain, int64_t{0}));
}

// A group accumulates, so that a step has the same sequences; what heads do not allow is refused.
TEST(Methods, TensorParallelismIsAmongThem) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-3.1-8B";
  ASSERT_TRUE(question.set("checkpointing", "full"));
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  ASSERT_TRUE(question.set("nodes", "1"));  // where nobody says, 16 are in two machines
  const auto chosen = choose_method(question, 16);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  const auto row_of = [&](const std::string& flags) {
    const auto row = std::ranges::find(chosen->rows, flags, &MethodRow::flags);
    EXPECT_NE(row, chosen->rows.end()) << flags;
    return row == chosen->rows.end() ? MethodRow{} : *row;
  };
  EXPECT_NE(row_of("--method tp:16 --grad-accum 16").reason.find("8 heads"), std::string::npos);
  const MethodRow row = row_of("--method fsdp2:2,tp:8 --grad-accum 8");
  ASSERT_TRUE(row.time);
  const MethodRow whole = row_of("--method fsdp2:16");
  const auto tokens = [](const MethodRow& r) {
    return r.time->tokens_per_second * r.time->step_seconds.expected;
  };
  EXPECT_NEAR(tokens(row), tokens(whole), 1e-6 * tokens(whole));
}

// A row of a pipeline is what the question with its flags answers, of all its stages.
TEST(Methods, APipelineIsAmongThem) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-3.2-1B";
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  const auto row =
      std::ranges::find(chosen->rows, "--method pp:2 --grad-accum 2", &MethodRow::flags);
  ASSERT_NE(row, chosen->rows.end());
  ASSERT_TRUE(question.set("method", "pp:2"));
  const auto alone = answer(question);
  ASSERT_TRUE(alone) << alone.error().to_string();
  EXPECT_EQ(alone->stages.size(), 2U);
  EXPECT_EQ(row->device_used.high, alone->memory.device_used.high);
  EXPECT_EQ(row->largest_batch->value, alone->largest_batch->value);
  ASSERT_TRUE(row->time && alone->time);
  EXPECT_DOUBLE_EQ(row->time->step_seconds.expected, alone->time->step_seconds.expected);
  EXPECT_GT(row->time->pipeline_seconds, 0);
}

FitQuestion pipelined_question() {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-3.2-1B";
  EXPECT_TRUE(question.set("checkpointing", "none"));
  // So slow that stages, which send least, come first.
  EXPECT_TRUE(question.set("nodes", "4"));
  EXPECT_TRUE(question.set("link", "eth-1g"));
  return question;
}

// Each schedule asked by itself, with the stages and micro-batches of the search's first row.
TEST(Methods, NoScheduleIsFasterThanTheOneChosen) {
  const FitQuestion question = pipelined_question();
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  const MethodRow& first = chosen->rows.front();
  ASSERT_TRUE(first.method.starts_with("pp:4")) << first.flags;
  ASSERT_TRUE(first.time);
  double fastest = std::numeric_limits<double>::infinity();
  for (const char* const method : {"pp:4", "pp:4,vpp:2", "pp:4,vpp:4"}) {
    for (const char* const schedule : {"1f1b", "gpipe", "zero-bubble", "zbv", "dualpipev"}) {
      FitQuestion asked = question;
      ASSERT_TRUE(asked.set("method", method));
      ASSERT_TRUE(asked.set("grad-accum", "4"));
      ASSERT_TRUE(asked.set("pipeline-schedule", schedule));
      ASSERT_TRUE(asked.set("search", "false"));
      const auto alone = answer(asked);
      if (!alone || alone->verdict != Verdict::yes) continue;
      fastest = std::min(fastest, alone->time->step_seconds.expected);
    }
  }
  EXPECT_DOUBLE_EQ(first.time->step_seconds.expected, fastest) << first.flags;
  // As the row's own question has it, which is what --emit writes.
  EXPECT_FALSE(first.schedule.empty());
  const auto alone = answer(first.question);
  ASSERT_TRUE(alone) << alone.error().to_string();
  EXPECT_DOUBLE_EQ(alone->time->step_seconds.expected, fastest);
}

// Why with_other_schedules() has no GPipe: wherever it lies, it takes as long and needs no less.
TEST(Methods, GPipeIsNeverAheadOf1F1B) {
  FitQuestion question = pipelined_question();
  question.search = false;
  for (const char* const method : {"pp:2", "pp:4", "fsdp2:2,pp:2"}) {
    for (const char* const micro_batches : {"4", "8", "16"}) {
      for (const char* const checkpointing : {"none", "selective", "full"}) {
        FitQuestion asked = question;
        ASSERT_TRUE(asked.set("method", method));
        ASSERT_TRUE(asked.set("nodes", method == std::string("pp:2") ? "2" : "4"));
        ASSERT_TRUE(asked.set("grad-accum", micro_batches));
        ASSERT_TRUE(asked.set("checkpointing", checkpointing));
        const auto one_by_one = answer(asked);
        ASSERT_TRUE(asked.set("pipeline-schedule", "gpipe"));
        const auto all_at_once = answer(asked);
        ASSERT_TRUE(one_by_one && all_at_once) << method << " " << micro_batches;
        EXPECT_GE(all_at_once->memory.peak_allocated, one_by_one->memory.peak_allocated) << method;
        EXPECT_GE(all_at_once->time->step_seconds.expected,
                  one_by_one->time->step_seconds.expected * (1 - 1e-9))
            << method << " " << micro_batches << " " << checkpointing;
      }
    }
  }
}

// A schedule and a micro-batch that are best together: under 1F1B another micro-batch is.
TEST(Methods, AMicroBatchAndAScheduleAreChosenTogether) {
  FitQuestion question = pipelined_question();
  question.given.erase("batch");
  question.batch = 1;
  question.seq = 1024;
  ASSERT_TRUE(question.set("link", "eth-10g"));
  ASSERT_TRUE(question.set("global-batch", "16"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  const MethodRow& first = chosen->rows.front();
  FitQuestion held = question;
  ASSERT_TRUE(held.set("pipeline-schedule", "1f1b"));
  const auto under_1f1b = choose_method(held, 4);
  ASSERT_TRUE(under_1f1b);
  const auto same_way = std::ranges::find(under_1f1b->rows, "pp:4", &MethodRow::method);
  ASSERT_NE(same_way, under_1f1b->rows.end());
  EXPECT_TRUE(first.method.starts_with("pp:4")) << first.flags;
  EXPECT_NE(first.batch, same_way->batch) << first.flags;
  held = same_way->question;
  held.global_batch.reset();
  ASSERT_TRUE(held.set("pipeline-schedule", first.schedule));
  const auto one_after_another = answer(held);
  ASSERT_TRUE(one_after_another) << one_after_another.error().to_string();
  EXPECT_LT(first.time->step_seconds.expected, one_after_another->time->step_seconds.expected);
}

// Sequences that are better shared are shared beside every other division, too.
TEST(Methods, WhereSharingSequencesComesFirstItIsTriedBesideTheOthers) {
  FitQuestion question;
  question.model = "meta-llama/Llama-3.2-1B";
  question.device = "a100-sxm-80gb";
  question.search = false;
  ASSERT_TRUE(question.set("checkpointing", "full"));
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  const auto shared_beside = [&](const char* seq) {
    EXPECT_TRUE(question.set("seq", seq));
    const auto chosen = choose_method(question, 8);
    EXPECT_TRUE(chosen) << chosen.error().to_string();
    return std::ranges::count_if(chosen->rows, [](const MethodRow& row) {
      return row.question.context_ranks > 1 &&
             row.question.replicas * row.question.tensor_ranks * row.question.stages > 1;
    });
  };
  EXPECT_EQ(shared_beside("1024"), 0);
  EXPECT_GT(shared_beside("131072"), 5);
}

// Who runs it has a row; where it comes first the answer names the second version beside it.
TEST(Methods, FsdpsFirstVersionHasRows) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "none"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  for (const char* flags : {"--method fsdp1:4", "--method fsdp1:2,replicate:2"}) {
    const auto row = std::ranges::find(chosen->rows, flags, &MethodRow::flags);
    ASSERT_NE(row, chosen->rows.end()) << flags;
    EXPECT_EQ(row->reason, "");
    // Of so small a model its host launches too late, as its step says.
    EXPECT_GT(row->time->host_seconds, 0);
    EXPECT_NE(row->why.find("host"), std::string::npos) << row->why;
  }
}

TEST(Methods, AScheduleThatIsAskedForStays) {
  FitQuestion question = pipelined_question();
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  for (const MethodRow& row : chosen->rows) {
    EXPECT_EQ(row.flags.find("schedule"), std::string::npos) << row.flags;
    EXPECT_EQ(row.method.find("vpp"), std::string::npos) << row.flags;
  }
}

// Each row is what the question with its flags answers.
TEST(Methods, RowsAreAnswers) {
  const auto chosen = choose_method(small_question(), 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(chosen->rows.size(), 24U);
  EXPECT_EQ(chosen->device.count, 4);
  for (const MethodRow& row : chosen->rows) {
    FitQuestion question = small_question();
    const std::string words = row.flags.substr(std::string("--method ").size());
    const size_t end = words.find(' ');
    ASSERT_TRUE(question.set("method", words.substr(0, end)));
    if (end != std::string::npos) {
      ASSERT_TRUE(question.set("checkpointing", words.substr(words.rfind(' ') + 1)));
    }
    const auto alone = answer(question);
    ASSERT_TRUE(alone) << row.flags;
    EXPECT_EQ(row.verdict, alone->verdict) << row.flags;
    EXPECT_EQ(row.peak_reserved, alone->memory.peak_reserved) << row.flags;
    EXPECT_EQ(row.device_used.high, alone->memory.device_used.high) << row.flags;
    EXPECT_EQ(row.largest_batch->value, alone->largest_batch->value) << row.flags;
  }
}

// The first row's by itself, and of a pipeline the stage's whose figures the row has.
TEST(Methods, AStepOverTimePeaksAsItsRow) {
  FitQuestion question = pipelined_question();
  EXPECT_FALSE(choose_method(question, 4)->first_step);
  question.timeline = true;
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  ASSERT_TRUE(chosen->first_step);
  const Timeline& first = chosen->first_step->timeline;
  EXPECT_EQ(first.points.at(first.peak).bytes.allocated(), chosen->rows.front().peak_allocated);
  const auto scenario = resolve(question);
  ASSERT_TRUE(scenario);
  std::set<int64_t> stages;
  for (const MethodRow& row : chosen->rows) {
    if (row.question.stages == 1) continue;
    stages.insert(row.stage);
    const auto step = step_over_time(*scenario, row);
    ASSERT_TRUE(step) << step.error().to_string();
    const Timeline& timeline = step->timeline;
    EXPECT_EQ(timeline.points.at(timeline.peak).bytes.allocated(), row.peak_allocated) << row.flags;
  }
  ASSERT_FALSE(stages.empty());
  EXPECT_GT(*stages.rbegin(), 0);
}

TEST(Methods, OfThoseThatFitTheFastestComesFirst) {
  const auto chosen = choose_method(small_question(), 4);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->rows.front().verdict, Verdict::yes);
  EXPECT_EQ(chosen->rows.front().flags.find("--checkpointing"), std::string::npos);
  EXPECT_TRUE(chosen->rows.front().on_frontier);
  EXPECT_TRUE(chosen->rows.front().why.empty());
  for (size_t i = 1; i < chosen->rows.size(); ++i) {
    const MethodRow& row = chosen->rows[i];
    ASSERT_TRUE(row.time) << row.flags;
    EXPECT_GE(row.time->step_seconds.expected, chosen->rows[i - 1].time->step_seconds.expected);
    EXPECT_FALSE(row.why.empty()) << row.flags;
    EXPECT_TRUE(row.why.ends_with(row.why_briefly)) << row.why;
    EXPECT_FALSE(row.why_briefly.empty()) << row.flags;
  }
}

// What is on the frontier is beaten by nothing; what is not, by something on it.
TEST(Methods, TheFrontierIsOfSpeedAndRoom) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-3.2-1B";
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen);
  const auto beats = [](const MethodRow& a, const MethodRow& b) {
    const double faster = b.time->step_seconds.expected - a.time->step_seconds.expected;
    const int64_t roomier = a.room.expected.count - b.room.expected.count;
    return faster >= 0 && roomier >= 0 && (faster > 0 || roomier > 0);
  };
  for (const MethodRow& row : chosen->rows) {
    if (row.verdict != Verdict::yes) {
      EXPECT_FALSE(row.on_frontier);
      EXPECT_NE(row.why.find("miss"), std::string::npos) << row.why;
      EXPECT_NE(row.why_briefly.find("miss"), std::string::npos) << row.why_briefly;
      continue;
    }
    const bool is_beaten = std::ranges::any_of(chosen->rows, [&](const MethodRow& other) {
      return other.on_frontier && beats(other, row);
    });
    EXPECT_NE(row.on_frontier, is_beaten) << row.flags;
  }
}

TEST(Methods, ASlowLinkChangesTheOrder) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-2-7b-hf";
  ASSERT_TRUE(question.set("checkpointing", "full"));
  ASSERT_TRUE(question.set("nodes", "2"));
  ASSERT_TRUE(question.set("link", "eth-10g"));
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  const auto chosen = choose_method(question, 8);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(chosen->rows.front().flags,  // sends little
            "--method fsdp2:2,tp:2,pp:2 --sequence-parallel true --grad-accum 4");
  const auto row_of = [&](const std::string& flags) {
    return std::ranges::find(chosen->rows, flags, &MethodRow::flags);
  };
  EXPECT_LT(row_of("--method fsdp2:4,replicate:2"), row_of("--method fsdp2:8"));
  ASSERT_TRUE(question.set("link", "ib-400g"));
  const auto fast = choose_method(question, 8);
  ASSERT_TRUE(fast);
  EXPECT_LT(fast->rows.front().time->step_seconds.expected,
            chosen->rows.front().time->step_seconds.expected);
}

TEST(Methods, AGlobalBatchIsAccumulated) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("batch", "2"));
  ASSERT_TRUE(question.set("global-batch", "24"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(chosen->grad_accum, 3);
  // Of five no way has sequences of its own for each, and GPT-2 can be shared no other way.
  const auto uneven = choose_method(question, 5);
  ASSERT_TRUE(uneven) << uneven.error().to_string();
  for (const MethodRow& row : uneven->rows) EXPECT_FALSE(row.reason.empty()) << row.flags;
  ASSERT_TRUE(question.set("batch", "5"));
  const auto refused = choose_method(question, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
}

// Where nobody says the micro-batch, each row has the fastest of all that divide its sequences.
// Where not every GPU has a sequence of its own, ways that share them are left.
TEST(Methods, FewerSequencesThanGpusAreShared) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-3.2-1B";
  question.batch = 1;
  ASSERT_TRUE(question.set("global-batch", "2"));
  ASSERT_TRUE(question.set("checkpointing", "none"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(chosen->verdict(), Verdict::yes);
  for (const MethodRow& row : chosen->rows) {
    const FitQuestion& asked = row.question;
    const bool has_enough = data_ranks_of(asked) <= 2;
    if (!has_enough) {
      EXPECT_NE(row.reason.find("no multiple"), std::string::npos) << row.flags;
    } else if (row.reason.empty()) {
      EXPECT_EQ(row.batch * row.grad_accum * data_ranks_of(asked), 2) << row.flags;
    }
  }
}

TEST(Methods, AnOpenMicroBatchIsSearched) {
  FitQuestion question;
  question.model = "openai-community/gpt2-xl";
  question.device = "rtx-4090";
  question.seq = 1024;
  question.search = false;
  ASSERT_TRUE(question.set("global-batch", "64"));
  ASSERT_TRUE(question.set("checkpointing", "full"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  bool is_ever_more = false;
  for (const MethodRow& row : chosen->rows) {
    if (!row.reason.empty() || row.verdict != Verdict::yes) continue;
    std::optional<double> fastest;
    for (int64_t batch = 1; batch <= 64; batch *= 2) {
      FitQuestion one = question;
      ASSERT_TRUE(one.set("method", row.method));
      ASSERT_TRUE(one.set("batch", std::to_string(batch)));
      const auto alone = answer(one);
      if (!alone || alone->verdict != Verdict::yes || !alone->time) continue;
      const double seconds = alone->time->step_seconds.expected;
      if (!fastest || seconds < *fastest) fastest = seconds;
    }
    ASSERT_TRUE(fastest && row.time) << row.flags;
    EXPECT_NEAR(row.time->step_seconds.expected, *fastest, 1e-9) << row.flags;
    is_ever_more = is_ever_more || row.batch > 1;
    EXPECT_EQ(row.batch > 1, row.flags.find("--batch") != std::string::npos) << row.flags;
  }
  EXPECT_TRUE(is_ever_more);
  EXPECT_EQ(chosen->batch, chosen->rows.front().batch);
}

// What a terminal shows: parts that go on to their ends, and settings that only become more.
TEST(Methods, WhoWaitsIsTold) {
  FitQuestion question = small_question();
  question.given.clear();
  question.model = "Qwen/Qwen3-0.6B";
  question.batch = 1;
  ASSERT_TRUE(question.set("global-batch", "32"));
  ASSERT_TRUE(question.set("checkpointing", "full"));
  std::vector<SearchState> states;
  const SearchProgress progress = [&](const SearchState& state) { states.push_back(state); };
  const auto chosen = choose_method(question, 16, progress);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  ASSERT_GT(states.size(), chosen->rows.size());
  int64_t settings = 0;
  for (const SearchState& state : states) {
    EXPECT_LE(state.done, state.of);
    EXPECT_GE(state.predicted + state.passed_over, settings);
    settings = state.predicted + state.passed_over;
  }
  EXPECT_EQ(states.back().done, states.back().of);
  EXPECT_EQ(states.back().predicted, chosen->searched.predicted);
  EXPECT_EQ(states.back().passed_over, chosen->searched.refused + chosen->searched.beaten);
  EXPECT_GT(chosen->searched.beaten, 0);
  EXPECT_EQ(settings, chosen->searched.settings);
  // tp:16 is more than there are heads; every other way has several micro-batches.
  EXPECT_GT(chosen->searched.refused, 0);
  EXPECT_GT(chosen->searched.settings, static_cast<int64_t>(chosen->rows.size()));
}

TEST(Methods, EachRowIsASettingThatWasLookedAt) {
  const auto chosen = choose_method(small_question(), 4);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->searched.settings, 24);
  EXPECT_EQ(chosen->searched.predicted, 24);
  EXPECT_EQ(chosen->searched.beaten, 0);
  EXPECT_FALSE(chosen->is_selection);
}

std::set<std::string> precisions_in(const MethodsAnswer& answer, std::string_view division) {
  std::set<std::string> flags;
  for (const MethodRow& row : answer.rows) {
    EXPECT_TRUE(row.precision) << row.flags;
    const bool is_of_it = row.method.find(division) != std::string::npos && row.precision;
    if (is_of_it) flags.insert(row.precision->flags());
  }
  return flags;
}

// Each row is what its flags alone answer, and the answer says that they do not train the same.
TEST(Methods, EveryPrecisionIsARow) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "none"));
  ASSERT_TRUE(question.set("mixed-precision", "any"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(precisions_in(*chosen, "ddp:2"),
            (std::set<std::string>{"--dtype bf16", "--dtype fp32", "--mixed-precision bf16"}));
  EXPECT_EQ(precisions_in(*chosen, "zero2:2"), (std::set<std::string>{"--dtype bf16"}));
  EXPECT_EQ(std::ranges::count(chosen->notes, kPrecisionChanges), 1);
  for (const MethodRow& row : chosen->rows) {
    FitQuestion alone = small_question();
    ASSERT_TRUE(alone.set("checkpointing", "none"));
    ASSERT_TRUE(alone.set("method", row.method));
    const std::string flags = row.precision->flags();
    const size_t blank = flags.find(' ');
    ASSERT_TRUE(alone.set(flags.substr(2, blank - 2), flags.substr(blank + 1)));
    const auto answered = answer(alone);
    ASSERT_TRUE(answered) << row.flags;
    EXPECT_EQ(row.device_used.high, answered->memory.device_used.high) << row.flags;
    EXPECT_NE(row.flags.find(flags), std::string::npos) << row.flags;
  }
}

TEST(Methods, WeightsThatAreGivenAreHeld) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "none"));
  ASSERT_TRUE(question.set("mixed-precision", "any"));
  ASSERT_TRUE(question.set("dtype", "fp32"));
  const auto whole = choose_method(question, 2);
  ASSERT_TRUE(whole);
  EXPECT_EQ(precisions_in(*whole, "ddp:2"),
            (std::set<std::string>{"--dtype fp32", "--mixed-precision bf16"}));
  ASSERT_TRUE(question.set("dtype", "fp16"));
  const auto half = choose_method(question, 2);
  ASSERT_TRUE(half);
  EXPECT_EQ(precisions_in(*half, ""), (std::set<std::string>{"--dtype fp16"}));
}

// Of ZeRO it is DeepSpeed's own, so that its rows are those of weights in 16 bits.
TEST(Methods, MixedPrecisionHasRowsOfZero) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "none"));
  ASSERT_TRUE(question.set("mixed-precision", "bf16"));
  const auto mixed = choose_method(question, 2);
  ASSERT_TRUE(mixed) << mixed.error().to_string();
  EXPECT_EQ(std::ranges::count(mixed->notes, kDeepSpeedsHalf), 1);
  ASSERT_TRUE(question.set("mixed-precision", "none"));
  ASSERT_TRUE(question.set("dtype", "bf16"));
  const auto half = choose_method(question, 2);
  ASSERT_TRUE(half);
  EXPECT_EQ(std::ranges::count(half->notes, kDeepSpeedsHalf), 0);
  for (const char* method : {"zero1:2", "zero2:2", "zero3:2", "ddp:2"}) {
    const auto a = std::ranges::find(mixed->rows, method, &MethodRow::method);
    const auto b = std::ranges::find(half->rows, method, &MethodRow::method);
    ASSERT_TRUE(a != mixed->rows.end() && b != half->rows.end());
    EXPECT_EQ(a->reason, "") << method;
    EXPECT_EQ(a->peak_allocated == b->peak_allocated, method != std::string("ddp:2")) << method;
  }
}

TEST(Methods, ADeviceWithoutBf16HasFp16) {
  FitQuestion question = small_question();
  question.device = "v100-sxm2-16gb";
  ASSERT_TRUE(question.set("checkpointing", "none"));
  ASSERT_TRUE(question.set("mixed-precision", "any"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(precisions_in(*chosen, "ddp:2"),
            (std::set<std::string>{"--dtype fp16", "--dtype fp32", "--mixed-precision fp16"}));
  EXPECT_TRUE(chosen->warnings.empty()) << chosen->warnings.front();
}

TEST(Methods, AnyPrecisionIsOfASearch) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("mixed-precision", "any"));
  const auto one = answer(question);
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code, ErrorCode::usage);
  EXPECT_NE(one.error().hint.find("--gpus"), std::string::npos);
  ASSERT_TRUE(question.set("method", "qlora"));
  EXPECT_FALSE(choose_method(question, 2));  // weights with types of their own
  ASSERT_TRUE(question.set("mixed-precision", "bf16"));
  EXPECT_FALSE(question.any_precision);
}

TEST(Methods, WhereOnlyOneKindFitsItIsThat) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-2-7b-hf";
  question.device = "a100-sxm-40gb";
  question.batch = 1;
  ASSERT_TRUE(question.set("pipeline-schedule", "1f1b"));
  const auto chosen = choose_method(question, 8);
  ASSERT_TRUE(chosen);
  const auto row_of = [&](const std::string& flags) {
    return *std::ranges::find(chosen->rows, flags, &MethodRow::flags);
  };
  EXPECT_EQ(row_of("--method ddp:8").verdict, Verdict::no);
  EXPECT_EQ(row_of("--method fsdp2:8").verdict, Verdict::yes);
  EXPECT_EQ(chosen->rows.front().verdict, Verdict::yes);
  EXPECT_NE(chosen->rows.back().verdict, Verdict::yes);
}

// A decoder's biases pass through units that nothing flows back from.
TEST(Methods, AnEncoderAndADecoderCanBeDivided) {
  FitQuestion question = small_question();
  question.model = "google-t5/t5-small";
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  for (const MethodRow& row : chosen->rows) EXPECT_EQ(row.verdict, Verdict::yes) << row.flags;
}

TEST(Methods, AnImageHasNoSequence) {
  FitQuestion question = small_question();
  question.model = "google/vit-base-patch16-224";
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_FALSE(chosen->seq);
  EXPECT_EQ(chosen->verdict(), Verdict::yes);
}

TEST(Methods, WhatIsGivenStays) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "full"));
  ASSERT_TRUE(question.set("method", "lora"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen);
  ASSERT_EQ(chosen->rows.size(), 6U);
  for (const MethodRow& row : chosen->rows) {
    EXPECT_TRUE(row.flags.starts_with("--method lora,")) << row.flags;
    EXPECT_EQ(row.flags.find("--checkpointing"), std::string::npos);
  }
}

// ZeRO (arXiv 1910.02054), section 7.2: data parallel sends twice the parameters, the third stage
// three times, here less what stays gathered between forward and backward; all less a ring's n-th.
// DeepSpeed's stages 1 and 2 reduce everywhere and gather besides.
TEST(Methods, WhatIsSent) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("checkpointing", "none"));
  const auto sent = [&](const char* flags) {
    const auto chosen = choose_method(question, 4);
    EXPECT_TRUE(chosen);
    const auto row =
        std::ranges::find(chosen->rows, std::string("--method ") + flags, &MethodRow::flags);
    const double once = 2.0 * static_cast<double>(chosen->trainable_count) * 3 / 4;
    return static_cast<double>(row->sent.count) / once;
  };
  EXPECT_NEAR(sent("ddp:4"), 2, 1e-6);
  EXPECT_NEAR(sent("zero1:4"), 3, 1e-4);
  EXPECT_NEAR(sent("zero2:4"), 3, 1e-4);
  EXPECT_GT(sent("fsdp2:4"), 2.5);
  EXPECT_LT(sent("fsdp2:4"), 3.001);
  // Of so small a model all stays gathered between forward and backward (DeepSpeed's defaults).
  EXPECT_NEAR(sent("zero3:4"), 2, 1e-3);
  question.grad_accum = 3;
  EXPECT_NEAR(sent("ddp:4"), 2, 1e-6);
  EXPECT_NEAR(sent("zero1:4"), 3, 1e-4);
  EXPECT_NEAR(sent("zero2:4"), 3 * 2 + 1, 1e-3);
}

// Where nothing fits on the GPUs alone, the host's memory is tried, and rows say what they take.
TEST(Methods, WhereNothingFitsTheHostsMemoryIsTried) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-2-7b-hf";
  question.device = "v100-sxm2-16gb";
  ASSERT_TRUE(question.set("dtype", "fp16"));
  ASSERT_TRUE(question.set("checkpointing", "full"));
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  const MethodRow& first = chosen->rows.front();
  EXPECT_EQ(first.verdict, Verdict::yes);
  EXPECT_FALSE(first.offload.empty());
  EXPECT_NE(first.flags.find("--offload optimizer"), std::string::npos);
  ASSERT_TRUE(first.host);
  EXPECT_GT(first.host->requested, Bytes(int64_t{6'700'000'000} * 18 / 4));
  for (const MethodRow& row : chosen->rows) {
    EXPECT_TRUE(!row.offload.empty() || row.verdict != Verdict::yes) << row.flags;
    EXPECT_EQ(row.host.has_value(), !row.offload.empty()) << row.flags;
  }
  // Where something fits, it is left alone.
  question.device = "a100-sxm-80gb";
  const auto larger = choose_method(question, 4);
  ASSERT_TRUE(larger);
  for (const MethodRow& row : larger->rows) EXPECT_TRUE(row.offload.empty()) << row.flags;
}

// ZeRO takes no 4-bit weights, so nothing was tried, and nothing is said of it.
// FSDP and ZeRO can prepare nothing of a quantized model; rows beside theirs train alike.
TEST(Methods, OfAQuantizedModelNoRowPreparesMoreThanAnother) {
  FitQuestion question = small_question();
  ASSERT_TRUE(question.set("method", "qlora"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  for (const MethodRow& row : chosen->rows) {
    EXPECT_NE(row.flags.find("--kbit-preparation none"), std::string::npos) << row.flags;
  }
  EXPECT_TRUE(std::ranges::any_of(chosen->notes, [](const std::string& note) {
    return note.find("--kbit-preparation") != std::string::npos;
  }));
}

TEST(Methods, WhereTheHostsMemoryCannotBeUsedNothingIsSaidOfIt) {
  FitQuestion question = small_question();
  question.model = "meta-llama/Llama-2-70b-hf";
  question.device = "a100-sxm-40gb";
  question.batch = 64;
  ASSERT_TRUE(question.set("checkpointing", "none"));
  ASSERT_TRUE(question.set("method", "gptq-lora"));
  const auto chosen = choose_method(question, 2);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(chosen->verdict(), Verdict::no);
  for (const MethodRow& row : chosen->rows) EXPECT_TRUE(row.offload.empty()) << row.flags;
  for (const std::string& note : chosen->notes) {
    EXPECT_EQ(note.find("host's"), std::string::npos) << note;
  }
}

}  // namespace
}  // namespace headroom::fit
