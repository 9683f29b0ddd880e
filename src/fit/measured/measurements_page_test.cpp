// What docs/formats/measurements.md says about a file of measurements.
#include "fit/measured/measured_row.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/tools/room_test.h"

namespace headroom::fit {
namespace {

text::CsvTable table_of(const std::string& text) {
  const auto table = text::read_csv(text, "t.csv");
  EXPECT_TRUE(table) << table.error().to_string();
  return table ? *table : text::CsvTable{};
}

// The example that docs/formats/measurements.md shows: the first block fenced as csv.
std::string documented_example() {
  const std::string path = tests::source_dir() + "/docs/formats/measurements.md";
  const auto page = read_file(path, Bytes(kMiB));
  if (!page) return {};
  const size_t begin = page->find("```csv\n") + 7;
  return page->substr(begin, page->find("```", begin) - begin);
}

TEST(MeasurementsPage, TheDocumentedExampleCanBeAsked) {
  const text::CsvTable table = table_of(documented_example());
  ASSERT_GE(table.rows.size(), 2U);
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const auto question = question_of(table, row);
    EXPECT_TRUE(question) << question.error().to_string();
    EXPECT_FALSE(figures_of(table, row).empty());
  }
}

TEST(MeasurementsPage, EveryDocumentedColumnIsNeeded) {
  const text::CsvTable whole = table_of(documented_example());
  for (const char* column :
       {"model", "method", "weights_dtype", "optimizer", "micro_batch", "seq_len", "n_gpus"}) {
    text::CsvTable table = whole;
    const auto at = table.find_column(column);
    ASSERT_TRUE(at) << column;
    table.rows[0][*at].clear();
    const auto question = question_of(table, 0);
    EXPECT_TRUE(!question || question->model.empty()) << column;
  }
}

TEST(MeasurementsPage, FiguresThatAreNoAmountsAreLeftOut) {
  for (const char* value : {"", "-1", "0", "nan", "1e40", "12 MiB", "inf"}) {
    const text::CsvTable table =
        table_of("model,value_bytes,nvidia_smi_mib\nm,\"" + std::string(value) + "\",1e18\n");
    EXPECT_TRUE(figures_of(table, 0).empty()) << value;
  }
}

TEST(MeasurementsPage, TheMetricSaysWhichFigureItIs) {
  const text::CsvTable table = table_of(
      "metric,value_bytes,alloc_after_step_bytes,nvidia_smi_mib\n"
      "torch max_memory_reserved,100,,\ntorch max_memory_allocated,100,50,3\nNVML,100,,\n");
  EXPECT_EQ(figures_of(table, 0)[0].metric, Metric::peak_reserved);
  const auto three = figures_of(table, 1);
  ASSERT_EQ(three.size(), 3U);
  EXPECT_EQ(three[0].metric, Metric::peak_allocated);
  EXPECT_EQ(three[1].metric, Metric::after_step);
  EXPECT_EQ(three[2].value, Bytes(3 * kMiB));
  EXPECT_EQ(figures_of(table, 2)[0].metric, Metric::device_used);
}

}  // namespace
}  // namespace headroom::fit
