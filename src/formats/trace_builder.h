// TraceBuilder: a Trace in the making. What every reader of a profiler's file does alike: names and
// tracks once each, times that make sense, limits, faults with their place, events in order.
//
// A reader finds events in its format and hands them over. Not synchronised; a look-up in a hash
// table for each name and track, and one sort at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "formats/trace.h"
#include "text/json_items.h"

namespace headroom::formats {

struct TraceLimits {
  size_t events = 50'000'000;           // kept
  size_t tracks = 65'536;               // threads and streams
  size_t names = 2'000'000;             // different ones
  size_t name_bytes = size_t{1} << 30;  // of them together
  size_t name = size_t{1} << 16;        // of one; longer ones are cut
};

// Where in a file something stands: "byte 120", "KERNEL row 7". The unit is a literal.
struct TracePlace {
  int64_t number = 0;
  std::string_view unit = "byte";

  [[nodiscard]] std::string text() const {
    return std::string(unit) + " " + std::to_string(number);
  }
};

class TraceBuilder {
 public:
  TraceBuilder(std::string file, std::string_view format, const TraceLimits& limits);

  // For what one format alone knows: devices, rank, waits.
  [[nodiscard]] Trace& trace() { return trace_; }
  [[nodiscard]] const TraceLimits& limits() const { return limits_; }

  uint32_t intern(std::string_view text) { return trace_.names.intern(cut(text)); }
  uint32_t intern_json(std::string_view raw);  // the inside of a JSON string, escapes and all
  uint32_t track(std::string_view process, std::string_view thread, bool is_device);

  // Sets the times of `event`. Where they are missing or make no sense that is noted, and false.
  bool set_times(TraceEvent& event, std::optional<int64_t> start_ns,
                 std::optional<int64_t> duration_ns, const TracePlace& place);
  bool set_span(TraceEvent& event, std::optional<int64_t> start_ns, std::optional<int64_t> end_ns,
                const TracePlace& place);
  // More than the limits is an Error.
  Result<void> add(const TraceEvent& event, const TracePlace& place);
  [[nodiscard]] Result<void> check_limits(const TracePlace& place) const;

  void note(const TracePlace& place, std::string message);
  void take_faults(const text::JsonItems& items);
  // A trace without an event in which something could not be read is an Error.
  Result<Trace> finish();

 private:
  [[nodiscard]] std::string_view cut(std::string_view text) const {
    return text.substr(0, limits_.name);
  }

  TraceLimits limits_;
  Trace trace_;
  std::unordered_map<std::string, uint32_t> tracks_;
  std::string scratch_;
};

}  // namespace headroom::formats
