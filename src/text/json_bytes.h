// Finding the next byte of JSON at which one has to think, sixteen bytes at a time.
//
// Of a trace's gigabytes most bytes are read by nothing but this. Plain C++ with the vector types
// that GCC and Clang share; a byte at a time where bytes of a word are in the other order. Pure.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headroom::text {

using ByteBlock = uint8_t __attribute__((vector_size(16)));

// The first place from `at` on, before `end`, whose byte `marks` of a block says (each byte of what
// it returns is 0 or 255); else `end`.
template <typename Marks>
size_t find_marked(const char* text, size_t at, size_t end, Marks marks) {
  if constexpr (std::endian::native == std::endian::little) {
    for (; end - at >= sizeof(ByteBlock); at += sizeof(ByteBlock)) {
      ByteBlock block;
      std::memcpy(&block, text + at, sizeof block);
      const auto found = marks(block);
      uint64_t halves[2];
      static_assert(sizeof found == sizeof halves);
      std::memcpy(halves, &found, sizeof halves);
      if (halves[0] != 0) return at + static_cast<size_t>(std::countr_zero(halves[0])) / 8;
      if (halves[1] != 0) return at + 8 + static_cast<size_t>(std::countr_zero(halves[1])) / 8;
    }
  }
  for (; at < end; ++at) {
    const ByteBlock block = ByteBlock{} + static_cast<uint8_t>(text[at]);
    if (marks(block)[0] != 0) return at;
  }
  return end;
}

// A quote, brace or bracket: a brace is its bracket with one bit more.
inline size_t find_structure(const char* text, size_t at, size_t end) {
  return find_marked(text, at, end, [](ByteBlock block) {
    const ByteBlock folded = block | static_cast<uint8_t>(0x20);
    return (block == static_cast<uint8_t>('"')) | (folded == static_cast<uint8_t>('{')) |
           (folded == static_cast<uint8_t>('}'));
  });
}

// A quote or an escape.
inline size_t find_quote(const char* text, size_t at, size_t end) {
  return find_marked(text, at, end, [](ByteBlock block) {
    return (block == static_cast<uint8_t>('"')) | (block == static_cast<uint8_t>('\\'));
  });
}

// The end of a line, of a stream that JSON comes in.
inline size_t find_line_end(const char* text, size_t at, size_t end) {
  return find_marked(text, at, end, [](ByteBlock block) {
    return (block == static_cast<uint8_t>('\n')) | (block == static_cast<uint8_t>('\r'));
  });
}

}  // namespace headroom::text
