#include "report/fit/json.h"

#include <gtest/gtest.h>

#include "report/sample_answer.h"

namespace headroom::report {
namespace {

using text::Json;

// The value at a dotted path, or null.
const Json* at(const Json& json, std::string_view path) {
  const Json* here = &json;
  while (here != nullptr && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    here = here->find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return here;
}

TEST(FitJson, HoldsTheKeysOfTheContract) {
  const Json json = fit_json(sample_answer());
  ASSERT_NE(at(json, "schema"), nullptr);
  EXPECT_EQ(at(json, "schema")->as_string(), "headroom.fit/1");
  EXPECT_EQ(at(json, "fits")->as_string(), "yes");
  for (const char* path :
       {"memory.peak_allocated_bytes", "memory.peak_reserved_bytes",
        "memory.steady_allocated_bytes", "memory.device_used_bytes.low",
        "memory.device_used_bytes.expected", "memory.device_used_bytes.high",
        "memory.breakdown_bytes.lm_head_weight", "memory.breakdown_bytes.lm_head_gradient",
        "memory.breakdown_bytes.lm_head_state", "memory.breakdown_bytes.logits",
        "memory.breakdown_bytes.loss"}) {
    ASSERT_NE(at(json, path), nullptr) << path;
    EXPECT_TRUE(at(json, path)->is_integer()) << path;
  }
  EXPECT_EQ(at(json, "memory.peak_at.phase")->as_string(), "optimizer");
}

TEST(FitJson, TheBreakdownSumsToWhatTheDeviceUses) {
  const Json json = fit_json(sample_answer());
  int64_t sum = 0;
  for (const auto& [name, value] : at(json, "memory.breakdown_bytes")->members()) {
    sum += value.as_int();
  }
  EXPECT_EQ(sum, at(json, "memory.device_used_bytes.expected")->as_int());
}

TEST(FitJson, ReadsBackAsItWasWritten) {
  const Json json = fit_json(sample_answer_with("\"\\\x01 \xff </script>"));
  const Result<Json> read = text::parse_json(json.dump(), "fit.json");
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->dump(), json.dump());
}

TEST(FitJson, AgainstNamesEveryRowAndWhyItIsUnsupported) {
  const Json json = against_json(sample_against());
  const Json::Array& rows = at(json, "rows")->items();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(at(rows[0], "status")->as_string(), "ok");
  EXPECT_EQ(at(rows[1], "status")->as_string(), "unsupported");
  EXPECT_NE(at(rows[1], "reason")->as_string().find("Mamba"), std::string::npos);
  EXPECT_TRUE(at(rows[1], "predicted_bytes")->is_null());
}

}  // namespace
}  // namespace headroom::report
