// The words for GPUs beside other people's measurements, which are not in the repo.
#include <gtest/gtest.h>

#include <set>

#include "device/catalogue.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"
#include "text/gzip.h"

namespace headroom::device {
namespace {

std::string data_directory() { return tests::data_dir(); }

TEST(MeasuredNames, EveryGpuThatIsNamedIsFound) {
  const std::string path = data_directory() + "/peak_memory/measured.csv";
  const Result<std::string> content = text::read_input(path, Bytes(64 * kMiB));
  if (!content) GTEST_SKIP() << "no data: " << content.error().to_string();
  const Result<text::CsvTable> table = text::read_csv(*content, path);
  ASSERT_TRUE(table) << table.error().to_string();
  const DeviceCatalogue catalogue = DeviceCatalogue::built_in();
  std::set<std::string> names;
  for (size_t i = 0; i < table->rows.size(); ++i) names.insert(table->at(i, "gpu"));
  ASSERT_GT(names.size(), 10U);
  // These say no more than that there were GPUs.
  names.erase("");
  names.erase("8 GPUs");
  for (const std::string& name : names) {
    const Result<FoundDevice> found = catalogue.find_for_measurement(name);
    EXPECT_TRUE(found) << name;
  }
}

}  // namespace
}  // namespace headroom::device
