#include "ops/stream_waits.h"

#include <algorithm>

namespace headroom::ops {
namespace {

using timing::kNoKernel;

constexpr int64_t kShortWait = 40'000;  // enough where a wait was asked for
constexpr int64_t kWakes = 30'000;      // between the end of one and the begin of what waited
constexpr int64_t kClockSlack = 2'000;  // streams' times agree as well as that
constexpr size_t kMostLooked = 64;      // candidates of one kernel; it bounds what a file costs

struct Moment {
  int64_t time;
  uint32_t kernel;
  bool operator<(const Moment& other) const {
    return time != other.time ? time < other.time : kernel < other.kernel;
  }
};

class Waits {
 public:
  Waits(std::vector<RanKernel>& kernels, size_t streams)
      : kernels_(kernels),
        free_(streams, INT64_MIN),
        ready_(kernels.size(), 0),
        is_first_(kernels.size(), false) {
    ends_.reserve(kernels.size());
    for (uint32_t i = 0; i < kernels.size(); ++i) ends_.push_back({kernels[i].end_ns, i});
    std::sort(ends_.begin(), ends_.end());
  }

  void find() {
    for (uint32_t i = 0; i < kernels_.size(); ++i) find_end(i);
    std::sort(delayed_.begin(), delayed_.end());
    for (const Moment& moment : delayed_) {
      if (!find_begin(moment.kernel)) find_unseen(moment.kernel);
    }
  }

 private:
  [[nodiscard]] int64_t delay_of(uint32_t index) const {
    return kernels_[index].start_ns - ready_[index];
  }
  [[nodiscard]] int64_t least_delay(const RanKernel& kernel) const {
    return kernel.is_behind_wait ? kShortWait : kLongWait;
  }

  // Rules 1 and 2; what they leave unexplained comes into delayed_.
  void find_end(uint32_t index) {
    RanKernel& kernel = kernels_[index];
    is_first_[index] = free_[kernel.stream] == INT64_MIN;
    ready_[index] = std::max(kernel.launched_ns, free_[kernel.stream]);
    free_[kernel.stream] = std::max(free_[kernel.stream], kernel.end_ns);
    if (kernel.waits_for != kNoKernel) {
      const int64_t awaited = kernels_[kernel.waits_for].end_ns;
      if (awaited > kernel.start_ns + kClockSlack && !kernel.is_wait_recorded) {
        kernel.waits_for = kNoKernel;
      } else {
        ready_[index] = std::max(ready_[index], awaited);
      }
    }
    if (delay_of(index) <= least_delay(kernel)) return;
    const uint32_t awaited = ended_just_before(index);
    if (awaited == kNoKernel) {
      delayed_.push_back({kernel.start_ns, index});
    } else {
      kernel.waits_for = awaited;
      ready_[index] = std::max(ready_[index], kernels_[awaited].end_ns);
    }
  }

  // The kernel of another stream, launched earlier, that ended last before this one began.
  [[nodiscard]] uint32_t ended_just_before(uint32_t index) const {
    const RanKernel& kernel = kernels_[index];
    auto at = std::upper_bound(ends_.begin(), ends_.end(),
                               Moment{kernel.start_ns + kClockSlack, kNoKernel});
    for (size_t looked = 0; at != ends_.begin() && looked < kMostLooked; ++looked) {
      --at;
      if (at->time < kernel.start_ns - kWakes) break;
      if (at->kernel < index && kernels_[at->kernel].stream != kernel.stream) return at->kernel;
    }
    return kNoKernel;
  }

  // Rule 3.
  bool find_begin(uint32_t index) {
    RanKernel& kernel = kernels_[index];
    auto at =
        std::lower_bound(delayed_.begin(), delayed_.end(), Moment{kernel.start_ns - kWakes, 0});
    for (size_t looked = 0; at != delayed_.end() && looked < kMostLooked; ++at, ++looked) {
      if (at->time > kernel.start_ns + kWakes) break;
      if (at->kernel < index && kernels_[at->kernel].stream != kernel.stream) {
        kernel.waits_for = at->kernel;
        kernel.waits_for_begin = true;
        return true;
      }
    }
    return false;
  }

  // Rules 4 and 5.
  void find_unseen(uint32_t index) {
    RanKernel& kernel = kernels_[index];
    if (delay_of(index) <= kLongWait) return;
    const bool is_held = is_first_[index] && !kernel.is_behind_all;
    if (is_held || kernel.is_alone) kernel.unseen_ns = delay_of(index);
  }

  std::vector<RanKernel>& kernels_;
  std::vector<int64_t> free_;   // by stream
  std::vector<int64_t> ready_;  // by kernel: when all that is known to delay it was over
  std::vector<bool> is_first_;  // by kernel: on its stream
  std::vector<Moment> ends_;
  std::vector<Moment> delayed_;  // by begin, for reasons that no end explains
};

}  // namespace

void find_waits(std::vector<RanKernel>& kernels, size_t streams) { Waits(kernels, streams).find(); }

}  // namespace headroom::ops
