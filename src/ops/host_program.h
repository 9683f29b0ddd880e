// From a run on a CPU to a program that changes can be made to (timing/host_replay.h).
//
// There the operators are the work, and follow one another: a unit is the outermost operator of
// which nine tenths are one operator's own time, with all that it called (a linear layer with its
// product, but not a compiled region with all layers, whose parts are units), and takes the time
// that is its own in the wall time (accounts.h). Units go one behind the other on one stream, and
// what no operator explains stays as it is. So the program takes exactly as long as the run did,
// and a change is arithmetic: this replay has no error of its own that could say how far it is to
// be trusted. Linear; pure.
#pragma once

#include <optional>

#include "ops/accounts.h"
#include "ops/program.h"
#include "ops/run.h"

namespace headroom::ops {

// Of each unit the operator with most time of its own stands in `events`. Nothing where a device
// ran, or nothing did.
std::optional<Recording> record_host(const RecordedRun& run, const WallTime& wall,
                                     const OperatorRules& rules);

}  // namespace headroom::ops
