// `--mixed-precision any`: the precisions that a search looks at beside one another.
//
// Weights in 16 bits, mixed precision of that type over float32 weights, and float32; the type is
// bf16, or fp16 where the device has no units for bf16. --dtype holds the weights still. Precision
// changes what is trained, so it is looked at only where somebody asks for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fit/question.h"

namespace headroom::fit {

struct Scenario;

struct Precision {
  std::string dtype;            // of the weights
  std::string mixed_precision;  // of autocast over them, or "none"

  [[nodiscard]] bool is_half() const { return dtype != "fp32"; }
  // What asks for it alone: "--mixed-precision bf16".
  [[nodiscard]] std::string flags() const;
  // "with weights in bf16"
  [[nodiscard]] std::string words() const;
};

// In the answer of every search that looks at more than one.
inline constexpr std::string_view kPrecisionChanges =
    "precision changes what is trained: weights that are trained in 16 bits lose updates that are "
    "small beside them, which fp32 weights keep, alone and under mixed precision (ZeRO keeps fp32 "
    "masters beside its 16 bits); compare rows of one precision, or hold it by --dtype or "
    "--mixed-precision";

// Those that a way to divide is looked at in; one that is nothing where the question says its own.
// ZeRO has 16 bits with masters of its own, and is looked at in nothing else where that is among
// them. The Error is about weights that have types of their own.
Result<std::vector<std::optional<Precision>>> precisions_of(const Scenario& scenario,
                                                            std::string_view division);

// The same question in that precision alone.
Result<void> ask_in(const Precision& precision, FitQuestion& question);

}  // namespace headroom::fit
