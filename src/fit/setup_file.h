// `--from FILE`: a setting as people have it, accelerate's YAML or DeepSpeed's JSON, as flags of
// `fit`; and `--emit KIND=FILE`: a question's setting written as such a file, with the command that
// starts it.
//
// What a file does not say (the model, its batch, the optimizer) stays with the question's flags.
// Each emitted file, read back, gives the same setting.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"

namespace headroom::fit {

// A flag without its dashes, and its words.
using FlagWords = std::pair<std::string, std::string>;

// `method` is the word of --method that was given beside the file, "" for none: "lora" and a file
// of FSDP come to "lora,fsdp2:8". At most 1 MiB. `content` is the file's, `file` its name.
Result<std::vector<FlagWords>> flags_of_setup(std::string_view content, const std::string& file,
                                              std::string_view method);

// "accelerate", "accelerate=fsdp.yaml", "deepspeed", ...
struct EmitRequest {
  std::string kind;
  std::string file;
};
Result<EmitRequest> parse_emit(std::string_view words);

// Writes the file. What it cannot say is in `Emitted::by_hand`.
Result<Emitted> emit_setup(const FitQuestion& question, const EmitRequest& request);

}  // namespace headroom::fit
