// A run as a picture: rows of host threads and streams with what ran on them, and the gaps in which
// the device had nothing to do.
//
// Host rows hold the outermost operators of a thread, and the calls into the runtime apart. There
// are at most kMostRows, the device's before those of threads, and at most kMostMarks, the longest
// of all rows; what is left out is counted. Pure; a sort.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/run.h"

namespace headroom::ops {

inline constexpr size_t kMostRows = 64;  // of a page; a device has fewer streams that matter
inline constexpr size_t kMostMarks = 200'000;

struct Mark {
  int64_t start_ns = 0;  // from the begin of the steps
  int64_t span_ns = 0;
  uint32_t name = 0;   // of Timeline::names
  uint32_t group = 0;  // of OperatorRules::groups(); for gaps 0: host, 1: launch, 2: unknown
};

enum class RowKind { host, calls, stream, gaps };

struct TimelineRow {
  std::string title;
  RowKind kind{};
  std::vector<Mark> marks;  // by start
};

struct Timeline {
  int64_t length_ns = 0;
  std::vector<std::string> names;
  std::vector<TimelineRow> rows;
  std::vector<TraceStep> steps;  // from the begin
  size_t left_out = 0;           // marks that are not kept
};

Timeline timeline_of(const RecordedRun& run);

}  // namespace headroom::ops
