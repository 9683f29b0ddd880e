#include "pack/exports.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "formats/packing_csv.h"
#include "pack/pack.h"
#include "tests/tools/room_test.h"
#include "text/json.h"

namespace headroom::pack {
namespace {

PackAnswer answer_of(const std::string& name) {
  PackQuestion question;
  question.file = tests::source_dir() + "/tests/data/" + name;
  auto result = answer(question);
  EXPECT_TRUE(result) << result.error().to_string();
  return result ? *std::move(result) : PackAnswer();
}

TEST(Exports, TheTableIsTheSameInstance) {
  const PackAnswer recorded = answer_of("snapshot_whole.pickle");
  const std::string table = requests_csv_of(recorded);
  const auto instance = formats::parse_packing_csv(table, "exported.csv");
  ASSERT_TRUE(instance) << instance.error().to_string();
  ASSERT_EQ(instance->ids.size(), recorded.requests.size());
  for (size_t i = 0; i < instance->ids.size(); ++i) {
    EXPECT_EQ(instance->problem.requests[i], recorded.requests[i].request);
  }
  EXPECT_NE(table.find("model.py:10 layer0"), std::string::npos);
}

struct Slice {
  int64_t start;
  int64_t end;
};

// Read back: every request once with its time and size, no two slices of a lane at one time, and
// the counter's highest value is the most that lived.
TEST(Exports, TheTraceSaysWhatTheRequestsSay) {
  const PackAnswer recorded = answer_of("snapshot_whole.pickle");
  const auto json = text::parse_json(chrome_trace_of(recorded), "trace.json");
  ASSERT_TRUE(json) << json.error().to_string();
  const auto events = text::JsonView(*json, "trace.json").get_array("traceEvents");
  ASSERT_TRUE(events);
  std::map<std::pair<int64_t, int64_t>, std::vector<Slice>> lanes;
  int64_t most_live = 0;
  int64_t most_reserved = 0;
  int64_t total = 0;
  size_t slices = 0;
  for (const text::JsonView& event : *events) {
    const std::string kind = *event.get_string("ph");
    const auto arguments = *event.get_object("args");
    if (kind == "C") {
      auto& most = *event.get_string("name") == "reserved" ? most_reserved : most_live;
      most = std::max(most, *arguments.get_int("bytes", INT64_MIN, INT64_MAX));
    }
    if (kind != "X") continue;
    ++slices;
    total += *arguments.get_int("size_bytes", 0, INT64_MAX);
    const int64_t start = *event.get_int("ts", 0, INT64_MAX);
    lanes[{*event.get_int("pid", 1, 100), *event.get_int("tid", 0, 1 << 20)}].push_back(
        {start, start + *event.get_int("dur", 0, INT64_MAX)});
  }
  EXPECT_EQ(slices, recorded.requests.size());
  int64_t expected = 0;
  for (const PlannedRequest& planned : recorded.requests) expected += planned.request.size;
  EXPECT_EQ(total, expected);
  for (auto& [lane, items] : lanes) {
    std::sort(items.begin(), items.end(),
              [](const Slice& a, const Slice& b) { return a.start < b.start; });
    for (size_t i = 1; i < items.size(); ++i) EXPECT_GE(items[i].start, items[i - 1].end);
  }
  EXPECT_EQ(Bytes(most_reserved), recorded.recorded->peak_reserved);
  EXPECT_GT(most_live, 0);
  EXPECT_LE(Bytes(most_live), recorded.recorded->peak_allocated);  // which is rounded
}

TEST(Exports, AnInstanceHasNoTimesAndNoSites) {
  PackAnswer instance;
  instance.file = "a \"quoted\" name";
  instance.requests = {{"x", 0, {0, 4, 100}, 0}, {"y", 0, {2, 6, 50}, 100}};
  EXPECT_EQ(requests_csv_of(instance),
            "id,lower,upper,size,stream,address,begin_us,end_us,site\n"
            "x,0,4,100,0,,,,\ny,2,6,50,0,,,,\n");
  const auto json = text::parse_json(chrome_trace_of(instance), "trace.json");
  ASSERT_TRUE(json) << json.error().to_string();
}

}  // namespace
}  // namespace headroom::pack
