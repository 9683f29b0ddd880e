#include "formats/trace_words.h"

#include <algorithm>

namespace headroom::formats {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool begins_with_word(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
}

}  // namespace

std::string rocm_copy_name(std::string_view operation) {
  if (operation.ends_with("HOST_TO_DEVICE")) return "Memcpy HtoD";
  if (operation.ends_with("DEVICE_TO_HOST")) return "Memcpy DtoH";
  if (operation.ends_with("HOST_TO_HOST")) return "Memcpy HtoH";
  return "Memcpy DtoD";
}

std::string cuda_copy_name(int64_t kind) {
  switch (kind) {
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 9:
      return "Memcpy HtoH";
    case 10:
      return "Memcpy PtoP";
    default:  // from and to arrays, and what is not known
      return "Memcpy";
  }
}

std::string_view plain_call_name(std::string_view name) {
  size_t end = name.size();
  while (end > 0 && is_digit(name[end - 1])) --end;
  const bool has_version = end < name.size() && end >= 2 && name.substr(end - 2, 2) == "_v";
  return has_version ? name.substr(0, end - 2) : name;
}

bool is_step_name(std::string_view name) {
  for (const std::string_view word : {"profilerstep", "step", "iteration", "iter"}) {
    if (!begins_with_word(name, word)) continue;
    std::string_view rest = name.substr(word.size());
    while (!rest.empty() &&
           std::string_view(" #:_-=").find(rest.front()) != std::string_view::npos) {
      rest.remove_prefix(1);
    }
    if (!rest.empty() && std::all_of(rest.begin(), rest.end(), is_digit)) return true;
  }
  return false;
}

}  // namespace headroom::formats
