// Tensors by type, in the order in which PyTorch's foreach functions go through them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "operator/dtype.h"

namespace headroom::step {

// The type that came first comes last: _group_tensors_by_device_and_dtype fills a hash table of the
// C++ library, whose walk begins with the newest key. (Of three types two may change places.)
template <typename T, typename TypeOf>
std::vector<std::vector<T>> grouped_by_type(const std::vector<T>& items, TypeOf type_of) {
  std::vector<std::pair<op::DType, std::vector<T>>> lists;
  for (const T& item : items) {
    const op::DType type = type_of(item);
    auto found = std::ranges::find(lists, type, &std::pair<op::DType, std::vector<T>>::first);
    if (found == lists.end()) found = lists.insert(lists.begin(), {type, {}});
    found->second.push_back(item);
  }
  std::vector<std::vector<T>> groups;
  groups.reserve(lists.size());
  for (auto& [type, list] : lists) groups.push_back(std::move(list));
  return groups;
}

}  // namespace headroom::step
