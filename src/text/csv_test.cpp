#include "text/csv.h"

#include <gtest/gtest.h>

#include <random>

namespace headroom::text {
namespace {

Error error_of(std::string_view text, const CsvLimits& limits = {}) {
  const Result<CsvTable> table = read_csv(text, "t.csv", limits);
  EXPECT_FALSE(table) << text;
  return table ? Error{} : table.error();
}

TEST(Csv, ReadsRowsByName) {
  const CsvTable table = *read_csv("id,name\n1,a\r\n2,\"b, \"\"c\"\"\nd\"\n\n3,\n", "t.csv");
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.at(0, "name"), "a");
  EXPECT_EQ(table.at(1, "name"), "b, \"c\"\nd");
  EXPECT_EQ(table.at(2, "name"), "");
  EXPECT_EQ(table.at(2, "absent"), "");
  EXPECT_EQ(table.lines, (std::vector<int64_t>{2, 3, 6}));
}

TEST(Csv, LineEndsAndByteOrderMark) {
  for (const char* text : {"a,b\n1,2", "a,b\r\n1,2\r\n", "\xEF\xBB\xBF\"a\",b\n1,\"2\"",
                           "\n\na,b\n\n1,2\r", "a,b\r\n1,2\r"}) {
    const Result<CsvTable> table = read_csv(text, "t.csv");
    ASSERT_TRUE(table) << text << table.error().to_string();
    ASSERT_EQ(table->rows.size(), 1U) << text;
    EXPECT_EQ(table->at(0, "a"), "1");
    EXPECT_EQ(table->at(0, "b"), "2");
  }
}

TEST(Csv, HeaderAloneIsATableWithoutRows) { EXPECT_TRUE(read_csv("a,b", "t.csv")->rows.empty()); }

TEST(Csv, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a,b\n1,2\n3\n").to_string(), "t.csv:3: has 1 fields, the header has 2");
  EXPECT_EQ(error_of("a\n\"x\ny\"z\n").where, "t.csv:2");
  EXPECT_EQ(error_of("a\n\"x\ny\"\n\"open").where, "t.csv:4");
  EXPECT_NE(error_of("a\nx\"y\n").message.find("quotation"), std::string::npos);
  EXPECT_NE(error_of("a,b,a\n").message.find("two columns"), std::string::npos);
  EXPECT_NE(error_of("").message.find("empty"), std::string::npos);
  EXPECT_NE(error_of("\r\n\n").message.find("empty"), std::string::npos);
}

TEST(Csv, LimitsHold) {
  CsvLimits limits;
  limits.columns = 3;
  EXPECT_TRUE(read_csv("a,b,c\n", "t.csv", limits));
  EXPECT_NE(error_of("a,b,c,d\n", limits).message.find("more than 3"), std::string::npos);
  limits.field = Bytes(5);
  EXPECT_TRUE(read_csv("a\n12345\n\"12345\"\n", "t.csv", limits));
  EXPECT_FALSE(read_csv("a\n123456\n", "t.csv", limits));
  EXPECT_FALSE(read_csv("a\n\"123456\"\n", "t.csv", limits));
  limits.rows = 2;
  EXPECT_TRUE(read_csv("a\n1\n2\n", "t.csv", limits));
  EXPECT_FALSE(read_csv("a\n1\n2\n3\n", "t.csv", limits));
}

TEST(Csv, TypedFields) {
  CsvReader reader =
      *CsvReader::open("i,d\n-5,2.5e3\n99999999999999999999,nan\n1.5,x\n,\n", "t.csv");
  ASSERT_TRUE(*reader.next());
  EXPECT_EQ(*reader.get_int(0, -5, 0), -5);
  EXPECT_EQ(*reader.get_double(1, 0, 1e4), 2500.0);
  EXPECT_EQ(reader.get_int(0, 0, 9).error().to_string(),
            "t.csv:2: column 'i': '-5' is outside 0 to 9");
  EXPECT_FALSE(reader.get_double(1, 0, 10));
  while (*reader.next()) {
    EXPECT_FALSE(reader.get_int(0, INT64_MIN, INT64_MAX)) << reader.line();
    EXPECT_FALSE(reader.get_double(1, -1e300, 1e300)) << reader.line();
  }
  EXPECT_EQ(reader.column("x").error().hint, "it has: i, d");
  EXPECT_EQ(*reader.column("d"), 1U);
}

TEST(Csv, AnErrorEndsTheReader) {
  CsvReader reader = *CsvReader::open("a\n1\n2,2\n3\n", "t.csv");
  EXPECT_TRUE(*reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(*reader.next());
}

TEST(Csv, WhatIsWrittenReadsBack) {
  static constexpr std::string_view kAlphabet = "ab,\"\r\n \xC3\xA9";
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const size_t columns = 1 + random() % 4;
    std::vector<std::string> header;
    for (size_t i = 0; i < columns; ++i) header.push_back("c" + std::to_string(i));
    CsvWriter writer(header);
    std::vector<std::vector<std::string>> rows(random() % 5);
    for (auto& row : rows) {
      row.resize(columns);
      for (auto& value : row) {
        const size_t length = random() % 6;
        for (size_t i = 0; i < length; ++i) value += kAlphabet[random() % kAlphabet.size()];
      }
      writer.row(row);
    }
    const Result<CsvTable> table = read_csv(writer.text(), "t.csv");
    ASSERT_TRUE(table) << writer.text() << table.error().to_string();
    EXPECT_EQ(table->rows, rows);
  }
}

}  // namespace
}  // namespace headroom::text
