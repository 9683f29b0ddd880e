// Of what even routing would give a rank's experts, what a rank gets: a router's are never quite
// even, and activations grow with it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom::fit {

struct ExpertImbalance {
  double low = 1;
  double expected = 1;
  double high = 1;
  bool operator==(const ExpertImbalance&) const = default;
};

// Where nobody says it (docs/measurements/2026-11-24-fit-coverage).
extern const ExpertImbalance kExpertImbalance;

// "1.2", or its least, expected and most: "1:1.1:1.4".
Result<void> set_imbalance(std::string_view words, ExpertImbalance& field);
// In the words that set_imbalance() takes.
[[nodiscard]] std::string imbalance_words(const ExpertImbalance& imbalance);

}  // namespace headroom::fit
