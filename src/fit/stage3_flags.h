// The flags of ZeRO's third stage: DeepSpeed's keys (engines/stage3_counts.h) with "-" for "_".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "engines/stage3_counts.h"

namespace headroom::fit {

class Stage3Flag {
 public:
  constexpr Stage3Flag() = default;
  // REQUIRES: a key of kStage3Counts, which the array is made of as the program is built.
  constexpr explicit Stage3Flag(std::string_view key) : size_(key.size()) {
    std::ranges::transform(key, letters_.begin(), [](char c) { return c == '_' ? '-' : c; });
  }
  [[nodiscard]] constexpr std::string_view name() const { return {letters_.data(), size_}; }

 private:
  std::array<char, 40> letters_{};
  size_t size_ = 0;
};

inline constexpr auto kStage3Flags = [] {
  std::array<Stage3Flag, engines::kStage3Counts.size()> flags{};
  for (size_t i = 0; i < flags.size(); ++i) flags[i] = Stage3Flag(engines::kStage3Counts[i].key);
  return flags;
}();

}  // namespace headroom::fit
