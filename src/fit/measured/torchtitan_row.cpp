#include "fit/measured/torchtitan_row.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "engines/training_setup.h"
#include "fit/measured/row_words.h"
#include "text/ascii.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

struct NotModelled {
  std::string_view word;
  std::string_view what;
};

constexpr std::array kRunners{
    NotModelled{"graph_trainer", "runs torchtitan's traced graph, whose order a compiler chooses"},
    NotModelled{"simplefsdp", "runs SimpleFSDP, whose collectives a compiler places"},
};

// Of each stage, where nothing else is said (pipelining_utils.py).
constexpr int64_t kPartsInterleaved = 2;

// The number behind `name` at the beginning of a word.
std::optional<int64_t> degree_of(std::string_view word, std::string_view name) {
  if (!word.starts_with(name)) return std::nullopt;
  return text::parse_number<int64_t>(word.substr(name.size()));
}

struct Degrees {
  int64_t shards = 0;   // of data
  int64_t context = 1;  // ranks that share each sequence, among all of which shards are
  int64_t tensor = 1;   // that share each product
  int64_t stages = 1;   // of a pipeline
};

// All together; nothing where there are none, or more than are known to train one model.
std::optional<int64_t> devices_of(const Degrees& degrees) {
  int64_t devices = 1;
  for (const int64_t degree : {degrees.shards, degrees.context, degrees.tensor, degrees.stages}) {
    if (degree < 1 || degree > engines::kMostDevices / devices) return std::nullopt;
    devices *= degree;
  }
  return devices;
}

// "FSDP4 CP2"; nothing else may divide a step.
Result<Degrees> degrees_of(std::string_view words) {
  Degrees degrees;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    degrees.shards = degree_of(word, "fsdp").value_or(degrees.shards);
    degrees.context = degree_of(word, "cp").value_or(degrees.context);
    degrees.tensor = degree_of(word, "tp").value_or(degrees.tensor);
    degrees.stages = degree_of(word, "pp").value_or(degrees.stages);
    if (degree_of(word, "ep").value_or(1) > 1) {
      return unsupported("torchtitan's expert parallelism is not modelled");
    }
  }
  if (devices_of(degrees) && degrees.shards * degrees.context > 1) return degrees;
  return unsupported("does not say among how many GPUs fully_shard divides it");
}

std::string method_of(const Degrees& degrees, bool is_interleaved) {
  std::string words = "full,fsdp2:" + std::to_string(degrees.shards);
  const auto add = [&](const char* word, int64_t count) {
    if (count > 1) words += word + std::to_string(count);
  };
  add(",cp:", degrees.context);
  add(",tp:", degrees.tensor);
  add(",pp:", degrees.stages);
  add(",vpp:", is_interleaved ? kPartsInterleaved : 1);
  return words;
}

// A step's sequences on one device, which a pipeline takes in as many micro-batches as stages.
Result<void> set_batch(const std::string& words, int64_t stages, FitQuestion& q) {
  if (!q.set("batch", words) || q.batch % stages != 0) {
    return unsupported("'micro_batch' is not a number that its stages divide");
  }
  q.batch /= stages;
  return stages > 1 ? q.set("grad-accum", std::to_string(stages)) : Result<void>{};
}

// Its loss in chunks over whole logits, or head and loss chunk by chunk.
Result<std::string_view> loss_of(std::string_view words) {
  if (words.empty()) return std::string_view("hf");
  if (has(words, "chunked head")) return std::string_view("chunked-head");
  if (has(words, "chunked")) return std::string_view("chunked");
  return unsupported("the loss '" + std::string(words) + "' is not modelled");
}

// As its `reshard_after_forward` has it, where the row says so.
std::string_view reshard_of(std::string_view framework, std::string_view otherwise) {
  const size_t at = framework.find("reshard_after_forward ");
  if (at == std::string_view::npos) return otherwise;
  const std::string_view word =
      framework.substr(at + std::string_view("reshard_after_forward ").size());
  return word.starts_with("never") ? "false" : word.starts_with("always") ? "true" : "but-last";
}

std::string_view checkpointing_of(std::string_view words) {
  if (has(words, "selective")) return "selective-every-2";
  if (words.starts_with("full")) return "full";
  return words.empty() || words.starts_with("none") ? "none" : "";
}

}  // namespace

bool is_torchtitan_row(const text::CsvTable& table, size_t row) {
  return text::lower(table.at(row, "framework")).starts_with("torchtitan");
}

Result<FitQuestion> torchtitan_question_of(const text::CsvTable& table, size_t row,
                                           std::string model) {
  const std::string framework = text::lower(table.at(row, "framework"));
  for (const NotModelled& runner : kRunners) {
    if (has(framework, runner.word)) return unsupported(std::string(runner.what));
  }
  HEADROOM_ASSIGN(const Degrees degrees, degrees_of(text::lower(table.at(row, "parallelism"))));
  if (table.at(row, "n_gpus") != std::to_string(devices_of(degrees).value_or(0))) {
    return unsupported("'parallelism' is not among the 'n_gpus' GPUs");
  }
  FitQuestion q;
  q.search = false;
  q.model = std::move(model);
  q.device = table.at(row, "gpu");
  HEADROOM_TRY(set_batch(table.at(row, "micro_batch"), degrees.stages, q));
  if (!q.set("seq", table.at(row, "seq_len"))) {
    return unsupported("the sequence length is not one number: '" + table.at(row, "seq_len") + "'");
  }
  const std::string words = text::lower(table.at(row, "act_ckpt"));
  const std::string_view checkpointing = checkpointing_of(words);
  if (checkpointing.empty()) return unsupported("checkpointing '" + words + "' is not modelled");
  HEADROOM_TRY(q.set("checkpointing", checkpointing));
  // parallelize_llama.py and run_llama_train.sh of 9dec370; later, its ends are sharded by
  // themselves, and every layer is resharded.
  const bool is_of_2024 = has(table.at(row, "url"), "202412");
  if (degrees.stages == 1) {
    HEADROOM_TRY(q.set("shard-ends", is_of_2024 ? "false" : "true"));
    HEADROOM_TRY(
        q.set("reshard-after-forward", reshard_of(framework, is_of_2024 ? "but-last" : "true")));
  }
  HEADROOM_TRY(q.set("allocator", "expandable_segments:True"));
  if (has(framework, "compile")) HEADROOM_TRY(q.set("compile", "layers"));
  if (has(framework, "float8"))
    HEADROOM_TRY(q.set("float8", has(framework, "rowwise") ? "rowwise" : "tensorwise"));
  const bool is_interleaved = has(text::lower(table.at(row, "parallelism")), "interleaved");
  HEADROOM_TRY(q.set("method", method_of(degrees, is_interleaved)));
  if (degrees.tensor > 1) HEADROOM_TRY(q.set("sequence-parallel", "true"));
  HEADROOM_TRY(q.set("dtype", "fp32"));
  HEADROOM_TRY(q.set("mixed-precision", "bf16"));
  HEADROOM_TRY(q.set("reduce-dtype", "fp32"));
  HEADROOM_TRY(q.set("optimizer", "adamw-foreach"));
  HEADROOM_TRY(q.set("clip", "1.0"));
  HEADROOM_TRY(q.set("attention", "sdpa"));
  HEADROOM_ASSIGN(const auto loss, loss_of(text::lower(table.at(row, "loss_impl"))));
  HEADROOM_TRY(q.set("loss", loss));
  HEADROOM_TRY(q.set("keep-outputs", "false"));
  HEADROOM_TRY(q.set("torch", "2.6"));
  return q;
}

}  // namespace headroom::fit
