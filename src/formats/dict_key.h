// A key of a dict as it stands in a pickle, where a reference to a text takes the text's place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/pickle.h"
#include "formats/pickle_opcodes.h"

namespace headroom::formats {

// Its bytes and what it stands for; or the end of a dict.
struct DictKey {
  uint64_t bytes = 0;  // the instruction and its operand, and zeros
  uint64_t mask = 0;   // which of the bytes count
  uint32_t width = 0;  // of the end, 0
  PickleValue value;

  // REQUIRES: 8 bytes can be read, 1 <= width < 8.
  static DictKey at(const char* place, size_t width, PickleValue value) {
    DictKey key;
    key.width = static_cast<uint32_t>(width);
    key.mask = ~uint64_t{0} >> (64 - 8 * width);
    key.bytes = opcode::unsigned_at<8>(place) & key.mask;
    key.value = value;
    return key;
  }
  static DictKey end() {
    DictKey key;
    key.bytes = static_cast<uint8_t>(opcode::kSetItems);
    key.mask = 0xff;
    return key;
  }
  [[nodiscard]] bool is_end() const { return width == 0; }
  [[nodiscard]] bool is_at(const char* place) const {
    return (opcode::unsigned_at<8>(place) & mask) == bytes;
  }
  bool operator==(const DictKey&) const = default;
};

}  // namespace headroom::formats
