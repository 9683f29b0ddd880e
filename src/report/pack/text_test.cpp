#include "report/pack/text.h"

#include <gtest/gtest.h>

#include "report/pack/json.h"

namespace headroom::report {
namespace {

pack::PackAnswer sample() {
  pack::PackAnswer answer;
  answer.file = "run.pickle";
  answer.kind = "PyTorch snapshot";
  answer.alignment = 512;
  answer.requests.resize(8255);
  answer.lower_bound = answer.plan.size = answer.plan.proven_bound = Bytes(12 * kGiB);
  answer.plan.is_optimal = true;
  answer.plan.method = "exact search";
  answer.recorded = pack::RecordedFigures{Bytes(12 * kGiB), Bytes(15 * kGiB), 0.8};
  answer.allocators = {{"planned", "", Bytes(12 * kGiB), Bytes(12 * kGiB), 1},
                       {"torch-expandable", "expandable_segments:True", Bytes(12 * kGiB),
                        Bytes(13 * kGiB), 12.0 / 13}};
  return answer;
}

std::string first_line(const pack::PackAnswer& answer) {
  const std::string text = pack_text(answer, {});
  return text.substr(0, text.find('\n'));
}

TEST(PackText, TheFirstLineIsTheAnswer) {
  pack::PackAnswer answer = sample();
  EXPECT_EQ(first_line(answer),
            "12.00 GiB hold the 8,255 requests of run.pickle: no plan needs less");
  answer.plan.size = Bytes(12 * kGiB + 1);
  answer.plan.gap_pct = 100.0 / static_cast<double>(12 * kGiB);
  EXPECT_EQ(
      first_line(answer),
      "12.00 GiB hold the 8,255 requests of run.pickle: 7.8e-09 % above the most that lives at "
      "one moment, and no plan needs less");
  answer.capacity = Bytes(11 * kGiB);
  EXPECT_EQ(first_line(answer).substr(0, 14), "no: 12.00 GiB ");
  EXPECT_NE(first_line(answer).find("1,073,741,825 bytes more than was asked for"),
            std::string::npos);
}

// The run as it was, then the plan for it; a moment is called a peak only where it is known to be
// one.
TEST(PackText, RecordedAndPlannedDoNotContradictEachOther) {
  pack::PackAnswer answer = sample();
  answer.recording.emplace();
  answer.loss.emplace();
  answer.loss->reserved = Bytes(15 * kGiB);
  answer.loss->stranded = Bytes(3 * kGiB);
  const std::string text = pack_text(answer, {});
  EXPECT_EQ(text.substr(0, text.find("\n\n")),
            "recorded: 20.0 % of the 15.00 GiB reserved at the peak was lost to fragmentation "
            "(3.00 GiB)\nplanned:  12.00 GiB hold the 8,255 requests: no plan needs less");
  answer.recording->has_history = false;
  answer.loss->is_end_state = true;
  EXPECT_EQ(
      first_line(answer),
      "recorded: 20.0 % of the 15.00 GiB reserved when the snapshot was taken was in no block "
      "(3.00 GiB); no peak is known without a history");
  EXPECT_EQ(pack_text(answer, {}).find("torch-expandable"), std::string::npos);
}

TEST(PackText, APartIsCalledAPart) {
  pack::PackAnswer answer = sample();
  EXPECT_EQ(pack_text(answer, {}).find("not all of the file"), std::string::npos);
  answer.is_partial = true;
  EXPECT_NE(pack_text(answer, {}).find("not all of the file could be read"), std::string::npos);
  EXPECT_TRUE(pack_json(answer).find("is_partial")->as_bool());
}

TEST(PackText, WhatToSetStandsBesideWhatItGives) {
  const std::string text = pack_text(sample(), {});
  EXPECT_NE(text.find("expandable_segments:True"), std::string::npos);
  EXPECT_LT(text.find("planned"), text.find("torch-expandable"));
}

TEST(PackJson, KeysThatOthersRelyOn) {
  const text::Json json = pack_json(sample());
  EXPECT_EQ(json.find("schema")->as_string(), "headroom.pack/1");
  EXPECT_EQ(json.find("requests")->as_int(), 8255);
  EXPECT_EQ(json.find("plan")->find("bytes")->as_int(), 12 * kGiB);
  EXPECT_EQ(json.find("recorded")->find("peak_reserved_bytes")->as_int(), 15 * kGiB);
  EXPECT_EQ(json.find("allocators")->find("planned")->find("efficiency")->as_double(), 1);
}

}  // namespace
}  // namespace headroom::report
