// What a run has that another one has not: of a model cut to two periods of layers beside the same
// cut to one, a period.
//
// The difference of two runs' times holds the noise of both; what the layers take is in the longer
// run alone, once it is known which operators they are. The kinds of the operators that no other
// one called are a sequence. Where the longer run's is the shorter one's with one part put in, what
// both begin with and what both end with meet, and the part lies between; where they overlap it may
// begin at several places, which is a layer turned round and takes as long. Where the same kinds
// stand right before it, that is the period before, and both count.
//
// Where a device does the work there is none: when its host launched a layer says nothing of how long
// it took. Of three periods alike two count.
//
// Linear in the operators but for the last, which is tried at each of the places. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/run.h"

namespace headroom::ops {

struct AddedPart {
  int64_t operators = 0;  // in it
  // Begin and end; two where the same comes twice in a row, of as many operators each.
  std::vector<std::array<int64_t, 2>> spans_ns;
};

// Nothing where the runs do not differ so, have too many operators to be compared, or a device.
[[nodiscard]] std::optional<AddedPart> added_part(const RecordedRun& less, const RecordedRun& more);

// The run with these spans as its steps, in place of those that it has. An Error as run_of's.
Result<RecordedRun> with_steps(const RecordedRun& run,
                               const std::vector<std::array<int64_t, 2>>& spans_ns,
                               const OperatorRules& rules);

}  // namespace headroom::ops
