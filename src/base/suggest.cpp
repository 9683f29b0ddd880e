#include "base/suggest.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace headroom {
namespace {

constexpr size_t kLongest = 64;

// Of ASCII letters; case is no edit.
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool same(char a, char b) { return lower(a) == lower(b); }
bool begins_with(std::string_view word, std::string_view beginning) {
  return word.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), word.begin(), same);
}

// Edit distance with swaps of neighbours (optimal string alignment), by three rolling rows.
size_t edits(std::string_view a, std::string_view b) {
  std::array<size_t, kLongest + 1> before{};
  std::array<size_t, kLongest + 1> previous{};
  std::array<size_t, kLongest + 1> row{};
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = previous[j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = previous;
    previous = row;
  }
  return previous[b.size()];
}

}  // namespace

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kLongest) return {};
  std::string_view best;
  size_t best_edits = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const bool begins = word.size() >= 3 && begins_with(candidate, word);
    const size_t changes = edits(word, candidate);
    const size_t distance = begins ? std::min<size_t>(changes, 1) : changes;
    if (distance < best_edits) {
      best = candidate;
      best_edits = distance;
    }
  }
  return best;
}

}  // namespace headroom
