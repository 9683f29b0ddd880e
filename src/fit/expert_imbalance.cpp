#include "fit/expert_imbalance.h"

#include <algorithm>
#include <array>

#include "fit/words.h"
#include "text/parse_number.h"

namespace headroom::fit {

constinit const ExpertImbalance kExpertImbalance{0.89, 1, 1.07};

Result<void> set_imbalance(std::string_view words, ExpertImbalance& field) {
  constexpr double kMost = 1e4;
  std::array<double, 3> parts{};
  size_t count = 0;
  for (std::string_view rest = words; count < parts.size(); ++count) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const auto value = text::parse_number<double>(rest.substr(0, end));
    if (!value || !(*value > 0) || *value > kMost) break;
    parts[count] = *value;
    if (end == rest.size()) {
      ++count;
      rest = {};
      break;
    }
    rest.remove_prefix(end + 1);
  }
  const auto parted = std::ranges::count(words, ':');
  const bool is_one = count == 1 && parted == 0;
  const bool is_three = count == 3 && parted == 2 && parts[0] <= parts[1] && parts[1] <= parts[2];
  if (!is_one && !is_three) {
    return refuse("expert-imbalance", words,
                  "a number such as 1.2 (of an even share), or LEAST:EXPECTED:MOST of it");
  }
  field = is_one ? ExpertImbalance{parts[0], parts[0], parts[0]}
                 : ExpertImbalance{parts[0], parts[1], parts[2]};
  return {};
}

std::string imbalance_words(const ExpertImbalance& imbalance) {
  if (imbalance.low == imbalance.high) return number_words(imbalance.expected);
  return number_words(imbalance.low) + ":" + number_words(imbalance.expected) + ":" +
         number_words(imbalance.high);
}

}  // namespace headroom::fit
