#include "memory/events.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

TEST(MemoryTrace, AcceptsAllocThenFree) {
  MemoryTrace trace;
  const uint32_t a = trace.alloc({.requested_bytes = 100, .category = Category::parameter}, 0);
  const uint32_t b = trace.alloc({.requested_bytes = 0}, 1);
  trace.free(a, 2);
  EXPECT_EQ(a, 0u);
  EXPECT_EQ(b, 1u);
  EXPECT_TRUE(validate_trace(trace));
}

TEST(MemoryTrace, NamesTheBadEvent) {
  MemoryTrace twice_freed;
  const uint32_t a = twice_freed.alloc({.requested_bytes = 1}, 0);
  twice_freed.free(a, 0);
  twice_freed.free(a, 0);
  const auto result = validate_trace(twice_freed);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().where, "event 2");

  MemoryTrace unknown;
  unknown.free(7, 0);
  EXPECT_FALSE(validate_trace(unknown));

  MemoryTrace negative;
  negative.alloc({.requested_bytes = -1}, 0);
  EXPECT_FALSE(validate_trace(negative));

  MemoryTrace reborn;
  const uint32_t b = reborn.alloc({.requested_bytes = 1}, 0);
  reborn.events.push_back({EventKind::alloc, b, 0});
  EXPECT_FALSE(validate_trace(reborn));
}

TEST(Category, NamesAreDistinct) {
  for (size_t i = 0; i < kCategoryCount; ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(category_name(static_cast<Category>(i)), category_name(static_cast<Category>(j)));
    }
  }
  EXPECT_EQ(category_name(Category::lm_head_gradient), "lm_head_gradient");
}

}  // namespace
}  // namespace headroom::memory
