// Several ranks of one run: what their collectives waited for, and for whom.
//
// A collective ends on all its ranks at nearly the same time, and moves data only from when the
// last of them has come. So on the rank where it is shortest it is transfer, that rank came last,
// and what it takes longer elsewhere was waiting for that rank. No clock is compared for that.
//
// Matching: collectives of the same name and process group, in order, which needs no common clock
// either. It is checked: the ends must differ between two ranks by the same offset each time. Where
// they do not (collectives are missing in one file), those are matched whose ends agree; what
// cannot be matched is counted as such.
//
// On a device collectives are kernels; on a CPU the ranges that the backend names ("gloo:...").
// One trace after the other is in memory. Blocking, thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/run.h"

namespace headroom::ops {

// Times are milliseconds of a step.
struct RankTimes {
  std::string file;
  std::string device;
  int64_t rank = -1;  // that the file says, else its place on the command line
  size_t steps = 0;
  double step_ms = 0;
  double kernel_ms = 0;         // without communication
  double communication_ms = 0;  // collectives, matched or not; of it:
  double waiting_ms = 0;
  double transfer_ms = 0;
  double exposed_ms = 0;  // communication that nothing hides
  double idle_ms = 0;
  int64_t collectives = 0;  // matched, in all steps
  int64_t last_count = 0;   // of those, to which it alone came last
  double caused_ms = 0;     // the waiting of all others for it; shared by those that came together
  bool is_partial = false;
};

struct CollectiveTimes {
  std::string name;
  int64_t count = 0;  // in all steps
  size_t rank_count = 0;
  double waiting_ms = 0;   // of a rank and step, mean
  double transfer_ms = 0;  // the same
  int64_t straggler = -1;  // the rank for which the others waited most
};

struct RanksAnswer {
  std::vector<RankTimes> ranks;              // by rank
  std::vector<CollectiveTimes> collectives;  // the most waiting first
  std::optional<size_t> straggler;           // an index into ranks; nothing where nobody waits
  double straggler_pct = 0;                  // of all waiting, that is for it
  double matched_pct = 0;                    // of the time of collectives
  std::vector<std::string> notes;
};

// What stays of a rank's trace once it is read.
struct RankCollective {
  std::string key;  // name and process group
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
struct RankSummary {
  RankTimes times;
  int64_t world_size = -1;
  std::vector<RankCollective> collectives;  // by end
};
RankSummary summary_of(const RecordedRun& run, const OperatorRules& rules);

// Whether two traces say that they are different ranks of one run.
bool are_ranks_of_one_run(const RecordedRun& one, const RecordedRun& other);

// Without a collective that at least two ranks share the answer is an Error.
Result<RanksAnswer> answer_ranks(std::vector<RankSummary> ranks);
Result<RanksAnswer> answer_ranks(const std::vector<std::string>& files, const OperatorRules& rules);

}  // namespace headroom::ops
