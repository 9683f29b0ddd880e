#include "base/version.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace headroom {
namespace {

TEST(Version, IsThreeNumbers) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  char rest = 0;
  const std::string text{version()};
  EXPECT_EQ(std::sscanf(text.c_str(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3) << text;
}

}  // namespace
}  // namespace headroom
