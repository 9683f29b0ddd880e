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

constexpr std::array kDegrees{
    NotModelled{"tp", "torchtitan's tensor and sequence parallelism is not modelled"},
    NotModelled{"pp", "torchtitan's pipelines are not modelled"},
    NotModelled{"ep", "torchtitan's expert parallelism is not modelled"},
};

// The number behind `name` at the beginning of a word.
std::optional<int64_t> degree_of(std::string_view word, std::string_view name) {
  if (!word.starts_with(name)) return std::nullopt;
  return text::parse_number<int64_t>(word.substr(name.size()));
}

struct Degrees {
  int64_t shards = 0;   // of data
  int64_t context = 1;  // ranks that share each sequence, among all of which shards are
};

// "FSDP4 CP2"; nothing else may divide a step.
Result<Degrees> degrees_of(std::string_view words) {
  Degrees degrees;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    degrees.shards = degree_of(word, "fsdp").value_or(degrees.shards);
    degrees.context = degree_of(word, "cp").value_or(degrees.context);
    for (const NotModelled& degree : kDegrees) {
      if (degree_of(word, degree.word).value_or(1) > 1) {
        return unsupported(std::string(degree.what));
      }
    }
  }
  const bool is_small =
      degrees.shards <= engines::kMostDevices && degrees.context <= engines::kMostDevices;
  if (is_small && degrees.context >= 1 && degrees.shards * degrees.context > 1) return degrees;
  return unsupported("does not say among how many GPUs fully_shard divides it");
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
  if (table.at(row, "n_gpus") != std::to_string(degrees.shards * degrees.context)) {
    return unsupported("'parallelism' is not the 'n_gpus' GPUs of fully_shard alone");
  }
  FitQuestion q;
  q.search = false;
  q.model = std::move(model);
  q.device = table.at(row, "gpu");
  if (!q.set("batch", table.at(row, "micro_batch"))) {
    return unsupported("the micro-batch is not a number");
  }
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
  HEADROOM_TRY(q.set("shard-ends", is_of_2024 ? "false" : "true"));
  HEADROOM_TRY(q.set("reshard-after-forward", is_of_2024 ? "but-last" : "true"));
  HEADROOM_TRY(q.set("allocator", "expandable_segments:True"));
  if (has(framework, "compile")) HEADROOM_TRY(q.set("compile", "layers"));
  if (has(framework, "float8")) HEADROOM_TRY(q.set("float8", "tensorwise"));
  std::string method = "full,fsdp2:" + std::to_string(degrees.shards);
  if (degrees.context > 1) method += ",cp:" + std::to_string(degrees.context);
  HEADROOM_TRY(q.set("method", method));
  HEADROOM_TRY(q.set("dtype", "fp32"));
  HEADROOM_TRY(q.set("mixed-precision", "bf16"));
  HEADROOM_TRY(q.set("reduce-dtype", "fp32"));
  HEADROOM_TRY(q.set("optimizer", "adamw-foreach"));
  HEADROOM_TRY(q.set("clip", "1.0"));
  HEADROOM_TRY(q.set("attention", "sdpa"));
  HEADROOM_TRY(q.set("loss", "hf"));
  HEADROOM_TRY(q.set("keep-outputs", "false"));
  HEADROOM_TRY(q.set("torch", "2.6"));
  return q;
}

}  // namespace headroom::fit
