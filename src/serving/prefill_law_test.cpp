#include "serving/prefill_law.h"

#include <gtest/gtest.h>

namespace headroom::serving {
namespace {

// 4 ms up to 200 rows, while weights are read, and 20 us a row from there.
PrefillLaw bent() {
  return PrefillLaw({{1, 0.004}, {200, 0.004}, {400, 0.008}}, {{100, 0.0001}, {200, 0.0004}});
}

TEST(PrefillLaw, RowsCostWhatTheyAddToThoseBesideThem) {
  const PrefillLaw law = bent();
  EXPECT_NEAR(law.rows_seconds(1, 160), 0, 1e-12);  // beside one the weights are read anyway
  EXPECT_NEAR(law.rows_seconds(150, 150), 100 * 20e-6, 1e-12);  // 50 of them still are
  EXPECT_NEAR(law.rows_seconds(400, 150), 150 * 20e-6, 1e-12);  // none
  EXPECT_NEAR(law.rows_seconds(4000, 150), 150 * 20e-6, 1e-12);
  EXPECT_EQ(law.rows_seconds(10, 0), 0);
  EXPECT_EQ(PrefillLaw().rows_seconds(10, 100), 0);
  EXPECT_NEAR(law.scaled(2).rows_seconds(400, 150), 300 * 20e-6, 1e-12);
}

TEST(PrefillLaw, AttentionIsOfThePartOfThePromptThatIsRead) {
  const PrefillLaw law = bent();
  EXPECT_NEAR(law.attention_seconds(0, 50), 0.00005, 1e-12);
  EXPECT_NEAR(law.attention_seconds(50, 150), 0.0002, 1e-12);
  EXPECT_NEAR(law.attention_seconds(0, 300), 0.0007, 1e-12);
}

// By hand: one prompt of 101 tokens in an iteration or none, beside 200 rows: each costs 100 rows.
TEST(PrefillLaw, PromptsAreMetAsTheyCome) {
  const PrefillLaw law = bent();
  const double of_one = 100 * 20e-6;
  const double attention = law.attention_seconds(0, 101);
  for (const double mean : {0.01, 0.5, 3.0}) {
    EXPECT_NEAR(mean_seconds_in_pieces(law, {mean, 101, 200}, 1'000'000),
                mean * (of_one + attention), 1e-9 * mean)
        << mean;
  }
  // Beside one row a prompt alone costs nothing but its attention, two at once cost 1 row, three
  // 101: fluid, it would be nothing at all.
  const double rare = mean_seconds_in_pieces(law, {0.5, 101, 1}, 1'000'000) - 0.5 * attention;
  EXPECT_NEAR(
      rare,
      0.07582 * 1 * 20e-6 + 0.01264 * 101 * 20e-6 + 0.00158 * 201 * 20e-6 + 0.00016 * 301 * 20e-6,
      2e-7);
  // More than fit an iteration are spread: none is as full as all of them at once would be.
  EXPECT_LE(mean_seconds_in_pieces(law, {3, 101, 1}, 150),
            mean_seconds_in_pieces(law, {3, 101, 1}, 1'000'000));
}

TEST(PrefillLaw, WholePromptsHaveIterationsOfTheirOwn) {
  const PrefillLaw law = bent();
  // Each prompt in one of its own: 5 ms and the rows, which the weights cover.
  EXPECT_NEAR(mean_seconds_whole(law, {2, 100, 64}, 1, 0.005),
              2 * (0.005 + law.attention_seconds(0, 100)), 1e-9);
  // At most four in one: fewer iterations.
  EXPECT_LT(mean_seconds_whole(law, {2, 20, 64}, 4, 0.005),
            mean_seconds_whole(law, {2, 20, 64}, 1, 0.005));
}

}  // namespace
}  // namespace headroom::serving
