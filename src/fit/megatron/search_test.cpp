#include "fit/megatron/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "fit/fit.h"
#include "fit/megatron/choice.h"
#include "fit/megatron/question.h"
#include "text/number.h"

namespace headroom::fit {
namespace {

// What is asked; with spaces small enough to predict every setting of them.
struct Space {
  const char* name;
  std::string config;
  const char* device;
  int64_t gpus;
  int64_t nodes;
  const char* global_batch;
  const char* seq;
  const char* dtype = "bf16";
  const char* link = "ib-200g";
  double least_part_of_seconds = 0.8;  // that the bound says, in the mean
  bool any_precision = false;
};

const std::string kDense = R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
  "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
  "intermediate_size": 5632, "max_position_embeddings": 8192})";
const std::string kTied = R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 1024,
  "n_layer": 6, "n_head": 16, "n_positions": 2048})";
const std::string kMixture = R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 1024,
  "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
  "intermediate_size": 2048, "num_local_experts": 4, "num_experts_per_tok": 2})";
const std::string kLatent = R"({"model_type": "deepseek_v3", "vocab_size": 32000,
  "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 4096,
  "moe_intermediate_size": 64, "n_routed_experts": 16, "n_group": 2, "topk_group": 1,
  "num_experts_per_tok": 2, "q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 32, "v_head_dim": 64, "first_k_dense_replace": 4})";
// Layers that do not come out even, but with the two ends.
const std::string kUneven = R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 1024,
  "num_hidden_layers": 10, "num_attention_heads": 8, "num_key_value_heads": 8,
  "intermediate_size": 4096})";

const std::vector<Space>& spaces() {
  static const std::vector<Space> kSpaces{
      {"dense", kDense, "rtx-4090,memory=11GiB", 4, 1, "16", "4096"},
      {"tied", kTied, "rtx-4090", 4, 1, "32", "2048", "fp16"},
      {"mixture", kMixture, "rtx-4090,memory=8GiB", 4, 1, "4", "4096"},
      {"latent", kLatent, "rtx-4090", 4, 1, "16", "4096", "fp32"},
      {"uneven", kUneven, "rtx-4090", 12, 3, "24", "2048"},
      // A gather of parameters that outlasts many micro-batches.
      {"slow network", kDense, "rtx-4090", 4, 2, "64", "2048", "bf16", "roce-10g", 0.4},
      {"none fits", kDense, "rtx-4090,memory=3GiB", 2, 1, "8", "4096"},
      {"precisions", kDense, "rtx-4090,memory=11GiB", 4, 1, "8", "4096", "bf16", "ib-200g", 0.8,
       true},
  };
  return kSpaces;
}

class MegatronSearchTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("search_") + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  FitQuestion question_of(const Space& space) {
    const std::string config = folder_ / "config.json";
    EXPECT_TRUE(write_file_atomic(config, space.config));
    FitQuestion question;
    question.model = config;
    question.device = space.device;
    EXPECT_TRUE(question.set("seq", space.seq));
    EXPECT_TRUE(question.set("dtype", space.dtype));
    EXPECT_TRUE(question.set("global-batch", space.global_batch));
    if (space.any_precision) {
      EXPECT_TRUE(question.set("mixed-precision", "any"));
    }
    if (space.nodes > 1) {
      EXPECT_TRUE(question.set("nodes", std::to_string(space.nodes)));
      EXPECT_TRUE(question.set("link", space.link));
    }
    return question;
  }

  MegatronModel model_of(const Space& space) {
    auto model = megatron_model(question_of(space), space.gpus);
    EXPECT_TRUE(model) << space.name << model.error().to_string();
    return *model;
  }

  std::filesystem::path folder_;
};

double seconds_of(const MegatronFound& found) { return found.outcome.time.step_seconds.expected; }

// One that takes no longer and leaves as much room, of those before.
bool beats(const MegatronFound& a, const MegatronFound& b) {
  return seconds_of(a) <= seconds_of(b) && a.outcome.used <= b.outcome.used;
}

// Every setting of a space, predicted.
std::vector<MegatronFound> exhaust(const MegatronModel& model, const Scenario& any,
                                   const StepTimer& timer,
                                   const std::vector<MegatronDivision>& divisions) {
  std::vector<MegatronFound> all;
  for (const MegatronDivision& division : divisions) {
    const auto question = setting_question(model, division);
    EXPECT_TRUE(question) << flags_of(division);
    auto outcome = predict_megatron(any, timer, *question);
    EXPECT_TRUE(outcome) << flags_of(division) << outcome.error().to_string();
    all.push_back({division, std::move(*outcome)});
  }
  return all;
}

// Of a whole space: no more than what is predicted, and not much less.
void expect_bounds_hold(const Space& space, const MegatronBounds& bounds,
                        const std::vector<MegatronFound>& all) {
  double part_of_bytes = 0;
  double part_of_seconds = 0;
  for (const MegatronFound& one : all) {
    const auto least = bounds.of(one.division);
    ASSERT_TRUE(least) << least.error().to_string();
    const auto fullest =
        std::ranges::max_element(one.outcome.stages, {}, &StageFigures::peak_allocated);
    EXPECT_LE(least->bytes, fullest->peak_allocated.count) << flags_of(one.division);
    EXPECT_LE(least->seconds, seconds_of(one)) << flags_of(one.division);
    part_of_bytes +=
        static_cast<double>(least->bytes) / static_cast<double>(fullest->peak_allocated.count);
    part_of_seconds += least->seconds / seconds_of(one);
  }
  // A bound that says nothing would hold as well.
  const auto count = static_cast<double>(all.size());
  EXPECT_GT(part_of_bytes / count, 0.7);
  EXPECT_GT(part_of_seconds / count, space.least_part_of_seconds);
  const std::string model = space.name;
  // Quoted in docs/measurements/2026-11-23-megatron-search: --gtest_output=json has them.
  testing::Test::RecordProperty(model + ": settings", std::to_string(all.size()));
  testing::Test::RecordProperty(model + ": part of bytes",
                                text::formatted("%.2f", part_of_bytes / count));
  testing::Test::RecordProperty(model + ": part of seconds",
                                text::formatted("%.2f", part_of_seconds / count));
}

std::vector<MegatronFound> frontier_of(const std::vector<MegatronFound>& all) {
  std::vector<MegatronFound> frontier;
  for (const MegatronFound& one : all) {
    if (one.outcome.verdict != Verdict::yes) continue;
    const bool is_beaten = std::ranges::any_of(all, [&](const MegatronFound& other) {
      return other.outcome.verdict == Verdict::yes && beats(other, one) && !beats(one, other);
    });
    const bool is_there = std::ranges::any_of(
        frontier, [&](const MegatronFound& other) { return beats(other, one); });
    if (!is_beaten && !is_there) frontier.push_back(one);
  }
  std::ranges::sort(frontier, {}, seconds_of);
  return frontier;
}

// Nothing is missed: the same fastest, the same frontier, or, where none fits, the same least.
void expect_found(const MegatronSearch& search, const std::vector<MegatronFound>& all) {
  std::vector<MegatronFound> expected = frontier_of(all);
  if (expected.empty()) {
    expected.push_back(*std::ranges::min_element(
        all, {}, [](const MegatronFound& one) { return one.outcome.used; }));
  }
  ASSERT_EQ(search.found().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(search.found()[i].outcome.used, expected[i].outcome.used) << i;
    EXPECT_EQ(seconds_of(search.found()[i]), seconds_of(expected[i])) << i;
  }
  const Searched counts = search.counts();
  EXPECT_EQ(counts.settings, static_cast<int64_t>(all.size()));
  EXPECT_EQ(counts.settings, counts.predicted + counts.too_large + counts.beaten + counts.refused);
}

TEST_F(MegatronSearchTest, FindsWhatGoingThroughAllFinds) {
  int64_t too_large = 0;
  int64_t beaten = 0;
  for (const Space& space : spaces()) {
    SCOPED_TRACE(space.name);
    const MegatronModel model = model_of(space);
    const auto timer = StepTimer::make("");
    ASSERT_TRUE(timer);
    DivisionsAsked asked{.gpus = space.gpus, .devices_per_node = space.gpus / space.nodes};
    asked.any_precision = space.any_precision;
    const auto listed = megatron_divisions(model.model, asked);
    ASSERT_GT(listed.size(), 50U);
    const auto some = setting_question(model, listed.front());
    ASSERT_TRUE(some) << some.error().to_string();
    const auto any = resolve(*some);
    ASSERT_TRUE(any) << any.error().to_string();
    const std::vector<MegatronFound> all = exhaust(model, *any, *timer, listed);
    int64_t told = 0;
    SearchState last;
    const SearchProgress count = [&](const SearchState& state) {
      EXPECT_LE(state.done, state.of);
      last = state;
      ++told;
    };
    const MegatronBounds bounds = MegatronBounds::make(*any, *timer, model.model, listed, count);
    EXPECT_GT(std::exchange(told, 0), 0);
    expect_bounds_hold(space, bounds, all);
    const MegatronQuestions questions = [&](const MegatronDivision& division) {
      return setting_question(model, division);
    };
    MegatronSearch search(*any, *timer, questions, bounds, listed);
    ASSERT_TRUE(search.run(count));
    EXPECT_GT(told, 0);
    EXPECT_EQ(last.predicted, search.counts().predicted);
    EXPECT_EQ(last.passed_over, last.of - last.predicted);
    expect_found(search, all);
    too_large += search.counts().too_large;
    beaten += search.counts().beaten;
  }
  EXPECT_GT(too_large, 100);
  EXPECT_GT(beaten, 100);
}

// What a stage that is all adds is counted over very many micro-batches, where they alone are the
// step: nothing of two stages may be in it twice.
TEST_F(MegatronSearchTest, OfOneStageNothingIsCountedTwice) {
  const std::string config = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 1024,
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
    "intermediate_size": 4096, "max_position_embeddings": 8192})";
  const MegatronModel model =
      model_of({"small vocabulary", config, "h100-sxm-80gb", 1, 1, "4096", "2048"});
  const auto timer = StepTimer::make("");
  ASSERT_TRUE(timer);
  MegatronDivision division;
  division.micro_batch = 1;
  const auto question = setting_question(model, division);
  ASSERT_TRUE(question) << question.error().to_string();
  const auto any = resolve(*question);
  ASSERT_TRUE(any) << any.error().to_string();
  const auto outcome = predict_megatron(*any, *timer, *question);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  const MegatronBounds bounds = MegatronBounds::make(*any, *timer, model.model, {division});
  const auto least = bounds.of(division);
  ASSERT_TRUE(least) << least.error().to_string();
  EXPECT_LE(least->seconds, outcome->time.step_seconds.expected);
  EXPECT_GT(least->seconds, 0.99 * outcome->time.step_seconds.expected);
}

// A batch beyond counting is no reason to say nothing of the others.
TEST_F(MegatronSearchTest, WhatCannotBeAskedIsCounted) {
  FitQuestion question = question_of(spaces()[0]);
  question.given.erase("global-batch");
  ASSERT_TRUE(question.set("global-batch", "268435456"));
  const auto model = megatron_model(question, 1);
  ASSERT_TRUE(model);
  const auto choice = choose_megatron(*model, 1);
  ASSERT_TRUE(choice) << choice.error().to_string();
  EXPECT_GT(choice->answer.searched.refused, 0);
  EXPECT_EQ(choice->answer.verdict(), Verdict::yes);
}

// A row is what its flags answer, and what --emit writes is read back as the same setting with the
// same answer.
TEST_F(MegatronSearchTest, RowsAreAnswersAndFilesAreRows) {
  for (const size_t index : {0U, 2U, 4U, 7U}) {
    const Space& space = spaces()[index];
    MegatronModel model = model_of(space);
    model.question.timeline = true;
    const auto choice = choose_megatron(model, space.gpus);
    ASSERT_TRUE(choice) << space.name << choice.error().to_string();
    ASSERT_FALSE(choice->answer.rows.empty());
    const MethodRow& row = choice->answer.rows.front();
    ASSERT_TRUE(choice->answer.first_step);
    const Timeline& step = choice->answer.first_step->timeline;
    EXPECT_EQ(step.points.at(step.peak).bytes.allocated(), row.peak_allocated) << space.name;
    auto question = setting_question(model, choice->first);
    ASSERT_TRUE(question);
    question->search = question->timeline = false;
    const auto alone = answer(*question);
    ASSERT_TRUE(alone) << alone.error().to_string();
    EXPECT_EQ(row.verdict, alone->verdict) << space.name;
    EXPECT_EQ(row.peak_allocated, alone->memory.peak_allocated) << space.name;
    EXPECT_EQ(row.device_used.high, alone->memory.device_used.high) << space.name;
    ASSERT_TRUE(row.time && alone->time);
    EXPECT_EQ(row.time->step_seconds.expected, alone->time->step_seconds.expected) << space.name;

    const std::string file = folder_ / "run.sh";
    const auto emitted = emit_setting(model, choice->first, {"megatron", file});
    ASSERT_TRUE(emitted) << emitted.error().to_string();
    const auto content = read_file(file, kMostSetup);
    ASSERT_TRUE(content);
    const auto read = engines::read_megatron_arguments(*content, file);
    ASSERT_TRUE(read) << read.error().to_string() << *content;
    FitQuestion flags;
    flags.device = space.device;
    flags.search = false;
    flags.nodes = question->nodes;
    flags.link = question->link;
    auto back = megatron_question(flags, *read, question->model, std::nullopt);
    ASSERT_TRUE(back) << back.error().to_string() << *content;
    back->given = question->given = {};
    EXPECT_EQ(*back, *question) << space.name << *content;
    const auto again = answer(*back);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->memory.peak_reserved, alone->memory.peak_reserved);
    EXPECT_EQ(again->time->step_seconds.expected, alone->time->step_seconds.expected);
  }
}

TEST_F(MegatronSearchTest, WhatIsSaidIsNotSearched) {
  const Space& space = spaces()[0];
  FitQuestion question = question_of(space);
  ASSERT_TRUE(question.set("batch", "2"));
  ASSERT_TRUE(question.set("checkpointing", "full"));
  const auto model = megatron_model(question, space.gpus);
  ASSERT_TRUE(model);
  const auto choice = choose_megatron(*model, space.gpus);
  ASSERT_TRUE(choice) << choice.error().to_string();
  for (const MethodRow& row : choice->answer.rows) {
    EXPECT_NE(row.flags.find("--batch 2 --checkpointing full"), std::string::npos) << row.flags;
  }
}

// Of a device that has products in FP8; another has a note in their place.
TEST_F(MegatronSearchTest, PrecisionsAreLookedAtWhereTheDeviceHasThem) {
  Space space = spaces().back();
  for (const auto& [device, has_fp8] :
       {std::pair{"h100-sxm-80gb", true}, {"a100-sxm-80gb", false}}) {
    space.device = device;
    const auto choice = choose_megatron(model_of(space), space.gpus);
    ASSERT_TRUE(choice) << choice.error().to_string();
    EXPECT_EQ(choice->first.fp8, has_fp8) << device;
    const auto has_note = [&](const char* words) {
      return std::ranges::any_of(choice->answer.notes, [&](const std::string& note) {
        return note.find(words) != std::string::npos;
      });
    };
    EXPECT_EQ(has_note("fp8 changes what is trained"), has_fp8) << device;
    EXPECT_EQ(has_note("has no products in FP8"), !has_fp8) << device;
  }
}

// How they are joined is assumed and said, where nobody says; 12 GPUs are no machines of eight.
TEST_F(MegatronSearchTest, MachinesAreAssumedAndSaid) {
  Space space = spaces()[0];
  space.gpus = 16;
  const auto model = megatron_model(question_of(space), space.gpus);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->question.nodes, 2);
  ASSERT_EQ(model->assumptions.size(), 1U);
  EXPECT_NE(model->assumptions[0].find("2 machines of eight, joined by ib-400g"),
            std::string::npos);
  const std::string file = ::testing::TempDir() + "machines.sh";
  const auto emitted = emit_setting(*model, {.data = 16}, {.kind = "megatron", .file = file});
  ASSERT_TRUE(emitted) << emitted.error().to_string();
  EXPECT_TRUE(emitted->command.starts_with("srun --nodes 2 ")) << emitted->command;
  EXPECT_FALSE(megatron_model(question_of(space), 12));
  space.nodes = 4;
  EXPECT_TRUE(megatron_model(question_of(space), 12)->assumptions.empty());
}

}  // namespace
}  // namespace headroom::fit
