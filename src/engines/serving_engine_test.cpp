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

TEST(ServingEngine, WordsAreThoseOfTheFlag) {
  for (const EngineNames& names : kEngines) {
    EXPECT_EQ(parse_serving_engine(names.word), names.engine);
  }
  EXPECT_FALSE(parse_serving_engine("vLLM"));
}

TEST(ServingEngine, ReplicasStartOneAfterAnother) {
  const auto lines = replica_lines({.model = "m", .max_num_seqs = 8}, 2);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines.front(), "nvidia-cuda-mps-control -d");
  EXPECT_NE(lines[1].find("--port 8000 & until curl"), std::string::npos);
  EXPECT_NE(lines[2].find("--port 8001"), std::string::npos);
}

TEST(ServingEngine, AModelsNameCannotLeaveItsWord) {
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("x; rm -rf '$HOME'"), "'x; rm -rf '\\''$HOME'\\'''");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace headroom::engines
