// The grammar of --method: what is trained, and how a step is divided, with commas between them:
// "lora", "fsdp2:8", "lora,fsdp2:8,replicate:2", "tp:4", "fsdp2:2,tp:4", "pp:4,vpp:2".
#pragma once

#include <span>

#include "fit/question.h"

namespace headroom::fit {

// Sets all of the question's fields that --method decides.
Result<void> set_method(std::string_view words, FitQuestion& question);
[[nodiscard]] std::span<const Method> every_method();

}  // namespace headroom::fit
