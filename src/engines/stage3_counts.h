// The counts of elements in DeepSpeed's configuration of ZeRO's third stage, each described once:
// its key, which is fit's flag with "-" for "_", what it stands at, and what "auto" makes of it.
//
// Source: deepspeed/runtime/zero/config.py (0.19); of "auto",
// transformers/integrations/deepspeed.py and accelerate/accelerator.py, whose floats are Python's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom::engines {

// In place of a count: left to HF's Trainer or accelerate ("auto"), which take it from the model's
// hidden size.
inline constexpr int64_t kOfHiddenSize = -1;

// By which kStage3Counts, and the values of a setting, are indexed.
enum class Stage3 : uint8_t {
  sub_group_size,
  prefetch_bucket_size,
  param_persistence_threshold,
  max_live_parameters,
  max_reuse_distance,
};

struct Stage3Count {
  std::string_view key;
  int64_t standard;  // where nobody says
  int64_t least;
  // "auto" is so many squares of the hidden size and so many times it; none: no word for this one.
  double squares;
  double sizes;
  std::string_view meaning;  // as help has it

  [[nodiscard]] constexpr bool takes_auto() const { return squares > 0 || sizes > 0; }
};

inline constexpr std::array<Stage3Count, 5> kStage3Counts{{
    {"sub_group_size", 1'000'000'000, 1, 0, 0,
     "with zero3, elements that the optimizer steps together"},
    {"stage3_prefetch_bucket_size", 50'000'000, 0, 0.9, 0,
     "with zero3, elements that are gathered ahead; 0: none; auto: 0.9 times the square of the "
     "hidden size"},
    {"stage3_param_persistence_threshold", 100'000, 0, 0, 10,
     "with zero3, elements up to which a parameter stays whole through the step; auto: 10 times "
     "the hidden size"},
    {"stage3_max_live_parameters", 1'000'000'000, 0, 0, 0,
     "with zero3, gathered elements from which on nothing is gathered ahead"},
    {"stage3_max_reuse_distance", 1'000'000'000, 0, 0, 0,
     "with zero3, elements until its next use within which a parameter is kept"},
}};

// One a count: elements, or kOfHiddenSize.
using Stage3Elements = std::array<int64_t, kStage3Counts.size()>;
inline constexpr Stage3Elements kStage3Standard = [] {
  Stage3Elements elements{};
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = kStage3Counts[i].standard;
  return elements;
}();

// The same, as a file says it: what is nothing, it does not say.
using Stage3Said = std::array<std::optional<int64_t>, kStage3Counts.size()>;

}  // namespace headroom::engines
