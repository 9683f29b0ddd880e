#include "fit/measured/measured_row.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "fit/measured/row_words.h"
#include "fit/measured/torchtitan_row.h"
#include "fit/megatron/row.h"
#include "model/builtin.h"
#include "text/ascii.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

std::optional<Bytes> bytes_in(std::string_view words, double unit) {
  constexpr double kMost = 0x1p60;
  const auto value = text::parse_number<double>(words);
  if (!value || *value <= 0 || *value * unit > kMost) return std::nullopt;
  return Bytes(static_cast<int64_t>(std::llround(*value * unit)));
}

// The digits right after `marker`: "r=16" -> 16.
std::optional<std::string> digits_after(const std::string& text, std::string_view marker) {
  const size_t at = text.find(marker);
  if (at == std::string::npos) return std::nullopt;
  size_t end = at + marker.size();
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
  if (end == at + marker.size()) return std::nullopt;
  return text.substr(at + marker.size(), end - at - marker.size());
}

// "torch 2.4.1 transformers 4.48.1 peft 0.13.2": the word after `name`.
std::optional<std::string> version_of(const std::string& text, const std::string& name) {
  const size_t at = text.find(name + " ");
  if (at == std::string::npos) return std::nullopt;
  size_t begin = at + name.size() + 1;
  size_t end = begin;
  while (end < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.')) {
    ++end;
  }
  if (end == begin) return std::nullopt;
  return text.substr(begin, end - begin);
}

// One row's columns by name, in lower case.
class Row {
 public:
  Row(const text::CsvTable& table, size_t row) : table_(table), row_(row) {}
  [[nodiscard]] const std::string& raw(std::string_view column) const {
    return table_.at(row_, column);
  }
  [[nodiscard]] std::string operator[](std::string_view column) const {
    return text::lower(raw(column));
  }

 private:
  const text::CsvTable& table_;
  size_t row_;
};

// AnswerDotAI/fsdp_qlora's train.py at 05ed9f2a (June 2024).
bool is_fsdp_qlora(const Row& row) { return has(row["framework"], "fsdp_qlora train.py"); }

bool is_fsdp1(const Row& row) {
  const bool shards =
      has(row["framework"], "fsdp1 full_shard") || has(row["parallelism"], "fsdp1 full_shard");
  return shards && row["n_gpus"] != "1";
}

// How a step is divided, as the words of --method end: nothing on one GPU.
Result<std::string> division_of(const Row& row) {
  const std::string gpus = row["n_gpus"];
  if (gpus.empty()) return unsupported("the number of GPUs is not given");
  if (gpus == "1") return std::string();
  if (is_fsdp1(row)) return ",fsdp1:" + gpus;
  struct Named {
    std::string_view written;
    std::string_view word;
  };
  std::string words = row["parallelism"];
  if (words.ends_with(" offload")) words.erase(words.size() - 8);  // cpu_offload says of what
  for (const Named& named :
       {Named{"ddp", "ddp"}, Named{"zero-1", "zero1"}, Named{"zero-2", "zero2"},
        Named{"zero-3", "zero3"}, Named{"fsdp2", "fsdp2"}, Named{"fsdp2 full_shard", "fsdp2"}}) {
    if (words == named.written) return "," + std::string(named.word) + ":" + gpus;
  }
  return unsupported("runs on " + gpus +
                     " GPUs, and 'parallelism' does not say how in words that " +
                     "are known (DDP, ZeRO-1, ZeRO-2, ZeRO-3, FSDP1 FULL_SHARD, FSDP2): '" +
                     row.raw("parallelism") + "'");
}

Result<void> check_scope(const Row& row) {
  const std::string scope = row["scope"];
  if (!scope.empty() && !has(scope, "train")) return unsupported("measures " + scope);
  HEADROOM_TRY(division_of(row));
  const std::string method = row["method"];
  if (has(method, "compile")) return unsupported("runs compiled");
  return {};
}

Result<void> read_lora(const Row& row, FitQuestion& q) {
  const std::string method = row["method"];
  if (const auto rank = digits_after(method, "r=")) HEADROOM_TRY(q.set("lora-rank", *rank));
  // Its benchmark's scenarios (scripts/benchmarks/scenarios*.yaml) all say lora_dropout: 0.1.
  if (row["source"] == "fms-acceleration") HEADROOM_TRY(q.set("lora-dropout", "0.1"));
  if (has(method, "targets=q,k,v,o")) {
    // Both spellings: the one that the model does not have matches nothing.
    HEADROOM_TRY(q.set("lora-targets", "q_proj,k_proj,v_proj,o_proj,c_attn"));
  } else if (const size_t list = method.find("targets=["); list != std::string::npos) {
    std::string names;
    for (const char c : method.substr(list + 9, method.find(']', list) - list - 9)) {
      if (c != '\'' && c != ' ' && c != '"') names += c;
    }
    HEADROOM_TRY(q.set("lora-targets", names));
  } else if (has(method, "all modules")) {
    HEADROOM_TRY(q.set("lora-targets", "all-linear"));
  } else if (has(method, "targets=")) {
    return unsupported("names adapter targets that are not modules of transformers");
  }
  return {};
}

// Group size none: the first one's model card says so of its main branch. Of the other, the cards
// of the same author's Llama-2-70B-chat-GPTQ (before 7a706cf) and llama2_70b_chat_uncensored-GPTQ
// (at 0bc74b5) say so, of the same sizes; 35.33 GB are what 4 bits without groups take.
constexpr std::array<std::string_view, 2> kUngroupedGptq{"TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ",
                                                         "TheBloke/Llama-2-70B-GPTQ"};

// What the name of a result file says of a LoRA that its method does not (method_comparison of the
// peft repository).
Result<std::string_view> peft_method(const Row& row) {
  const std::string url = row["url"];
  if (has(url, "-dora")) return std::string_view("dora");
  for (const char* variant : {"-bdlora", "-mica", "-kasa", "-riemannian"}) {
    if (has(url, variant)) {
      return unsupported("the LoRA variant '" + std::string(variant + 1) + "' is not modelled");
    }
  }
  return std::string_view("lora");
}

Result<void> set_method(const Row& row, FitQuestion& q, std::string_view way) {
  HEADROOM_ASSIGN(const std::string division, division_of(row));
  return q.set("method", std::string(way) + division);
}

Result<void> read_ia3(const Row& row, FitQuestion& q) {
  HEADROOM_TRY(set_method(row, q, "ia3"));
  // The experiment's adapter_config.json: all of the MLP is feed-forward.
  const bool is_peft = row["source"] == "peft-metamathqa";
  if (is_peft && has(row["method"], "gate_proj")) {
    HEADROOM_TRY(q.set("ia3-feedforward", "gate_proj,up_proj,down_proj"));
  }
  return {};
}

Result<void> read_method(const Row& row, FitQuestion& q) {
  const std::string method = row["method"];
  for (const char* other : {"8bit", "8-bit", "int8", "hqq", "last "}) {
    if (has(method, other)) {
      return unsupported("method '" + row.raw("method") + "' is not modelled");
    }
  }
  if (method == "full" || has(method, "full fine-tune") || has(method, "pre-training")) {
    return set_method(row, q, "full");
  }
  if (has(method, "gptq-lora")) {
    HEADROOM_TRY(set_method(row, q, "gptq-lora"));
    if (std::ranges::find(kUngroupedGptq, row.raw("model")) != kUngroupedGptq.end()) {
      HEADROOM_TRY(q.set("gptq-group", "0"));
    }
  } else if (has(method, "qlora") || has(method, "bits=4")) {
    HEADROOM_TRY(set_method(row, q, "qlora"));
  } else if (method.starts_with("lora")) {
    HEADROOM_ASSIGN(const std::string_view kind, peft_method(row));
    HEADROOM_TRY(set_method(row, q, kind));
  } else if (method.starts_with("dora")) {
    HEADROOM_TRY(set_method(row, q, "dora"));
  } else if (method.starts_with("ia3")) {
    HEADROOM_TRY(read_ia3(row, q));
  } else if (method.empty()) {
    return unsupported("names no method, such as 'full fine-tune' or 'LoRA r=16'");
  } else {
    return unsupported("method '" + row.raw("method") + "' is not modelled");
  }
  return read_lora(row, q);
}

// LLaMA-Factory loads a model in the type that it trains in, half precision in its examples, and
// keeps adapters in float32 under autocast (src/llamafactory/model/adapter.py and loader.py).
Result<void> read_llama_factory(const Row& row, FitQuestion& q) {
  if (has(row["attention"], "unsloth")) return unsupported("Unsloth's models are not modelled");
  HEADROOM_TRY(q.set("dtype", "bf16"));
  HEADROOM_TRY(q.set("mixed-precision", "bf16"));
  HEADROOM_TRY(q.set("kbit-preparation", "none"));
  HEADROOM_TRY(q.set("optimizer", "adamw"));
  HEADROOM_TRY(q.set("accelerate", "true"));
  HEADROOM_TRY(q.set("keep-outputs", "false"));
  HEADROOM_TRY(q.set("clip", "1.0"));
  HEADROOM_TRY(q.set("torch", "2.2"));  // of April 2024, which the rows give
  return q.set("transformers", "4.39");
}

// Its defaults: 64 ranks on all of a layer's matrices but attention's output, adapters in the type
// that 4-bit weights are stored in, FSDP without a type of its own, no clipping; dummy sequences
// are cut at the context's length.
Result<void> read_fsdp_qlora(const Row& row, FitQuestion& q) {
  HEADROOM_TRY(q.set("dtype", "bf16"));
  HEADROOM_TRY(q.set("kbit-preparation", "none"));
  HEADROOM_TRY(q.set("lora-dtype", "bf16"));
  if (!has(row["method"], "r=")) HEADROOM_TRY(q.set("lora-rank", "64"));
  HEADROOM_TRY(q.set("lora-dropout", "0.1"));
  HEADROOM_TRY(q.set("lora-targets", "k_proj,q_proj,v_proj,up_proj,down_proj,gate_proj"));
  HEADROOM_TRY(q.set("keep-outputs", "false"));
  HEADROOM_TRY(q.set("torch", "2.2"));
  return q.set("transformers", "4.38");
}

// What is in the host's memory. FSDP's shares of parameters take their states along.
Result<void> read_offload(const Row& row, FitQuestion& q) {
  const std::string words = row["cpu_offload"];
  if (words.empty() || words == "none") {
    if (!has(row["parallelism"], "offload")) return {};
    return unsupported("offloads, and 'cpu_offload' does not say what");
  }
  const bool is_fsdp = q.division == Division::fsdp1 || q.division == Division::fsdp2;
  if (words == "optimizer") return q.set("offload", "optimizer");
  if (words == "params") return q.set("offload", "parameters");
  if (words == "params+optimizer") {
    return q.set("offload", is_fsdp ? "parameters" : "optimizer,parameters");
  }
  return unsupported("offloads '" + row.raw("cpu_offload") +
                     "', which is none of optimizer, params and params+optimizer");
}

Result<void> read_types(const Row& row, FitQuestion& q) {
  if (q.given.contains("dtype")) return {};  // the framework decides
  const std::string weights = row["weights_dtype"];
  const std::string mixed = row["mixed_precision"];
  if (has(weights, "bf16") || has(weights, "bfloat16")) {
    HEADROOM_TRY(q.set("dtype", "bf16"));
  } else if (has(weights, "float16") || weights.starts_with("fp16")) {
    HEADROOM_TRY(q.set("dtype", "fp16"));
  } else if (weights.starts_with("fp32") || has(weights, "float32")) {
    HEADROOM_TRY(q.set("dtype", "fp32"));
  } else {
    return unsupported("the type of the weights is not given");
  }
  if (has(mixed, "bf16 autocast")) return q.set("mixed-precision", "bf16");
  if (has(mixed, "fp16 autocast")) return q.set("mixed-precision", "fp16");
  if (mixed.empty() || mixed.starts_with("none")) return {};
  return unsupported("mixed precision '" + row.raw("mixed_precision") + "' is not modelled");
}

Result<void> read_optimizer(const Row& row, FitQuestion& q) {
  const std::string optimizer = row["optimizer"];
  if (optimizer.empty() && q.given.contains("optimizer")) return {};
  if (has(optimizer, "badam")) return unsupported("BAdam, which steps block by block");
  if (has(optimizer, "ao ") || optimizer == "_adamw") return unsupported("torchao's own AdamW");
  if (has(optimizer, "4bit") || has(optimizer, "4-bit")) return unsupported("a 4-bit optimizer");
  const Error unknown = unsupported("optimizer '" + row.raw("optimizer") + "' is not modelled");
  // What has one of the names below in its own, and other states.
  for (const char* other : {"galore", "mini", "schedule", "apollo", "muon", "lomo", "32bit",
                            "radam", "adamax", "nadam", "ademamix"}) {
    if (has(optimizer, other)) return unknown;
  }
  if (has(optimizer, "8bit") || has(optimizer, "8-bit")) {
    if (!has(optimizer, "adam")) return unknown;
    return q.set("optimizer", has(optimizer, "paged") ? "paged-adamw-8bit" : "adamw-8bit");
  }
  if (has(optimizer, "adafactor")) {
    const bool is_theirs =
        has(row["framework"], "hf trainer") || has(optimizer, "transformers adafactor");
    return q.set("optimizer", is_theirs ? "hf-adafactor" : "adafactor");
  }
  if (has(optimizer, "adamw")) {
    return q.set("optimizer", has(optimizer, "fused") ? "adamw-fused" : "adamw");
  }
  if (has(optimizer, "adam")) return q.set("optimizer", "adam");
  if (has(optimizer, "sgd")) {
    return q.set("optimizer", has(optimizer, "momentum") ? "sgd-momentum" : "sgd");
  }
  if (has(optimizer, "lion")) return q.set("optimizer", "lion");
  return unknown;
}

Result<void> read_shape(const Row& row, FitQuestion& q) {
  if (!q.set("batch", row.raw("micro_batch")))
    return unsupported("the micro-batch is not a number");
  std::string seq = row.raw("seq_len");
  if (const auto longest = digits_after(seq, "<=")) seq = *longest;
  if (!q.set("seq", seq)) {
    return unsupported("the sequence length is not one number: '" + row.raw("seq_len") + "'");
  }
  const std::string accumulation = row["grad_accum"];
  if (!accumulation.empty() && !q.set("grad-accum", accumulation)) {
    return unsupported("accumulation '" + accumulation + "' is not a number");
  }
  return {};
}

Result<void> read_checkpointing(const Row& row, FitQuestion& q) {
  const std::string words = row["act_ckpt"];
  // LLaMA-Factory checkpoints unless it is told not to.
  if (words.empty() && has(row["framework"], "llama-factory"))
    return q.set("checkpointing", "full");
  if (words.starts_with("none") || words.empty()) return q.set("checkpointing", "none");
  if (words.starts_with("full")) {
    const std::string said = text::lower(words);
    const bool is_other = has(said, "non-reentrant") || has(said, "use_reentrant=false");
    if (has(said, "reentrant")) {
      HEADROOM_TRY(q.set("checkpointing-kind", is_other ? "non-reentrant" : "reentrant"));
    }
    return q.set("checkpointing", "full");
  }
  return unsupported("checkpointing '" + row.raw("act_ckpt") + "' is not modelled");
}

Result<void> read_attention(const Row& row, FitQuestion& q) {
  const std::string words = row["attention"];
  const bool is_flash2 =
      has(words, "flash_attention_2") || has(words, "flashattention2") || has(words, "fa2");
  if (is_flash2) {
    return q.set("attention", "flash2");
  }
  if (has(words, "eager")) return q.set("attention", "eager");
  if (has(words, "sdpa") || words.empty() || words == "hf") return q.set("attention", "sdpa");
  return unsupported("attention '" + row.raw("attention") + "' is not modelled");
}

Result<void> read_loss(const Row& row, FitQuestion& q) {
  const std::string words = row["loss_impl"];
  if (words.starts_with("hf ce") || words.empty()) return q.set("loss", "hf");
  if (has(words, "foak")) return q.set("loss", "fused");
  if (has(words, "liger") || has(words, "fused linear")) return q.set("loss", "fused-linear");
  return unsupported("loss '" + row.raw("loss_impl") + "' is not modelled");
}

// What a framework does beyond its flags: how its loop holds outputs, whether it clips, whose
// kernels it brings.
Result<void> read_framework(const Row& row, FitQuestion& q) {
  const std::string framework = row["framework"];
  const std::string notes = row["notes"];
  if (has(framework, "litgpt")) return unsupported("LitGPT's own models are not modelled");
  if (has(framework, "torchtune")) return unsupported("torchtune's own models are not modelled");
  if (has(framework, "llama-factory")) HEADROOM_TRY(read_llama_factory(row, q));
  if (is_fsdp_qlora(row)) HEADROOM_TRY(read_fsdp_qlora(row, q));
  // Its run.py is a plain loop: it clips to 1, leaves config.use_cache as it is, and keeps outputs
  // until the next forward pass is done.
  if (row["source"] == "peft-metamathqa") {
    HEADROOM_TRY(q.set("clip", "1.0"));
    HEADROOM_TRY(q.set("use-cache", "true"));
  }
  if (has(framework, "hf trainer")) {
    HEADROOM_TRY(q.set("accelerate", "true"));
    HEADROOM_TRY(q.set("keep-outputs", "false"));
    HEADROOM_TRY(q.set("clip", "1.0"));
  }
  if (has(framework, "outputs not kept")) HEADROOM_TRY(q.set("keep-outputs", "false"));
  if (has(framework, "foak")) HEADROOM_TRY(q.set("kernels", "fast"));
  if (has(framework, "foak") && has(framework, "liger")) {
    HEADROOM_TRY(q.set("loss", "fused-linear"));
  }
  // The rows of this file were measured in the environment that stands beside it.
  if (has(notes, "refs/requirements_liger.txt")) {
    HEADROOM_TRY(q.set("torch", "2.4.1"));
    HEADROOM_TRY(q.set("transformers", "4.45.2"));
  }
  // fms-acceleration loads 4-bit models itself, and then leaves norms in the model's type; without
  // it the same harness trains by TRL's SFTTrainer.
  if (has(framework, "accelerated-peft")) HEADROOM_TRY(q.set("kbit-preparation", "none"));
  const bool is_sharded = has(framework, "fsdp") && row["n_gpus"] != "1";
  if (has(framework, "baseline-peft") && !is_sharded) {
    HEADROOM_TRY(q.set("kbit-preparation", "norms"));
  }
  for (const std::string& text :
       {row["torch_version"].empty() ? "" : "torch " + row["torch_version"], notes, framework}) {
    if (const auto version = version_of(text, "torch")) {
      HEADROOM_TRY(q.set("torch", *version));
      break;
    }
  }
  for (const std::string& text : {notes, framework}) {
    if (const auto version = version_of(text, "transformers")) {
      HEADROOM_TRY(q.set("transformers", *version));
      break;
    }
  }
  return {};
}

// How sources write models that the hub knows by another name.
struct ModelAlias {
  std::string_view written;  // in lower case
  std::string_view id;
};
constexpr std::array kAliases{
    ModelAlias{"llama2-7b", "meta-llama/Llama-2-7b-hf"},
    ModelAlias{"llama-2-7b", "meta-llama/Llama-2-7b-hf"},
    ModelAlias{"llama2-13b", "meta-llama/Llama-2-13b-hf"},
    ModelAlias{"llama-2-13b", "meta-llama/Llama-2-13b-hf"},
    ModelAlias{"llama2-70b", "meta-llama/Llama-2-70b-hf"},
    ModelAlias{"llama-2-70b", "meta-llama/Llama-2-70b-hf"},
    ModelAlias{"llama 3.1 8b", "meta-llama/Llama-3.1-8B"},
    ModelAlias{"llama 3.1 70b", "meta-llama/Llama-3.1-70B"},
    ModelAlias{"llama 3.1 405b", "meta-llama/Llama-3.1-405B"},
    ModelAlias{"llama 3-8b", "meta-llama/Meta-Llama-3-8B"},
    ModelAlias{"llama3 8b", "meta-llama/Meta-Llama-3-8B"},
    ModelAlias{"llama3-8b", "meta-llama/Meta-Llama-3-8B"},
    ModelAlias{"llama-3-8b", "meta-llama/Meta-Llama-3-8B"},
    ModelAlias{"llama 3-70b", "meta-llama/Meta-Llama-3-70B"},
    ModelAlias{"llama3-70b", "meta-llama/Meta-Llama-3-70B"},
    ModelAlias{"mistral-7b", "mistralai/Mistral-7B-v0.1"},
    ModelAlias{"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"},
    ModelAlias{"yi-34b", "01-ai/Yi-34B"},
    ModelAlias{"qwen3-14b", "Qwen/Qwen3-14B"},
    ModelAlias{"qwen3-32b", "Qwen/Qwen3-32B"},
};

std::string model_of(const Row& row) {
  std::string name = row.raw("model");
  // A quantized copy has the shapes of its base, whoever made it.
  constexpr std::string_view kSuffix = "-GPTQ";
  if (name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
    name = name.substr(name.find('/') + 1);
  }
  // Copies of Meta's models that need no licence, under their names.
  constexpr std::string_view kCopies = "NousResearch/";
  for (const std::string_view model : {"Llama-2-", "Meta-Llama-3-"}) {
    const std::string copy = std::string(kCopies) + std::string(model);
    if (name.starts_with(copy)) name = "meta-llama/" + name.substr(kCopies.size());
  }
  for (const ModelAlias& alias : kAliases) {
    if (text::lower(name) == alias.written) return std::string(alias.id);
  }
  return name;
}

}  // namespace

std::string_view name_of(Metric metric) {
  switch (metric) {
    case Metric::peak_allocated:
      return "peak_allocated";
    case Metric::after_step:
      return "after_step";
    case Metric::peak_reserved:
      return "peak_reserved";
    case Metric::device_used:
      return "device_used";
  }
  return "";
}

std::vector<MeasuredFigure> figures_of(const text::CsvTable& table, size_t index) {
  const Row row(table, index);
  std::vector<MeasuredFigure> figures;
  const std::string metric = row["metric"];
  // Before a checkpoint was written or an evaluation ran, where the row knows.
  const std::string& training_alone = row.raw("pre_save_eval_peak_bytes");
  if (const auto value =
          bytes_in(training_alone.empty() ? row.raw("value_bytes") : training_alone, 1)) {
    const bool is_reserved = has(metric, "reserved");
    const bool is_device = has(metric, "nvml") || has(metric, "nvidia-smi") || has(metric, "vram");
    figures.push_back({is_reserved ? Metric::peak_reserved
                       : is_device ? Metric::device_used
                                   : Metric::peak_allocated,
                       *value});
  }
  if (const auto value = bytes_in(row.raw("alloc_after_step_bytes"), 1)) {
    const bool outputs_live = has(row["notes"], "after step with outputs alive");
    figures.push_back({Metric::after_step, *value, outputs_live});
  }
  if (const auto value = bytes_in(row.raw("nvidia_smi_mib"), static_cast<double>(kMiB))) {
    figures.push_back({Metric::device_used, *value});
  }
  return figures;
}

std::optional<double> step_seconds(const text::CsvTable& table, size_t index) {
  const auto seconds = text::parse_number<double>(Row(table, index).raw("step_seconds"));
  return seconds && *seconds > 0 ? seconds : std::nullopt;
}

Result<FitQuestion> question_of(const text::CsvTable& table, size_t index) {
  const Row row(table, index);
  // A table is data, whoever sent it: it never makes us run somebody's Python.
  if (model::is_python_function(model_of(row)))
    return unsupported("a table of measurements runs no code");
  if (is_megatron_row(table, index)) return megatron_question_of(table, index);
  if (is_torchtitan_row(table, index)) return torchtitan_question_of(table, index, model_of(row));
  FitQuestion q;
  q.search = false;
  HEADROOM_TRY(check_scope(row));
  q.model = model_of(row);
  q.device = row.raw("gpu");
  for (const auto read : {read_framework, read_method, read_offload, read_types, read_optimizer,
                          read_shape, read_checkpointing, read_attention}) {
    HEADROOM_TRY(read(row, q));
  }
  if (q.loss == Loss::automatic) HEADROOM_TRY(read_loss(row, q));
  if (q.device.empty()) {
    return unsupported("names no GPU, on which workspaces, kernels and what a device shows depend");
  }
  return q;
}

std::optional<int64_t> mean_sequence(const text::CsvTable& table, size_t index) {
  const Row row(table, index);
  // Every result file of the harness counts 4,198,051 tokens in 5,000 steps of 4 sequences, before
  // padding ("train total tokens"); all runs see the same batches.
  constexpr int64_t kMetaMathTokens = 4'198'051;
  constexpr int64_t kMetaMathSequences = 20'000;
  if (row["source"] != "peft-metamathqa") return std::nullopt;
  return (kMetaMathTokens + kMetaMathSequences / 2) / kMetaMathSequences;
}

std::optional<int64_t> trainable_count(const text::CsvTable& table, size_t index) {
  const auto digits = digits_after(Row(table, index)["method"], "trainable=");
  return digits ? text::parse_number<int64_t>(*digits) : std::nullopt;
}

bool lacks_ignored_weights(const text::CsvTable& table, size_t index) {
  return Row(table, index)["source"] == "fms-acceleration";
}

}  // namespace headroom::fit
