// What to change in a run of Megatron-LM: its own arguments, as changes of a question.
#pragma once

#include <cstddef>
#include <string_view>

#include "fit/question.h"

namespace headroom::fit {

struct MegatronChange {
  std::string_view name;
  std::string_view title;
  std::string_view flags;      // headroom's, where it has one
  std::string_view arguments;  // Megatron-LM's
  std::string_view cost;
  bool (*when)(const FitQuestion&);
  void (*make)(FitQuestion&);
};

inline constexpr size_t kMegatronChanges = 5;
[[nodiscard]] const MegatronChange& megatron_change(size_t i);

}  // namespace headroom::fit
