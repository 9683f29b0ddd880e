#include "text/table.h"

#include <gtest/gtest.h>

namespace headroom::text {
namespace {

Table sample() {
  Table table({{"name", Align::left, true}, {"bytes", Align::right, false}});
  table.row({"日本", "5"});
  table.row({"a long name of a thing", "12345"});
  return table;
}

TEST(Table, APathIsCutAtItsBeginning) {
  Table table(
      {{"call site", Align::left, true, 0, Cut::beginning}, {"bytes", Align::right, false}});
  table.row({"a/long/way/to/train.py:35 main", "1"});
  table.row({"a/long/way/to/train.py:36 main", "2"});
  Terminal terminal;
  terminal.columns = 28;
  EXPECT_EQ(table.render(terminal),
            "call site              bytes\n"
            "…/to/train.py:35 main      1\n"
            "…/to/train.py:36 main      2\n");
}

TEST(Table, TitlesThatDifferAtTheirEndAreCutInTheMiddle) {
  Table table({{"change", Align::left, true, 0, Cut::middle}, {"", Align::right, false}});
  table.row({"layers in int8, quantized within", "1"});
  table.row({"layers in int8, quantized apart", "2"});
  table.row({"host", "3"});
  Terminal terminal;
  terminal.columns = 20;
  EXPECT_EQ(table.render(terminal),
            "change\n"
            "layers i…d within  1\n"
            "layers i…ed apart  2\n"
            "host               3\n");
}

TEST(Table, AlignsByDisplayWidth) {
  EXPECT_EQ(sample().render(Terminal{}),
            "name                    bytes\n"
            "日本                        5\n"
            "a long name of a thing  12345\n");
}

TEST(Table, NarrowTerminalsCutElasticColumnsOnly) {
  Terminal terminal;
  terminal.columns = 20;
  EXPECT_EQ(sample().render(terminal),
            "name           bytes\n"
            "日本               5\n"
            "a long name …  12345\n");
  terminal.columns = 1;
  EXPECT_NE(sample().render(terminal).find("a lon…  12345"), std::string::npos);
}

TEST(Table, ColourDoesNotShiftAndControlsAreDisarmed) {
  Table table({{"", Align::left, false}, {"", Align::left, false}});
  table.row({{"a\x1B[2J", Style::good}, "b"});
  table.row({"longer name"});
  Terminal terminal;
  terminal.colour = true;
  EXPECT_EQ(table.render(terminal), "\x1B[32ma\uFFFD[2J\x1B[0m        b\nlonger name\n");
}

Table measured() {
  Table table({{"name", Align::left, true},
               {"time", Align::right, false},
               {"count", Align::right, false, 1},
               {"more", Align::right, false, 2}});
  table.row({"a kernel with a very long name indeed", "12.5 ms", "1,000", "x"});
  table.row({"a kernel with another long name", "2.5 ms", "1", "y"});
  return table;
}

Terminal wide(int columns) {
  Terminal terminal;
  terminal.columns = columns;
  return terminal;
}

TEST(Table, IsAsWideAsItsCells) {
  const std::string all =
      "name                                      time  count  more\n"
      "a kernel with a very long name indeed  12.5 ms  1,000     x\n"
      "a kernel with another long name         2.5 ms      1     y\n";
  EXPECT_EQ(measured().render(wide(0)), all);
  EXPECT_EQ(measured().render(wide(59)), all);
}

TEST(Table, CutsNamesAsLongAsTheyCanBeTold) {
  EXPECT_EQ(measured().render(wide(50)),
            "name                             time  count  more\n"
            "a kernel with a very long n…  12.5 ms  1,000     x\n"
            "a kernel with another long …   2.5 ms      1     y\n");
}

TEST(Table, ThenLeavesOutWhatCanBeSparedAndSaysSo) {
  EXPECT_EQ(measured().render(wide(42)),
            "name                           time  count\n"
            "a kernel with a very long…  12.5 ms  1,000\n"
            "a kernel with another lon…   2.5 ms      1\n"
            "1 column more in a wider terminal\n");
}

TEST(Table, ThenCutsOn) {
  EXPECT_EQ(measured().render(wide(20)),
            "name            time\n"
            "a kernel w…  12.5 ms\n"
            "a kernel w…   2.5 ms\n"
            "2 columns more in a wider terminal\n");
}

// Of two columns that can be cut, the one that has more than it needs gives way.
TEST(Table, WhatNeedsMoreToBeReadIsCutLess) {
  Table table(
      {{"flags", Align::left, true, 0, Cut::end, 12}, {"why", Align::left, true, 0, Cut::end, 6}});
  table.row({"0123456789ab", "0123456789ab"});
  EXPECT_EQ(table.render(wide(20)),
            "flags         why\n"
            "0123456789ab  01234…\n");
}

}  // namespace
}  // namespace headroom::text
