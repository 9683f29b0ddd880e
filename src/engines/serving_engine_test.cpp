#include "engines/serving_engine.h"

#include <gtest/gtest.h>

#include "engines/shell_words.h"

namespace headroom::engines {
namespace {

ServerSetting sample(ServingEngine engine) {
  return {.engine = engine,
          .model = "facebook/opt-1.3b",
          .max_num_seqs = 96,
          .kv_cache = Bytes(9'000'000'000),
          .kv_tokens = 45'000,
          .kv_free_share = 0.1634};
}

TEST(ServingEngine, EachSaysTheLimitAndTheCacheInItsOwnWords) {
  EXPECT_EQ(serve_line(sample(ServingEngine::vllm)),
            "vllm serve facebook/opt-1.3b --max-num-seqs 96 "
            "--kv-cache-memory-bytes 9000000000 --port 8000");
  EXPECT_EQ(serve_line(sample(ServingEngine::sglang)),
            "python3 -m sglang.launch_server --model-path facebook/opt-1.3b "
            "--max-running-requests 96 --max-total-tokens 45000 --enable-metrics --port 8000");
  EXPECT_EQ(serve_line(sample(ServingEngine::tensorrt_llm)),
            "trtllm-serve facebook/opt-1.3b --max_batch_size 96 "
            "--kv_cache_free_gpu_memory_fraction 0.163 --port 8000");
  EXPECT_EQ(serve_line(sample(ServingEngine::llama_cpp)),
            "llama-server --model opt-1.3b.gguf --parallel 96 --kv-unified --ctx-size 45000 "
            "--gpu-layers 999 --metrics --port 8000");
}

TEST(ServingEngine, SeveralGpusAndTheSchedulersLimits) {
  ServerSetting server = sample(ServingEngine::vllm);
  server.tensor_parallel = 4;
  server.pipeline_parallel = 2;
  server.max_num_batched_tokens = 2048;
  server.has_chunked_prefill = false;
  EXPECT_NE(serve_line(server).find("--max-num-batched-tokens 2048 --no-enable-chunked-prefill "
                                    "--tensor-parallel-size 4 --pipeline-parallel-size 2"),
            std::string::npos);
  server.engine = ServingEngine::sglang;
  EXPECT_NE(serve_line(server).find("--chunked-prefill-size -1 --tp-size 4 --pp-size 2"),
            std::string::npos);
}

// What an engine cannot be told is in its notes.
TEST(ServingEngine, EveryTypeIsAFlagOrANote) {
  for (const EngineNames& names : kEngines) {
    for (const char* type : {"fp8", "int8", "fp4", "int4"}) {
      const ServerSetting plain = sample(names.engine);
      ServerSetting server = plain;
      server.weight_type = type;
      const bool is_in_words = serve_line(server) != serve_line(plain);
      EXPECT_NE(is_in_words, !notes_of(server).empty()) << names.word << " weights " << type;
      if (server.weight_type == "fp4") continue;
      server = plain;
      server.cache_type = type;
      const bool is_said = serve_line(server) != serve_line(plain);
      EXPECT_NE(is_said, !notes_of(server).empty()) << names.word << " cache " << type;
    }
    EXPECT_TRUE(notes_of(sample(names.engine)).empty());
  }
}

TEST(ServingEngine, TypesInEachOnesWords) {
  ServerSetting server = sample(ServingEngine::sglang);
  server.dtype = "float16";
  server.weight_type = "fp8";
  server.cache_type = "fp8";
  EXPECT_NE(
      serve_line(server).find("--dtype float16 --quantization fp8 --kv-cache-dtype fp8_e4m3 "),
      std::string::npos);
  server.engine = ServingEngine::llama_cpp;
  server.cache_type = "int8";
  server.has_gpu = false;
  const std::string line = serve_line(server);
  EXPECT_NE(line.find("--flash-attn on --cache-type-k q8_0 --cache-type-v q8_0"),
            std::string::npos);
  EXPECT_EQ(line.find("--gpu-layers"), std::string::npos);
  EXPECT_EQ(notes_of(server).size(), 2U);  // float16 and fp8 are the file's
}

// vLLM before 0.8 counts its cache in blocks of 16 tokens, and has other types.
TEST(ServingEngine, AFormerVersionHasItsOwnFlags) {
  ServerSetting server = sample(ServingEngine::vllm);
  server.version = "0.6.3";
  server.weight_type = "fp8";
  server.has_chunked_prefill = false;
  EXPECT_EQ(serve_line(server),
            "vllm serve facebook/opt-1.3b --quantization fp8 --max-num-seqs 96 "
            "--num-gpu-blocks-override 2812 --enable-chunked-prefill=False --port 8000");
  EXPECT_EQ(title_of(server), "vLLM 0.6.3");
  EXPECT_EQ(image_of(server), "vllm/vllm-openai:v0.6.3");
  ASSERT_EQ(notes_of(server).size(), 1U);
  EXPECT_NE(notes_of(server).front().find("vllm==0.6.3"), std::string::npos);
  server.cache_type = "int8";
  EXPECT_EQ(notes_of(server).size(), 2U);
}

TEST(ServingEngine, WordsAreThoseOfTheFlag) {
  for (const EngineNames& names : kEngines) {
    EXPECT_EQ(parse_serving_engine(names.word), names.engine);
  }
  EXPECT_FALSE(parse_serving_engine("vLLM"));
}

TEST(ServingEngine, ReplicasStartOneAfterAnother) {
  const ServerSetting one{.model = "m", .max_num_seqs = 8};
  const auto lines = shared_gpu_lines(std::array{one, one});
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines.front(), "nvidia-cuda-mps-control -d");
  EXPECT_NE(lines[1].find("--port 8000 & until curl"), std::string::npos);
  EXPECT_NE(lines[1].find("kill -0 $! || break"), std::string::npos);
  EXPECT_NE(lines[2].find("--port 8001"), std::string::npos);
}

// vLLM starts only where its whole share of the GPU is free, and TensorRT-LLM takes its share of
// what the others left: 10 of 64 GB, then of 48.
TEST(ServingEngine, AReplicaTakesItsShareOfTheGpu) {
  ServerSetting server = sample(ServingEngine::vllm);
  server.needs = Bytes(16'000'000'000);
  server.gpu = Bytes(70'000'000'000);
  server.kv_cache = Bytes(10'000'000'000);
  server.kv_free_share = 10.0 / 64;
  const ServerSetting second = on_shared_gpu(std::array{server, server}, 1);
  EXPECT_EQ(second.port, 8001);
  EXPECT_DOUBLE_EQ(*second.gpu_share, 0.229);
  EXPECT_NE(serve_line(second).find("--gpu-memory-utilization 0.229 "), std::string::npos);
  EXPECT_NEAR(*second.kv_free_share, 10.0 / 48, 1e-12);
  EXPECT_EQ(serve_line(server).find("utilization"), std::string::npos);
  // Behind a server of another model that takes 30 GB: of 34.
  ServerSetting other = server;
  other.needs = Bytes(30'000'000'000);
  EXPECT_NEAR(*on_shared_gpu(std::array{other, server}, 1).kv_free_share, 10.0 / 34, 1e-12);
}

TEST(ServingEngine, AModelsNameCannotLeaveItsWord) {
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("x; rm -rf '$HOME'"), "'x; rm -rf '\\''$HOME'\\'''");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace headroom::engines
