// The address map: who lay where in memory, and when, as it was recorded beside as it is planned,
// with allocated and reserved memory beneath. Drawn by assets/map.js on a canvas.
//
// Addresses are offsets in a space without holes, times are moments (numbers of events). A map is
// bounded whatever the run: beyond kMostMapBlocks the blocks that would be seen least are merged
// into cells of a grid, and the page says how many. Pure; O(n log n); about 20 bytes a block in the
// page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/page/html.h"

namespace headroom::report {

inline constexpr size_t kMostMapBlocks = 100'000;

// What lies at [offset, offset + size) at the moments [start, end), in one picture or both.
struct MapBlock {
  int64_t start = 0;
  int64_t end = 0;
  int64_t size = 0;   // bytes, as the allocator rounds it
  int64_t asked = 0;  // bytes, as requested
  std::optional<int64_t> recorded;
  int64_t planned = 0;
  uint8_t kind = 0;    // into AddressMap::kinds
  uint32_t stack = 0;  // into AddressMap::stacks
};

// What was held from the driver.
struct MapRange {
  int64_t start = 0;
  int64_t end = 0;
  int64_t offset = 0;
  int64_t size = 0;
};

struct MapStack {
  std::string site;                 // in one line
  std::vector<std::string> frames;  // innermost first
};

// A class of blocks; `key` names its colour in page.css.
struct MapKind {
  std::string key;
  std::string label;
};

struct MapPoint {
  int64_t moment = 0;
  int64_t allocated = 0;
  int64_t reserved = 0;
};

struct AddressMap {
  std::string description;  // for those who cannot see it
  int64_t unit = 1;         // bytes that all sizes and offsets are multiples of
  int64_t moments = 1;      // the map shows [0, moments)
  int64_t peak = 0;
  std::vector<int64_t> iterations;  // the moments at which they begin
  std::vector<double> seconds;      // of evenly spread moments, the first and the last with them
  int64_t recorded_bytes = 0;       // how high the pictures are
  int64_t planned_bytes = 0;
  bool has_recording = false;
  bool is_simulated = false;     // then "recorded" is where PyTorch's allocator would have put it
  std::vector<MapBlock> blocks;  // by start
  std::vector<MapRange> held;
  std::vector<MapKind> kinds;
  std::vector<MapStack> stacks;
  std::vector<MapPoint> curve;
};

[[nodiscard]] Html address_map(const AddressMap& map);

// A stretch of merged blocks in one picture.
struct MapCell {
  int64_t start = 0;
  int64_t end = 0;
  int64_t low = 0;  // bytes
  int64_t high = 0;
  int64_t count = 0;  // of blocks that reach into its fullest part
};

struct MergedMap {
  std::vector<size_t> kept;  // of AddressMap::blocks, in order
  std::vector<MapCell> recorded;
  std::vector<MapCell> planned;
};

// All are kept where there are at most `most`; else the half of that with the largest areas.
[[nodiscard]] MergedMap merge_map(const AddressMap& map, size_t most);

}  // namespace headroom::report
