#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace headroom {

void for_each_in_parallel(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  const size_t cores = std::max<size_t>(1, std::thread::hardware_concurrency());
  const size_t wanted = std::min(count, threads == 0 ? cores : threads);
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < wanted; ++i) others.emplace_back(run);
  run();
}

}  // namespace headroom
