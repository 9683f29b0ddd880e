// RepeatedPieces: stretches of a pickle that mean the same wherever they stand, found by their
// bytes.
//
// A recording says the same things in the same order again and again: a call stack is a list of
// references to frames, and an iteration has the stacks of the one before. Where equal bytes give
// an equal record, they need to be understood once.
//
// What makes equal bytes mean the same, which the caller owes:
//  1. A piece consists of references to memo entries and of numbers, and what it is put into was
//     empty. Memo entries are numbered without gaps and never written twice, so a reference means
//     the same throughout one pickle.
//  2. What the record was made of cannot change: texts, numbers, and dicts that are records
//  already.
// Equality is of the bytes themselves; a hash only says where to look. Memory: the bytes of each
// different piece, and some 60 more. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/interner.h"

namespace headroom::formats {

class RepeatedPieces {
 public:
  // The record of the piece that came behind the last one before, where its bytes are those that
  // begin at `at`, and moves `at` behind them. A comparison, no search.
  [[nodiscard]] std::optional<uint64_t> follow(const char*& at, const char* end) {
    if (last_ >= pieces_.size()) return std::nullopt;
    const uint32_t next = pieces_[last_].next;
    const std::string_view bytes = bytes_[next];
    if (end < at || static_cast<size_t>(end - at) < bytes.size()) return std::nullopt;
    if (std::memcmp(at, bytes.data(), bytes.size()) != 0) return std::nullopt;
    at += bytes.size();
    last_ = next;
    return pieces_[next].record;
  }
  [[nodiscard]] std::optional<uint64_t> find(std::string_view bytes) {
    const auto number = bytes_.find(bytes);
    if (!number) return std::nullopt;
    expect_again(*number);
    return pieces_[*number].record;
  }
  // REQUIRES: find() knows none of these bytes.
  void add(std::string_view bytes, uint64_t record) {
    const uint32_t number = bytes_.intern(bytes);
    pieces_.push_back({record, number});
    expect_again(number);
  }

 private:
  struct Piece {
    uint64_t record = 0;
    uint32_t next = 0;  // the one that came behind it last
  };
  void expect_again(uint32_t number) {
    if (last_ < pieces_.size()) pieces_[last_].next = number;
    last_ = number;
  }

  Interner bytes_;
  std::vector<Piece> pieces_;  // by their numbers in bytes_
  uint32_t last_ = ~uint32_t{0};
};

}  // namespace headroom::formats
