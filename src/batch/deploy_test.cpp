// The commands and the files that start what an answer names.
#include "batch/deploy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "batch/batch.h"
#include "batch/checkpoint.h"
#include "batch/emit.h"
#include "batch/replicas.h"
#include "device/catalogue.h"
#include "model/builtin.h"

namespace headroom::batch {
namespace {

BatchQuestion question_of(const char* model, const char* device) {
  BatchQuestion question;
  question.model = model;
  question.device = *device::DeviceCatalogue::built_in().find(device);
  question.slo = ItlTarget{.seconds = std::nullopt, .multiple = 2, .at_batch = 32};
  return question;
}

Result<BatchAnswer> ask(const BatchQuestion& question, const char* second = nullptr) {
  const auto resolved = *model::resolve_model(question.model);
  const text::JsonView config = resolved.view();
  if (second == nullptr) return answer(question, &config, timing::TimingModel::built_in());
  const auto other = *model::resolve_model(second);
  const Companion companion{other.name, other.view()};
  return answer(question, &config, timing::TimingModel::built_in(), &companion);
}

bool notes_say(const BatchAnswer& answer, const char* words) {
  return std::ranges::any_of(
      answer.notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Deploy, TypesReachTheCommand) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.dtype = "float16";
  question.weights = op::DType::f16;
  question.weight_type = "fp8";
  question.cache_type = "fp8";
  question.variant.weight_element_bytes = 1;
  question.variant.cache_element_bytes = 1;
  const BatchAnswer said = *ask(question);
  const std::string& line = said.commands.front().line;
  EXPECT_TRUE(has(line, "--dtype float16 --quantization fp8_per_tensor --kv-cache-dtype fp8 "))
      << line;
  // Of an engine without such flags a note says what to do.
  question.engine = engines::ServingEngine::tensorrt_llm;
  const BatchAnswer noted = *ask(question);
  EXPECT_TRUE(notes_say(noted, "weights in fp8 need a checkpoint"));
  EXPECT_TRUE(notes_say(noted, "kv_cache_config: {dtype: fp8}"));
}

// An engine takes a checkpoint in fp8 as it is, and refuses to be told of another way to fp8.
TEST(Deploy, WhatTheCheckpointSaysIsNotSaidAgain) {
  BatchQuestion question = question_of("deepseek-ai/DeepSeek-V3", "h200-sxm-141gb");
  question.slo.reset();
  question.variant.tensor_parallel = 8;
  ASSERT_TRUE(take_checkpoint_type(model::resolve_model(question.model)->view(), question));
  EXPECT_EQ(question.checkpoint_type, "fp8");
  const BatchAnswer said = *ask(question);
  ASSERT_FALSE(said.commands.empty());  // in bf16 it does not fit
  EXPECT_FALSE(has(said.commands.front().line, "quantization")) << said.commands.front().line;
  EXPECT_TRUE(notes_say(said, "as config.json says the checkpoint has them"));
  // Engines refuse another.
  question.weight_type = "int4";
  EXPECT_FALSE(take_checkpoint_type(model::resolve_model(question.model)->view(), question));
}

// vLLM's cache has to hold one sequence of the model's whole length.
TEST(Deploy, AShortCacheComesWithALength) {
  BatchQuestion question = question_of("meta-llama/Llama-3.1-8B", "h100-sxm-80gb");
  question.slo = ItlTarget{.seconds = 11e-3};
  const BatchAnswer answer = *ask(question);
  ASSERT_TRUE(answer.server->kv_tokens);
  ASSERT_LT(*answer.server->kv_tokens, 131072);
  ASSERT_TRUE(answer.server->max_model_len);
  EXPECT_LE(*answer.server->max_model_len, *answer.server->kv_tokens);
  EXPECT_TRUE(has(answer.commands.front().line, "--max-model-len "));
  EXPECT_TRUE(notes_say(answer, "--max-model-len is"));
  // OPT's contexts end at 2048, which its cache holds many times.
  EXPECT_FALSE(ask(question_of("facebook/opt-1.3b", "h100-sxm-64gb"))->server->max_model_len);
}

// As published, a model of text and images: the language model's sizes are one level down.
TEST(Deploy, ALengthIsFoundInANestedConfiguration) {
  const BatchQuestion question = question_of("Qwen/Qwen3.5-27B", "h100-sxm-80gb");
  const auto resolved = *model::resolve_model(question.model);
  const text::Json nested =
      text::Json::object().set("model_type", "qwen3_5").set("text_config", resolved.config);
  const text::JsonView config(nested, "config.json");
  const BatchAnswer flat = *ask(question);
  ASSERT_TRUE(flat.server->max_model_len);
  EXPECT_EQ(answer(question, &config, timing::TimingModel::built_in())->server->max_model_len,
            flat.server->max_model_len);
}

// Half of what it can do at half the rate: each token costs twice as much.
TEST(Deploy, ARateThatIsAskedForHasItsPrice) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.price = *parse_price("cloud=2");
  question.open_load.rates = {2, 4};
  const BatchAnswer answer = *ask(question);
  const auto cost = [&](const char* setting) {
    const auto& rows = answer.prices->rows;
    const auto at = std::ranges::find(rows, setting, &PriceRow::setting);
    EXPECT_NE(at, rows.end()) << setting;
    return at == rows.end() ? 0 : at->cost_per_million_tokens.front().expected;
  };
  const double of_two = cost("2 requests/s");
  EXPECT_NEAR(of_two / cost("4 requests/s"), 2, 0.1);
  // 338 tokens a request, the mean of ShareGPT.
  EXPECT_NEAR(of_two, 2e6 / (2 * 338 * 3600.0), 0.1 * of_two);
}

TEST(Deploy, ADeviceThatTheEngineDoesNotRunOnIsRefused) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "mi300x");
  EXPECT_TRUE(ask(question));
  question.engine = engines::ServingEngine::tensorrt_llm;
  EXPECT_EQ(ask(question).error().code, ErrorCode::usage);
  question.engine = engines::ServingEngine::llama_cpp;
  question.variant.tensor_parallel = 2;
  EXPECT_EQ(ask(question).error().where, "--engine llama.cpp");
}

// Its server is built for 256 sequences, and is told of its cache.
TEST(Deploy, LlamaCppIsGivenNoMoreThanItTakes) {
  BatchQuestion question = question_of("meta-llama/Llama-3.1-8B", "h100-sxm-80gb");
  question.slo.reset();
  ASSERT_GT(*ask(question)->advice.batch, 256);
  question.engine = engines::ServingEngine::llama_cpp;
  const BatchAnswer closed = *ask(question);
  EXPECT_EQ(closed.advice.batch, 256);
  EXPECT_EQ(closed.advice.bound, Bound::engine);
  EXPECT_TRUE(notes_say(closed, "nothing of llama.cpp's server"));
  for (const WhatIf& what : closed.what_ifs) EXPECT_LE(what.advice.batch.value_or(1), 256);
  question.open_load.rates = {2};
  question.open_load.limit = 256;
  const BatchAnswer open = *ask(question);
  EXPECT_TRUE(has(open.commands.front().line, "--parallel 256 --kv-unified --ctx-size "));
  question.open_load.limit = 257;
  EXPECT_EQ(ask(question).error().where, "--engine llama.cpp");
}

// Its figures, its flags, and a script that starts no other.
TEST(Emit, AFormerEngineIsTheOneThatIsStarted) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.variant.engine = "vllm-0.6.3";
  question.engine_version = "0.6.3";
  const BatchAnswer answer = *ask(question);
  EXPECT_TRUE(has(answer.commands.front().title, "vLLM 0.6.3"));
  EXPECT_TRUE(has(answer.commands.front().line, "--num-gpu-blocks-override "));
  EXPECT_TRUE(notes_say(answer, "pip install vllm==0.6.3"));
  EXPECT_TRUE(has(*emitted(answer, {"shell", "x"}), "m.version(\"vllm\")"));
  EXPECT_TRUE(has(*emitted(answer, {"kubernetes", "x"}), "image: vllm/vllm-openai:v0.6.3\n"));
}

TEST(Emit, AManifestIsOfTheVendorsResource) {
  const BatchAnswer amd = *ask(question_of("facebook/opt-1.3b", "mi300x"));
  const std::string yaml = *emitted(amd, {"kubernetes", "x"});
  EXPECT_TRUE(has(yaml, "amd.com/gpu: 1"));
  EXPECT_TRUE(has(yaml, "image: IMAGE  # of vLLM 0.32 for ROCm"));
  EXPECT_FALSE(has(yaml, "vllm-openai"));
}

// Half of each step waits for the host, and no target bounds the batch.
BatchQuestion replicated() {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.slo.reset();
  question.host_gap = 0.5;
  question.variant.host_share = 0.5;
  question.min_efficiency = 0.15;
  question.most_replicas = 2;
  return question;
}

// Of two models on one GPU each has its own checkpoint.
TEST(Deploy, TheTypeOfOneCheckpointIsNotTheOthers) {
  const auto quantized = *text::parse_json(
      R"({"model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24,
          "num_attention_heads": 32, "vocab_size": 50272, "max_position_embeddings": 2048,
          "quantization_config": {"quant_method": "fp8"}})",
      "c");
  const auto plain = *model::resolve_model("facebook/opt-1.3b");
  const auto weights_beside = [&](const text::JsonView& first, const text::JsonView& second) {
    BatchQuestion question = replicated();
    EXPECT_TRUE(take_checkpoint_type(first, question));
    const Companion companion{"second", second};
    const auto said = answer(question, &first, timing::TimingModel::built_in(), &companion);
    EXPECT_TRUE(said) << said.error().to_string();
    return std::pair(static_cast<double>(said->weights->count),
                     said->freed.colocated->weights_bytes);
  };
  const text::JsonView fp8(quantized, "c");
  const auto [bytes, bytes_of_fp8] = weights_beside(plain.view(), fp8);
  const auto [fp8_first, plain_second] = weights_beside(fp8, plain.view());
  EXPECT_LT(bytes_of_fp8, 0.6 * bytes);
  EXPECT_DOUBLE_EQ(fp8_first, bytes_of_fp8);
  EXPECT_DOUBLE_EQ(plain_second, bytes);
}

TEST(Emit, ASecondModelStartsBehindTheFirstInWhatIsLeft) {
  const char* const second = "facebook/opt-2.7b";
  const BatchAnswer answer = *ask(replicated(), second);
  ASSERT_TRUE(answer.second_server);
  EXPECT_EQ(answer.second_server->max_num_seqs, *answer.freed.colocated->advice.batch);
  const std::string script = *emitted(answer, {"shell", "x"});
  EXPECT_TRUE(has(script, " beside facebook/opt-2.7b at ")) << script;
  const size_t first = script.find("vllm serve facebook/opt-1.3b ");
  const size_t behind = script.find("vllm serve facebook/opt-2.7b ");
  ASSERT_LT(first, behind) << script;
  EXPECT_TRUE(has(script.substr(behind), "--port 8001"));
  const double share = std::stod(script.substr(script.find("utilization ", first) + 12)) +
                       std::stod(script.substr(script.find("utilization ", behind) + 12));
  EXPECT_GT(share, 0.2);
  EXPECT_LT(share, timing::kMemoryShare + 0.01);
  EXPECT_FALSE(emitted(answer, {"kubernetes", "x"}));
  // One that makes the first miss its target is told, and not started.
  BatchQuestion tight = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  tight.variant.engine = "vllm-0.6.3";
  const BatchAnswer missed = *ask(tight, second);
  ASSERT_TRUE(missed.freed.colocated);
  EXPECT_EQ(missed.freed.colocated->first_meets_target, false);
  EXPECT_FALSE(missed.second_server);
}

TEST(Emit, ReplicasStateTheirOwnFiguresAndNeeds) {
  const BatchAnswer answer = *ask(replicated());
  const Replicas* best = replicas_to_start(answer);
  ASSERT_NE(best, nullptr);
  ASSERT_EQ(best->count, 2);
  const std::string script = *emitted(answer, {"shell", "x"});
  EXPECT_TRUE(has(script, "2 replicas under MPS")) << script;
  char itl[32];
  std::snprintf(itl, sizeof itl, "%.3g ms", best->itl_seconds.expected * 1e3);
  EXPECT_TRUE(has(script, itl)) << script;
  EXPECT_TRUE(has(script, "trap 'exit 143' TERM\n"));
  EXPECT_TRUE(has(script, "kill -0 $!"));
  const size_t first = script.find("--gpu-memory-utilization ");
  ASSERT_NE(first, std::string::npos) << script;
  const double share = std::stod(script.substr(first + 25));
  EXPECT_LT(2 * share, timing::kMemoryShare + 0.01);
  const double needs =
      static_cast<double>(memory_of_server(nullptr, answer).value_or(Bytes(0)).count);
  EXPECT_EQ(needs, 0);  // of a prediction alone
}

// Each takes its share of what is left when it starts.
TEST(Emit, TensorRtLlmsSharesGrow) {
  BatchQuestion question = replicated();
  question.engine = engines::ServingEngine::tensorrt_llm;
  const BatchAnswer answer = *ask(question);
  const std::string script = *emitted(answer, {"shell", "x"});
  constexpr const char* kFlag = "--kv_cache_free_gpu_memory_fraction ";
  const size_t one = script.find(kFlag);
  const size_t two = script.find(kFlag, one + 1);
  ASSERT_NE(two, std::string::npos) << script;
  const size_t length = std::string(kFlag).size();
  EXPECT_GT(std::stod(script.substr(two + length)), 1.3 * std::stod(script.substr(one + length)));
  EXPECT_EQ(emitted(answer, {"kubernetes", "x"}).error().code, ErrorCode::usage);
}

// With percentiles the first line is about requests as they come.
TEST(Emit, WritesTheServerThatTheFirstLineNames) {
  BatchQuestion question = question_of("facebook/opt-1.3b", "h100-sxm-64gb");
  question.slo.reset();
  question.open_load.targets = {{serving::LatencyMetric::ttft, 95, 0.5}};
  const BatchAnswer answer = *ask(question);
  ASSERT_TRUE(answer.open_load && answer.open_server);
  const std::string script = *emitted(answer, {"shell", "x"});
  EXPECT_TRUE(has(script, answer.commands.front().line)) << script;
  EXPECT_TRUE(has(script, "--max-num-seqs " + std::to_string(answer.open_load->limit) + " "));
}

// A cache of all that the weights leave may be less than one sequence, too.
TEST(Deploy, TheServerOfRequestsAsTheyComeStartsOnASmallCard) {
  BatchQuestion question = question_of("meta-llama/Llama-3.1-8B", "a10-24gb");
  question.slo.reset();
  question.output_tokens = 16;
  question.open_load.limit = 24;
  question.open_load.targets = {{serving::LatencyMetric::ttft, 95, 0.5}};
  const BatchAnswer answer = *ask(question);
  ASSERT_TRUE(answer.open_server);
  ASSERT_TRUE(answer.open_server->max_model_len);
  EXPECT_TRUE(has(answer.commands.front().line, "--max-model-len "));
  // Where no rate keeps the targets there is nothing to start.
  question.open_load.targets.front().seconds = 1e-4;
  const BatchAnswer none = *ask(question);
  EXPECT_FALSE(none.open_server);
  EXPECT_EQ(none.commands.size(), answer.commands.size() - 1);
}

}  // namespace
}  // namespace headroom::batch
