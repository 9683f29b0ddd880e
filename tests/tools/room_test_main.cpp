// The main of every room's tests. Each process of them has a temporary folder of its own, so that
// neither tests beside it nor another checkout's write the files that it reads.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "tests/tools/room_test.h"

namespace headroom::tests {

std::string source_dir() { return HEADROOM_SOURCE_DIR; }

std::filesystem::path data_dir() {
  const char* const named = std::getenv("HEADROOM_DATA");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(source_dir()) / "../shared/data";
}

}  // namespace headroom::tests

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string folder = testing::TempDir() + "headroom-test-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  setenv("TEST_TMPDIR", folder.c_str(), 1);  // testing::TempDir()
  setenv("TMPDIR", folder.c_str(), 1);       // std::filesystem::temp_directory_path()
  const int failed = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return failed;
}
