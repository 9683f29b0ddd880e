// Reads one snapshot as often as asked and says how long that took and what memory it touched, as
// JSON for perf/pack/read_snapshot.py. Usage: headroom_read_snapshot FILE RUNS
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "base/heap.h"
#include "formats/torch_snapshot.h"

namespace {

// The most that was ever resident since this program began, in bytes. Not getrusage(2), whose
// ru_maxrss knows what the process was before exec.
long long most_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  headroom::keep_freed_memory();  // as the program does
  const int runs = std::atoi(argv[2]);
  const long long before = most_resident();
  long long after_first = before;
  size_t entries = 0;
  size_t stacks = 0;
  std::printf("{\"seconds\": [");
  for (int run = 0; run < runs; ++run) {
    const std::clock_t start = std::clock();
    const auto snapshot = headroom::formats::read_torch_snapshot(argv[1]);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (!snapshot) {
      std::fprintf(stderr, "%s\n", snapshot.error().to_string().c_str());
      return 3;
    }
    if (run == 0) after_first = most_resident();
    entries = 0;
    for (const auto& device : snapshot->devices) entries += device.trace.size();
    stacks = snapshot->sites.stack_count();
    std::printf("%s%.9f", run == 0 ? "" : ", ", took);
  }
  std::printf("], \"resident_bytes\": %lld, \"entries\": %zu, \"stacks\": %zu}\n",
              after_first - before, entries, stacks);
  return 0;
}
