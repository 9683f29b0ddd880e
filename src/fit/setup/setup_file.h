// `--from FILE`: a setting as people have it (accelerate's YAML, DeepSpeed's JSON, torchtitan's
// command, the arguments of transformers' Trainer, LLaMA-Factory's, axolotl's) as flags of `fit`;
// and `--emit KIND=FILE`: a question's setting written as a file of accelerate's, DeepSpeed's or
// torchtitan's, with the command that starts it.
//
// What a file does not say stays with the question's flags. Each emitted file, read back, gives the
// same setting.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

// A flag without its dashes, and its words.
using FlagWords = std::pair<std::string, std::string>;

inline constexpr Bytes kMostSetup{kMiB};

struct SetupFlags {
  std::vector<FlagWords> flags;
  std::string model;  // empty: the file says none
  std::vector<std::string> notes;
};

// In Emitted::notes, behind the engine's name: of its fully_shard, where the question has the plain
// one.
inline constexpr std::string_view kShardsEnds =
    " shards the embedding, and the head, by themselves: --shard-ends true has the figures so";
// Of --allocator planned.
inline constexpr std::string_view kNoPlan = "a plan is not in it: headroom run serves one";

// What was said beside the file.
struct BesideSetup {
  std::string method;           // of --method: "lora" and a file of FSDP come to "lora,fsdp2:8"
  std::optional<int64_t> gpus;  // where the file does not say how many
  // What a file of a name has that the setting names; nothing: it is read.
  std::function<Result<std::string>(const std::string& path)> read;
};

// `content` is the file's, `file` its name; files that it names are read, relative to it.
Result<SetupFlags> flags_of_setup(std::string_view content, const std::string& file,
                                  const BesideSetup& beside = {});

// "accelerate", "accelerate=fsdp.yaml", "deepspeed", ...
struct EmitRequest {
  std::string kind;
  std::string file;
};
Result<EmitRequest> parse_emit(std::string_view words);

// None is to be what `from`, the file of --from, was read from, nor another's.
Result<std::vector<EmitRequest>> parse_emits(const std::vector<std::string>& words,
                                             const std::string& from);

// Whether a file of that kind can say how the step is divided and run.
[[nodiscard]] bool can_be_said(const FitQuestion& question, std::string_view kind);

// A usage error where it cannot, with what would.
Result<void> check_said(const FitQuestion& question, const std::string& kind);

// Writes the file. What it cannot say is in `Emitted::by_hand`. REQUIRES: no run of Megatron-LM
// (megatron/file.h).
Result<Emitted> emit_setup(const FitQuestion& question, const EmitRequest& request);

}  // namespace headroom::fit
