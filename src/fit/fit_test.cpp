#include "fit/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "fit/prediction.h"
#include "fit/scenario/scenario.h"
#include "formats/packing_csv.h"
#include "memory/packing/validator.h"
#include "memory/replay.h"

namespace headroom::fit {
namespace {

FitQuestion mistral(int64_t batch, int64_t seq) {
  FitQuestion question;
  question.model = "mistralai/Mistral-7B-v0.1";
  question.device = "a100-sxm-80gb";
  question.batch = batch;
  question.seq = seq;
  question.search = false;
  question.timeline = true;
  question.checkpointing.kind = CheckpointingKind::full;
  return question;
}

// The column `offset` of a file of placements, by its own words.
std::vector<int64_t> offsets_in(const std::string& file) {
  std::ifstream in(file);
  std::vector<int64_t> offsets;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) offsets.push_back(std::stoll(line.substr(line.rfind(',') + 1)));
  return offsets;
}

// What answer.h promises of every answer.
void expect_invariants(const FitAnswer& answer) {
  const MemoryFigures& memory = answer.memory;
  EXPECT_EQ(memory.breakdown.allocated(), memory.peak_allocated);
  EXPECT_EQ(memory.breakdown.allocated() + memory.breakdown[Component::cached_unused],
            memory.peak_reserved);
  EXPECT_EQ(memory.breakdown.total(), memory.device_used.expected);
  EXPECT_EQ(answer.room.low, answer.device.offered - memory.device_used.high);
  EXPECT_EQ(answer.room.high, answer.device.offered - memory.device_used.low);
  EXPECT_LE(memory.device_used.low, memory.device_used.expected);
  EXPECT_LE(memory.device_used.expected, memory.device_used.high);
  EXPECT_LE(memory.peak_requested, memory.peak_allocated);
  EXPECT_LE(memory.peak_allocated, memory.peak_reserved);
  const bool yes = answer.room.low > Bytes(0);
  const bool no = answer.room.high < Bytes(0);
  EXPECT_EQ(answer.verdict, yes ? Verdict::yes : no ? Verdict::no : Verdict::at_risk);
  for (size_t i = 1; i < answer.timeline.points.size(); ++i) {
    EXPECT_LT(answer.timeline.points[i - 1].event, answer.timeline.points[i].event);
  }
  ASSERT_LT(answer.timeline.peak, answer.timeline.points.size());
  const TimelinePoint& peak = answer.timeline.points[answer.timeline.peak];
  EXPECT_EQ(peak.event, memory.peak_at.event);
  EXPECT_EQ(peak.bytes.allocated(), memory.peak_allocated);
}

TEST(Fit, AnswersKeepTheirInvariants) {
  for (const int64_t batch : {1, 4, 64}) {
    const auto answered = answer(mistral(batch, 1024));
    ASSERT_TRUE(answered) << answered.error().to_string();
    expect_invariants(*answered);
  }
}

// What is kept decides the order: nothing but inputs, attention too, products too, all.
TEST(Fit, SelectiveCheckpointsLieBetweenFullAndNone) {
  Bytes before;
  for (const char* kind :
       {"full", "selective-attention", "selective-every-2", "selective", "none"}) {
    FitQuestion question = mistral(2, 2048);
    ASSERT_TRUE(question.set("checkpointing", kind));
    ASSERT_TRUE(question.set("method", "lora"));
    const auto answered = answer(question);
    ASSERT_TRUE(answered) << answered.error().to_string();
    EXPECT_GT(answered->memory.peak_allocated, before) << kind;
    before = answered->memory.peak_allocated;
    expect_invariants(*answered);
  }
}

// DoRA trains one number more a row than LoRA; IA3 one a feature of each target alone.
TEST(Fit, AdaptersTrainWhatTheirPapersSay) {
  const auto trainable = [](const char* method) {
    FitQuestion question = mistral(1, 128);
    if (!question.set("method", method) || !question.set("lora-rank", "8")) return int64_t{0};
    const auto answered = answer(question);
    return answered ? answered->trainable_count : int64_t{0};
  };
  constexpr int64_t kLayers = 32, kHidden = 4096, kKeys = 1024, kInner = 14336;
  const int64_t lora = kLayers * 8 * (kHidden + kHidden + kHidden + kKeys);
  EXPECT_EQ(trainable("lora"), lora);
  EXPECT_EQ(trainable("dora"), lora + kLayers * (kHidden + kKeys));
  EXPECT_EQ(trainable("ia3"), kLayers * (kKeys + kKeys + kInner));
}

// Weights, gradients, two states and foreach AdamW's list of temporaries: five copies of the
// parameters and two workspaces, by arithmetic on the published parameter count.
TEST(Fit, FullFineTuningPeaksInTheOptimizer) {
  const auto answered = answer(mistral(1, 512));
  ASSERT_TRUE(answered) << answered.error().to_string();
  constexpr int64_t kParameters = 7'241'732'096;
  EXPECT_EQ(answered->parameter_count, kParameters);
  EXPECT_EQ(answered->memory.peak_at.phase, "optimizer");
  const int64_t copies = 5 * 2 * kParameters;
  EXPECT_GT(answered->memory.peak_allocated.count, copies);
  EXPECT_LT(answered->memory.peak_allocated.count, copies + 64 * kMiB);
  EXPECT_EQ(answered->verdict, Verdict::yes);
}

// At batch 8 the allocator would cache nearly all of the device, and can give that back: what the
// step needs is 10 GiB below it.
TEST(Fit, WhatIsOnlyCachedDoesNotDecide) {
  const auto answered = answer(mistral(8, 4096));
  ASSERT_TRUE(answered) << answered.error().to_string();
  expect_invariants(*answered);
  EXPECT_LT(answered->memory.peak_allocated, answered->device.offered - Bytes(9 * kGiB));
  EXPECT_GT(answered->memory.peak_reserved, answered->device.offered - Bytes(3 * kGiB));
  EXPECT_EQ(answered->verdict, Verdict::yes);
  EXPECT_EQ(answered->memory.device_used.high, answered->device.offered - kLeastSegment);
}

// A search may stop early, and must not say anything else than a full prediction.
TEST(Fit, AStepThatIsCutShortFitsWhereAWholeOneDoes) {
  for (const int64_t batch : {8, 11, 12, 16, 64}) {
    const auto scenario = resolve(mistral(batch, 4096));
    ASSERT_TRUE(scenario) << scenario.error().to_string();
    const auto whole = predict(*scenario, Figures::always);
    const auto cut = predict(*scenario, Figures::where_it_fits);
    ASSERT_TRUE(whole && cut);
    EXPECT_EQ(whole->verdict == Verdict::yes, cut->verdict == Verdict::yes) << batch;
  }
}

// A remedy is a run with its flags, not an estimate: asked for outright, it answers the same.
TEST(Fit, FusedLossesAndKernelsAreRemediesThatWereRun) {
  FitQuestion question = mistral(2, 2048);
  question.method = Method::lora;
  question.search = true;
  const auto answered = answer(question);
  ASSERT_TRUE(answered) << answered.error().to_string();
  for (const char* name : {"liger", "fused-linear-loss", "chunked-loss"}) {
    const auto remedy = std::ranges::find(answered->remedies, name, &Remedy::name);
    ASSERT_NE(remedy, answered->remedies.end()) << name;
    EXPECT_GT(remedy->saves, Bytes(0));
    FitQuestion changed = question;
    const size_t space = remedy->flag.find(' ');
    ASSERT_TRUE(changed.set(remedy->flag.substr(2, space - 2), remedy->flag.substr(space + 1)));
    changed.search = false;
    const auto asked = answer(changed);
    ASSERT_TRUE(asked) << asked.error().to_string();
    EXPECT_EQ(asked->memory.peak_allocated, remedy->peak_allocated);
    EXPECT_LT(asked->memory.peak_allocated, answered->memory.peak_allocated);
  }
}

TEST(Fit, TheLossIsWhatTheKernelsBring) {
  const auto loss_of = [](const char* kernels, const char* loss) {
    FitQuestion question = mistral(1, 512);
    EXPECT_TRUE(question.set("kernels", kernels));
    const bool is_left_open = *loss == 0;
    EXPECT_TRUE(is_left_open || question.set("loss", loss));
    return resolve(question)->loss;
  };
  EXPECT_EQ(loss_of("none", ""), Loss::hf);
  EXPECT_EQ(loss_of("liger", ""), Loss::fused_linear);
  EXPECT_EQ(loss_of("fast", ""), Loss::fused);
  EXPECT_EQ(loss_of("liger", "hf"), Loss::hf);
}

// Between steps the weights and AdamW's two states stay, and no gradient.
TEST(Fit, StatesStayBetweenSteps) {
  const auto answered = answer(mistral(1, 512));
  ASSERT_TRUE(answered) << answered.error().to_string();
  const int64_t weights = 2 * answered->parameter_count;
  EXPECT_GT(answered->memory.steady_allocated, Bytes(3 * weights));
  EXPECT_LT(answered->memory.steady_allocated, Bytes(3 * weights + weights / 100));
}

TEST(Fit, MoreMemoryNeverComesFromLessWork) {
  Bytes before;
  for (const int64_t seq : {128, 512, 2048, 8192}) {
    const auto scenario = resolve(mistral(2, seq));
    ASSERT_TRUE(scenario);
    const auto prediction = predict(*scenario);
    ASSERT_TRUE(prediction);
    EXPECT_GE(prediction->peak_allocated, before);
    before = prediction->peak_allocated;
  }
}

TEST(Fit, SizesBeyondByteCountsAreErrors) {
  FitQuestion question = mistral(1'000'000, 100'000'000);
  const auto answered = answer(question);
  ASSERT_FALSE(answered);
  EXPECT_EQ(answered.error().code, ErrorCode::bad_input);
  EXPECT_NE(answered.error().message.find("2^56"), std::string::npos);
}

TEST(Fit, WhatIsNotModelledIsNotAnswered) {
  FitQuestion question;
  question.model = "google-t5/t5-small";
  question.device = "a100-sxm-80gb";
  question.search = false;
  ASSERT_TRUE(answer(question));
  question.dtype = Dtype::fp16;
  const auto answered = answer(question);
  ASSERT_FALSE(answered);
  EXPECT_NE(answered.error().to_string().find("T5 in fp16"), std::string::npos);
}

TEST(Fit, ATableOfPositionsEndsWhereItEnds) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.search = false;
  question.seq = 1024;
  ASSERT_TRUE(answer(question));
  question.seq = 1025;
  const auto refused = answer(question);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_string().find("has 1024 positions"), std::string::npos);
  const auto rotary = answer(mistral(1, 65536));
  ASSERT_TRUE(rotary) << rotary.error().to_string();
  EXPECT_FALSE(rotary->warnings.empty());
}

TEST(Fit, AutocastIsOverFloat32WeightsUnlessSaidOtherwise) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.search = false;
  ASSERT_TRUE(question.set("mixed-precision", "bf16"));
  const auto master = answer(question);
  ASSERT_TRUE(question.set("dtype", "bf16"));
  const auto half = answer(question);
  ASSERT_TRUE(master && half);
  const Bytes weights = half->memory.breakdown[Component::parameters];
  EXPECT_GT(master->memory.breakdown[Component::parameters], weights + Bytes(weights.count / 2));
}

TEST(Fit, UnknownNamesAreErrorsThatHelp) {
  FitQuestion question = mistral(1, 128);
  question.model = "mistralai/Mistral-7B-v0.7";
  EXPECT_FALSE(answer(question));
  question = mistral(1, 128);
  question.device = "h100";
  const auto ambiguous = answer(question);
  ASSERT_FALSE(ambiguous);
  EXPECT_NE(ambiguous.error().to_string().find("h100-sxm-80gb"), std::string::npos);
}

TEST(Fit, ExpandableSegmentsReserveLess) {
  FitQuestion question = mistral(4, 2048);
  const auto plain = predict(*resolve(question));
  question.allocator = "expandable_segments:True";
  const auto expandable = predict(*resolve(question));
  ASSERT_TRUE(plain && expandable);
  EXPECT_EQ(plain->peak_requested, expandable->peak_requested);
  EXPECT_LE(expandable->peak_reserved, plain->peak_reserved);
}

TEST(Fit, AnswersUnderAPlanKeepTheirInvariants) {
  for (const int64_t batch : {1, 4, 64}) {
    FitQuestion question = mistral(batch, 1024);
    question.allocator = "planned";
    const auto answered = answer(question);
    ASSERT_TRUE(answered) << answered.error().to_string();
    expect_invariants(*answered);
    ASSERT_EQ(answered->notes.size(), 1u);
    EXPECT_NE(answered->notes[0].find("a plan made from this very step"), std::string::npos);
  }
}

// The same step under a plan: it asks for the same, and reserves all but nothing more than lives.
TEST(Fit, APlanReservesWhatLives) {
  for (const auto checkpointing : {CheckpointingKind::none, CheckpointingKind::full}) {
    FitQuestion question = mistral(4, 2048);
    question.checkpointing.kind = checkpointing;
    const auto plain = predict(*resolve(question));
    question.allocator = "planned";
    const auto planned = predict(*resolve(question));
    ASSERT_TRUE(plain && planned);
    EXPECT_EQ(plain->peak_requested, planned->peak_requested);
    EXPECT_LE(planned->peak_allocated, plain->peak_allocated);
    EXPECT_LT(planned->peak_reserved, plain->peak_reserved);
    EXPECT_LE(planned->peak_reserved.count,
              planned->peak_allocated.count + planned->peak_allocated.count / 500);
  }
}

// The events that a table of requests stands for.
memory::MemoryTrace trace_of(const memory::PackingProblem& problem) {
  struct Change {
    int64_t time;
    bool is_alloc;
    uint32_t buffer;
  };
  std::vector<Change> changes;
  memory::MemoryTrace trace;
  for (const memory::PackingRequest& request : problem.requests) {
    const auto buffer = static_cast<uint32_t>(trace.buffers.size());
    trace.buffers.push_back({.requested_bytes = request.size});
    changes.push_back({request.lower, true, buffer});
    changes.push_back({request.upper, false, buffer});
  }
  std::ranges::stable_sort(changes, {}, &Change::time);
  for (const Change& change : changes) {
    const auto kind = change.is_alloc ? memory::EventKind::alloc : memory::EventKind::free;
    trace.events.push_back({kind, change.buffer, 0});
  }
  return trace;
}

// The whole trace is in the table, and the table is a plan.
TEST(Fit, PlacementsAreAPlanOfTheStep) {
  FitQuestion question = mistral(2, 512);
  question.timeline = false;
  question.placements = testing::TempDir() + "headroom_fit_placements.csv";
  const auto answered = answer(question);
  ASSERT_TRUE(answered) << answered.error().to_string();
  auto instance = formats::read_packing_csv(question.placements);
  ASSERT_TRUE(instance) << instance.error().to_string();
  instance->problem.alignment = 512;
  memory::PackingSolution solution{offsets_in(question.placements), 0};
  ASSERT_EQ(solution.offsets.size(), instance->ids.size());
  for (size_t i = 0; i < instance->ids.size(); ++i) {
    const memory::PackingRequest& request = instance->problem.requests[i];
    if (request.lower == request.upper || request.size == 0) continue;
    solution.bytes = std::max(
        solution.bytes, solution.offsets[i] + round_up(request.size, instance->problem.alignment));
  }
  const auto judged = memory::validate_packing(instance->problem, solution);
  EXPECT_TRUE(judged) << judged.error().to_string();
  EXPECT_GE(solution.bytes, answered->memory.peak_requested.count);
  EXPECT_LT(solution.bytes, answered->memory.peak_reserved.count);

  // Whoever holds PyTorch's allocator against the plan finds what the answer says of it.
  memory::DeviceMemory endless;
  const auto replayed = memory::replay(trace_of(instance->problem), {}, endless);
  EXPECT_EQ(replayed.peak_reserved.bytes, answered->memory.peak_reserved.count);
  EXPECT_EQ(replayed.peak_allocated.bytes, answered->memory.peak_allocated.count);
}

// Found by running it: what the remedy promises is what the question with its flag answers.
TEST(Fit, APlannedAllocationIsARemedy) {
  FitQuestion question = mistral(16, 2048);
  question.search = true;
  question.timeline = false;
  const auto before = answer(question);
  ASSERT_TRUE(before) << before.error().to_string();
  const auto remedy = std::ranges::find(before->remedies, "planned-allocation", &Remedy::name);
  ASSERT_NE(remedy, before->remedies.end());
  EXPECT_EQ(remedy->flag, "--allocator planned");
  question.allocator = "planned";
  const auto after = answer(question);
  ASSERT_TRUE(after && after->largest_batch);
  EXPECT_EQ(remedy->saves,
            before->memory.device_used.expected - after->memory.device_used.expected);
  EXPECT_EQ(remedy->peak_allocated, after->memory.peak_allocated);
  EXPECT_EQ(remedy->largest_batch->value, after->largest_batch->value);
  EXPECT_GE(after->largest_batch->value, before->largest_batch->value);
  EXPECT_EQ(std::ranges::find(after->remedies, "planned-allocation", &Remedy::name),
            after->remedies.end());
}

// DeepSpeed leaves weights of four bits as they are and shares out what the adapters' optimizer
// has.
TEST(Fit, QuantizedWeightsAreWholeUnderTheFirstStages) {
  FitQuestion question = mistral(1, 256);
  question.search = false;
  const auto states_of = [&](const char* method) {
    EXPECT_TRUE(question.set("method", method));
    const auto found = answer(question);
    EXPECT_TRUE(found) << found.error().to_string();
    if (!found) return std::pair(Bytes(0), Bytes(0));
    const auto& breakdown = found->memory.breakdown;
    return std::pair(breakdown[Component::parameters], breakdown[Component::optimizer_states]);
  };
  const auto two = states_of("qlora,zero2:2");
  const auto eight = states_of("qlora,zero2:8");
  EXPECT_EQ(two.first, eight.first);
  EXPECT_GT(two.second, eight.second);
  ASSERT_TRUE(question.set("kbit-preparation", "all"));
  EXPECT_FALSE(answer(question));
}

// Where parameters are divided, weights of four bits are, too.
TEST(Fit, FourBitWeightsAreDividedUnderTheThirdStageAndFullyShard) {
  const auto weights_of = [](const std::string& method) {
    FitQuestion question = mistral(1, 256);
    question.search = false;
    EXPECT_TRUE(question.set("method", method));
    EXPECT_TRUE(question.set("kbit-preparation", "none"));
    const auto found = answer(question);
    EXPECT_TRUE(found) << method << found.error().to_string();
    return found ? static_cast<double>(found->memory.breakdown[Component::parameters].count) : 0;
  };
  const double alone = weights_of("qlora");
  for (const std::string method : {"qlora,fsdp2:", "qlora,zero3:"}) {
    EXPECT_LT(weights_of(method + "4"), 0.35 * alone) << method;  // their scales are whole
    EXPECT_LT(weights_of(method + "8"), 0.6 * weights_of(method + "4")) << method;
  }
}

// Adapters work token by token: a rank with a part of each sequence keeps as much of it as one with
// sequences of that length.
TEST(Fit, AdaptersBesideSharedSequencesAreOfARanksPart) {
  const auto peak_of = [](const char* method, int64_t sequence) {
    FitQuestion question = mistral(1, sequence);
    question.search = false;
    EXPECT_TRUE(question.set("method", method));
    const auto found = answer(question);
    EXPECT_TRUE(found) << method << found.error().to_string();
    return found ? found->memory.breakdown[Component::saved_activations].count : 0;
  };
  for (const std::string method : {"lora,fsdp2:", "qlora,fsdp2:"}) {
    const auto apart = static_cast<double>(peak_of((method + "8").c_str(), 2048));
    const auto shared = static_cast<double>(peak_of((method + "2,cp:4").c_str(), 8192));
    EXPECT_GT(apart, 0);
    EXPECT_NEAR(shared / apart, 1, 0.01) << method;
  }
}

// LLM.int8's products keep what they are given where no hook sees it, so that a checkpoint of the
// non-reentrant kind does not let go of it.
TEST(Fit, EightBitsKeepTheirInputsBeyondACheckpoint) {
  const auto peak_of = [](const char* method, const char* kind) {
    FitQuestion question = mistral(1, 2048);
    question.search = false;
    EXPECT_TRUE(question.set("method", method));
    EXPECT_TRUE(question.set("kbit-preparation", "none"));
    EXPECT_TRUE(question.set("lora-targets", "q_proj"));
    EXPECT_TRUE(question.set("checkpointing", "full"));
    EXPECT_TRUE(question.set("checkpointing-kind", kind));
    const auto found = answer(question);
    EXPECT_TRUE(found) << method << found.error().to_string();
    return found ? static_cast<double>(found->memory.peak_allocated.count) : 0;
  };
  const double alike = peak_of("qlora", "non-reentrant") - peak_of("qlora", "reentrant");
  const double kept = peak_of("lora-8bit", "non-reentrant") - peak_of("lora-8bit", "reentrant");
  EXPECT_LT(std::abs(alike), 64.0 * (1 << 20));
  // Of each of 32 layers at least what q, k, v and o are given, 2048 tokens of 4096 features each,
  // and gate and up another.
  EXPECT_GT(kept, 32.0 * 3 * 2048 * 4096 * 2);
}

TEST(Fit, TheOtherKindOfCheckpointsIsARemedyBesideEightBits) {
  FitQuestion question = mistral(1, 2048);
  question.search = true;
  ASSERT_TRUE(question.set("method", "lora-8bit"));
  ASSERT_TRUE(question.set("checkpointing", "full"));
  const auto found = answer(question);
  ASSERT_TRUE(found) << found.error().to_string();
  const auto named = [](const Remedy& remedy) { return remedy.name == "reentrant-checkpoints"; };
  const auto remedy = std::ranges::find_if(found->remedies, named);
  ASSERT_NE(remedy, found->remedies.end());
  ASSERT_TRUE(question.set("checkpointing-kind", "reentrant"));
  EXPECT_TRUE(std::ranges::none_of(answer(question)->remedies, named));
}

TEST(Fit, EightBitsAreWholeOnEveryGpu) {
  for (const char* method : {"lora-8bit,fsdp1:4", "lora-8bit,fsdp2:4", "lora-8bit,zero3:4",
                             "lora-8bit,tp:4", "lora-8bit,pp:4"}) {
    FitQuestion question = mistral(1, 1024);
    ASSERT_TRUE(question.set("method", method));
    const auto answered = answer(question);
    ASSERT_FALSE(answered) << method;
    EXPECT_EQ(answered.error().where, "--method") << answered.error().to_string();
  }
  FitQuestion question = mistral(1, 1024);
  question.search = false;
  for (const char* method : {"lora-8bit,zero2:4", "lora-8bit,ddp:4"}) {
    ASSERT_TRUE(question.set("method", method));
    const auto answered = answer(question);
    ASSERT_TRUE(answered) << answered.error().to_string();
  }
  ASSERT_TRUE(question.set("kernels", "fast"));
  EXPECT_FALSE(answer(question));
}

TEST(Fit, AdaptersAreRefusedWithTheReasonWhereAnEngineEndsWithAnError) {
  const std::pair<const char*, const char*> cases[] = {
      {"dora,fsdp1:4", "peft's policy"}, {"ia3,fsdp1:4", "of one type"},
      {"dora,zero3:4", "third stage"},   {"ia3,zero3:4", "third stage"},
      {"qlora,tp:4", "DTensors"},        {"lora-8bit,tp:4", "DTensors"},
      {"gptq-lora,tp:4", "GPTQ"},
  };
  for (const auto& [method, reason] : cases) {
    FitQuestion question = mistral(1, 1024);
    ASSERT_TRUE(question.set("method", method));
    const auto answered = answer(question);
    ASSERT_FALSE(answered) << method;
    EXPECT_NE(answered.error().to_string().find(reason), std::string::npos)
        << answered.error().to_string();
  }
}

TEST(Fit, OtherAdaptersAreAnsweredWhereTheyAreKnown) {
  for (const char* method : {"dora,fsdp2:4", "ia3,fsdp2:4", "dora,zero2:4", "ia3,zero1:4",
                             "dora,pp:4", "ia3,pp:4", "qlora,fsdp2:2,pp:2"}) {
    FitQuestion question = mistral(1, 1024);
    question.search = false;
    ASSERT_TRUE(question.set("method", method));
    const auto answered = answer(question);
    EXPECT_TRUE(answered) << method << ": " << answered.error().to_string();
  }
}

TEST(Fit, FsdpCastsWhatFourBitsAreStoredIn) {
  for (const char* method : {"qlora,fsdp1:4", "qlora,fsdp2:4"}) {
    FitQuestion question = mistral(1, 1024);
    ASSERT_TRUE(question.set("method", method));
    ASSERT_TRUE(question.set("mixed-precision", "fp16"));
    ASSERT_TRUE(question.set("dtype", "bf16"));
    const auto answered = answer(question);
    ASSERT_FALSE(answered) << method;
    EXPECT_EQ(answered.error().where, "--mixed-precision");
  }
}

// Less is between steps the more ranks there are; on the host, less still.
TEST(Fit, TheThirdStageHoldsSharesOfAll) {
  FitQuestion question = mistral(4, 4096);  // so that the peak is in backward
  question.search = false;
  ASSERT_TRUE(question.set("method", "zero2:8"));
  const auto second = answer(question);
  ASSERT_TRUE(question.set("method", "zero3:8"));
  const auto third = answer(question);
  ASSERT_TRUE(second && third) << third.error().to_string();
  expect_invariants(*third);
  EXPECT_LT(third->memory.steady_allocated, second->memory.steady_allocated);
  EXPECT_GT(third->memory.breakdown[Component::gathered], Bytes(0));
  EXPECT_TRUE(third->time);
  EXPECT_FALSE(third->memory.host);
  Bytes before = third->memory.steady_allocated;
  for (const char* offload : {"optimizer", "optimizer,parameters"}) {
    ASSERT_TRUE(question.set("offload", offload));
    const auto offloaded = answer(question);
    ASSERT_TRUE(offloaded) << offloaded.error().to_string();
    expect_invariants(*offloaded);
    EXPECT_LT(offloaded->memory.steady_allocated, before) << offload;
    before = offloaded->memory.steady_allocated;
    ASSERT_TRUE(offloaded->memory.host);
    EXPECT_GE(offloaded->memory.host->taken, offloaded->memory.host->requested);
    EXPECT_FALSE(offloaded->time);
  }
}

// FSDP's shares on the host have their states there, which bitsandbytes' optimizers do not step.
TEST(Fit, AnOptimizerOfTheGpuHasNoStatesOnTheHost) {
  FitQuestion question = mistral(1, 1024);
  question.search = false;
  ASSERT_TRUE(question.set("method", "fsdp1:8"));
  ASSERT_TRUE(question.set("offload", "parameters"));
  ASSERT_TRUE(answer(question));
  for (const char* optimizer :
       {"lion", "adamw-8bit", "paged-adamw-8bit", "paged-adamw", "rmsprop-bnb-8bit"}) {
    ASSERT_TRUE(question.set("optimizer", optimizer));
    const auto answered = answer(question);
    ASSERT_FALSE(answered) << optimizer;
    EXPECT_EQ(answered.error().where, "--offload") << answered.error().to_string();
  }
}

// Of the first two stages they say nothing, whatever the model's files state.
TEST(Fit, CountsOfTheThirdStageAreReadThereAlone) {
  FitQuestion question = mistral(1, 1024);
  question.search = false;
  ASSERT_TRUE(question.set("stage3-prefetch-bucket-size", "auto"));
  const auto size_with = [&](const char* method) {
    EXPECT_TRUE(question.set("method", method));
    const auto answered = answer(question);
    EXPECT_TRUE(answered) << answered.error().to_string();
    return setting_of(answered->settings, "stage3-prefetch-bucket-size");
  };
  EXPECT_EQ(size_with("zero2:8"), "");
  EXPECT_EQ(size_with("zero3:8"), std::to_string(static_cast<int64_t>(0.9 * 4096 * 4096)));
}

TEST(Fit, WhatTheThirdStageCannotDoIsRefusedByName) {
  for (const auto& [name, words] : {std::pair{"loss", "fused-linear"},
                                    {"loss", "chunked"},
                                    {"kernels", "fast"},
                                    {"kernels", "liger"},
                                    {"method", "gptq-lora,zero3:8"},
                                    {"optimizer", "lion"}}) {
    FitQuestion question = mistral(1, 1024);
    ASSERT_TRUE(question.set("method", "zero3:8"));
    ASSERT_TRUE(question.set(name, words));
    const auto answered = answer(question);
    ASSERT_FALSE(answered) << words;
    EXPECT_TRUE(answered.error().where.starts_with("--")) << answered.error().to_string();
  }
  // Parameters are the host's under that stage alone, and the host's optimizer is an Adam.
  FitQuestion question = mistral(1, 1024);
  ASSERT_TRUE(question.set("offload", "parameters"));
  EXPECT_FALSE(answer(question));
  ASSERT_TRUE(question.set("method", "zero2:8"));
  EXPECT_FALSE(answer(question));
  ASSERT_TRUE(question.set("offload", "optimizer"));
  ASSERT_TRUE(question.set("optimizer", "sgd"));
  EXPECT_FALSE(answer(question));
}

// A remedy is of the run that was asked about.
TEST(Fit, RemediesOfADividedStepStayDivided) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.batch = 4;
  ASSERT_TRUE(question.set("method", "fsdp2:4"));
  const auto found = answer(question);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->device.count, 4);
  bool has_lora = false;
  for (const Remedy& remedy : found->remedies) {
    EXPECT_NE(remedy.name, "8-bit-states");
    if (!remedy.flag.starts_with("--method")) continue;
    EXPECT_NE(remedy.flag.find("lora,fsdp2:4"), std::string::npos) << remedy.flag;
    has_lora = has_lora || remedy.flag.starts_with("--method lora,fsdp2:4");
  }
  EXPECT_TRUE(has_lora);
}

// Both of FSDP's versions have that.
TEST(Fit, SharesInTheHostsMemoryAreARemedyOfFsdp) {
  FitQuestion question = mistral(1, 512);
  question.search = true;
  for (const auto& [method, is_remedy] :
       {std::pair{"fsdp1:4", true}, std::pair{"fsdp2:4", true}, std::pair{"zero3:4", false}}) {
    ASSERT_TRUE(question.set("method", method));
    const auto found = answer(question);
    ASSERT_TRUE(found) << found.error().to_string();
    const auto remedy = std::ranges::find(found->remedies, "offload-shares", &Remedy::name);
    EXPECT_EQ(remedy != found->remedies.end(), is_remedy) << method;
  }
}

// It costs nothing, so it is worth more than it saves bytes.
TEST(Fit, GradientsInsideTheBucketsAreARemedyOfDdp) {
  FitQuestion question = mistral(1, 512);  // where the peak is in the optimizer's step
  question.search = true;
  ASSERT_TRUE(question.set("method", "ddp:4"));
  const auto find = [](const FitAnswer& found) {
    return std::find_if(found.remedies.begin(), found.remedies.end(),
                        [](const Remedy& remedy) { return remedy.name == "bucket-view"; });
  };
  const auto before = answer(question);
  ASSERT_TRUE(before) << before.error().to_string();
  const auto remedy = find(*before);
  ASSERT_NE(remedy, before->remedies.end());
  ASSERT_TRUE(question.set("gradient-as-bucket-view", "true"));
  const auto after = answer(question);
  ASSERT_TRUE(after) << after.error().to_string();
  EXPECT_EQ(find(*after), after->remedies.end());
  // What it said it would save.
  EXPECT_EQ(remedy->peak_allocated, after->memory.peak_allocated);
  EXPECT_LT(remedy->peak_allocated, before->memory.peak_allocated);
}

// Autocast's copy of the head's weight is not logits; the float32 copy of the logits that
// accelerate hands on is.
TEST(Fit, AutocastsCopiesAtTheHeadAreNamed) {
  FitQuestion question;
  question.model = "openai-community/gpt2";
  question.device = "a100-sxm-80gb";
  question.batch = 4;
  question.seq = 256;
  question.search = false;
  question.dtype = Dtype::fp32;
  question.mixed_precision = MixedPrecision::bf16;
  question.accelerate = true;
  const auto answered = answer(question);
  ASSERT_TRUE(answered) << answered.error().to_string();
  ASSERT_EQ(answered->memory.peak_at.phase, "backward");
  constexpr int64_t kVocab = 50257;
  constexpr int64_t kRounding = 1 << 21;
  const auto near = [](Bytes bytes, int64_t wanted) {
    return bytes.count >= wanted && bytes.count < wanted + kRounding;
  };
  const fit::ComponentBytes& parts = answered->memory.breakdown;
  // Tied to the embedding, which counts as parameters: this is the copy alone.
  EXPECT_TRUE(near(parts[Component::lm_head_weight], kVocab * 768 * 2))
      << parts[Component::lm_head_weight].count;
  EXPECT_GE(parts[Component::logits].count, 4 * 256 * kVocab * 4);
  EXPECT_LT(parts[Component::temporaries].count, 1 << 20);
}

TEST(Fit, GradientsInFp16UnderMixedPrecisionAreWarnedOf) {
  FitQuestion question = mistral(1, 512);
  question.mixed_precision = MixedPrecision::fp16;
  const auto warns = [](const FitQuestion& asked) {
    const auto answered = answer(asked);
    return answered && std::ranges::any_of(answered->warnings, [](const std::string& warning) {
             return warning.find("GradScaler") != std::string::npos;
           });
  };
  ASSERT_TRUE(question.set("dtype", "fp16"));
  EXPECT_TRUE(warns(question));
  question.method = Method::lora;  // adapters are in float32
  EXPECT_FALSE(warns(question));
  question.method = Method::full;
  ASSERT_TRUE(question.set("dtype", "fp32"));
  EXPECT_FALSE(warns(question));
}

// A screen shows eight remedies: what it does not show need not be searched, and changes nothing.
TEST(Fit, BatchesAreFoundForAsManyRemediesAsAskedFor) {
  FitQuestion question = mistral(4, 1024);
  question.search = true;
  const auto all = answer(question);
  question.remedy_batches = 3;
  const auto three = answer(question);
  question.remedy_batches = 0;
  const auto none = answer(question);
  ASSERT_TRUE(all && three && none);
  ASSERT_GT(all->remedies.size(), 4U);
  ASSERT_EQ(all->remedies.size(), three->remedies.size());
  ASSERT_EQ(all->remedies.size(), none->remedies.size());
  const auto value = [](const Remedy& remedy) {
    return remedy.largest_batch ? remedy.largest_batch->value : -1;
  };
  for (size_t i = 0; i < all->remedies.size(); ++i) {
    EXPECT_EQ(all->remedies[i].name, three->remedies[i].name);
    EXPECT_EQ(all->remedies[i].saves, three->remedies[i].saves);
    EXPECT_EQ(value(three->remedies[i]), i < 3 ? value(all->remedies[i]) : -1) << i;
    EXPECT_EQ(value(none->remedies[i]), -1);
  }
}

// As accelerate accumulates, every rank has whole gradients until the last micro-batch; a remedy
// says how to have shares alone.
TEST(Fit, AccumulationUnderFsdpMayHoldWholeGradients) {
  FitQuestion question;
  question.model = "meta-llama/Llama-3.2-1B";
  question.device = "h100-sxm-80gb";
  for (const char* const method : {"fsdp1:8", "fsdp2:8"}) {
    for (const auto& [name, words] : {std::pair{"method", method},
                                      {"grad-accum", "4"},
                                      {"checkpointing", "full"},
                                      {"sync-each-batch", "false"}}) {
      ASSERT_TRUE(question.set(name, words)) << name;
    }
    const auto whole = answer(question);
    ASSERT_TRUE(whole) << whole.error().to_string();
    const auto remedy = std::ranges::find(whole->remedies, "sync-each-batch", &Remedy::name);
    ASSERT_NE(remedy, whole->remedies.end()) << method;
    ASSERT_TRUE(question.set("sync-each-batch", "true"));
    const auto shares = answer(question);
    ASSERT_TRUE(shares);
    EXPECT_EQ(remedy->peak_allocated, shares->memory.peak_allocated);
    const double more =
        static_cast<double>((whole->memory.peak_allocated - shares->memory.peak_allocated).count);
    // Seven eighths of gradients in 16 bits; another layer may be the fullest moment.
    EXPECT_NEAR(more / static_cast<double>(2 * whole->parameter_count), 0.875, 0.13) << method;
  }
  // With one micro-batch there is nothing to add up.
  ASSERT_TRUE(question.set("grad-accum", "1"));
  EXPECT_EQ(setting_of(answer(question)->settings, "sync-each-batch"), "");
}

// FSDP1's shares on the host: what is clipped is there, and what adds up is whole on the device.
TEST(Fit, SharesOnTheHostAreClippedAndAccumulateWhole) {
  FitQuestion question;
  question.model = "meta-llama/Llama-3.2-1B";
  question.device = "rtx-4090";
  for (const auto& [name, words] :
       {std::pair{"method", "fsdp1:8"}, {"offload", "parameters"}, {"checkpointing", "full"}}) {
    ASSERT_TRUE(question.set(name, words)) << name;
  }
  const auto plain = answer(question);
  ASSERT_TRUE(plain) << plain.error().to_string();
  ASSERT_TRUE(question.set("clip", "1"));
  const auto clipped = answer(question);
  ASSERT_TRUE(clipped) << clipped.error().to_string();
  EXPECT_EQ(clipped->memory.peak_allocated, plain->memory.peak_allocated);
  ASSERT_TRUE(question.set("grad-accum", "4"));
  const auto refused = answer(question);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().hint.find("--sync-each-batch false"), std::string::npos);
  ASSERT_TRUE(question.set("sync-each-batch", "false"));
  const auto added_up = answer(question);
  ASSERT_TRUE(added_up) << added_up.error().to_string();
  EXPECT_GT(added_up->memory.peak_allocated.count,
            plain->memory.peak_allocated.count + plain->parameter_count);
}

}  // namespace
}  // namespace headroom::fit
