#include "formats/dict_shapes.h"

#include <algorithm>

namespace headroom::formats {

uint32_t DictShapes::other(uint32_t shape, size_t count, const char* place) const {
  const auto begin = shapes_[shape].keys.begin();
  for (uint32_t i = 0; i < shapes_.size(); ++i) {
    const std::vector<DictKey>& keys = shapes_[i].keys;
    if (keys.size() > count && keys[count].is_at(place) &&
        std::equal(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), begin)) {
      return i;
    }
  }
  return kNone;
}

uint32_t DictShapes::learn(std::span<const DictKey> keys) {
  if (keys.size() > kMostKeys) return kNone;
  const auto is_same = [&](const DictShape& shape) {
    return shape.keys.size() == keys.size() + 1 &&
           std::equal(keys.begin(), keys.end(), shape.keys.begin());
  };
  const auto known = std::find_if(shapes_.begin(), shapes_.end(), is_same);
  if (known == shapes_.end() && shapes_.size() == kMostShapes) return kNone;
  const auto number = static_cast<uint32_t>(known - shapes_.begin());
  if (known == shapes_.end()) {
    shapes_.emplace_back().keys.assign(keys.begin(), keys.end());
    shapes_.back().keys.push_back(DictKey::end());
  }
  return expected_ = number;
}

}  // namespace headroom::formats
