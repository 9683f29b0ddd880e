// DictShapes: the dicts of a pickle come in a few shapes, each with its keys in its order.
//
// A pickler writes a key out once and refers to it ever after, so the keys of a dict are short runs
// of bytes that are the same in every dict of its kind. A dict is therefore read along the shape of
// the dict before it: at each key one comparison of a word, with no look at the memo and none at
// what the keys are. A key that is not the expected one may be that of another shape that began
// with the same keys.
//
// Invariants:
//  1. A shape's keys are references to memo entries, which never change (see repeated_pieces.h):
//  the
//     same bytes are the same key in the same pickle.
//  2. Behind its keys each shape has the instruction that ends a dict, as if it were a key. So no
//     shape is the beginning of another one, and a dict has a shape only if it ends where it
//     should.
//  3. No two shapes are the same, and a shape once known keeps its number.
// At most kMostShapes are learnt, of at most kMostKeys keys; dicts of others are read pair by pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/dict_key.h"
#include "formats/pickle.h"

namespace headroom::formats {

struct DictShape {
  std::vector<DictKey> keys;   // and the end
  bool has_shareable = false;  // a dict of this shape was found to share its record
};

class DictShapes {
 public:
  static constexpr uint32_t kNone = PickleSink::kNoShape;
  static constexpr size_t kMostShapes = 16;
  static constexpr size_t kMostKeys = 32;

  // The shape that a dict is likely to have, kNone at first.
  [[nodiscard]] uint32_t expected() const { return expected_; }
  void expect(uint32_t shape) { expected_ = shape; }
  [[nodiscard]] DictShape& operator[](uint32_t shape) { return shapes_[shape]; }

  // A shape that begins with the first `count` keys of `shape` and goes on with what stands at
  // `place`; kNone where there is none. REQUIRES: 8 bytes can be read.
  [[nodiscard]] uint32_t other(uint32_t shape, size_t count, const char* place) const;
  // The shape of a dict of these keys, which may be new; kNone where there are too many.
  uint32_t learn(std::span<const DictKey> keys);

 private:
  std::vector<DictShape> shapes_;
  uint32_t expected_ = kNone;
};

}  // namespace headroom::formats
