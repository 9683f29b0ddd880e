// Megatron-LM's arguments by what they mean to a step's memory, as data: what is not modelled, what
// is in one value alone, what is of no matter.
//
// Source: megatron/training/arguments.py at d98e8a64 (August 2026).
#pragma once

#include <span>
#include <string_view>

namespace headroom::engines {

// Names are without dashes.

// Switches that change memory, and are not modelled.
[[nodiscard]] std::span<const std::string_view> megatron_not_modelled();

// The same of FP8 (--fp8-format), without which they are of no matter.
[[nodiscard]] std::span<const std::string_view> megatron_not_modelled_in_fp8();

// Arguments of which one value is modelled: the default.
struct OnlyValue {
  std::string_view name, value;
};
[[nodiscard]] std::span<const OnlyValue> megatron_only_values();

// Whether it is known to change no memory of a training step.
[[nodiscard]] bool is_harmless_to_megatron(std::string_view name);

}  // namespace headroom::engines
