// A trace built by hand, for tests: host events on threads, kernels on streams, in microseconds.
#pragma once

#include <algorithm>
#include <string>

#include "formats/trace.h"

namespace headroom::ops {

class TinyTrace {
 public:
  using Kind = formats::TraceEventKind;

  TinyTrace& add(Kind kind, const std::string& name, int64_t start_us, int64_t end_us,
                 int64_t correlation = 0, const std::string& track = "1") {
    formats::TraceEvent event;
    event.kind = kind;
    event.start_ns = start_us * 1000;
    event.duration_ns = (end_us - start_us) * 1000;
    event.correlation = correlation;
    event.name = trace_.names.intern(name);
    event.track = track_of(track, formats::is_device(kind));
    trace_.events.push_back(event);
    return *this;
  }
  // An operator with one launch in it, which takes `launch_us`, and its kernel.
  TinyTrace& launched(const std::string& name, int64_t start_us, int64_t end_us,
                      const std::string& kernel, int64_t kernel_start_us, int64_t kernel_end_us,
                      const std::string& stream = "7") {
    const int64_t correlation = ++correlations_;
    add(Kind::host_operator, name, start_us, end_us);
    add(Kind::call, "cudaLaunchKernel", start_us + 1, std::min(start_us + 3, end_us), correlation);
    return add(Kind::kernel, kernel, kernel_start_us, kernel_end_us, correlation, stream);
  }
  TinyTrace& step(int64_t number, int64_t start_us, int64_t end_us) {
    return add(Kind::step, "ProfilerStep#" + std::to_string(number), start_us, end_us);
  }

  formats::Trace build() {
    trace_.file = "tiny";
    std::stable_sort(trace_.events.begin(), trace_.events.end(), [](const auto& a, const auto& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
    });
    return trace_;
  }

 private:
  uint32_t track_of(const std::string& name, bool device) {
    for (uint32_t i = 0; i < trace_.tracks.size(); ++i) {
      if (trace_.tracks[i].thread == name && trace_.tracks[i].is_device == device) return i;
    }
    trace_.tracks.push_back({device ? "0" : "100", name, device});
    return static_cast<uint32_t>(trace_.tracks.size() - 1);
  }

  formats::Trace trace_;
  int64_t correlations_ = 0;
};

}  // namespace headroom::ops
