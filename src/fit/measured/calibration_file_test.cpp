#include "fit/measured/calibration_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "fit/fit.h"

namespace headroom::fit {
namespace {

Calibration sample() {
  Calibration calibration;
  calibration.learned_from = "mine.csv";
  calibration.version = "0.1.0";
  for (const int64_t size : {1000, 4000}) {
    CalibrationPoint point;
    point.id = std::to_string(size);
    point.model = "openai-community/gpt2";
    point.device = "a100-sxm-80gb";
    point.torch = "2.8";
    point.predicted = Bytes(size * kMiB);
    point.measured = Bytes((size + 512) * kMiB);
    calibration.points.push_back(point);
  }
  calibration.laws = learn(calibration.points);
  return calibration;
}

Result<Calibration> parsed(const std::string& text) {
  HEADROOM_ASSIGN(const text::Json json, text::parse_json(text, "c.json"));
  return read_calibration(text::JsonView(json, "c.json"));
}

TEST(CalibrationFile, ReadsWhatItWrote) {
  const std::string written = calibration_json(sample()).dump(2);
  const auto read = parsed(written);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(calibration_json(*read).dump(2), written);
  ASSERT_NE(read->law_for(Metric::peak_allocated, "t4"), nullptr);
  EXPECT_EQ(read->laws[0].offset, Bytes(512 * kMiB));
}

TEST(CalibrationFile, AFileOfAnotherVerbCorrectsNothing) {
  const auto read = parsed(R"({"schema": "headroom.calibration/1", "device": {"laws": 7}})");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_TRUE(read->laws.empty());
}

TEST(CalibrationFile, ErrorsNameThePlace) {
  const std::string good = calibration_json(sample()).dump();
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    text.replace(text.find(what), what.size(), instead);
    return text;
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[]", "#"},
      {R"({"schema": "headroom.fit/1"})", "#/schema"},
      {with(R"("law":"offset")", R"("law":"cubic")"), "#/memory/laws/0/law"},
      {with(R"("metric":"peak_allocated")", R"("metric":"speed")"), "#/memory/laws/0/metric"},
      {with(R"("offset_bytes":536870912)", R"("offset_bytes":1e30)"), "/offset_bytes"},
      {with(R"("offset_bytes":536870912)", R"("offset_bytes":"much")"), "/offset_bytes"},
      {with(R"("ratio":1.0)", R"("ratio":-1)"), "/ratio"},
      {with(R"("ratio":1.0)", R"("ratio":1e9)"), "/ratio"},
      {with(R"("predicted_bytes":1048576000)", R"("predicted_bytes":-1)"), "/predicted_bytes"},
      {with(R"("laws":[)", R"("laws":[7,)"), "#/memory/laws/0"},
  };
  for (const auto& [text, place] : cases) {
    const auto read = parsed(text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().to_string().find(place), std::string::npos)
        << read.error().to_string() << "\nexpected " << place;
  }
  const std::string law = good.substr(good.find(R"({"metric")"));
  const std::string one = law.substr(0, law.find('}') + 1);
  EXPECT_FALSE(parsed(with(R"("laws":[)", R"("laws":[)" + one + ","))) << "two laws of a metric";
}

TEST(CalibrationFile, APredictionCorrectedByItSaysSo) {
  const auto path = std::filesystem::temp_directory_path() / "headroom_calibration_test.json";
  ASSERT_TRUE(write_file_atomic(path.string(), calibration_json(sample()).dump()));
  FitQuestion question;
  question.model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0";
  question.device = "a100-sxm-80gb";
  question.search = false;
  const auto plain = answer(question);
  ASSERT_TRUE(plain) << plain.error().to_string();
  question.calibration = path.string();
  const auto corrected = answer(question);
  ASSERT_TRUE(corrected) << corrected.error().to_string();
  std::filesystem::remove(path);
  const MemoryFigures& memory = corrected->memory;
  EXPECT_EQ(plain->memory.allocated_provenance, Provenance::counted);
  EXPECT_EQ(memory.allocated_provenance, Provenance::calibrated);
  EXPECT_EQ(memory.peak_allocated, plain->memory.peak_allocated + Bytes(512 * kMiB));
  EXPECT_EQ(memory.breakdown.allocated(), memory.peak_allocated);
  EXPECT_GE(memory.peak_reserved, memory.peak_allocated);
  ASSERT_FALSE(corrected->warnings.empty());
  EXPECT_NE(corrected->warnings[0].find("+512.0 MiB"), std::string::npos) << corrected->warnings[0];
}

}  // namespace
}  // namespace headroom::fit
