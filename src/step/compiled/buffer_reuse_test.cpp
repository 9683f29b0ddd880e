#include "step/compiled/buffer_reuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace headroom::step {
namespace {

JointTensor block(JointValueId value, int64_t elements, op::DType dtype = op::DType::bf16) {
  return {.value = value, .sizes = {elements}, .strides = {1}, .dtype = dtype};
}

TEST(RangeMaxima, AreThoseOfAPlainList) {
  std::mt19937 random(7);
  std::vector<int64_t> plain(37);
  for (int64_t& number : plain) number = static_cast<int64_t>(random() % 100);
  RangeMaxima maxima(plain);
  for (int i = 0; i < 2000; ++i) {
    const size_t begin = random() % plain.size();
    const size_t end = begin + random() % (plain.size() - begin + 1);
    if (i % 2 == 0) {
      const auto more = static_cast<int64_t>(random() % 100);
      maxima.add(begin, end, more);
      for (size_t at = begin; at < end; ++at) plain[at] += more;
    } else {
      const int64_t most =
          begin == end ? 0
                       : *std::max_element(plain.begin() + static_cast<std::ptrdiff_t>(begin),
                                           plain.begin() + static_cast<std::ptrdiff_t>(end));
      EXPECT_EQ(maxima.greatest(begin, end), most);
    }
  }
}

TEST(BufferReuse, TakesTheLatestOfItsTypeAndSizeOnce) {
  BufferReuse reuse({100, 100, 100, 1000});
  reuse.end(block(1, 10), 0);
  reuse.end(block(2, 10), 1);
  EXPECT_FALSE(reuse.take(block(9, 20), 2));
  EXPECT_FALSE(reuse.take(block(9, 5, op::DType::f32), 2));  // as many bytes, of another type
  EXPECT_EQ(reuse.take(block(9, 10), 2)->value, 2U);
  EXPECT_EQ(reuse.take(block(9, 10), 2)->value, 1U);
  EXPECT_FALSE(reuse.take(block(9, 10), 2));
}

// Held from the first kernel to the fourth, twenty bytes more would be live while the peak is.
TEST(BufferReuse, RaisesNoPeak) {
  const std::vector<int64_t> live{50, 100, 90, 50};
  BufferReuse at_peak(live);
  at_peak.end(block(1, 10), 0);
  EXPECT_FALSE(at_peak.take(block(2, 10), 3));
  BufferReuse behind_it(live);
  behind_it.end(block(1, 5), 1);
  EXPECT_TRUE(behind_it.take(block(2, 5), 3));  // 90 and 10
  behind_it.end(block(3, 1), 1);
  EXPECT_FALSE(behind_it.take(block(4, 1), 3));  // what is held by now counts
  BufferReuse next(live);
  next.end(block(1, 1000), 0);
  EXPECT_TRUE(next.take(block(2, 1000), 1));  // nothing runs in between
}

}  // namespace
}  // namespace headroom::step
