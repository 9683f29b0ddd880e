// Reads one snapshot as often as asked and says how long that took and what memory it touched, as
// JSON for perf/pack/read_snapshot.py. Usage: headroom_read_snapshot FILE RUNS
//
// "walk_seconds" is what no reader can be faster than that looks at one instruction after the
// other: the file is brought into memory, and each instruction is passed over by its length.
// Nothing is made of any.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

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

// The length of the instruction at `at` with its operands; 1 for what is not listed.
size_t instruction_bytes(const unsigned char* at) {
  const auto length = [&](size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, at + 1, bytes);
    return static_cast<size_t>(value);
  };
  switch (*at) {
    case 'h':
    case 'q':
    case 'K':
    case 0x80:
      return 2;
    case 'M':
      return 3;
    case 'j':
    case 'r':
    case 'J':
      return 5;
    case 'G':
    case 0x95:
      return 9;
    case 0x8a:
    case 0x8c:
      return 2 + length(1);
    case 0x8b:
    case 'X':
      return 5 + length(4);
    case 0x8d:
      return 9 + length(8);
    default:
      return 1;
  }
}

// REQUIRES: the file is a pickle that was read before.
size_t walk(const char* path, std::vector<unsigned char>& buffer) {
  constexpr size_t kBehind = 16;  // an operand may be looked at behind the end
  std::FILE* const file = std::fopen(path, "rb");
  if (file == nullptr) return 0;
  std::setvbuf(file, nullptr, _IONBF, 0);
  size_t have = 0;
  for (;;) {
    if (buffer.size() < have + kBehind + 1) buffer.resize(2 * buffer.size() + (size_t{1} << 20));
    const size_t more = std::fread(buffer.data() + have, 1, buffer.size() - have - kBehind, file);
    if (more == 0) break;
    have += more;
  }
  std::fclose(file);
  size_t instructions = 0;
  for (size_t at = 0; at < have; at += instruction_bytes(buffer.data() + at)) ++instructions;
  return instructions;
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
  std::printf("], \"walk_seconds\": [");
  std::vector<unsigned char> buffer;
  size_t instructions = 0;
  for (int run = 0; run < runs; ++run) {
    const std::clock_t start = std::clock();
    instructions = walk(argv[1], buffer);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::printf("%s%.9f", run == 0 ? "" : ", ", took);
  }
  std::printf(
      "], \"resident_bytes\": %lld, \"entries\": %zu, \"stacks\": %zu, \"instructions\": %zu}\n",
      after_first - before, entries, stacks, instructions);
  return 0;
}
