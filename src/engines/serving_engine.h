// The command lines of serving engines: what starts a server with a batch limit and just the cache
// that it needs, several of them on one GPU under NVIDIA's MPS, or one on several GPUs.
//
// Flags as the engines' documentation has them (kEngines names the versions; vLLM's and SGLang's
// own parsers take them: tests/python test_batch_commands.py, where these are installed), and for
// vLLM before 0.8 as its vllm/engine/arg_utils.py had them. Words from outside are quoted for a
// POSIX shell. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace headroom::engines {

enum class ServingEngine : uint8_t { vllm, sglang, tensorrt_llm, llama_cpp };

struct EngineNames {
  ServingEngine engine{};
  std::string_view word;   // for --engine
  std::string_view title;  // with the version whose flags these are
  // A public image of it; empty: the user's own, as its maker's is on a registry of his.
  std::string_view image;
  // Of sequences at once, where it is built for no more.
  std::optional<int64_t> most_sequences = std::nullopt;
};

// LLAMA_MAX_SEQ of src/llama-cparams.h: with more its server does not start. 64 until September
// 2025 (ggml-org/llama.cpp#15916).
inline constexpr int64_t kMostLlamaCppSequences = 256;

inline constexpr std::array<EngineNames, 4> kEngines = {{
    {ServingEngine::vllm, "vllm", "vLLM 0.32", "vllm/vllm-openai:v0.32.0"},
    {ServingEngine::sglang, "sglang", "SGLang 0.5.23", "lmsysorg/sglang:v0.5.23"},
    {ServingEngine::tensorrt_llm, "tensorrt-llm", "TensorRT-LLM 1.0", ""},
    {ServingEngine::llama_cpp, "llama.cpp", "llama.cpp's server of October 2026", "",
     kMostLlamaCppSequences},
}};
[[nodiscard]] const EngineNames& names_of(ServingEngine engine);
[[nodiscard]] std::optional<ServingEngine> parse_serving_engine(std::string_view word);

// One server. What is nothing, or empty, is left to the engine.
struct ServerSetting {
  ServingEngine engine = ServingEngine::vllm;
  // "0.6.3": vLLM's before 0.8, whose flags are others; empty: that of kEngines.
  std::string version = {};
  std::string model;
  int64_t max_num_seqs = 1;
  std::optional<Bytes> kv_cache = std::nullopt;        // of each GPU
  std::optional<int64_t> kv_tokens = std::nullopt;     // the same, in tokens
  std::optional<double> kv_free_share = std::nullopt;  // the same, of what weights leave free
  // Of each GPU: what the server takes (weights, cache, context), and what there is.
  std::optional<Bytes> needs = std::nullopt;
  std::optional<Bytes> gpu = std::nullopt;
  std::optional<double> gpu_share = std::nullopt;  // of a GPU with others on it, replica() says
  std::optional<int64_t> max_model_len = std::nullopt;
  std::string dtype = {};        // float16, bfloat16 or float32
  std::string weight_type = {};  // fp8, int8, fp4 or int4; empty: as dtype
  std::string cache_type = {};   // fp8, int8 or int4; the same
  bool has_gpu = true;
  std::optional<int64_t> max_num_batched_tokens = std::nullopt;
  std::optional<bool> has_chunked_prefill = std::nullopt;
  int64_t tensor_parallel = 1;
  int64_t pipeline_parallel = 1;
  std::string host = {};  // to listen on
  int port = 8000;
};

// "vLLM 0.6.3", and its image, which may be empty.
[[nodiscard]] std::string title_of(const ServerSetting& server);
[[nodiscard]] std::string image_of(const ServerSetting& server);

// The program and its arguments, unquoted.
[[nodiscard]] std::vector<std::string> serve_words(const ServerSetting& server);
// The same as one line for a shell.
[[nodiscard]] std::string serve_line(const ServerSetting& server);

// What of the setting the command cannot say, or needs another checkpoint for: a sentence each.
[[nodiscard]] std::vector<std::string> notes_of(const ServerSetting& server);

// Of servers on one GPU, replicas or of several models, the one with this number, from 0: a port of
// its own, and its share of what those before it leave.
[[nodiscard]] ServerSetting on_shared_gpu(std::span<const ServerSetting> servers, size_t number);

// Starts the MPS daemon and the servers on ports from the first one's on, each once the one before
// answers, as servers that start together measure each other's memory (vllm#55827), or has died;
// the last line stops the daemon. REQUIRES: two at least.
[[nodiscard]] std::vector<std::string> shared_gpu_lines(std::span<const ServerSetting> servers);

}  // namespace headroom::engines
