#include "ops/kernel_name.h"

#include <cstddef>

namespace headroom::ops {
namespace {

// Of "N2at6native3fooIfE...": the last of the names that come one behind the other.
std::string_view mangled_stem(std::string_view name) {
  std::string_view stem;
  name.remove_prefix(2);
  while (!name.empty()) {
    if (stem.empty() && (name[0] == 'N' || name[0] == 'L' || name[0] == 'K')) {
      name.remove_prefix(1);
      continue;
    }
    size_t length = 0;
    size_t digits = 0;
    constexpr size_t kMostDigits = 5;
    while (digits < name.size() && digits < kMostDigits && name[digits] >= '0' &&
           name[digits] <= '9') {
      length = length * 10 + static_cast<size_t>(name[digits++] - '0');
    }
    if (digits == 0 || length == 0 || length > name.size() - digits) break;
    stem = name.substr(digits, length);
    name.remove_prefix(digits + length);
  }
  return stem;
}

}  // namespace

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

std::string_view kernel_stem(std::string_view name) {
  name = name.substr(0, name.find(" [clone"));
  if (name.ends_with(".kd")) name.remove_suffix(3);
  if (name.starts_with("_Z")) {
    const std::string_view stem = mangled_stem(name);
    return stem.empty() ? name : stem;
  }
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  size_t begin = 0;
  for (size_t at = name.find(kAnonymous); at != std::string_view::npos && at < name.find('<');
       at = name.find(kAnonymous, begin)) {
    begin = at + kAnonymous.size();
  }
  std::string_view stem = name.substr(begin);
  stem = stem.substr(0, stem.find_first_of("<("));
  const size_t colons = stem.rfind("::");
  if (colons != std::string_view::npos) stem.remove_prefix(colons + 2);
  const size_t space = stem.rfind(' ');
  if (space != std::string_view::npos) stem.remove_prefix(space + 1);
  return stem.empty() ? name : stem;
}

}  // namespace headroom::ops
