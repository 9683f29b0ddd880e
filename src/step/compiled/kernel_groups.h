// KernelGroups: what is one kernel in generated code, while it is decided: sets of members, joined
// two by two. Nearly constant time a question; joining moves the smaller set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace headroom::step {

class KernelGroups {
 public:
  explicit KernelGroups(size_t count) : parent_(count), members_(count) {
    std::iota(parent_.begin(), parent_.end(), 0U);
    for (uint32_t i = 0; i < count; ++i) members_[i] = {i};
  }

  // The member that stands for the group.
  [[nodiscard]] uint32_t of(uint32_t member) {
    while (parent_[member] != member) {
      parent_[member] = parent_[parent_[member]];
      member = parent_[member];
    }
    return member;
  }

  // Of groups that of() named; gives the one that stands for both.
  uint32_t join(uint32_t a, uint32_t b) {
    if (a == b) return a;
    if (members_[a].size() < members_[b].size()) std::swap(a, b);
    parent_[b] = a;
    members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
    members_[b] = {};
    return a;
  }

  [[nodiscard]] const std::vector<uint32_t>& members(uint32_t group) const {
    return members_[group];
  }

 private:
  std::vector<uint32_t> parent_;
  std::vector<std::vector<uint32_t>> members_;
};

}  // namespace headroom::step
