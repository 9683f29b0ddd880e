// Several recordings at once, such as one of each rank of a run: a line each, the worst first.
//
// Each is answered by itself, one after the other, with all cores; of the answers only the worst is
// kept, so memory does not grow with their number. A file that cannot be read is a line too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pack/pack.h"

namespace headroom::pack {

struct RankFigures {
  std::string file;
  std::optional<Error> error;  // then the rest is empty
  size_t requests = 0;
  Bytes
      reserved;  // at the peak, or where memory ran out; what PyTorch would reserve, of an instance
  Bytes lost;
  bool is_out_of_memory = false;
  bool is_simulated = false;  // the file does not say what was held: under the default settings
  bool is_end_state = false;  // as a snapshot was taken, without a history: no peak
  bool is_partial = false;  // part of the file could not be read
  Bytes plan;
  std::optional<AllocatorFigures> best;  // the setting that reserves least, where one saves

  [[nodiscard]] double lost_pct() const;
};

struct RanksAnswer {
  std::vector<RankFigures> ranks;  // ran out of memory first, then by bytes lost; errors last
  std::optional<PackAnswer> worst;

  [[nodiscard]] size_t failed() const;
  // Every file was read, and whole.
  [[nodiscard]] bool is_whole() const;
};

// An Error where not one of the files can be read. REQUIRES: files is not empty; of `question` the
// file does not matter.
Result<RanksAnswer> answer_ranks(const PackQuestion& question,
                                 const std::vector<std::string>& files);

}  // namespace headroom::pack
