#include "ops/faster_groups.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace headroom::ops {
namespace {

constexpr double kMostTimes = 1e6;
constexpr size_t kMostShown = 80;

const OperatorGroup& all_non_gemm() {
  static const OperatorGroup kGroup{"non_gemm", "all non-GEMM operators"};
  return kGroup;
}

bool is_same(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// Null where there is none. Names count before titles, of which two could be the same.
const OperatorGroup* find_group(std::string_view word, const OperatorRules& rules) {
  if (is_same(word, all_non_gemm().name) || is_same(word, all_non_gemm().title)) {
    return &all_non_gemm();
  }
  for (std::string OperatorGroup::*const member : {&OperatorGroup::name, &OperatorGroup::title}) {
    for (const OperatorGroup& one : rules.groups()) {
      if (is_same(word, one.*member)) return &one;
    }
  }
  return nullptr;
}

std::optional<double> times_of(std::string_view word) {
  double times = 0;
  const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), times);
  const bool is_whole = fault == std::errc() && end == word.data() + word.size();
  if (!is_whole || !(times >= 1) || times > kMostTimes) return std::nullopt;
  return times;
}

Error not_faster(std::string_view word) {
  return Error{ErrorCode::usage,
               "'" + std::string(word.substr(0, kMostShown)) +
                   "' is not GROUP=TIMES, with 1 to 1000000 times",
               "--faster", "gemm=4, or gemm=4,attention=2"};
}

Error unknown_group(std::string_view word, const OperatorRules& rules) {
  std::string known = all_non_gemm().name;
  for (const OperatorGroup& one : rules.groups()) known += ", " + one.name;
  return Error{ErrorCode::usage, "'" + std::string(word.substr(0, kMostShown)) + "' is not a group",
               "--faster", known};
}

}  // namespace

Result<std::vector<FasterGroup>> faster_groups(std::string_view words, const OperatorRules& rules) {
  std::vector<FasterGroup> groups;
  while (!words.empty()) {
    // A title may hold commas: the word ends behind the number.
    const size_t equals = std::min(words.find('='), words.size());
    const size_t comma = words.find(',', equals);
    const std::string_view word = words.substr(0, comma);
    if (equals == words.size()) return not_faster(words.substr(0, words.find(',')));
    const std::string_view name = word.substr(0, equals);
    const std::optional<double> times = times_of(word.substr(equals + 1));
    const bool is_last = comma == std::string_view::npos;
    if (!times || (!is_last && comma + 1 == words.size())) return not_faster(word);
    const OperatorGroup* const group = find_group(name, rules);
    if (group == nullptr) return unknown_group(name, rules);
    const bool is_there = std::any_of(groups.begin(), groups.end(), [&](const FasterGroup& one) {
      return one.name == group->name;
    });
    if (is_there) {
      return Error{ErrorCode::usage, "'" + group->name + "' is named twice", "--faster",
                   "name each group once"};
    }
    groups.push_back({group->name, group->title, *times});
    words.remove_prefix(is_last ? words.size() : comma + 1);
  }
  return groups;
}

}  // namespace headroom::ops
