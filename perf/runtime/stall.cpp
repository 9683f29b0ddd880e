// How long does planning hold up the thread that trains? Iterations of 10^5 requests run through
// libheadroom_torch.so and the fake driver while a plan is made in the background; every operation
// is timed, by the clock and by the processor time of its own thread (which does not count what
// others do on a busy machine). The operation that switches to the plan is apart.
//
//   stall [REQUESTS]           as CSV: the longest, the 99.99th percentile, how many took over 1 ms
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"

namespace {

using namespace headroom;
using runtime::fake::report;
using runtime::fake::statistics;

int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

struct Times {
  std::vector<int64_t> wall_ns;
  std::vector<int64_t> thread_ns;

  template <typename Do>
  void time(Do&& what) {
    const int64_t wall = nanoseconds(CLOCK_MONOTONIC);
    const int64_t thread = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    what();
    thread_ns.push_back(nanoseconds(CLOCK_THREAD_CPUTIME_ID) - thread);
    wall_ns.push_back(nanoseconds(CLOCK_MONOTONIC) - wall);
  }
  void add(const Times& other) {
    wall_ns.insert(wall_ns.end(), other.wall_ns.begin(), other.wall_ns.end());
    thread_ns.insert(thread_ns.end(), other.thread_ns.begin(), other.thread_ns.end());
  }
  void say(const char* when) {
    const auto micro = [](std::vector<int64_t>& times, double share) {
      if (times.empty()) return 0.0;
      const auto at = std::min(times.size() - 1,
                               static_cast<size_t>(share * static_cast<double>(times.size())));
      std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(at), times.end());
      return static_cast<double>(times[at]) / 1000;
    };
    const auto long_ones = [](const std::vector<int64_t>& times) {
      return std::count_if(times.begin(), times.end(), [](int64_t ns) { return ns > 1'000'000; });
    };
    std::printf("%s,%zu,%.1f,%.1f,%td,%.1f,%.1f,%td\n", when, wall_ns.size(), micro(wall_ns, 1),
                micro(wall_ns, 0.9999), long_ones(wall_ns), micro(thread_ns, 1),
                micro(thread_ns, 0.9999), long_ones(thread_ns));
    *this = {};
  }
};

// Forward and backward: every second block waits for its backward. True where a plan came to serve.
bool iterate(int64_t requests, Times& times) {
  std::vector<void*> live;
  const bool was_planned = statistics().is_planned != 0;
  const auto allocate = [&](int64_t size) {
    void* block = nullptr;
    times.time([&] { block = headroom_malloc(size, 0, nullptr); });
    return block;
  };
  for (int64_t i = 0; i < requests / 2; ++i) {
    void* const temporary = allocate(1000 + i % 977 * 512);
    if (i % 2 == 0) live.push_back(allocate(2000 + i % 499 * 1024));
    times.time([&] { headroom_free(temporary, 0, 0, nullptr); });
  }
  while (!live.empty()) {
    void* const gradient = allocate(700 + static_cast<int64_t>(live.size()) % 613 * 512);
    times.time([&] { headroom_free(live.back(), 0, 0, nullptr); });
    live.pop_back();
    times.time([&] { headroom_free(gradient, 0, 0, nullptr); });
  }
  headroom_iteration(0);
  return !was_planned && statistics().is_planned != 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t requests = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const headroom_fake_setting setting{1, 192 * kGiB, 2 * kMiB, 0, 0, 0, 1, 0};
  headroom_fake_set_up(&setting);
  headroom_configuration configuration{};
  configuration.struct_bytes = sizeof configuration;
  configuration.driver_path = FAKE_CUDA_PATH;
  configuration.flags = HEADROOM_FLAG_ALWAYS_PLAN;
  if (headroom_configure(&configuration) != 0) {
    std::fprintf(stderr, "%s\n", headroom_error());
    return 1;
  }
  std::printf(
      "when,operations,longest_us,p9999_us,over_1ms,longest_own_us,p9999_own_us,over_1ms_own\n");
  Times first;
  iterate(requests, first);
  first.say("first iteration");  // it maps its memory
  Times planning;
  bool has_switched = false;
  for (int i = 0; i < 400 && !has_switched; ++i) {
    Times times;
    has_switched = iterate(requests, times);
    if (has_switched) times.say("the iteration with the switch");
    if (!has_switched) planning.add(times);
  }
  planning.say("while it plans");
  Times planned;
  for (int i = 0; i < 5; ++i) iterate(requests, planned);
  planned.say("planned");
  std::fprintf(stderr, "%s\n", report().c_str());
  return has_switched ? 0 : 1;
}
