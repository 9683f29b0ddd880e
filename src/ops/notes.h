// What a reader must know beside the figures of a trace: what its file lacks, and which of them do
// not sum to one another and why.
//
// Pure; thread-safe.
#pragma once

#include "ops/accounts.h"
#include "ops/answer.h"
#include "ops/run.h"

namespace headroom::ops {

// To be called last, as some of them are about what bounds the run and its replay.
void add_notes(const RecordedRun& run, const KernelTime& kernels, OpsAnswer& answer);

}  // namespace headroom::ops
