// DeviceAllocator's figures: statistics and report.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/units.h"
#include "runtime/device_allocator.h"

namespace headroom::runtime {
namespace {

headroom_figure shown(const Figure& figure) {
  return {figure.current(), figure.peak, figure.came() - figure.came_before,
          figure.went - figure.went_before};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

// As PyTorch writes sizes (format_size() of c10/cuda/CUDACachingAllocator.cpp), whatever the
// locale: its message is read by programs.
std::string size_in_torchs_words(int64_t bytes) {
  struct Unit {
    int64_t bytes;
    const char* name;
  };
  constexpr std::array kUnits{Unit{kGiB, " GiB"}, Unit{kMiB, " MiB"}, Unit{kKiB, " KiB"}};
  for (const Unit& unit : kUnits) {
    if (bytes <= unit.bytes) continue;
    std::array<char, 64> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(),
                                   static_cast<double>(bytes) / static_cast<double>(unit.bytes),
                                   std::chars_format::fixed, 2);
    return std::string(text.data(), end.ptr) + unit.name;
  }
  return std::to_string(bytes) + " bytes";
}

std::string key(const char* name, int64_t value) {
  return '"' + std::string(name) + "\": " + std::to_string(value);
}

// As JSON has it, whatever the program's locale.
std::string number(double value) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 6);
  return {text.data(), end.ptr};
}

headroom_figure active(const Figure& live, const Figure& pending, int64_t peak_of_both) {
  // What waits for events went from live to pending and only then away.
  headroom_figure figure = shown(live);
  figure.current += pending.current();
  figure.peak = std::max(live.peak, peak_of_both);
  const headroom_figure waited = shown(pending);
  figure.freed += waited.freed - waited.allocated;
  return figure;
}

}  // namespace

void DeviceAllocator::read(headroom_statistics& out) {
  const std::lock_guard lock(lock_);
  const Statistics& s = statistics_;
  out.allocation = shown(s.blocks);
  out.segment = shown(s.pieces);
  out.active = active(s.blocks, s.pending_blocks, s.active_peak_blocks);
  out.allocated_bytes = shown(s.allocated_bytes);
  out.allocated_bytes.peak = std::max(s.allocated_bytes.peak, plan_figures_.allocated_floor);
  out.reserved_bytes = shown(s.reserved_bytes);
  out.reserved_bytes.peak = std::max(s.reserved_bytes.peak, plan_figures_.reserved_floor);
  out.active_bytes = active(s.allocated_bytes, s.pending_bytes, s.active_peak_bytes);
  out.active_bytes.peak = std::max(out.active_bytes.peak, out.allocated_bytes.peak);
  out.requested_bytes = shown(s.requested_bytes);
  out.inactive_split = {general_->free_blocks(),
                        std::max(general_->free_blocks(), s.free_peak_blocks), 0, 0};
  out.inactive_split_bytes = {general_->free_bytes(),
                              std::max(general_->free_bytes(), s.free_peak_bytes), 0, 0};
  out.num_alloc_retries = s.retries;
  out.num_ooms = s.out_of_memory;
  out.num_sync_all_streams = s.synchronisations;
  out.num_device_alloc = pages_->allocations();
  out.num_device_free = pages_->releases();
  out.planned_requests = s.planned_requests;
  out.reused_requests = s.reused_requests;
  out.general_requests = s.general_requests;
  out.fallback_requests = s.fallback_requests;
  out.is_planned = planned_ != nullptr ? 1 : 0;
}

void DeviceAllocator::reset_peaks() {
  const std::lock_guard lock(lock_);
  Statistics& s = statistics_;
  // The report is of the whole run.
  PlanFigures& f = plan_figures_;
  if (f.switches > 0) {
    f.allocated_peak = std::max(f.allocated_peak, s.allocated_bytes.peak);
  } else {
    f.allocated_before = std::max(f.allocated_before, s.allocated_bytes.peak);
    f.reserved_before = std::max(f.reserved_before, s.reserved_bytes.peak);
  }
  plan_figures_.allocated_floor = plan_figures_.reserved_floor = 0;
  for (Figure* const figure : {&s.blocks, &s.allocated_bytes, &s.requested_bytes, &s.pending_blocks,
                               &s.pending_bytes, &s.reserved_bytes, &s.pieces}) {
    figure->reset_peak();
  }
  s.active_peak_blocks = s.active_peak_bytes = 0;
  s.note_active();
  s.free_peak_bytes = general_->free_bytes();
  s.free_peak_blocks = general_->free_blocks();
}

void DeviceAllocator::reset_accumulated() {
  const std::lock_guard lock(lock_);
  Statistics& s = statistics_;
  for (Figure* const figure : {&s.blocks, &s.allocated_bytes, &s.requested_bytes, &s.pending_blocks,
                               &s.pending_bytes, &s.reserved_bytes, &s.pieces}) {
    figure->reset_accumulated();
  }
  s.retries = s.out_of_memory = 0;
}

int64_t DeviceAllocator::largest_free_block() {
  const std::lock_guard lock(lock_);
  return general_->largest_free_block();
}

int64_t DeviceAllocator::unknown_frees() {
  const std::lock_guard lock(lock_);
  return statistics_.unknown_frees;
}

void DeviceAllocator::count_unknown_free() {
  const std::lock_guard lock(lock_);
  ++statistics_.unknown_frees;
}

std::string DeviceAllocator::out_of_memory_message(const Request& request) {
  const DevicePages::Info info = pages_->info();
  const std::lock_guard lock(lock_);
  ++statistics_.out_of_memory;
  const int64_t allocated = statistics_.allocated_bytes.current();
  const int64_t reserved = pages_->reserved_bytes();
  const auto size = size_in_torchs_words;
  return "CUDA out of memory. Tried to allocate " + size(request.size) + ". GPU " +
         std::to_string(ordinal_) + " has a total capacity of " + size(info.total_bytes) +
         " of which " + size(info.free_bytes) + " is free. " +
         (pages_->limit() < pages_->total_bytes() ? size(pages_->limit()) + " allowed; " : "") +
         "Of the allocated memory " + size(allocated) + " is allocated by PyTorch, and " +
         size(reserved - allocated) + " is reserved by PyTorch but unallocated. " +
         (is_capturing() ? "While a graph is captured Headroom gives back none of that"
                         : "Headroom gave back every page in which nothing lies before it said "
                           "so") +
         (pages_->last_error().empty() ? std::string() : " (" + pages_->last_error() + ")") + ".";
}

// What it shows is copied under the lock, and put into words without it: who allocates waits for a
// copy at the most.
std::string DeviceAllocator::report_json() {
  Statistics s;
  PlanFigures f;
  const Planner* maker = nullptr;  // made once, and never gone
  bool serves = false;
  bool follows = false;
  uint32_t followed = 0;
  int64_t guests = 0;
  {
    const std::lock_guard lock(lock_);
    s = statistics_;
    f = plan_figures_;
    maker = planner_.get();
    serves = planned_ != nullptr;
    follows = candidate_ != nullptr;
    followed = followed_;
    if (planned_ != nullptr) guests = planned_->guests();
  }
  std::string json = "{" + key("device", ordinal_);
  const auto add = [&](const char* name, int64_t value) { json += ", " + key(name, value); };
  const auto say = [&](const char* name, const std::string& text) {
    json += ", \"" + std::string(name) + "\": \"" + escaped(text) + '"';
  };
  say("backing", pages_->is_virtual() ? "pages" : "pieces");
  say("backing_reason", pages_->why_plain());
  say("peers_reason", pages_->why_no_peers());
  add("page_bytes", pages_->page_bytes());
  add("total_bytes", pages_->total_bytes());
  add("requests", s.blocks.came());
  add("planned_requests", s.planned_requests);
  add("reused_requests", s.reused_requests);
  add("general_requests", s.general_requests);
  add("fallback_requests", s.fallback_requests);
  add("peak_allocated_bytes",
      std::max({s.allocated_bytes.peak, f.allocated_before, f.allocated_peak}));
  add("peak_reserved_bytes", std::max({s.reserved_bytes.peak, f.reserved_before, f.reserved_peak}));
  add("reserved_bytes", s.reserved_bytes.current());
  add("synchronisations", s.synchronisations);
  add("out_of_memory", s.out_of_memory);
  add("unknown_frees", s.unknown_frees);
  say("recording_reason", no_recording_);
  add("recording_dropped_events", recording_ == nullptr ? 0 : recording_->dropped_events());
  json += ", \"plan\": {\"serves\": " + std::string(serves ? "true" : "false");
  json += ", \"from_file\": " + std::string(f.is_from_file ? "true" : "false");
  json += ", \"began_from_file\": " + std::string(f.began_from_file ? "true" : "false");
  say("refused", f.refused);
  say("planner", maker == nullptr ? "" : maker->state());
  say("follows", follows ? "the plan has not met an iteration of its own yet, in " +
                               std::to_string(followed) + " requests"
                         : "");
  say("not_kept", maker == nullptr ? "" : maker->not_kept());
  add("switches", f.switches);
  add("arena_bytes", f.plan_bytes);
  add("iterations_planned_from", f.origin.iterations);
  add("kinds", f.origin.kinds);
  json += ", \"planning_seconds\": " + number(f.origin.seconds);
  json += ", \"switch_ms\": " + number(static_cast<double>(f.switch_ns) / 1e6);
  json += ", \"switch_wait_ms\": " + number(static_cast<double>(f.switch_wait_ns) / 1e6);
  add("predicted_planned_bytes", f.predicted_planned_bytes);
  add("predicted_best_fit_bytes", f.predicted_best_fit_bytes);
  add("iterations_served", f.passes);
  add("trims", f.trims);
  add("guests", guests);
  add("peak_allocated_before_bytes", f.switches == 0 ? 0 : f.allocated_before);
  add("peak_reserved_before_bytes", f.switches == 0 ? 0 : f.reserved_before);
  add("peak_allocated_since_bytes",
      f.switches == 0 ? 0 : std::max(f.allocated_peak, s.allocated_bytes.peak));
  add("peak_reserved_since_bytes", f.switches == 0 ? 0 : f.reserved_peak);
  return json + "}}";
}

}  // namespace headroom::runtime
