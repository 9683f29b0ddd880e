// What holds of every trace that a reader gives, whatever it read.
#pragma once

#include "base/check.h"
#include "formats/trace.h"
#include "ops/ops.h"

namespace headroom::fuzz {

inline void check_trace(const Result<formats::Trace>& trace) {
  if (!trace) {
    HEADROOM_CHECK(!trace.error().where.empty(), "an error without a place");
    return;
  }
  const formats::TraceEvent* before = nullptr;
  for (const formats::TraceEvent& event : trace->events) {
    HEADROOM_CHECK(before == nullptr || before->start_ns <= event.start_ns, "out of order");
    HEADROOM_CHECK(event.duration_ns >= 0 && event.end_ns() <= formats::kMaxTraceNs,
                   "a time that makes no sense");
    HEADROOM_CHECK(event.name < trace->names.size() && event.track < trace->tracks.size(),
                   "a name or a track that is not there");
    HEADROOM_CHECK(trace->tracks[event.track].is_device == formats::is_device(event.kind),
                   "an event on a track of the other kind");
    before = &event;
  }
  static const ops::OperatorRules kRules = *ops::OperatorRules::load("");
  static_cast<void>(ops::answer(*trace, kRules));
}

}  // namespace headroom::fuzz
