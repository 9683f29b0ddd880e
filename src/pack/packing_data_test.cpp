// What issue 3 promises of the synthesizer, on other people's instances and recordings: how far a
// plan may be above the highest load. Time is not judged here (perf/pack).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "tests/tools/room_test.h"

#include "pack/pack.h"

namespace headroom::pack {
namespace {

std::filesystem::path traces() { return tests::data_dir() / "allocation_traces"; }

struct Promise {
  std::string_view file;
  double most_gap_pct;
};

constexpr Promise kPromises[] = {
    {"packing/G_1.csv", 0},
    {"packing/resnet50.csv", 0.1},
    {"packing/S_1.csv", 0.25},
    {"synthetic/t1.csv", 0},
    {"synthetic/t2.csv", 0},
    {"synthetic/s1.csv", 0},
    {"synthetic/s2.csv", 0.3},
    {"pytorch/wedsonlin_medium_128_training.pickle", 0.02},
    {"pytorch/wedsonlin_medium_256_training.pickle", 0.02},
    {"pytorch/wedsonlin_medium_512_training.pickle", 0.02},
};

TEST(PackingData, PlansAreAsNearToTheBoundAsPromised) {
  for (const Promise& promise : kPromises) {
    const auto file = traces() / promise.file;
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "no instances: set HEADROOM_DATA";
    const auto result = answer({.file = file.string()});
    ASSERT_TRUE(result) << result.error().to_string();
    std::printf("%-46s gap %.6f %%  %.2f s\n", promise.file.data(), result->plan.gap_pct,
                result->plan.seconds);
    EXPECT_LE(result->plan.gap_pct, promise.most_gap_pct) << promise.file;
  }
}

// MiniMalloc's challenging instances, within the capacity that their names give.
TEST(PackingData, ChallengingInstancesFitTheirCapacity) {
  for (const char name : std::string_view("ABCDEFGHIJK")) {
    const auto file = traces() / "packing" / (std::string(1, name) + ".1048576.csv");
    if (!std::filesystem::exists(file)) GTEST_SKIP() << "no instances: set HEADROOM_DATA";
    const auto result = answer({.file = file.string(), .capacity = Bytes(1048576)});
    ASSERT_TRUE(result) << result.error().to_string();
    EXPECT_TRUE(result->fits()) << name << ": " << result->plan.size.count;
  }
}

}  // namespace
}  // namespace headroom::pack
