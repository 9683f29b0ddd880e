// Words of --optimizer, and what optimizers of bitsandbytes keep.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fit/question.h"
#include "step/optimizer.h"

namespace headroom::fit {

// "adamw-fused" is adamw, walked fused; the kinds that torch.optim does not have take no suffix.
Result<void> set_optimizer(std::string_view words, FitQuestion& question);
[[nodiscard]] std::string optimizer_words(const FitQuestion& question);

// Nothing of those that are none of bitsandbytes'.
[[nodiscard]] std::optional<step::BitsAndBytes> bitsandbytes_of(Optimizer optimizer);

}  // namespace headroom::fit
