#include "report/pack/address_map.h"

#include <gtest/gtest.h>

#include "report/page/columns.h"

namespace headroom::report {
namespace {

TEST(Columns, AsDocumented) {
  EXPECT_EQ(column_of(std::vector<int64_t>{5, 3, 300}), "CgPSBA==");
  EXPECT_EQ(column_of({}), "");
}

// The widest differences that there are still have a place.
TEST(Columns, AnyDifferenceFits) {
  const std::vector<int64_t> values{INT64_MIN, INT64_MAX, 0};
  EXPECT_FALSE(column_of(values).empty());
}

AddressMap map_of(size_t blocks) {
  AddressMap map;
  map.moments = 1000;
  map.recorded_bytes = map.planned_bytes = 1 << 20;
  for (size_t i = 0; i < blocks; ++i) {
    MapBlock block;
    block.start = static_cast<int64_t>(i % 990);
    block.end = block.start + 1 + static_cast<int64_t>(i % 10);
    block.size = 1 + static_cast<int64_t>(i % 100);
    block.recorded = static_cast<int64_t>(i % 1000) * 1000;
    block.planned = static_cast<int64_t>(i % 500) * 1000;
    map.blocks.push_back(block);
  }
  return map;
}

TEST(MergeMap, FewBlocksAreAllKept) {
  const MergedMap merged = merge_map(map_of(10), 10);
  EXPECT_EQ(merged.kept.size(), 10U);
  EXPECT_TRUE(merged.recorded.empty());
}

TEST(MergeMap, TheLargestStayAndTheRestIsCovered) {
  const AddressMap map = map_of(5000);
  const MergedMap merged = merge_map(map, 1000);
  ASSERT_EQ(merged.kept.size(), 500U);
  EXPECT_TRUE(std::is_sorted(merged.kept.begin(), merged.kept.end()));
  const auto area = [&](size_t i) {
    return (map.blocks[i].end - map.blocks[i].start) * map.blocks[i].size;
  };
  int64_t smallest_kept = INT64_MAX;
  for (const size_t i : merged.kept) smallest_kept = std::min(smallest_kept, area(i));
  for (size_t i = 0; i < map.blocks.size(); ++i) {
    if (std::binary_search(merged.kept.begin(), merged.kept.end(), i)) continue;
    EXPECT_LE(area(i), smallest_kept);
    const MapBlock& block = map.blocks[i];
    const bool is_covered =
        std::any_of(merged.recorded.begin(), merged.recorded.end(), [&](const MapCell& cell) {
          return cell.start <= block.start && block.start < cell.end &&
                 cell.low <= *block.recorded && *block.recorded < cell.high;
        });
    EXPECT_TRUE(is_covered) << i;
  }
}

// Sizes and times at the ends of what a file may say.
TEST(MergeMap, HugeFiguresAreNoTrouble) {
  AddressMap map = map_of(100);
  map.moments = int64_t{1} << 61;
  map.recorded_bytes = map.planned_bytes = int64_t{1} << 61;
  for (MapBlock& block : map.blocks) {
    block.end = map.moments;
    block.size = int64_t{1} << 60;
    block.recorded = block.planned = int64_t{1} << 60;
  }
  EXPECT_FALSE(merge_map(map, 10).planned.empty());
}

}  // namespace
}  // namespace headroom::report
