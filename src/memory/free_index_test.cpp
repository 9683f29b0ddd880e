#include "memory/free_index.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace headroom::memory {
namespace {

using Key = std::pair<int64_t, int64_t>;

std::vector<Key> forward(const FreeIndex& index) {
  std::vector<Key> keys;
  for (auto at = index.begin(); at != index.end(); at = index.next(at)) {
    keys.emplace_back(index.at(at).size, index.at(at).address);
  }
  return keys;
}

std::vector<Key> backward(const FreeIndex& index) {
  std::vector<Key> keys;
  for (auto at = index.end(); at != index.begin();) {
    at = index.previous(at);
    keys.emplace_back(index.at(at).size, index.at(at).address);
  }
  return keys;
}

// Sizes of every magnitude, and a few that come again and again, so that bins split into runs.
int64_t any_size(std::mt19937_64& random) {
  if (random() % 2 == 0) return static_cast<int64_t>(512 * (1 + random() % 3));
  return static_cast<int64_t>(random() >> (1 + random() % 63));
}

TEST(FreeIndex, DoesAsASortedSetDoes) {
  for (const size_t most : {3, 40, 3000}) {
    std::mt19937_64 random(most);
    FreeIndex index;
    std::set<Key> expected;
    for (int i = 0; i < 30'000; ++i) {
      const Key key{any_size(random), static_cast<int64_t>(random() % 100'000)};
      const auto at = expected.lower_bound(key);
      const FreeIndex::Cursor cursor = index.lower_bound(key.first, key.second);
      ASSERT_EQ(cursor == index.end(), at == expected.end());
      if (at != expected.end()) {
        ASSERT_EQ(index.at(cursor).size, at->first);
        ASSERT_EQ(index.at(cursor).address, at->second);
      }
      if (at != expected.end() && expected.size() >= most) {
        index.erase(at->first, at->second);
        expected.erase(at);
      } else if (!expected.contains(key)) {
        index.insert({key.first, key.second, static_cast<uint32_t>(i)});
        ASSERT_EQ(index.at(index.lower_bound(key.first, key.second)).block, i);
        expected.insert(key);
      }
      ASSERT_EQ(index.size(), expected.size());
      if (i % 997 == 0) {
        ASSERT_EQ(forward(index), std::vector<Key>(expected.begin(), expected.end()));
        ASSERT_EQ(backward(index), std::vector<Key>(expected.rbegin(), expected.rend()));
      }
    }
  }
}

TEST(FreeIndex, EmptiesAndFillsAgain) {
  FreeIndex index;
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 0; i < 1000; ++i) index.insert({512 * (i % 5), i, 0});
    for (int64_t i = 0; i < 1000; ++i) index.erase(index.begin());
    EXPECT_TRUE(index.empty());
    EXPECT_EQ(index.begin(), index.end());
    EXPECT_EQ(index.lower_bound(0, 0), index.end());
  }
}

TEST(FreeIndex, TakesTheLargestSizeThereIs) {
  FreeIndex index;
  constexpr int64_t kMost = INT64_MAX;
  index.insert({kMost, kMost, 7});
  EXPECT_EQ(index.at(index.lower_bound(1, 0)).block, 7);
  index.erase(kMost, kMost);
  EXPECT_TRUE(index.empty());
}

}  // namespace
}  // namespace headroom::memory
