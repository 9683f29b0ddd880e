#include "engines/serving_engine.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "engines/shell_words.h"
#include "text/number.h"

namespace headroom::engines {
namespace {

// Flags and their values, those that are known.
class Words {
 public:
  explicit Words(std::vector<std::string> begin) : words_(std::move(begin)) {}
  void add(std::string_view flag, std::string value) {
    words_.emplace_back(flag);
    words_.push_back(std::move(value));
  }
  void add(std::string_view flag, int64_t value) { add(flag, std::to_string(value)); }
  void add(std::string_view flag, const std::optional<int64_t>& value) {
    if (value) add(flag, *value);
  }
  void add_above_one(std::string_view flag, int64_t value) {
    if (value > 1) add(flag, value);
  }
  void add_if_any(std::string_view flag, const std::string& value) {
    if (!value.empty()) add(flag, value);
  }
  void add(std::string_view flag) { words_.emplace_back(flag); }
  // Words with blanks between them.
  void add_all(std::string_view words) {
    while (!words.empty()) {
      const size_t blank = std::min(words.find(' '), words.size());
      words_.emplace_back(words.substr(0, blank));
      words.remove_prefix(std::min(blank + 1, words.size()));
    }
  }
  [[nodiscard]] std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

// How an engine is told of a type of weights or cache: in words, or not at all, and why.
struct TypeWords {
  ServingEngine engine{};
  std::string_view type;
  std::string_view words;
  std::string_view note;
  bool is_former = false;  // of a version of its own
};

constexpr std::string_view kQuantizedBefore =
    "need a checkpoint that is quantized already: give its name in place of the model's";
constexpr std::string_view kNoSuchCache =
    "is not among its types: the command leaves the cache as "
    "the weights are, and it then holds fewer tokens";

// vLLM's page of online quantization and vllm/config/cache.py; SGLang's pages of server arguments
// and of the quantized cache; TensorRT-LLM's tensorrt_llm/commands/serve.py, which takes no types;
// llama.cpp's tools/server/README.md (a quantized cache of values needs flash attention).
constexpr TypeWords kWeightTypes[] = {
    {ServingEngine::vllm, "fp8", "--quantization fp8_per_tensor", {}},
    {ServingEngine::vllm, "int8", {}, kQuantizedBefore},
    {ServingEngine::vllm, "fp4", {}, kQuantizedBefore},
    {ServingEngine::vllm, "int4", {}, kQuantizedBefore},
    {ServingEngine::vllm, "fp8", "--quantization fp8", {}, true},
    {ServingEngine::vllm, "int8", {}, kQuantizedBefore, true},
    {ServingEngine::vllm, "fp4", {}, "are not among its types", true},
    {ServingEngine::vllm, "int4", {}, kQuantizedBefore, true},
    {ServingEngine::sglang, "fp8", "--quantization fp8", {}},
    {ServingEngine::sglang, "int8", {}, kQuantizedBefore},
    {ServingEngine::sglang, "fp4", {}, kQuantizedBefore},
    {ServingEngine::sglang, "int4", {}, kQuantizedBefore},
    {ServingEngine::tensorrt_llm, "fp8", {}, kQuantizedBefore},
    {ServingEngine::tensorrt_llm, "int8", {}, kQuantizedBefore},
    {ServingEngine::tensorrt_llm, "fp4", {}, kQuantizedBefore},
    {ServingEngine::tensorrt_llm, "int4", {}, kQuantizedBefore},
    {ServingEngine::llama_cpp, "fp8", {}, "are not among its types; llama-quantize's Q8_0 is near"},
    {ServingEngine::llama_cpp,
     "int8",
     {},
     "are those of the file: make it with llama-quantize, Q8_0"},
    {ServingEngine::llama_cpp,
     "fp4",
     {},
     "are those of the file: make it with llama-quantize, MXFP4"},
    {ServingEngine::llama_cpp,
     "int4",
     {},
     "are those of the file: make it with llama-quantize, Q4_0"},
};
constexpr TypeWords kCacheTypes[] = {
    {ServingEngine::vllm, "fp8", "--kv-cache-dtype fp8", {}},
    {ServingEngine::vllm, "int8", "--kv-cache-dtype int8_per_token_head", {}},
    {ServingEngine::vllm, "int4", "--kv-cache-dtype int4_per_token_head", {}},
    {ServingEngine::vllm, "fp8", "--kv-cache-dtype fp8", {}, true},
    {ServingEngine::vllm, "int8", {}, kNoSuchCache, true},
    {ServingEngine::vllm, "int4", {}, kNoSuchCache, true},
    {ServingEngine::sglang, "fp8", "--kv-cache-dtype fp8_e4m3", {}},
    {ServingEngine::sglang, "int8", {}, kNoSuchCache},
    {ServingEngine::sglang, "int4", {}, kNoSuchCache},
    {ServingEngine::tensorrt_llm,
     "fp8",
     {},
     "is said in a file: kv_cache_config: {dtype: fp8}, with --extra_llm_api_options FILE"},
    {ServingEngine::tensorrt_llm, "int8", {}, kNoSuchCache},
    {ServingEngine::tensorrt_llm, "int4", {}, kNoSuchCache},
    {ServingEngine::llama_cpp, "fp8", {}, kNoSuchCache},
    {ServingEngine::llama_cpp,
     "int8",
     "--flash-attn on --cache-type-k q8_0 --cache-type-v q8_0",
     {}},
    {ServingEngine::llama_cpp,
     "int4",
     "--flash-attn on --cache-type-k q4_0 --cache-type-v q4_0",
     {}},
};

// Nothing for a type that is not asked for.
TypeWords type_words(std::span<const TypeWords> table, const ServerSetting& server,
                     const std::string& type) {
  const auto found = std::ranges::find_if(table, [&](const TypeWords& one) {
    return one.engine == server.engine && one.type == type &&
           one.is_former == !server.version.empty();
  });
  HEADROOM_CHECK(type.empty() || found != table.end(), "a type of weights or cache");
  return found == table.end() ? TypeWords{} : *found;
}

void add_types(Words& words, const ServerSetting& server) {
  words.add_all(type_words(kWeightTypes, server, server.weight_type).words);
  words.add_all(type_words(kCacheTypes, server, server.cache_type).words);
}

// --kv-cache-memory-bytes takes the place of what --gpu-memory-utilization would leave to the
// cache; but no server starts where less than that share of the GPU is free (request_memory in
// vllm/v1/worker/utils.py), so that those on one GPU have to say what each of them needs.
std::vector<std::string> vllm_words(const ServerSetting& server) {
  Words words({"vllm", "serve", server.model});
  words.add_if_any("--dtype", server.dtype);
  add_types(words, server);
  words.add("--max-num-seqs", server.max_num_seqs);
  const bool is_former = !server.version.empty();
  if (is_former && server.kv_tokens) {
    constexpr int64_t kBlock = 16;  // tokens, as without --block-size
    words.add("--num-gpu-blocks-override", std::max<int64_t>(1, *server.kv_tokens / kBlock));
  } else if (server.kv_cache && !is_former) {
    words.add("--kv-cache-memory-bytes", server.kv_cache->count);
  }
  words.add("--max-model-len", server.max_model_len);
  if (server.gpu_share) {
    words.add("--gpu-memory-utilization", text::formatted("%.3f", *server.gpu_share));
  }
  words.add("--max-num-batched-tokens", server.max_num_batched_tokens);
  if (server.has_chunked_prefill && is_former) {
    words.add(*server.has_chunked_prefill ? "--enable-chunked-prefill=True"
                                          : "--enable-chunked-prefill=False");
  } else if (server.has_chunked_prefill) {
    words.add(*server.has_chunked_prefill ? "--enable-chunked-prefill"
                                          : "--no-enable-chunked-prefill");
  }
  words.add_above_one("--tensor-parallel-size", server.tensor_parallel);
  words.add_above_one("--pipeline-parallel-size", server.pipeline_parallel);
  words.add_if_any("--host", server.host);
  words.add("--port", server.port);
  return words.take();
}

std::vector<std::string> sglang_words(const ServerSetting& server) {
  Words words({"python3", "-m", "sglang.launch_server", "--model-path", server.model});
  words.add_if_any("--dtype", server.dtype);
  add_types(words, server);
  words.add("--max-running-requests", server.max_num_seqs);
  words.add("--max-total-tokens", server.kv_tokens);
  if (server.has_chunked_prefill && !*server.has_chunked_prefill) {
    words.add("--chunked-prefill-size", int64_t{-1});
  } else {
    words.add("--chunked-prefill-size", server.max_num_batched_tokens);
  }
  words.add_above_one("--tp-size", server.tensor_parallel);
  words.add_above_one("--pp-size", server.pipeline_parallel);
  words.add("--enable-metrics");
  words.add_if_any("--host", server.host);
  words.add("--port", server.port);
  return words.take();
}

std::vector<std::string> tensorrt_llm_words(const ServerSetting& server) {
  Words words({"trtllm-serve", server.model});
  words.add("--max_batch_size", server.max_num_seqs);
  words.add("--max_num_tokens", server.max_num_batched_tokens);
  if (server.kv_free_share) {
    words.add("--kv_cache_free_gpu_memory_fraction",
              text::formatted("%.3f", *server.kv_free_share));
  }
  words.add_above_one("--tp_size", server.tensor_parallel);
  words.add_above_one("--pp_size", server.pipeline_parallel);
  words.add_if_any("--host", server.host);
  words.add("--port", server.port);
  return words.take();
}

// It reads one file of its own format; the cache is one of all slots.
std::vector<std::string> llama_cpp_words(const ServerSetting& server) {
  const size_t slash = server.model.rfind('/');
  const std::string name =
      slash == std::string::npos ? server.model : server.model.substr(slash + 1);
  Words words({"llama-server", "--model", name + ".gguf"});
  add_types(words, server);
  words.add("--parallel", server.max_num_seqs);
  if (server.kv_tokens) {
    words.add("--kv-unified");
    words.add("--ctx-size", *server.kv_tokens);
  }
  words.add("--batch-size", server.max_num_batched_tokens);
  if (server.has_gpu) words.add("--gpu-layers", int64_t{999});
  words.add("--metrics");
  words.add_if_any("--host", server.host);
  words.add("--port", server.port);
  return words.take();
}

// Of a type that the command does not name.
void note_type(std::string_view what, std::string_view type, std::string_view note,
               const ServerSetting& server, std::vector<std::string>& notes) {
  if (note.empty()) return;
  notes.push_back(title_of(server) + ": " + std::string(what) + " in " + std::string(type) + " " +
                  std::string(note));
}

}  // namespace

const EngineNames& names_of(ServingEngine engine) {
  const auto found = std::ranges::find(kEngines, engine, &EngineNames::engine);
  HEADROOM_CHECK(found != kEngines.end(), "an engine");
  return *found;
}

std::optional<ServingEngine> parse_serving_engine(std::string_view word) {
  const auto found = std::ranges::find(kEngines, word, &EngineNames::word);
  if (found == kEngines.end()) return std::nullopt;
  return found->engine;
}

std::string title_of(const ServerSetting& server) {
  const std::string_view title = names_of(server.engine).title;
  if (server.version.empty()) return std::string(title);
  return std::string(title.substr(0, title.find(' '))) + " " + server.version;
}

std::string image_of(const ServerSetting& server) {
  const std::string_view image = names_of(server.engine).image;
  if (server.version.empty() || image.empty()) return std::string(image);
  return std::string(image.substr(0, image.find(':'))) + ":v" + server.version;
}

std::vector<std::string> serve_words(const ServerSetting& server) {
  switch (server.engine) {
    case ServingEngine::vllm:
      return vllm_words(server);
    case ServingEngine::sglang:
      return sglang_words(server);
    case ServingEngine::tensorrt_llm:
      return tensorrt_llm_words(server);
    case ServingEngine::llama_cpp:
      return llama_cpp_words(server);
  }
  return {};
}

std::string serve_line(const ServerSetting& server) {
  std::string line;
  for (const std::string& word : serve_words(server)) {
    if (!line.empty()) line += ' ';
    line += shell_word(word);
  }
  return line;
}

std::vector<std::string> notes_of(const ServerSetting& server) {
  std::vector<std::string> notes;
  if (!server.version.empty()) {
    notes.push_back("its commands are those of " + title_of(server) +
                    ": pip install vllm==" + server.version + ", or the image " + image_of(server));
  }
  note_type("weights", server.weight_type,
            type_words(kWeightTypes, server, server.weight_type).note, server, notes);
  note_type("a cache", server.cache_type, type_words(kCacheTypes, server, server.cache_type).note,
            server, notes);
  const bool is_tensorrt = server.engine == ServingEngine::tensorrt_llm;
  const bool has_types = is_tensorrt || server.engine == ServingEngine::llama_cpp;
  if (has_types && !server.dtype.empty()) {
    notes.push_back(title_of(server) + " computes in the type that " +
                    (is_tensorrt
                         ? "the checkpoint has, or --extra_llm_api_options FILE says (dtype: "
                         : "the file has (") +
                    server.dtype + ")");
  }
  if (server.engine == ServingEngine::llama_cpp && !server.kv_tokens) {
    notes.emplace_back(
        "llama.cpp's server shares one model's context among all sequences unless it is told of a "
        "cache: add --kv-unified --ctx-size TOKENS, as many as its memory holds");
  }
  if (is_tensorrt && server.has_chunked_prefill.value_or(false)) {
    notes.emplace_back(
        "TensorRT-LLM 1.0 reads prompts in pieces where --extra_llm_api_options FILE says "
        "enable_chunked_prefill: true");
  }
  return notes;
}

ServerSetting on_shared_gpu(std::span<const ServerSetting> servers, size_t number) {
  const ServerSetting& server = servers[number];
  ServerSetting one = server;
  one.port = servers.front().port + static_cast<int>(number);
  if (!server.needs || !server.gpu) return one;
  // Upwards in the three digits that are written.
  one.gpu_share = std::ceil(1000 * static_cast<double>(server.needs->count) /
                            static_cast<double>(server.gpu->count)) /
                  1000;
  if (server.kv_free_share && server.kv_cache) {
    const auto cache = static_cast<double>(server.kv_cache->count);
    double left = cache / *server.kv_free_share;
    for (const ServerSetting& before : servers.first(number)) {
      left -= static_cast<double>(before.needs.value_or(Bytes()).count);
    }
    if (left > cache) one.kv_free_share = cache / left;
  }
  return one;
}

std::vector<std::string> shared_gpu_lines(std::span<const ServerSetting> servers) {
  HEADROOM_CHECK(servers.size() >= 2, "servers that share a GPU");
  std::vector<std::string> lines{"nvidia-cuda-mps-control -d"};
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerSetting one = on_shared_gpu(servers, i);
    lines.push_back(serve_line(one) + " & until curl -sf -o /dev/null localhost:" +
                    std::to_string(one.port) + "/health; do kill -0 $! || break; sleep 1; done");
  }
  lines.emplace_back("echo quit | nvidia-cuda-mps-control  # when done");
  return lines;
}

}  // namespace headroom::engines
