#include "bench/nongemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace headroom::bench {
namespace {

using text::Json;
using text::JsonView;

NongemmSetting setting_of(const std::string& model) {
  return {model, "pytorch", "forward", 1, "fp32", "none", "none"};
}

NongemmRecord record_of(const NongemmSetting& setting, const GroupMilliseconds& groups,
                        const GroupMilliseconds& paper) {
  NongemmRecord record;
  record.setting = setting;
  record.status = NongemmStatus::measured;
  double sum = 0;
  for (const auto& [name, ms] : groups) sum += ms;
  record.seconds = sum * 1e-3;
  record.uncertainty = 0.01;
  record.samples = 9;
  record.parameters = 100;
  record.trace = "a.trace.json.gz";
  record.profiled_seconds = record.seconds;
  static_cast<TimeAccount&>(record.profile) = {sum, 0, groups, paper};
  return record;
}

// What a head of 10 ms and layers of 2 ms GEMM and 1 ms memory take.
NongemmRecord depth_of(int64_t layers, int64_t whole) {
  const auto n = static_cast<double>(layers);
  NongemmRecord record = record_of(setting_of("llama-2-7b"), {{"gemm", 10 + 2 * n}, {"memory", n}},
                                   {{"GEMM", 10 + 2 * n}, {"memory", n}});
  record.layers = layers;
  record.layers_of_model = whole;
  record.model_parameters = 7000;
  return record;
}

timing::Machine machine() {
  timing::Machine machine;
  machine.product = "a processor";
  machine.kind = "cpu";
  machine.memory = Bytes(kGiB);
  machine.torch = "2.13.0";
  machine.python = "3.11";
  return machine;
}

NongemmAnswer answer_of(std::vector<NongemmRecord> records) {
  return answer_nongemm({machine(), std::move(records)});
}

TEST(NongemmTest, TheTableHasThePapersSeventeen) {
  const auto& models = nongemm_models();
  const auto of_paper = std::ranges::count(models, "paper", &NongemmModel::set);
  EXPECT_EQ(of_paper, 17);
  for (const NongemmModel& model : models) {
    EXPECT_FALSE(model.source.empty()) << model.name;
    EXPECT_NE(model.recipe.find("inputs"), nullptr) << model.name;
    const bool is_made =
        model.recipe.find("config") != nullptr || model.recipe.find("module") != nullptr;
    EXPECT_TRUE(is_made) << model.name;
  }
  const auto llama = find_nongemm_model("llama-2-7b", 512);
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->recipe.find("config")->find("model_type")->as_string(), "llama");
  EXPECT_EQ(llama->recipe.find("inputs")->find("tokens")->as_int(), 2048);
}

TEST(NongemmTest, AModelOfTheTableOfModelsHasItsInputs) {
  const auto words = find_nongemm_model("HuggingFaceTB/SmolLM2-135M", 512);
  ASSERT_TRUE(words);
  EXPECT_EQ(words->recipe.find("inputs")->find("tokens")->as_int(), 512);
  const auto image = find_nongemm_model("google/vit-base-patch16-224", 512);
  ASSERT_TRUE(image);
  EXPECT_EQ(image->recipe.find("inputs")->find("pixel_values")->items()[1].as_int(), 224);
  const auto unknown = find_nongemm_model("swin-x", 512);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().hint.find("did you mean swin-"), std::string::npos);
}

TEST(NongemmTest, SharesAreOfWhatOperatorsTake) {
  const auto answer =
      answer_of({record_of(setting_of("gpt2"), {{"gemm", 60}, {"attention", 10}, {"memory", 30}},
                           {{"GEMM", 76}, {"memory", 19}, {"missed", 5}})});
  ASSERT_EQ(answer.rows.size(), 1U);
  EXPECT_DOUBLE_EQ(answer.rows[0].gemm_pct, 60);
  EXPECT_DOUBLE_EQ(answer.rows[0].nongemm_pct, 30);
  EXPECT_DOUBLE_EQ(*answer.rows[0].paper_nongemm_pct, 20);  // what is missed is no part of it
  EXPECT_EQ(answer.effects.within, 1);
}

TEST(NongemmTest, ThePapersListsMustKnowTheOperators) {
  const auto answer = answer_of({record_of(setting_of("gpt2"), {{"gemm", 60}, {"memory", 40}},
                                           {{"GEMM", 60}, {"memory", 20}, {"missed", 20}})});
  EXPECT_FALSE(answer.rows[0].paper_nongemm_pct);
  EXPECT_EQ(answer.effects.compared, 0);
}

TEST(NongemmTest, TwoDepthsMakeTheWhole) {
  const auto answer = answer_of({depth_of(1, 32), depth_of(2, 32)});
  ASSERT_EQ(answer.rows.size(), 1U);
  const NongemmRow& row = answer.rows[0];
  EXPECT_EQ(row.provenance, Provenance::extrapolated);
  EXPECT_NEAR(row.seconds, 0.106, 1e-12);
  EXPECT_NEAR(row.nongemm_pct, 100.0 * 32 / 106, 1e-9);
  EXPECT_EQ(row.measured_layers, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(row.parameters, 7000);
  // 31 times the second's 0.16 ms and 30 times the first's 0.13 ms, independent of one another.
  EXPECT_NEAR(*row.seconds_half, std::hypot(31 * 0.16e-3, 30 * 0.13e-3), 1e-12);
}

// Two layers in a run of 16 ms, of 3 ms each; the other run does not count.
NongemmRecord with_layers(std::optional<double> apart_ms) {
  NongemmRecord more = depth_of(2, 32);
  AddedLayers& layers = more.profile.added.emplace();
  layers.wall_ms = 3;
  layers.groups = {{"gemm", 2}, {"memory", 1}};
  layers.paper_groups = {{"GEMM", 2}, {"memory", 1}};
  layers.apart_ms = apart_ms;
  return more;
}

TEST(NongemmTest, ALayerIsWhatTheLongerRunHasBeyondTheOther) {
  NongemmRecord few = depth_of(1, 32);
  few.seconds = 1;  // a hundred times too slow
  const auto answer = answer_of({few, with_layers(0.3)});
  ASSERT_EQ(answer.rows.size(), 1U);
  const NongemmRow& row = answer.rows[0];
  EXPECT_NEAR(row.seconds, 0.106, 1e-12);
  EXPECT_NEAR(row.nongemm_pct, 100.0 * 32 / 106, 1e-9);
  EXPECT_NEAR(*row.paper_nongemm_pct, 100.0 * 32 / 106, 1e-9);
  EXPECT_NEAR(*row.seconds_half, std::hypot(0.16e-3, 30 * 0.05 * 3e-3), 1e-12);
  EXPECT_TRUE(row.notes.empty());
  EXPECT_NEAR(*answer_of({few, with_layers({})}).rows[0].seconds_half,
              std::hypot(0.16e-3, 30 * 0.01 * 3e-3), 1e-12);
  NongemmRecord single = with_layers({});
  single.uncertainty.reset();
  EXPECT_FALSE(answer_of({few, single}).rows[0].seconds_half);
}

TEST(NongemmTest, LayersThatDifferTooMuchMakeNothing) {
  EXPECT_TRUE(answer_of({depth_of(1, 32), with_layers(5.9)}).rows.empty());
}

TEST(NongemmTest, ADifferenceOfRunsIsCalledOne) {
  const auto answer = answer_of({depth_of(1, 32), depth_of(2, 32)});
  EXPECT_EQ(answer.rows[0].notes,
            std::vector<std::string>{"a layer's time is the difference of two runs"});
}

TEST(NongemmTest, DepthsThatDoNotDifferMakeNothing) {
  NongemmRecord more = depth_of(2, 32);
  more.seconds = depth_of(1, 32).seconds;
  const auto answer = answer_of({depth_of(1, 32), more});
  EXPECT_TRUE(answer.rows.empty());
  ASSERT_EQ(answer.refused.size(), 1U);
  EXPECT_NE(answer.refused[0].reason.find("quieter machine"), std::string::npos);
  NongemmRecord unsure = depth_of(2, 32);
  unsure.uncertainty = 0.2;
  EXPECT_TRUE(answer_of({depth_of(1, 32), unsure}).rows.empty());
  const auto one = answer_of({depth_of(1, 32)});
  EXPECT_TRUE(one.rows.empty());
  EXPECT_EQ(one.refused.size(), 1U);
}

TEST(NongemmTest, ARefusalIsForgottenOnceItIsMeasured) {
  NongemmRecord refused;
  refused.setting = setting_of("gpt2");
  refused.reason = "no";
  const auto before = answer_of({refused});
  EXPECT_TRUE(before.rows.empty());
  EXPECT_EQ(before.refused.size(), 1U);
  const auto after = answer_of({refused, record_of(setting_of("gpt2"), {{"gemm", 1}}, {})});
  EXPECT_EQ(after.rows.size(), 1U);
  EXPECT_TRUE(after.refused.empty());
}

TEST(NongemmTest, EffectsAreCountedInPairs) {
  NongemmSetting int8 = setting_of("gpt2");
  int8.quantize = "int8";
  NongemmSetting fused = setting_of("gpt2");
  fused.fusion = "all";
  NongemmSetting alone = setting_of("bert");
  alone.quantize = "int8";
  NongemmSetting int4 = setting_of("gpt2");
  int4.quantize = "int4";
  const auto answer = answer_of({
      record_of(setting_of("gpt2"), {{"gemm", 70}, {"memory", 30}}, {{"GEMM", 95}, {"memory", 5}}),
      record_of(int8, {{"gemm", 40}, {"memory", 30}}, {}),
      record_of(int4, {{"gemm", 90}, {"memory", 30}}, {}),
      record_of(fused, {{"gemm", 70}, {"memory", 5}}, {}),
      record_of(alone, {{"gemm", 70}, {"memory", 5}}, {}),
  });
  const NongemmEffects& effects = answer.effects;
  EXPECT_EQ(effects.below, 1);
  EXPECT_EQ(effects.int8_pairs, 1);
  EXPECT_EQ(effects.int8_raised, 1);
  EXPECT_EQ(effects.int4_pairs, 1);
  EXPECT_EQ(effects.int4_raised, 0);
  EXPECT_EQ(effects.fusion_pairs, 1);
  EXPECT_EQ(effects.fusion_lowered, 1);
  EXPECT_EQ(effects.fused_below, 1);
  ASSERT_EQ(effects.exceptions.size(), 2U);  // below the paper's range; int4 lowers the share
  EXPECT_DOUBLE_EQ(effects.int8_speedup, 100.0 / 70);
  EXPECT_DOUBLE_EQ(effects.int4_speedup, 100.0 / 120);
  EXPECT_DOUBLE_EQ(effects.fusion_speedup, 100.0 / 75);
  EXPECT_EQ(answer_of({}).effects.int8_speedup, 0);
}

TEST(NongemmTest, OneOptimizerLeftOutIsASettingOfItsOwn) {
  for (const char* word : {"none", "basic", "all", "all-GeluFusion", "all-Level1"}) {
    EXPECT_TRUE(is_nongemm_fusion(word)) << word;
  }
  for (const char* word :
       {"", "some", "all-", "none-GeluFusion", "all-../x", "all-a b", "all-\n"}) {
    EXPECT_FALSE(is_nongemm_fusion(word)) << word;
  }
  EXPECT_FALSE(is_nongemm_fusion("all-" + std::string(100, 'x')));
  NongemmSetting without = setting_of("gpt2");
  without.fusion = "all-GeluFusion";
  NongemmSetting all = setting_of("gpt2");
  all.fusion = "all";
  EXPECT_NE(without.id(), all.id());
  const auto answer = answer_of({record_of(setting_of("gpt2"), {{"gemm", 1}, {"memory", 1}}, {}),
                                 record_of(without, {{"gemm", 1}, {"memory", 2}}, {})});
  EXPECT_EQ(answer.rows.size(), 2U);
  EXPECT_EQ(answer.effects.fusion_pairs, 0);  // it is no level
}

TEST(NongemmTest, EnergyIsAddedUpLikeTime) {
  NongemmRecord few = depth_of(1, 32);
  NongemmRecord more = depth_of(2, 32);
  few.joules = 13;
  more.joules = 16;
  EXPECT_DOUBLE_EQ(*answer_of({few, more}).rows[0].joules, 13 + 31 * 3);
  more.joules.reset();
  EXPECT_FALSE(answer_of({few, more}).rows[0].joules);
}

TEST(NongemmTest, AFileOfOnnxIsReadBeforeAnythingIsMeasured) {
  const auto missing = find_nongemm_model("/nowhere/model.onnx", 512);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().to_string().find("/nowhere/model.onnx"), std::string::npos);
}

TEST(NongemmTest, MachinesStandSideBySide) {
  NongemmSetting int8 = setting_of("gpt2");
  int8.quantize = "int8";
  const auto plain = record_of(setting_of("gpt2"), {{"gemm", 80}, {"memory", 20}}, {});
  const auto quantized = record_of(int8, {{"gemm", 50}, {"memory", 50}}, {});
  const auto bert = record_of(setting_of("bert"), {{"gemm", 90}, {"memory", 10}}, {});
  const auto merged =
      merge_nongemm({{"a", {machine(), {plain, bert}}}, {"b", {machine(), {bert, quantized}}}});
  ASSERT_EQ(merged.rows.size(), 3U);
  EXPECT_EQ(merged.rows[0].setting.model, "bert");
  EXPECT_TRUE(merged.rows[0].by_machine[0] && merged.rows[0].by_machine[1]);
  EXPECT_TRUE(merged.rows[1].by_machine[0] && !merged.rows[1].by_machine[1]);
  EXPECT_TRUE(!merged.rows[2].by_machine[0] && merged.rows[2].by_machine[1]);
  EXPECT_DOUBLE_EQ(merged.rows[2].by_machine[1]->nongemm_pct, 50);
}

TEST(NongemmTest, RecordsAreReadBack) {
  NongemmRecord record = record_of(setting_of("gpt2"), {{"gemm", 1}}, {{"GEMM", 1}});
  record.notes = {"routing"};
  record.joules = 2.5;
  record.typical_trace = "a.typical.trace.json.gz";
  record.profiled_runs = 15;
  record.profile.added = with_layers(0.1).profile.added;
  NongemmRecord refused;
  refused.setting = setting_of("bert");
  refused.reason = "\"no\"\n";
  std::string text = nongemm_header(machine()).dump() + "\n";
  for (const NongemmRecord& one : {record, refused, record}) {
    text += nongemm_record_json(one).dump() + "\n";
  }
  const auto read = parse_nongemm_records(text, "results.jsonl");
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_EQ(read->records.size(), 2U);  // the later one of a setting replaces the earlier
  EXPECT_EQ(nongemm_record_json(read->records[0]).dump(), nongemm_record_json(record).dump());
  EXPECT_EQ(read->records[1].reason, refused.reason);
}

TEST(NongemmTest, ARecordThatIsOffIsAnErrorWithItsPlace) {
  const std::string header = nongemm_header(machine()).dump() + "\n";
  const std::string record =
      nongemm_record_json(record_of(setting_of("gpt2"), {{"gemm", 1}}, {})).dump() + "\n";
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string changed = record;
    changed.replace(changed.find(from), from.size(), to);
    const auto read = parse_nongemm_records(header + changed, "r");
    return read ? std::string("was read") : read.error().to_string();
  };
  EXPECT_EQ(broken("\"pytorch\"", "\"tensorflow\"").find("r:2#/setting/engine"), 0U);
  EXPECT_EQ(broken("\"a.trace", "\"../a.trace").find("r:2#/trace"), 0U);
  EXPECT_EQ(
      broken("\"typical_trace\":null", "\"typical_trace\":\"/etc/x\"").find("r:2#/typical_trace"),
      0U);
  EXPECT_EQ(broken("\"profiled_runs\":1", "\"profiled_runs\":0").find("r:2#/profiled_runs"), 0U);
  EXPECT_EQ(broken("\"none\",\"fusion\":\"none\"", "\"none\",\"fusion\":\"all-\"")
                .find("r:2#/setting/fusion"),
            0U);
  EXPECT_EQ(broken("\"ms\":1", "\"ms\":-1").find("r:2#/profile/groups/0/ms"), 0U);
  EXPECT_EQ(broken("\"seconds\":0.001", "\"seconds\":0").find("r:2#/seconds"), 0U);
  EXPECT_FALSE(parse_nongemm_records(record, "r"));  // without its header
}

TEST(NongemmTest, TheRunnerSpeaksOfWhatItWasAsked) {
  const NongemmSetting setting = setting_of("gpt2");
  const Json line = Json::object()
                        .set("id", setting.id())
                        .set("status", "refused")
                        .set("layers", nullptr)
                        .set("reason", "no");
  const auto read = read_runner_record(JsonView(line, "runner"), {{setting.id(), setting}});
  ASSERT_TRUE(read);
  EXPECT_EQ(read->setting, setting);
  EXPECT_FALSE(read_runner_record(JsonView(line, "runner"), {}));
}

}  // namespace
}  // namespace headroom::bench
