// Two recordings of the same program: what grew, and where.
//
// Held against each other at their peaks (loss.h): what was reserved, allocated and lost, and the
// bytes that lived by call site. Call sites are matched by file, line and function, and where a
// line has moved (it is in one of them alone, and so is another of its function in the other) by
// file and function. Without call stacks blocks are told apart by their size. Pure but for reading
// the files.
#pragma once

#include <string>
#include <vector>

#include "pack/pack.h"

namespace headroom::pack {

struct BeforeAfter {
  Bytes before;
  Bytes after;
  [[nodiscard]] Bytes growth() const { return after - before; }
};

// The moment of a recording that is looked at.
struct ComparedMoment {
  std::string site;  // of the entry before it, "" where it has none
  bool is_end_state = false;
};

struct SiteGrowth {
  std::string site;
  BeforeAfter bytes;
  size_t blocks_before = 0;
  size_t blocks_after = 0;
};

struct Comparison {
  std::string file;
  std::string baseline;
  ComparedMoment before;
  ComparedMoment after;
  bool has_two_moments = false;  // their call sites are known, and of different functions
  BeforeAfter reserved;
  BeforeAfter allocated;
  BeforeAfter lost;
  BeforeAfter plan;
  size_t requests_before = 0;
  size_t requests_after = 0;
  std::vector<SiteGrowth> sites;  // what grew most first, what shrank most last; none unchanged
  bool is_by_size = false;        // no call stacks: a site is a size
  bool is_partial = false;        // one of the files could not be read whole
  PackAnswer answer;              // of the later recording

  [[nodiscard]] bool grew() const { return reserved.after > reserved.before; }
};

// Both must be recordings that say what was held.
Result<Comparison> compare(const PackQuestion& question, const std::string& baseline);

// The same from answers.
Result<Comparison> compare(PackAnswer after, const PackAnswer& before);

}  // namespace headroom::pack
