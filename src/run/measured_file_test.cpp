#include "run/measured_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "text/csv.h"

namespace headroom::run {
namespace {

ProcessReport process() {
  ProcessReport report;
  report.outcome = Outcome::off;
  report.pid = 7;
  report.torch_version = "2.13.0";
  report.setting = {{"model", "configs/llama.json"}, {"micro_batch", "4"}};
  DeviceFigures figures;
  figures.name = "NVIDIA H100 80GB HBM3";
  figures.peak_allocated = Bytes(1000);
  figures.peak_reserved = Bytes(2000);
  report.devices.push_back(figures);
  return report;
}

TEST(MeasuredFile, ARowAMetricWithWhatTheProcessKnew) {
  const Measured measured = with_rows_of({process()}, "");
  EXPECT_EQ(measured.rows, 2U);
  const Result<text::CsvTable> table = text::read_csv(measured.content, "m.csv");
  ASSERT_TRUE(table);
  ASSERT_EQ(table->rows.size(), 2U);
  EXPECT_EQ(table->at(0, "metric"), "torch max_memory_allocated");
  EXPECT_EQ(table->at(0, "value_bytes"), "1000");
  EXPECT_EQ(table->at(1, "metric"), "torch max_memory_reserved");
  EXPECT_EQ(table->at(1, "value_bytes"), "2000");
  EXPECT_EQ(table->at(1, "model"), "configs/llama.json");
  EXPECT_EQ(table->at(1, "micro_batch"), "4");
  EXPECT_EQ(table->at(1, "seq_len"), "");
  EXPECT_EQ(table->at(1, "gpu"), "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(table->at(1, "allocator"), "torch");
  EXPECT_NE(table->at(0, "id"), table->at(1, "id"));
}

TEST(MeasuredFile, RunsAddToAFileAndItsHeaderStaysOne) {
  const Measured first = with_rows_of({process()}, "");
  std::string cut = first.content;
  cut.pop_back();  // as an editor may leave it
  const Measured second = with_rows_of({process()}, cut);
  const Result<text::CsvTable> table = text::read_csv(second.content, "m.csv");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->rows.size(), 4U);
}

TEST(MeasuredFile, WhatOurAllocatorReservesTeachesNothingAboutPyTorchs) {
  ProcessReport served = process();
  served.outcome = Outcome::served;
  const Measured measured = with_rows_of({served}, "");
  EXPECT_EQ(measured.rows, 1U);
  EXPECT_EQ(measured.content.find("reserved"), std::string::npos);
}

TEST(MeasuredFile, AProcessWithoutADeviceHasNoRow) {
  ProcessReport idle = process();
  idle.devices.clear();
  EXPECT_EQ(with_rows_of({idle}, "").rows, 0U);
}

TEST(MeasuredFile, OtherColumnsAreRefused) {
  const std::string path = testing::TempDir() + "/other.csv";
  std::ofstream(path) << "id,model\n1,gpt2\n";
  const Result<void> checked = check_measured_file(path);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().where, path);
  unlink(path.c_str());
  EXPECT_TRUE(check_measured_file(path));  // a new file
  ASSERT_TRUE(add_rows({process()}, path));
  EXPECT_TRUE(check_measured_file(path));  // and one of ours
  unlink(path.c_str());
}

}  // namespace
}  // namespace headroom::run
