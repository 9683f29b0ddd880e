// The requests that begin in a recording as two sequences of symbols, and their comparison.
//
// `exact` symbols say size and stream. `shape` symbols say what stays when all sizes change with
// the length of a sequence: how long ago the same size was asked for, how long the request lives
// and how much was released before it, all within the next few requests, so that a request too
// many disturbs its neighbourhood and no more. (A parameterized string, in the sense of B. Baker,
// STOC'93.) Runs of symbols are hashed both ways, so that a run is compared in one step.
//
// Plain values; pure. 64 bytes a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/packing/recorded_requests.h"

namespace headroom::memory {

struct RequestSequence {
  std::vector<uint64_t> exact;
  std::vector<uint64_t> shape;
  // Hashes of the runs that begin at (after) and end before (before) a request.
  std::vector<uint64_t> exact_after, exact_before;
  std::vector<uint64_t> shape_after, shape_before;

  [[nodiscard]] size_t size() const { return exact.size(); }
};

inline constexpr size_t kExactRun = 4;
inline constexpr size_t kShapeRun = 8;

// Of requests in the order of their beginnings. O(n log n).
[[nodiscard]] RequestSequence make_sequence(std::span<const RecordedRequest> requests);

// Hashes of runs of `length` symbols beginning at each place; shorter at the end. O(n).
[[nodiscard]] std::vector<uint64_t> run_hashes(std::span<const uint64_t> symbols, size_t length);

// A part of the sequence, read forwards from `begin` or backwards from `end` - 1.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  [[nodiscard]] size_t size() const { return end - begin; }
};

struct Match {
  uint32_t first = 0;  // indices into the sequence
  uint32_t second = 0;
  enum class Kind : uint8_t {
    exact,     // the same size and stream
    shape,     // the same place in the pattern, another size
    replaced,  // neighbours agree, this one does not
  } kind = Kind::exact;
};

// What of one stretch is found again in another, in order. Walks along both; where they part, it
// goes on at the nearest place where a run of the one equals a run of the other. From the end with
// `from_end`, for a stretch that lacks its beginning. O(length of both), expected.
[[nodiscard]] std::vector<Match> align(const RequestSequence& sequence, Stretch first,
                                       Stretch second, bool from_end = false);

}  // namespace headroom::memory
