// pack: a recording or an instance in, a plan and the comparison with PyTorch's allocator out.
//
// Reads a PyTorch snapshot or a CSV instance, told apart by their first byte; plans each stream by
// itself; has every plan judged by the validator; replays the same requests under PyTorch's
// allocator and its settings. Uses all cores. A snapshot of a training step takes as long as
// reading it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "pack/answer.h"

namespace headroom::pack {

struct PackQuestion {
  std::string file;                        // "-" is standard input
  std::optional<int64_t> gpu{};            // of a recording of several; else what reserved most
  std::optional<int64_t> alignment{};      // 512 for recordings, as PyTorch's; 1 for instances
  std::optional<Bytes> capacity{};         // a plan of this size is good enough
  std::optional<double> budget_seconds{};  // search as long as that; else by effort, repeatable
  uint64_t seed = 0;
};

Result<PackAnswer> answer(const PackQuestion& question);
// The rest of it, where the requests (and all else that a file says) are there already.
Result<PackAnswer> answer_requests(const PackQuestion& question, PackAnswer answer);

// id,lower,upper,size,offset: the plan as a table.
[[nodiscard]] std::string placements_of(const PackAnswer& answer);
// The plan as a file of its own (docs/formats/plan.md), judged before; an Error where it cannot be
// held in one.
Result<std::string> plan_file_of(const PackAnswer& answer);

}  // namespace headroom::pack
