#include "bench/measured_decode.h"

#include <gtest/gtest.h>

#include "device/catalogue.h"

namespace headroom::bench {
namespace {

using text::Json;

model::ResolvedModel gpt2() { return *model::resolve_model("openai-community/gpt2"); }

MeasuredDecodeQuestion question_of(int64_t context = 512) {
  MeasuredDecodeQuestion question;
  question.model = gpt2().name;
  question.context = context;
  return question;
}

// A batch of `batch` on a machine of 20 GB/s and 100 GFLOP/s: products take 40 ms, attention 2 ms a
// sequence, the rest 5 ms, and the quickest plain run 3 ms more than that.
NongemmRecord record_of(int64_t batch, std::optional<int64_t> layers = {}) {
  MeasuredDecodeQuestion question = question_of();
  question.batches = {batch};
  NongemmRecord record;
  record.setting = decode_settings(question).front();
  record.status = NongemmStatus::measured;
  record.layers = layers;
  record.layers_of_model = 12;
  record.parameters = 124'439'808;
  const double attention_ms = 2.0 * static_cast<double>(batch);
  record.profile.groups = {
      {"gemm", 40}, {"attention", attention_ms}, {"normalization", 3}, {"memory", 2}};
  record.profile.wall_ms = 60 + attention_ms;
  record.decode = DecodeFacts{.quickest_seconds = (48 + attention_ms) * 1e-3,
                              .cache = Bytes(batch * 12 * 2 * 768 * 4 * int64_t{512}),
                              .peak_bytes_per_second = 2e10,
                              .peak_flops_per_second = 1e11};
  record.seconds = (50 + attention_ms) * 1e-3;
  record.uncertainty = 0.02;
  record.samples = 9;
  record.profiled_seconds = record.profile.wall_ms * 1e-3;
  record.trace = "a.trace.json.gz";
  return record;
}

NongemmRecord refusal_of(int64_t batch) {
  NongemmRecord record = record_of(batch);
  record.status = NongemmStatus::refused;
  record.reason = "does not fit: a cache of 9 GiB";
  record.decode.reset();
  return record;
}

NongemmRecords records_of(std::vector<NongemmRecord> records) {
  NongemmRecords all;
  all.machine = timing::Machine{"A processor", "cpu", Bytes(16 * kGiB), Bytes(kMiB), 2, "2.13.0",
                                "3.11",        0.1};
  all.records = std::move(records);
  return all;
}

TEST(MeasuredDecode, ClassesAreOfTheProfileAndTheHostIsWhatTheQuickestRunTakesBeyondThem) {
  const auto answer = answer_decode(gpt2().view(), question_of(), records_of({record_of(4)}));
  ASSERT_TRUE(answer) << answer.error().to_string();
  ASSERT_EQ(answer->steps.size(), 1U);
  const DecodeStep& step = answer->steps[0];
  EXPECT_DOUBLE_EQ(step.step.seconds, 0.058);
  EXPECT_NEAR(step.step.high_seconds, 0.058 * 1.02, 1e-12);
  EXPECT_NEAR(step.attention.time.seconds, 8e-3, 1e-12);
  EXPECT_NEAR(step.matmul.time.seconds, 40e-3, 1e-12);
  EXPECT_NEAR(step.other.time.seconds, 5e-3, 1e-12);
  EXPECT_NEAR(step.host.seconds, 3e-3, 1e-12);
  EXPECT_EQ(step.provenance, Provenance::measured);
}

TEST(MeasuredDecode, TrafficIsCountedAndTheRateIsThatByTheClasssTime) {
  const auto answer = answer_decode(gpt2().view(), question_of(), records_of({record_of(4)}));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->measured->not_counted, "");
  const KernelTime& attention = answer->steps[0].attention;
  // 12 layers, 4 sequences: 512 keys and values of 768 numbers, the query and what comes out.
  const double bytes = 12.0 * 4 * (512.0 * 2 * 768 + 2 * 768) * 4;
  EXPECT_NEAR(attention.bytes, bytes, 1);
  EXPECT_NEAR(attention.bytes_per_second(), bytes / 8e-3, 1);
  EXPECT_NEAR(attention.arithmetic_intensity(), 0.5, 0.01);  // of numbers of four bytes
}

TEST(MeasuredDecode, AHostWithoutAGapIsNone) {
  NongemmRecord record = record_of(1);
  record.decode->quickest_seconds = 1e-3;  // the profiled run was disturbed
  const auto answer = answer_decode(gpt2().view(), question_of(), records_of({record}));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->steps[0].host.seconds, 0);
}

TEST(MeasuredDecode, WhatOtherProgramsTookOfTheProfiledRunIsTakenOff) {
  NongemmRecord record = record_of(4);
  record.decode->profiled_waited_seconds = record.profiled_seconds / 2;
  const auto answer = answer_decode(gpt2().view(), question_of(), records_of({record}));
  ASSERT_TRUE(answer);
  EXPECT_NEAR(answer->steps[0].attention.time.seconds, 4e-3, 1e-12);
  EXPECT_NEAR(answer->steps[0].matmul.time.seconds, 20e-3, 1e-12);
  EXPECT_DOUBLE_EQ(answer->steps[0].step.seconds, 0.058);
}

TEST(MeasuredDecode, NoPlateauIsToldOfRunsThatOthersDisturbed) {
  std::vector<NongemmRecord> records;
  for (const int64_t batch : {1, 2, 4, 8}) records.push_back(record_of(batch));
  EXPECT_TRUE(answer_decode(gpt2().view(), question_of(), records_of(records))->saturation_batch);
  records[1].decode->profiled_waited_seconds = 0.4 * records[1].profiled_seconds;
  EXPECT_FALSE(answer_decode(gpt2().view(), question_of(), records_of(records))->saturation_batch);
}

TEST(MeasuredDecode, PredictedStepsStandBesideMeasuredOnes) {
  NongemmRecords records = records_of({record_of(1), record_of(4)});
  records.records[0].decode->undisturbed_seconds = 0.04;
  auto answer = answer_decode(gpt2().view(), question_of(), records);
  ASSERT_TRUE(answer);
  const auto device = *device::DeviceCatalogue::built_in().find("h200");
  const auto model = timing::TimingModel::built_in();
  ASSERT_TRUE(add_predicted(gpt2().view(), device, model, "a.json", *answer));
  ASSERT_EQ(answer->predicted.size(), 2U);
  const double first = answer->predicted[0].step.seconds;
  EXPECT_NEAR(*answer->median_error_undisturbed_pct, 100 * (1 - first / 0.04), 1e-9);
  EXPECT_GT(answer->peak_bytes_per_second, 4e12);  // the device's, which the run did not reach
  for (const timing::DecodeStep& step : answer->steps) {
    double floor = 0;
    for (const timing::KernelTime* kernels : {&step.attention, &step.matmul}) {
      floor += std::max(kernels->flops / answer->peak_flops_per_second,
                        kernels->bytes / answer->peak_bytes_per_second);
    }
    EXPECT_DOUBLE_EQ(step.roofline_seconds, floor);  // at those peaks
  }
}

TEST(MeasuredDecode, BatchesThatDidNotRunSayWhy) {
  const auto records = records_of({record_of(1), record_of(2), refusal_of(256), refusal_of(2)});
  const auto answer = answer_decode(gpt2().view(), question_of(), records);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->largest_batch, 2);
  ASSERT_EQ(answer->measured->not_run.size(), 1U);  // of batch 2 there is a time
  EXPECT_EQ(answer->measured->not_run[0].batch, 256);
  EXPECT_FALSE(answer->measured->not_run[0].is_failure);
}

TEST(MeasuredDecode, OnlyWhatWasAskedAboutIsTold) {
  const auto records = records_of({record_of(1), record_of(2), record_of(4)});
  MeasuredDecodeQuestion question = question_of();
  question.batches = {1, 4};
  EXPECT_EQ(answer_decode(gpt2().view(), question, records)->steps.size(), 2U);
  EXPECT_FALSE(answer_decode(gpt2().view(), question_of(1024), records));
  question = question_of();
  question.weights = op::DType::bf16;
  EXPECT_FALSE(answer_decode(gpt2().view(), question, records));
}

TEST(MeasuredDecode, FewLayersAreCountedAsSuchAndDoNotMixWithTheWhole) {
  const auto records = records_of({record_of(1), record_of(2, 3), record_of(4, 3)});
  const auto answer = answer_decode(gpt2().view(), question_of(), records);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->measured->layers, 3);
  ASSERT_EQ(answer->steps.size(), 2U);
  EXPECT_NEAR(answer->steps[1].attention.bytes, 3.0 * 4 * (512.0 * 2 * 768 + 2 * 768) * 4, 1);
}

TEST(MeasuredDecode, AModelThatCannotBeCountedIsTimedAllTheSame) {
  const Json config = Json::object().set("model_type", "a_new_one").set("num_hidden_layers", 2);
  MeasuredDecodeQuestion question = question_of();
  const auto answer =
      answer_decode(text::JsonView(config, "new.json"), question, records_of({record_of(1)}));
  ASSERT_TRUE(answer);
  EXPECT_NE(answer->measured->not_counted, "");
  EXPECT_EQ(answer->steps[0].attention.bytes, 0);
  EXPECT_GT(answer->steps[0].attention.time.seconds, 0);
}

TEST(MeasuredDecode, TheBatchIsFoundFromWhichBandwidthGrowsNoMore) {
  std::vector<NongemmRecord> records;
  for (const int64_t batch : {1, 2, 4, 8}) records.push_back(record_of(batch));
  records[0].profile.groups[1].second = 8;  // a quarter of what the others reach
  const auto answer = answer_decode(gpt2().view(), question_of(), records_of(records));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->saturation_batch, 2);
}

TEST(MeasuredDecode, ARecordIsReadAsItWasWritten) {
  const NongemmRecords records = records_of({record_of(4, 3), refusal_of(8)});
  std::string text = nongemm_header(*records.machine).dump() + "\n";
  for (const NongemmRecord& record : records.records) {
    text += nongemm_record_json(record).dump() + "\n";
  }
  const auto read = parse_nongemm_records(text, "test");
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_EQ(read->records.size(), 2U);
  EXPECT_EQ(read->records[0].setting, records.records[0].setting);
  EXPECT_EQ(read->records[0].decode->cache, records.records[0].decode->cache);
  EXPECT_EQ(read->records[0].layers, 3);
  EXPECT_EQ(read->records[1].reason, records.records[1].reason);
}

TEST(MeasuredDecode, LayersAreCutWhereverTheirNumberStands) {
  const Json config = Json::object()
                          .set("n_layer", 12)
                          .set("layer_types", Json::array().push_back("a").push_back("b"));
  const auto fewer = with_layers(config, 1);
  ASSERT_TRUE(fewer);
  EXPECT_EQ(fewer->find("n_layer")->as_int(), 1);
  EXPECT_EQ(fewer->find("layer_types")->size(), 1U);
  EXPECT_FALSE(with_layers(Json::object(), 1));
}

TEST(MeasuredDecode, LayersOfAModelOfTextAndImagesAreItsLanguageModels) {
  const Json config = Json::object()
                          .set("model_type", "gemma3")
                          .set("text_config", Json::object().set("num_hidden_layers", 34))
                          .set("vision_config", Json::object().set("num_hidden_layers", 27));
  EXPECT_EQ(layers_of(config), 34);
  const auto fewer = with_layers(config, 2);
  ASSERT_TRUE(fewer);
  EXPECT_EQ(layers_of(*fewer), 2);
  EXPECT_FALSE(fewer->find("num_hidden_layers"));
  EXPECT_EQ(fewer->find("vision_config")->find("num_hidden_layers")->as_int(), 27);
}

}  // namespace
}  // namespace headroom::bench
