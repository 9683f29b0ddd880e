#include "memory/packing/validator.h"

#include <gtest/gtest.h>

namespace headroom::memory {
namespace {

const PackingProblem kProblem{{{0, 2, 8}, {1, 3, 4}, {2, 4, 8}, {1, 1, 9}}, 4};

TEST(Validator, TakesAPlanThatHolds) {
  EXPECT_TRUE(validate_packing(kProblem, {{0, 8, 0, 0}, 12}));
  EXPECT_TRUE(validate_packing({}, {}));
}

TEST(Validator, RefusesWhatDoesNot) {
  const auto message = [](const PackingSolution& solution) {
    const auto checked = validate_packing(kProblem, solution);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(message({{0, 4, 0, 0}, 8}), "request 1 overlaps request 0");
  EXPECT_EQ(message({{4, 0, 0, 0}, 12}), "request 2 overlaps request 1");
  EXPECT_EQ(message({{0, 9, 0, 0}, 13}), "request 1 is not aligned");
  EXPECT_EQ(message({{0, -4, 0, 0}, 12}), "request 1 is out of range");
  EXPECT_EQ(message({{0, 8, 0}, 12}), "3 offsets for 4 requests");
  EXPECT_NE(message({{0, 8, 0, 0}, 8}), "");
  EXPECT_NE(message({{0, 8, 0, 0}, 16}), "");
}

// A last request that is short of its alignment may be counted with or without the rest.
TEST(Validator, TheEndMayBeRounded) {
  const PackingProblem problem{{{0, 1, 5}}, 4};
  EXPECT_TRUE(validate_packing(problem, {{0}, 5}));
  EXPECT_TRUE(validate_packing(problem, {{0}, 8}));
  EXPECT_FALSE(validate_packing(problem, {{0}, 9}));
}

}  // namespace
}  // namespace headroom::memory
