#include "ops/kernel_name.h"

#include <cstddef>

namespace headroom::ops {

std::string_view own_part(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  size_t angles = 0;  // that are open
  size_t rounds = 0;  // within them: parameters outside end the name
  size_t begin = 0;
  size_t end = name.size();
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_outside = angles == 0 && rounds == 0;
    if (is_outside && name.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
    } else if (is_outside && c == '(') {
      end = i;
      break;
    } else if (c == '(') {
      ++rounds;
    } else if (c == ')') {
      if (rounds == 0) return name;
      --rounds;
    } else if (c == '<') {
      ++angles;
    } else if (c == '>' && (i == 0 || name[i - 1] != '-')) {
      if (angles == 0) return name;
      --angles;
    } else if (is_outside && c == ' ') {
      begin = i + 1;
    } else if (is_outside && name.substr(i).starts_with("::")) {
      begin = i + 2;
      ++i;
    }
  }
  if (angles > 0 || rounds > 0 || begin >= end) return name;
  return name.substr(begin, end - begin);
}

}  // namespace headroom::ops
