#include "memory/packing/problem.h"

#include <gtest/gtest.h>

#include "memory/packing/random_problem.h"
#include "memory/packing/sections.h"

namespace headroom::memory {
namespace {

TEST(PackingProblem, ChecksNameTheRequest) {
  PackingProblem problem{{{0, 1, 5}, {3, 2, 5}}, 1};
  EXPECT_EQ(check_problem(problem).error().where, "request 1");
  problem.requests[1] = {2, 3, -1};
  EXPECT_FALSE(check_problem(problem));
  problem.requests[1] = {2, 3, kMaxPackingBytes};
  EXPECT_FALSE(check_problem(problem));  // the sum
  problem.requests[1] = {2, 3, 5};
  EXPECT_TRUE(check_problem(problem));
  problem.alignment = 0;
  EXPECT_FALSE(check_problem(problem));
}

TEST(PackingProblem, LowerBoundIsTheHighestLoadAfterRounding) {
  // One ends where the next begins: they never live together.
  EXPECT_EQ(packing_lower_bound({{{0, 2, 5}, {2, 4, 7}}, 1}), 7);
  EXPECT_EQ(packing_lower_bound({{{0, 3, 5}, {2, 4, 7}}, 1}), 12);
  EXPECT_EQ(packing_lower_bound({{{0, 3, 5}, {2, 4, 7}}, 8}), 16);
  EXPECT_EQ(packing_lower_bound({{{2, 2, 5}}, 1}), 0);
  EXPECT_EQ(packing_lower_bound({}), 0);
}

TEST(Sections, ItemsShareASectionWhereTheirRequestsShareAMoment) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const PackingProblem problem = random_problem(seed, {.requests = 12, .times = 15});
    std::vector<uint32_t> requests;
    const Sections sections = make_sections(problem, requests);
    EXPECT_EQ(sections.highest_load, packing_lower_bound(problem));
    for (size_t i = 0; i < requests.size(); ++i) {
      for (size_t j = 0; j < requests.size(); ++j) {
        const PackingRequest& a = problem.requests[requests[i]];
        const PackingRequest& b = problem.requests[requests[j]];
        const PackingItem& x = sections.items[i];
        const PackingItem& y = sections.items[j];
        EXPECT_EQ(a.lower < b.upper && b.lower < a.upper, x.begin < y.end && y.begin < x.end);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::memory
