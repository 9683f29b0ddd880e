#include "run/process_report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace headroom::run {
namespace {

constexpr const char* kWhole = R"({"schema": "headroom.run.process/1", "outcome": "served",
  "ended": true, "pid": 41, "host": "a", "rank": 3, "world_size": 8, "torch": "2.13.0",
  "notes": ["one"], "setting": {"optimizer": "AdamW"},
  "devices": [{"device": 0, "name": "H100", "peak_allocated_bytes": 10, "reserved_before_bytes": 30,
               "reserved_after_bytes": 20, "requests": 100, "planned": 97, "reused": 2,
               "fallen_back": 1, "iterations": 12, "plan_source": "made", "outside_bytes": null}]})";

TEST(ProcessReport, AWholeOneIsRead) {
  const Result<ProcessReport> report = parse_report(kWhole, "r.json");
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(report->outcome, Outcome::served);
  EXPECT_EQ(report->rank, 3);
  ASSERT_EQ(report->devices.size(), 1U);
  EXPECT_EQ(report->devices[0].reserved_before, Bytes(30));
  EXPECT_EQ(report->devices[0].planned, 97);
  EXPECT_FALSE(report->devices[0].outside);
  EXPECT_EQ(report->setting.at(0).second, "AdamW");
}

TEST(ProcessReport, WhatCannotBeTrueIsRefused) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"pid\": 41", "\"pid\": -1"},
           {"\"rank\": 3", "\"rank\": \"three\""},
           {"\"peak_allocated_bytes\": 10", "\"peak_allocated_bytes\": -10"},
           {"\"peak_allocated_bytes\": 10", "\"peak_allocated_bytes\": 1e30"},
           {"\"requests\": 100", "\"requests\": 2.5"},
           {"\"served\"", "\"perhaps\""},
           {"process/1", "process/9"}}) {
    std::string text = kWhole;
    text.replace(text.find(from), from.size(), to);
    EXPECT_FALSE(parse_report(text, "r.json")) << to;
  }
  for (size_t cut = 0; cut + 1 < std::string(kWhole).size(); cut += 7) {
    EXPECT_FALSE(parse_report(std::string(kWhole).substr(0, cut), "r.json")) << cut;
  }
}

TEST(ProcessReport, AFolderIsReadByRankAndWhatIsBrokenIsNamed) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "reports_of_a_run";
  fs::create_directories(folder);
  std::string first = kWhole;
  first.replace(first.find("\"rank\": 3"), 9, "\"rank\": 0");
  std::string unranked = kWhole;
  unranked.replace(unranked.find("\"rank\": 3,"), 10, "");
  std::ofstream(folder / "a.json") << unranked;
  std::ofstream(folder / "b.json") << kWhole;
  std::ofstream(folder / "c.json") << first;
  std::ofstream(folder / "d.json") << "{";
  std::ofstream(folder / "e.json.tmp") << "{";
  std::vector<std::string> notes;
  const std::vector<ProcessReport> reports = read_reports(folder, notes);
  fs::remove_all(folder);
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_EQ(reports[0].rank, 0);
  EXPECT_EQ(reports[1].rank, 3);
  EXPECT_FALSE(reports[2].rank);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("d.json"), std::string::npos);
}

TEST(ProcessReport, AMissingFolderIsNoReports) {
  std::vector<std::string> notes;
  EXPECT_TRUE(read_reports("/nonexistent/folder", notes).empty());
}

}  // namespace
}  // namespace headroom::run
