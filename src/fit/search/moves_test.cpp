#include "fit/search/moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "fit/fit.h"
#include "fit/megatron/question.h"
#include "fit/stages.h"

namespace headroom::fit {
namespace {

// Eight layers on four stages, of which the first holds most.
const std::string kRun =
    "pretrain_gpt.py --num-layers 8 --hidden-size 2048 --num-attention-heads 16 --seq-length 4096 "
    "--max-position-embeddings 4096 --vocab-size 32000 --bf16 --micro-batch-size 2 "
    "--pipeline-model-parallel-size 4 --global-batch-size 32 --attention-backend flash ";

FitQuestion question_of(const std::string& run) {
  const auto arguments = engines::read_megatron_arguments(run, "run.sh");
  EXPECT_TRUE(arguments) << arguments.error().to_string();
  FitQuestion question;
  question.device = "a100-sxm-80gb";
  const auto asked = megatron_question(question, *arguments, "run.sh", 4);
  EXPECT_TRUE(asked) << asked.error().to_string();
  return *asked;
}

FitQuestion question_with(const std::string& more) { return question_of(kRun + more); }

const PipelineMove* find(const FitAnswer& answer, const std::string& name) {
  const auto found = std::ranges::find(answer.moves, name, &PipelineMove::name);
  return found == answer.moves.end() ? nullptr : &*found;
}

int64_t most_used(const std::vector<StageFigures>& stages) {
  return stages[static_cast<size_t>(fullest_stage(stages))].device_used.expected.count;
}

void expect_sound(const FitAnswer& answer, const PipelineMove& move) {
  EXPECT_EQ(move.saves.count, most_used(answer.stages) - most_used(move.stages)) << move.name;
  EXPECT_EQ(move.device_used.expected.count, most_used(move.stages)) << move.name;
  EXPECT_GT(move.saves.count, 0) << move.name;
  EXPECT_TRUE(move.time) << move.name;
}

// What a move says is what the pipeline says that is asked with it.
TEST(PipelineMoves, BoundariesAreWhatTheirLayoutAnswers) {
  const auto answered = answer(question_with(""));
  ASSERT_TRUE(answered) << answered.error().to_string();
  const PipelineMove* move = find(*answered, "stage-boundaries");
  ASSERT_NE(move, nullptr);
  expect_sound(*answered, *move);
  const auto layers = [](int64_t sum, const StageFigures& stage) { return sum + stage.layers; };
  EXPECT_EQ(std::accumulate(move->stages.begin(), move->stages.end(), int64_t{0}, layers), 8);
  EXPECT_LT(move->stages.front().layers, answered->stages.front().layers);
  const size_t begin = move->how.find("--pipeline");
  const size_t end = move->how.rfind('\'') + 1;
  const auto asked = answer(question_with(move->how.substr(begin, end - begin)));
  ASSERT_TRUE(asked) << asked.error().to_string();
  ASSERT_EQ(asked->stages.size(), move->stages.size());
  for (size_t i = 0; i < asked->stages.size(); ++i) {
    EXPECT_EQ(asked->stages[i].layers, move->stages[i].layers);
    EXPECT_EQ(asked->stages[i].peak_allocated, move->stages[i].peak_allocated);
  }
  EXPECT_NEAR(asked->time->step_seconds.expected, move->time->step_seconds.expected, 1e-9);
}

TEST(PipelineMoves, TheFullestStageAloneRecomputes) {
  const auto answered = answer(question_with(""));
  ASSERT_TRUE(answered);
  const PipelineMove* move = find(*answered, "recompute-fullest-stages");
  ASSERT_NE(move, nullptr);
  expect_sound(*answered, *move);
  // They all fit as they are, so one is enough; the others stay.
  EXPECT_NE(move->title.find("stage 0 alone"), std::string::npos) << move->title;
  for (size_t i = 1; i < move->stages.size(); ++i) {
    EXPECT_EQ(move->stages[i].peak_allocated, answered->stages[i].peak_allocated);
  }
  EXPECT_GE(move->time->step_seconds.expected, answered->time->step_seconds.expected);
  const auto all = answer(question_with(
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"));
  ASSERT_TRUE(all);
  EXPECT_EQ(move->stages.front().peak_allocated, all->stages.front().peak_allocated);
}

TEST(PipelineMoves, FewerMicroBatchesWaitWithoutChunksAndWithSmallerOnes) {
  const std::string chunks = "--num-virtual-stages-per-pipeline-rank 2";
  const auto answered = answer(question_with(chunks));
  ASSERT_TRUE(answered) << answered.error().to_string();
  const PipelineMove* one = find(*answered, "one-chunk-a-stage");
  ASSERT_NE(one, nullptr);
  expect_sound(*answered, *one);
  const auto plain = answer(question_with(""));
  ASSERT_TRUE(plain);
  EXPECT_EQ(one->stages.front().peak_allocated, plain->stages.front().peak_allocated);
  EXPECT_GT(one->time->pipeline_seconds, answered->time->pipeline_seconds);
  const PipelineMove* half = find(*answered, "half-micro-batch");
  ASSERT_NE(half, nullptr);
  expect_sound(*answered, *half);
  const std::string wanted = "--micro-batch-size 1 and --global-batch-size 32";
  EXPECT_NE(half->how.find(wanted), std::string::npos) << half->how;
  std::string run = kRun + chunks;
  run.replace(run.find("batch-size 2"), 12, "batch-size 1");
  const auto halved = answer(question_of(run));
  ASSERT_TRUE(halved) << halved.error().to_string();
  for (size_t i = 0; i < half->stages.size(); ++i) {
    EXPECT_EQ(half->stages[i].peak_allocated, halved->stages[i].peak_allocated);
  }
  EXPECT_NEAR(half->time->step_seconds.expected, halved->time->step_seconds.expected, 1e-9);
  EXPECT_EQ(find(*plain, "one-chunk-a-stage"), nullptr);
}

// The same of PyTorch's stages, of which the first has the embedding and waits longest.
FitQuestion torch_question(const std::string& method, const std::string& schedule = "1f1b") {
  FitQuestion question;
  question.model = "meta-llama/Llama-3.2-1B";
  question.device = "a100-sxm-80gb";
  question.remedy_batches = 0;
  for (const auto& [flag, words] : {std::pair<const char*, std::string>{"method", method},
                                    {"pipeline-schedule", schedule},
                                    {"batch", "2"},
                                    {"seq", "2048"},
                                    {"grad-accum", "8"}}) {
    EXPECT_TRUE(question.set(flag, words));
  }
  return question;
}

// The words behind "ask again with".
void ask_again(const PipelineMove& move, FitQuestion& question) {
  std::istringstream words(move.how.substr(std::string("ask again with ").size()));
  for (std::string flag, value; words >> flag >> value && flag.starts_with("--");) {
    value.erase(value.find_last_not_of(",;") + 1);
    ASSERT_TRUE(question.set(flag.substr(2), value));
  }
}

void expect_same(const PipelineMove& move, const FitQuestion& question) {
  const auto asked = answer(question);
  ASSERT_TRUE(asked) << asked.error().to_string();
  ASSERT_EQ(asked->stages.size(), move.stages.size());
  for (size_t i = 0; i < asked->stages.size(); ++i) {
    EXPECT_EQ(asked->stages[i].layers, move.stages[i].layers);
    EXPECT_EQ(asked->stages[i].peak_allocated, move.stages[i].peak_allocated);
  }
  EXPECT_NEAR(asked->time->step_seconds.expected, move.time->step_seconds.expected, 1e-9);
}

TEST(PipelineMoves, OfPyTorchsStagesTooAreWhatTheirSettingsAnswer) {
  const auto answered = answer(torch_question("pp:4"));
  ASSERT_TRUE(answered) << answered.error().to_string();
  for (const char* name : {"stage-boundaries", "half-micro-batch"}) {
    const PipelineMove* move = find(*answered, name);
    ASSERT_NE(move, nullptr) << name;
    expect_sound(*answered, *move);
    FitQuestion question = torch_question("pp:4");
    ask_again(*move, question);
    EXPECT_NE(question, torch_question("pp:4"));
    expect_same(*move, question);
  }
  const PipelineMove* recomputed = find(*answered, "recompute-fullest-stages");
  ASSERT_NE(recomputed, nullptr);
  expect_sound(*answered, *recomputed);
  EXPECT_EQ(find(*answered, "one-chunk-a-stage"), nullptr);
}

TEST(PipelineMoves, OfPyTorchsChunksToo) {
  const auto answered = answer(torch_question("pp:2,vpp:2"));
  ASSERT_TRUE(answered) << answered.error().to_string();
  const PipelineMove* one = find(*answered, "one-chunk-a-stage");
  ASSERT_NE(one, nullptr);
  expect_sound(*answered, *one);
  expect_same(*one, torch_question("pp:2"));
  // Mirrored ones have two whatever is said, and what is moved is a part's.
  const auto mirrored = answer(torch_question("pp:2", "zbv"));
  ASSERT_TRUE(mirrored) << mirrored.error().to_string();
  EXPECT_EQ(find(*mirrored, "one-chunk-a-stage"), nullptr);
  if (const PipelineMove* move = find(*mirrored, "stage-boundaries")) {
    FitQuestion question = torch_question("pp:2", "zbv");
    ask_again(*move, question);
    expect_same(*move, question);
  }
}

TEST(PipelineMoves, WithoutASearchThereAreNone) {
  FitQuestion question = question_with("");
  ASSERT_TRUE(question.set("search", "false"));
  const auto answered = answer(question);
  ASSERT_TRUE(answered);
  EXPECT_TRUE(answered->moves.empty());
}

}  // namespace
}  // namespace headroom::fit
