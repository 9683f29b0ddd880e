// A fast hash of bytes for tables inside one process.
//
// The seed differs from process to process, so that a file cannot be made to fill one bucket; never
// let a hash decide an order. Not cryptographic. Some 10 bytes a nanosecond.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace headroom {

// Drawn once a process.
[[nodiscard]] uint64_t hash_seed();

// The two halves of the 128-bit product: every bit of the inputs reaches every bit of the result.
[[nodiscard]] inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

[[nodiscard]] inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
  const auto load = [](const char* at, size_t width) {
    uint64_t word = 0;
    std::memcpy(&word, at, width);
    return word;
  };
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t state = seed ^ (left * kOdd);
  for (; left > 16; at += 16, left -= 16) {
    state = hash_mix(load(at, 8) ^ seed, load(at + 8, 8) ^ state);
  }
  // The last 1 to 16 bytes as two words, which overlap where there are fewer than 16.
  uint64_t first = 0;
  uint64_t second = 0;
  if (left >= 8) {
    first = load(at, 8);
    second = load(at + left - 8, 8);
  } else if (left >= 4) {
    first = load(at, 4);
    second = load(at + left - 4, 4);
  } else if (left > 0) {
    first = load(at, 1) | load(at + left / 2, 1) << 8 | load(at + left - 1, 1) << 16;
  }
  return hash_mix(hash_mix(first ^ seed, second ^ state), seed ^ kOdd);
}

}  // namespace headroom
