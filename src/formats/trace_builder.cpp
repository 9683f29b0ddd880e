#include "formats/trace_builder.h"

#include <algorithm>

#include "text/json_cursor.h"

namespace headroom::formats {
namespace {

constexpr size_t kFaultsKept = 20;
constexpr size_t kTrackName = 64;

}  // namespace

TraceBuilder::TraceBuilder(std::string file, std::string_view format, const TraceLimits& limits)
    : limits_(limits) {
  trace_.file = std::move(file);
  trace_.format = format;
}

uint32_t TraceBuilder::intern_json(std::string_view raw) {
  raw = cut(raw);
  return text::has_escape(raw) ? trace_.names.intern(text::unescape(raw))
                               : trace_.names.intern(raw);
}

uint32_t TraceBuilder::track(std::string_view process, std::string_view thread, bool is_device) {
  process = process.substr(0, kTrackName);
  thread = thread.substr(0, kTrackName);
  scratch_.assign(is_device ? "d" : "h").append(process).append("\n").append(thread);
  const auto [found, is_new] =
      tracks_.try_emplace(scratch_, static_cast<uint32_t>(trace_.tracks.size()));
  if (is_new) trace_.tracks.push_back({std::string(process), std::string(thread), is_device});
  return found->second;
}

bool TraceBuilder::set_times(TraceEvent& event, std::optional<int64_t> start_ns,
                             std::optional<int64_t> duration_ns, const TracePlace& place) {
  const bool makes_sense = start_ns && duration_ns && *start_ns >= -kMaxTraceNs &&
                           *start_ns <= kMaxTraceNs && *duration_ns >= 0 &&
                           *duration_ns <= kMaxTraceNs - *start_ns;
  if (!makes_sense) {
    note(place, "an event without a time that makes sense");
    return false;
  }
  event.start_ns = *start_ns;
  event.duration_ns = *duration_ns;
  return true;
}

bool TraceBuilder::set_span(TraceEvent& event, std::optional<int64_t> start_ns,
                            std::optional<int64_t> end_ns, const TracePlace& place) {
  const bool makes_sense = start_ns && end_ns && *start_ns >= -kMaxTraceNs &&
                           *end_ns <= kMaxTraceNs && *start_ns <= *end_ns;
  const auto duration = makes_sense ? std::optional(*end_ns - *start_ns) : std::nullopt;
  return set_times(event, start_ns, duration, place);
}

Result<void> TraceBuilder::add(const TraceEvent& event, const TracePlace& place) {
  trace_.events.push_back(event);
  return check_limits(place);
}

Result<void> TraceBuilder::check_limits(const TracePlace& place) const {
  const char* what = nullptr;
  if (trace_.events.size() > limits_.events) what = "events";
  if (trace_.tracks.size() > limits_.tracks) what = "threads and streams";
  if (trace_.names.size() > limits_.names) what = "different names";
  if (trace_.names.bytes() > limits_.name_bytes) what = "text in names";
  if (what == nullptr) return {};
  return Error{ErrorCode::bad_input, std::string("has more ") + what + " than can be read",
               trace_.file + ": " + place.text(), "record fewer steps"};
}

void TraceBuilder::note(const TracePlace& place, std::string message) {
  ++trace_.fault_count;
  if (trace_.faults.size() < kFaultsKept) {
    trace_.faults.push_back({place.text(), std::move(message)});
  }
}

void TraceBuilder::take_faults(const text::JsonItems& items) {
  for (const text::JsonFault& fault : items.faults()) note({fault.offset}, fault.message);
  trace_.is_cut = items.is_cut();
}

Result<Trace> TraceBuilder::finish() {
  if (trace_.events.empty() && trace_.fault_count > 0) {
    return Error{ErrorCode::bad_input, "has no event that can be read: " + trace_.faults[0].message,
                 trace_.file + ": " + trace_.faults[0].place, ""};
  }
  std::stable_sort(
      trace_.events.begin(), trace_.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
        return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
      });
  return std::move(trace_);
}

}  // namespace headroom::formats
