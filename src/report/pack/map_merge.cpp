#include <algorithm>
#include <numeric>

#include "report/pack/address_map.h"

namespace headroom::report {
namespace {

constexpr int64_t kColumns = 1024;
constexpr int64_t kRows = 256;

// Counts of blocks by cell, kept as differences along each row.
class Grid {
 public:
  Grid(int64_t moments, int64_t bytes)
      : moments_(std::max<int64_t>(moments, 1)),
        bytes_(std::max<int64_t>(bytes, 1)),
        changes_(static_cast<size_t>(kRows * (kColumns + 1))) {}

  void add(const MapBlock& block, int64_t offset) {
    const int64_t left = column(block.start);
    const int64_t right = std::max(left, column(block.end - 1)) + 1;
    const int64_t top = row(offset + block.size - 1);
    for (int64_t at = row(offset); at <= top; ++at) {
      ++changes_[static_cast<size_t>(at * (kColumns + 1) + left)];
      --changes_[static_cast<size_t>(at * (kColumns + 1) + right)];
    }
  }

  // Runs of cells with something in them.
  [[nodiscard]] std::vector<MapCell> cells() const {
    std::vector<MapCell> cells;
    for (int64_t at = 0; at < kRows; ++at) {
      int64_t count = 0;
      bool is_open = false;
      for (int64_t x = 0; x <= kColumns; ++x) {
        count += changes_[static_cast<size_t>(at * (kColumns + 1) + x)];
        if (count == 0) {
          is_open = false;
        } else if (is_open) {
          cells.back().end = moment_after(x);
          cells.back().count = std::max(cells.back().count, count);
        } else {
          cells.push_back({moment(x), moment_after(x), byte(at), byte_after(at), count});
          is_open = true;
        }
      }
    }
    return cells;
  }

 private:
  // In wide arithmetic: moments and bytes may be as large as a hostile file says.
  static int64_t scaled(int64_t part, int64_t whole, int64_t steps) {
    return static_cast<int64_t>(static_cast<__int128>(part) * steps / whole);
  }
  [[nodiscard]] int64_t column(int64_t moment) const {
    return std::clamp<int64_t>(scaled(moment, moments_, kColumns), 0, kColumns - 1);
  }
  [[nodiscard]] int64_t row(int64_t byte) const {
    return std::clamp<int64_t>(scaled(byte, bytes_, kRows), 0, kRows - 1);
  }
  // Where a column or row begins, and ends: rounded outwards, so that what is in it is covered.
  [[nodiscard]] int64_t moment(int64_t column) const { return scaled(column, kColumns, moments_); }
  [[nodiscard]] int64_t moment_after(int64_t column) const {
    return moments_ - scaled(kColumns - 1 - column, kColumns, moments_);
  }
  [[nodiscard]] int64_t byte(int64_t row) const { return scaled(row, kRows, bytes_); }
  [[nodiscard]] int64_t byte_after(int64_t row) const {
    return bytes_ - scaled(kRows - 1 - row, kRows, bytes_);
  }

  int64_t moments_;
  int64_t bytes_;
  std::vector<int32_t> changes_;
};

double area_of(const MapBlock& block) {
  return static_cast<double>(block.end - block.start) * static_cast<double>(block.size);
}

}  // namespace

MergedMap merge_map(const AddressMap& map, size_t most) {
  MergedMap merged;
  merged.kept.resize(map.blocks.size());
  std::iota(merged.kept.begin(), merged.kept.end(), size_t{0});
  if (map.blocks.size() <= most) return merged;
  std::vector<size_t> by_area = std::move(merged.kept);
  const auto half = by_area.begin() + static_cast<ptrdiff_t>(most / 2);
  std::nth_element(by_area.begin(), half, by_area.end(), [&](size_t a, size_t b) {
    const double area_a = area_of(map.blocks[a]);
    const double area_b = area_of(map.blocks[b]);
    return area_a != area_b ? area_a > area_b : a < b;
  });
  Grid recorded(map.moments, map.recorded_bytes);
  Grid planned(map.moments, map.planned_bytes);
  for (auto at = half; at != by_area.end(); ++at) {
    const MapBlock& block = map.blocks[*at];
    if (block.recorded) recorded.add(block, *block.recorded);
    planned.add(block, block.planned);
  }
  merged.kept.assign(by_area.begin(), half);
  std::sort(merged.kept.begin(), merged.kept.end());
  merged.recorded = recorded.cells();
  merged.planned = planned.cells();
  return merged;
}

}  // namespace headroom::report
