#include "formats/ncu_csv.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace headroom::formats {
namespace {

constexpr std::string_view kRaw = R"csv(==PROF== Connected to process 7
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Device","CC","dram__bytes.sum","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","","","","","","","","Mbyte","usecond","%"
"0","7","app","host","void gemm<128, 64>(float*)","1","7","0","9.0","1,250.50","12.5","81.25"
"1","7","app","host","add","1","7","0","9.0","2","N/A","3"
==PROF== Disconnected from process 7
)csv";

constexpr std::string_view kDetails =
    R"csv("ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","gemm","Speed Of Light","DRAM Throughput","%","41.5"
"0","7","gemm","Speed Of Light","Duration","msecond","2"
"0","7","gemm","Rules","","",""
"1","7","gemm","Speed Of Light","Duration","usecond","1,000"
)csv";

TEST(NcuCsv, TheRawPage) {
  const auto profile = parse_ncu_csv(kRaw, "test.csv");
  ASSERT_TRUE(profile) << profile.error().to_string();
  ASSERT_EQ(profile->metrics.size(), 3U);
  EXPECT_EQ(profile->metrics[0].name, "dram__bytes.sum");
  EXPECT_EQ(profile->metrics[0].unit, "byte");
  EXPECT_EQ(profile->metrics[1].unit, "second");
  ASSERT_EQ(profile->launches.size(), 2U);
  EXPECT_EQ(profile->launches[0].kernel, "void gemm<128, 64>(float*)");
  ASSERT_EQ(profile->launches[0].values.size(), 3U);
  EXPECT_DOUBLE_EQ(profile->launches[0].values[0].second, 1.2505e9);
  EXPECT_DOUBLE_EQ(profile->launches[0].values[1].second, 12.5e-6);
  EXPECT_DOUBLE_EQ(profile->launches[0].values[2].second, 81.25);
  EXPECT_EQ(profile->launches[1].values.size(), 2U);  // N/A is no value
}

TEST(NcuCsv, TheDetailsPage) {
  const auto profile = parse_ncu_csv(kDetails, "test.csv");
  ASSERT_TRUE(profile) << profile.error().to_string();
  ASSERT_EQ(profile->launches.size(), 2U);
  EXPECT_DOUBLE_EQ(profile->launches[0].values[1].second, 2e-3);
  EXPECT_DOUBLE_EQ(profile->launches[1].values[0].second, 1e-3);
  EXPECT_EQ(profile->launches[1].values[0].first, 1U);  // the same metric, in another unit
}

TEST(NcuCsv, NumbersOfAnotherLocaleAreRefused) {
  for (const char* number : {"65,77", "27.595.520", "1.234,5"}) {
    const std::string text = "\"ID\",\"Kernel Name\",\"m\"\n\"\",\"\",\"%\"\n\"0\",\"k\",\"" +
                             std::string(number) + "\"\n";
    const auto profile = parse_ncu_csv(text, "test.csv");
    ASSERT_FALSE(profile) << number;
    EXPECT_NE(profile.error().message.find("locale"), std::string::npos);
  }
}

TEST(NcuCsv, CutAtEveryByte) {
  for (const std::string_view text : {kRaw, kDetails}) {
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const auto profile = parse_ncu_csv(text.substr(0, cut), "test.csv");
      if (profile) {
        EXPECT_LE(profile->launches.size(), 2U);
      } else {
        EXPECT_FALSE(profile.error().where.empty());
      }
    }
  }
}

}  // namespace
}  // namespace headroom::formats
