// Packing instances as CSV: id,lower,upper,size, the form of MiniMalloc's and idealloc's
// benchmarks; and placements, the same with an offset.
//
// A request lives at lower <= t < upper. Columns may stand in any order, others are passed over, so
// a file of placements is an instance too. Ids are any text; they name rows and need not differ.
// About 100 MB/s. Pure but for the file; not synchronised.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "memory/packing/problem.h"

namespace headroom::formats {

struct PackingInstance {
  memory::PackingProblem problem;
  std::vector<std::string> ids;  // by request
  // The last line has no end: where the file was cut there, its last number may lack digits.
  bool is_open_ended = false;
};

// Reads a file ("-" is standard input) of at most 8 GiB. Errors name the line.
Result<PackingInstance> read_packing_csv(const std::string& path);
// The same from memory; `file` is only used in errors.
Result<PackingInstance> parse_packing_csv(std::string_view text, const std::string& file);

// id,lower,upper,size,offset, in the order of the requests. REQUIRES: as many ids and offsets as
// requests.
[[nodiscard]] std::string placements_csv(const PackingInstance& instance,
                                         const memory::PackingSolution& solution);

}  // namespace headroom::formats
