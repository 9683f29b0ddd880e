// The instructions of a pickle that are read in more than one place, and what stands behind one.
// As in CPython's Lib/pickletools.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headroom::formats::opcode {

inline constexpr char kMark = '(';
inline constexpr char kEmptyDict = '}';
inline constexpr char kEmptyList = ']';
inline constexpr char kAppends = 'e';
inline constexpr char kSetItems = 'u';
inline constexpr char kNone = 'N';
inline constexpr char kTrue = '\x88';
inline constexpr char kFalse = '\x89';

inline constexpr char kReference = 'h';      // BINGET
inline constexpr char kLongReference = 'j';  // LONG_BINGET
inline constexpr char kMemoize = '\x94';
inline constexpr char kPut = 'q';      // BINPUT
inline constexpr char kLongPut = 'r';  // LONG_BINPUT

inline constexpr char kByte = 'K';          // BININT1
inline constexpr char kTwoBytes = 'M';      // BININT2
inline constexpr char kFourBytes = 'J';     // BININT, the only one of the three with a sign
inline constexpr char kManyBytes = '\x8a';  // LONG1
inline constexpr char kShortText = '\x8c';  // SHORT_BINUNICODE
inline constexpr char kText = 'X';          // BINUNICODE

inline uint8_t byte_at(const char* at) { return static_cast<uint8_t>(*at); }

// Little-endian. The width is known where it is called, so that this is one load.
template <size_t kBytes>
uint64_t unsigned_at(const char* at) {
  static_assert(kBytes <= sizeof(uint64_t));
  uint64_t value = 0;
  std::memcpy(&value, at, kBytes);
  return value;
}

// Two's complement of 1 to 8 bytes. REQUIRES: 8 can be read.
inline int64_t long_at(const char* at, uint64_t bytes) {
  const unsigned spare = 64 - 8 * static_cast<unsigned>(bytes);
  const uint64_t value = unsigned_at<8>(at) << spare;  // what lies behind it is shifted out
  return static_cast<int64_t>(value) >> spare;
}

// Of kReference or kLongReference at `at`: how long it is, and to which memo entry.
inline size_t reference_bytes(const char* at) { return *at == kReference ? 2 : 5; }
inline uint64_t reference_at(const char* at) {
  return *at == kReference ? byte_at(at + 1) : unsigned_at<4>(at + 1);
}
inline bool is_reference(const char* at) { return *at == kReference || *at == kLongReference; }

}  // namespace headroom::formats::opcode
