// `batch` held against what the memory-gap paper measured (vLLM 0.6.3, fp16, an H100 with 64 GB):
// its advice from its own points, the law from three points of each sweep, replicas under MPS, and
// the whole without a measurement. Prints a row a sweep; docs/measurements/2026-11-21-batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/median.h"
#include "batch/batch.h"
#include "batch/replication.h"
#include "device/catalogue.h"
#include "model/builtin.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"

namespace headroom::batch {
namespace {

using formats::ServingPoint;

std::filesystem::path folder() { return tests::data_dir() / "performance" / "paper_mindgap"; }

#define HEADROOM_SKIP_WITHOUT_DATA() \
  if (!std::filesystem::exists(folder())) GTEST_SKIP() << "no " << folder() << ": set HEADROOM_DATA"

struct Sweep {
  std::string model;
  std::vector<ServingPoint> points;  // by batch
  std::map<int64_t, double> preempted;
};

// "background/opt-1.3b/_128_" and "advisor/output_length/_260/opt-1.3b/_128__2000".
std::map<std::string, Sweep> sweeps() {
  std::map<std::string, Sweep> all;
  const std::string text =
      *read_file((folder() / "online_serving_summary.csv").string(), Bytes(kMiB));
  text::CsvReader reader = *text::CsvReader::open(text, "online");
  const auto number = [&](const char* name) {
    return *reader.get_double(*reader.column(name), 0, 1e9);
  };
  while (*reader.next()) {
    const std::string path(reader.field(*reader.column("path")));
    if (!path.starts_with("background/") && !path.starts_with("advisor/")) continue;
    if (number("n_servers") != 1) continue;
    const size_t slash = path.rfind('/');
    const std::string key = path.substr(0, slash);
    Sweep& sweep = all[key];
    sweep.model = key.substr(key.rfind('/') + 1);
    const int64_t batch = std::atoll(path.c_str() + slash + 2);
    sweep.preempted[batch] = number("preempt");
    sweep.points.push_back({.batch = batch,
                            .throughput_tokens_per_second = number("output_throughput"),
                            .itl_seconds = number("mean_itl_ms") * 1e-3,
                            .running_mean = number("batch_mean"),
                            .kv_share = number("kv_max")});
  }
  for (auto& [key, sweep] : all) {
    std::sort(sweep.points.begin(), sweep.points.end(),
              [](const auto& a, const auto& b) { return a.batch < b.batch; });
  }
  return all;
}

double percentile_90(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 9 / 10];
}

BatchAnswer ask(const std::vector<ServingPoint>& points, double multiple) {
  BatchQuestion question;
  question.points = points;
  question.slo = ItlTarget{.multiple = multiple, .at_batch = 32};
  return *answer(question, nullptr, timing::TimingModel::built_in());
}

TEST(MemoryGapServing, TheAdviceFromItsOwnPoints) {
  HEADROOM_SKIP_WITHOUT_DATA();
  const auto all = sweeps();
  for (const char* model : {"opt-1.3b", "opt-2.7b"}) {
    const std::vector<ServingPoint>& points = all.at(std::string("background/") + model).points;
    const std::map<double, int64_t> published{{2, 96}, {3, 128}, {4, 256}};
    for (const auto& [multiple, batch] : published) {
      const BatchAnswer advised = ask(points, multiple);
      EXPECT_EQ(advised.advice.batch, batch) << model << " " << multiple;
      const BatchPoint& point = advised.curve[*advised.chosen].point;
      EXPECT_EQ(point.provenance, Provenance::measured);
    }
  }
}

// The smallest, the largest without preemption, and the one in the middle of their logarithms,
// towards the larger: chosen by the limits alone.
std::vector<ServingPoint> three_of(const Sweep& sweep) {
  std::vector<ServingPoint> usable;
  for (const ServingPoint& point : sweep.points) {
    if (sweep.preempted.at(point.batch) == 0) usable.push_back(point);
  }
  const double least = std::log(static_cast<double>(usable.front().batch));
  const double most = std::log(static_cast<double>(usable.back().batch));
  const double middle = (least + most) / 2 + std::log(2.0);
  const auto at =
      std::min_element(usable.begin() + 1, usable.end() - 1, [&](const auto& a, const auto& b) {
        return std::abs(std::log(static_cast<double>(a.batch)) - middle) <
               std::abs(std::log(static_cast<double>(b.batch)) - middle);
      });
  return {usable.front(), *at, usable.back()};
}

// How many places of the sweep's grid lie between two limits.
int64_t steps_between(const Sweep& sweep, int64_t a, int64_t b) {
  const auto place = [&](int64_t batch) {
    return std::count_if(sweep.points.begin(), sweep.points.end(),
                         [&](const ServingPoint& p) { return p.batch <= batch; });
  };
  return std::abs(place(a) - place(b));
}

TEST(MemoryGapServing, ThreePointsOfASweepTellTheRest) {
  HEADROOM_SKIP_WITHOUT_DATA();
  std::vector<double> errors;
  std::vector<double> widths;
  int inside = 0;
  int asked = 0;
  int near = 0;
  std::printf("sweep,from,multiple,b_opt_of_all,b_opt_of_three\n");
  for (const auto& [key, sweep] : sweeps()) {
    const std::vector<ServingPoint> three = three_of(sweep);
    const MeasuredCurve curve = *MeasuredCurve::make(three);
    for (const ServingPoint& point : sweep.points) {
      const bool is_given = std::any_of(three.begin(), three.end(),
                                        [&](const auto& p) { return p.batch == point.batch; });
      if (is_given || sweep.preempted.at(point.batch) > 0) continue;
      const Interval rate = curve.at(point.batch)->throughput_tokens_per_second;
      const double measured = point.throughput_tokens_per_second;
      errors.push_back(100 * std::abs(rate.expected / measured - 1));
      widths.push_back(100 * (rate.high - rate.low) / rate.expected);
      if (rate.low <= measured && measured <= rate.high) ++inside;
    }
    const bool has_reference = sweep.preempted.contains(32);
    for (const double multiple : {2.0, 3.0, 4.0}) {
      if (!has_reference) continue;
      const BatchAnswer whole = ask(sweep.points, multiple);
      const BatchAnswer from_three = ask(three, multiple);
      if (!whole.advice.batch || !from_three.advice.batch) continue;
      ++asked;
      if (steps_between(sweep, *whole.advice.batch, *from_three.advice.batch) <= 1) ++near;
      std::printf("%s,%ld %ld %ld,%.0f,%ld,%ld\n", key.c_str(), static_cast<long>(three[0].batch),
                  static_cast<long>(three[1].batch), static_cast<long>(three[2].batch), multiple,
                  static_cast<long>(*whole.advice.batch),
                  static_cast<long>(*from_three.advice.batch));
    }
  }
  const auto count = static_cast<double>(errors.size());
  std::printf(
      "# throughput from three points: %.0f others, median %.2f %%, p90 %.2f %%, inside %.1f %%, "
      "width %.1f median errors; B_opt equal or neighbouring in %d of %d\n",
      count, median(errors), percentile_90(errors), 100 * inside / count,
      median(widths) / median(errors), near, asked);
  EXPECT_LE(median(errors), 2.5);
  EXPECT_LE(percentile_90(errors), 8);
  EXPECT_GE(inside / count, 0.85);
  EXPECT_GE(near, asked * 9 / 10);
}

const Workload kRequests = workload_of(110.6, 292.3, 1);

BatchQuestion question_of(const std::string& model) {
  BatchQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
  question.weights = op::DType::f16;
  question.model = model;
  question.input_tokens = 110.6;  // of its requests, on average; how they vary was not published
  question.output_tokens = 292.3;
  question.slo = ItlTarget{.multiple = 2, .at_batch = 32};
  question.variant.engine = "vllm-0.6.3";  // the paper's
  return question;
}

const std::map<std::string, const char*> kNames{{"opt-1.3b", "facebook/opt-1.3b"},
                                                {"opt-2.7b", "facebook/opt-2.7b"},
                                                {"llama-2-7b", "meta-llama/Llama-2-7b-hf"}};

// Host and sampling were fitted on OPT-1.3B's steps; nothing on the other two.
TEST(MemoryGapServing, WithoutAMeasurement) {
  HEADROOM_SKIP_WITHOUT_DATA();
  const auto all = sweeps();
  for (const auto& [short_name, name] : kNames) {
    const Sweep& sweep = all.at("background/" + short_name);
    const auto resolved = *model::resolve_model(name);
    const text::JsonView config = resolved.view();
    const BatchQuestion question = question_of(name);
    const timing::TimingModel model = timing::TimingModel::built_in();
    const auto predictor = *timing::DecodePredictor::make(config, *question.device,
                                                          {.context = mean_context(kRequests),
                                                           .weights = question.weights,
                                                           .variant = question.variant},
                                                          model);
    const PredictedCurve curve = *PredictedCurve::make(predictor, kRequests, 0);
    std::vector<double> rates;
    std::vector<double> itls;
    for (const ServingPoint& point : sweep.points) {
      if (sweep.preempted.at(point.batch) > 0) continue;
      const BatchPoint predicted =
          *curve.at(std::max<int64_t>(1, std::llround(*point.running_mean)));
      rates.push_back(100 * std::abs(predicted.throughput_tokens_per_second.expected /
                                         point.throughput_tokens_per_second -
                                     1));
      itls.push_back(100 * std::abs(predicted.itl_seconds.expected / point.itl_seconds - 1));
    }
    const BatchAnswer advised = *answer(question, &config, model);
    std::printf(
        "# %s unmeasured: throughput median %.1f %%, ITL median %.1f %%; B_opt %ld (%ld to "
        "%ld), of its points %ld\n",
        name, median(rates), median(itls), static_cast<long>(*advised.advice.batch),
        static_cast<long>(advised.advice.low.value_or(0)),
        static_cast<long>(advised.advice.high.value_or(0)),
        static_cast<long>(*ask(sweep.points, 2).advice.batch));
    EXPECT_LE(median(rates), 20) << name;
    EXPECT_LE(median(itls), 20) << name;
  }
}

// OPT-1.3B's host gap in the paper's profile, at the batch nearest to `batch`.
double profiled_host_gap(int64_t batch) {
  const std::string text =
      *read_file((folder() / "decode_time_shares_by_kernel.csv").string(), Bytes(kMiB));
  text::CsvReader reader = *text::CsvReader::open(text, "shares");
  double nearest = INFINITY;
  double gap = 0;
  while (*reader.next()) {
    if (reader.field(*reader.column("model")) != "opt-1.3b") continue;
    const auto at = static_cast<double>(*reader.get_int(*reader.column("batch"), 1, 1 << 20));
    const double distance = std::abs(std::log(at / static_cast<double>(batch)));
    if (distance >= nearest) continue;
    nearest = distance;
    gap = *reader.get_double(*reader.column("cpu_gap_pct"), 0, 100) / 100;
  }
  return gap;
}

// Against the gains that the paper measured under MPS: with the host gap of its own profile, as a
// user would give it, and with the predicted one.
TEST(MemoryGapServing, ReplicasUnderMps) {
  HEADROOM_SKIP_WITHOUT_DATA();
  const auto resolved = *model::resolve_model("facebook/opt-1.3b");
  const text::JsonView config = resolved.view();
  const BatchQuestion question = question_of("facebook/opt-1.3b");
  const timing::TimingModel model = timing::TimingModel::built_in();
  const auto predictor = *timing::DecodePredictor::make(config, *question.device,
                                                        {.context = mean_context(kRequests),
                                                         .weights = question.weights,
                                                         .variant = question.variant},
                                                        model);
  const std::string text = *read_file((folder() / "replication.csv").string(), Bytes(kMiB));
  text::CsvReader reader = *text::CsvReader::open(text, "replication");
  std::map<int64_t, double> alone;
  while (*reader.next()) {
    const int64_t batch = *reader.get_int(*reader.column("max_num_seqs"), 1, 1 << 20);
    const int64_t count = *reader.get_int(*reader.column("replicas"), 1, 16);
    const double rate = *reader.get_double(*reader.column("total_tok_per_s"), 1, 1e9);
    const std::string sharing(reader.field(*reader.column("sharing")));
    if (count == 1 && !alone.contains(batch)) alone[batch] = rate;
    if (sharing != "MPS") continue;
    const double measured = rate / alone.at(batch);
    const timing::DecodeStep step = *predictor.step(batch);
    const double gaps[] = {profiled_host_gap(batch), step.host.seconds / step.parts_seconds()};
    double errors[2];
    for (int i = 0; i < 2; ++i) {
      errors[i] = replication_speedup(static_cast<int>(count), gaps[i]) / measured - 1;
    }
    std::printf(
        "# MPS %ld x %ld: measured %.3f; profiled host gap %.1f %%: %+.1f %%; predicted host "
        "gap %.1f %%: %+.1f %%\n",
        static_cast<long>(count), static_cast<long>(batch), measured, 100 * gaps[0],
        100 * errors[0], 100 * gaps[1], 100 * errors[1]);
    const bool cache_ran_out = count == 4 && batch == 256;
    if (cache_ran_out) continue;
    EXPECT_NEAR(errors[0], 0, 0.05);
  }
}

// The most of the cache that was in use, beside what is predicted for what was running.
TEST(MemoryGapServing, TheCacheInUse) {
  HEADROOM_SKIP_WITHOUT_DATA();
  const auto all = sweeps();
  const double gib = static_cast<double>(kGiB);
  // Bytes a token (2 tensors, layers x hidden in fp16), and the cache that vLLM reported.
  struct Cache {
    double token_bytes;
    double bytes;
  };
  const std::map<std::string, Cache> caches{{"opt-1.3b", {2.0 * 24 * 2048 * 2, 54.3 * gib}},
                                            {"opt-2.7b", {2.0 * 32 * 2560 * 2, 51.8 * gib}},
                                            {"llama-2-7b", {2.0 * 32 * 4096 * 2, 44.2 * gib}}};
  for (const auto& [name, cache] : caches) {
    const Sweep& sweep = all.at("background/" + name);
    std::vector<double> errors;
    for (const ServingPoint& point : sweep.points) {
      if (point.batch < 16 || sweep.preempted.at(point.batch) > 0) continue;
      const auto limit = static_cast<double>(point.batch);
      const double share = kv_tokens_needed(limit, kRequests) * cache.token_bytes / cache.bytes;
      errors.push_back(100 * (share / *point.kv_share - 1));
    }
    std::sort(errors.begin(), errors.end());
    std::printf(
        "# cache of %s: predicted over measured, from batch 16 on: median %+.1f %%, from "
        "%+.1f to %+.1f %%\n",
        name.c_str(), errors[errors.size() / 2], errors.front(), errors.back());
    EXPECT_NEAR(errors[errors.size() / 2], 0, 10) << name;
  }
}

}  // namespace
}  // namespace headroom::batch
