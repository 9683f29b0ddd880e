// The word somebody probably meant: for errors about flags, verbs, devices and models.
//
// Pure and thread-safe. Words longer than 64 characters are never near anything, so the cost is
// bounded by 64 x 64 steps a candidate.
#pragma once

#include <span>
#include <string_view>

namespace headroom {

// The candidate with the fewest edits (insertions, deletions, changes, swaps of neighbours) from
// `word`, the first of equals; or "" when all are further than a third of the word's length (at
// least one edit is always allowed; capitals are none). A candidate that begins with `word` counts
// as near.
[[nodiscard]] std::string_view nearest_word(std::string_view word,
                                            std::span<const std::string_view> candidates);

}  // namespace headroom
