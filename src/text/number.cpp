#include "text/number.h"

#include <array>
#include <cstdio>

namespace headroom::text {

std::string formatted(const char* form, double value) {
  std::array<char, 64> words{};
  std::snprintf(words.data(), words.size(), form, value);
  return words.data();
}

}  // namespace headroom::text
