// Predicted decode steps beside those that the memory-gap paper measured (vLLM 0.6.3, fp16, H100
// with 64 GB, 161 tokens in and 338 out, so 330 in the cache on average). Host and sampling were
// fitted on OPT-1.3B; nothing was fitted on OPT-2.7B or Llama-2-7B, and no kernel law on this
// device. Prints a row each, as CSV.
//
// What the paper calls products and "other" follows from the names of kernels: its script
// (decode_kernels/distinct_kernels/chart.py of vLLMBatchingMemoryGap, commit a9186347) takes
// fourteen names of cuBLAS for products; CUTLASS's, whose short name is "Kernel", is "unknown" to
// it, and sums of split products are "reduce", both of which it draws as "other". So shares are
// compared thrice: as they are; with products and "other" as one, which no name moves between; and
// as the script would name them, by a rule that was settled on OPT-1.3B.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "bench/decode.h"
#include "device/catalogue.h"
#include "model/builtin.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"
#include "timing/decode_step.h"

namespace headroom::bench {
namespace {

std::filesystem::path folder() { return tests::data_dir() / "performance" / "paper_mindgap"; }

using Key = std::pair<std::string, int64_t>;  // model, batch

struct Measured {
  double step_seconds = 0;
  std::map<std::string, double> share_pct;  // attention, matmul, cpu_gap, other
};

std::map<Key, Measured> measured() {
  std::map<Key, Measured> rows;
  const std::string steps =
      *read_file((folder() / "offline_prefill_decode_times.csv").string(), Bytes(kMiB));
  text::CsvReader reader = *text::CsvReader::open(steps, "steps");
  while (*reader.next()) {
    if (reader.field(*reader.column("experiment")) != "decode_kernels/distinct_kernels") continue;
    const Key key{std::string(reader.field(*reader.column("model"))),
                  *reader.get_int(*reader.column("batch"), 1, 100000)};
    rows[key].step_seconds = *reader.get_double(*reader.column("decode_step_ms"), 0, 1e6) * 1e-3;
  }
  const std::string shares =
      *read_file((folder() / "decode_time_shares_by_kernel.csv").string(), Bytes(kMiB));
  text::CsvReader share = *text::CsvReader::open(shares, "shares");
  while (*share.next()) {
    const Key key{std::string(share.field(*share.column("model"))),
                  *share.get_int(*share.column("batch"), 1, 100000)};
    for (const char* name : {"attention", "matmul", "cpu_gap", "other"}) {
      rows[key].share_pct[name] =
          *share.get_double(*share.column(std::string(name) + "_pct"), 0, 100);
    }
  }
  std::erase_if(rows, [](const auto& row) {
    return row.second.step_seconds == 0 || row.second.share_pct.empty();
  });
  return rows;
}

// Median |error| in percent of the steps between a curve's two ends, which are given.
double error_between_ends_pct(const std::string& config_name, const std::string& model) {
  std::vector<MeasuredStep> curve;
  for (const auto& [key, row] : measured()) {
    if (key.first == model) curve.push_back({key.second, row.step_seconds});
  }
  const auto resolved = *model::resolve_model(config_name);
  DecodeQuestion question;
  question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
  question.context = 161 + 338 / 2;
  question.weights = op::DType::f16;
  question.engine_law = "vllm-0.6.3";  // the paper's
  for (const MeasuredStep& step : curve) question.batches.push_back(step.batch);
  question.points = {curve.front(), curve.back()};
  const auto answer = *predict_decode(resolved.view(), question, timing::TimingModel::built_in());
  std::vector<double> errors;
  for (size_t i = 1; i + 1 < curve.size(); ++i) {
    errors.push_back(100 * std::abs(answer.steps[i].step.seconds / curve[i].seconds - 1));
  }
  std::sort(errors.begin(), errors.end());
  std::printf("# %s, both ends given: median step error %.1f %%, largest %.1f %%\n", model.c_str(),
              errors[errors.size() / 2], errors.back());
  return errors[errors.size() / 2];
}

// Up to this batch the script finds other names than cuBLAS's own: OPT-1.3B's products fall from
// 28 to 32 % of a step between 16 and 32, and its "other" from 27 to 15.
constexpr int64_t kNamedUpToBatch = 16;

// Of the products' time, those that write to the residual stream: narrow results of long sums,
// which cuBLAS splits or gives to CUTLASS where rows are few. On OPT-1.3B these two products of six
// are what "other" has too much: 38 % of the products, where 36 to 41 % are missing.
// REQUIRES: as many heads of keys and values as of queries (a layer has four products h x h).
double narrow_share(const text::JsonView& config, const DecodeQuestion& question, int64_t batch) {
  const timing::DecodeOptions options{.context = question.context, .weights = question.weights};
  const auto work = timing::decode_work(config, options, batch);
  const auto model = timing::TimingModel::built_in();
  const int64_t hidden = std::get<timing::GemmShape>(work->matmul.front().call.shape).k;
  double whole = 0;
  double narrow = 0;
  for (const timing::CountedCall& one : work->matmul) {
    const auto& shape = std::get<timing::GemmShape>(one.call.shape);
    const double seconds =
        static_cast<double>(one.times) * model.predict(one.call, question.device)->seconds;
    whole += seconds;
    if (shape.n != hidden) continue;
    narrow += shape.k == hidden ? seconds / 4 : seconds;
  }
  return narrow / whole;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Shares = std::map<std::string, double>;

// Errors of shares, by class, of models that nothing was fitted on.
class ShareErrors {
 public:
  void add(const Shares& predicted, const Shares& measured) {
    for (const auto& [name, share] : predicted) {
      errors_[name].push_back(std::abs(share - measured.at(name)));
    }
  }
  [[nodiscard]] Shares medians() const {
    Shares found;
    for (const auto& [name, errors] : errors_) found[name] = median(errors);
    return found;
  }
  [[nodiscard]] double over_all() const {
    std::vector<double> all;
    for (const auto& [name, errors] : errors_) all.insert(all.end(), errors.begin(), errors.end());
    return median(all);
  }
  void print(const char* what) const {
    std::printf("# %s, median error in points:", what);
    for (const auto& [name, error] : medians()) std::printf(" %s %.1f,", name.c_str(), error);
    std::printf(" over all %.1f\n", over_all());
  }

 private:
  std::map<std::string, std::vector<double>> errors_;
};

Shares with_one_class(Shares shares) {
  shares["matmul_and_other"] = shares["matmul"] + shares["other"];
  shares.erase("matmul");
  shares.erase("other");
  return shares;
}

TEST(MemoryGapPaper, StepsAndSharesOfModelsThatNothingWasFittedOn) {
  if (!std::filesystem::exists(folder()))
    GTEST_SKIP() << "no " << folder() << ": set HEADROOM_DATA";
  const std::map<std::string, const char*> names{{"opt-1.3b", "facebook/opt-1.3b"},
                                                 {"opt-2.7b", "facebook/opt-2.7b"},
                                                 {"llama-2-7b", "meta-llama/Llama-2-7b-hf"}};
  std::vector<double> errors;
  ShareErrors as_they_are;
  ShareErrors as_one;
  ShareErrors as_named;
  ShareErrors of_large_batches;
  std::printf(
      "model,batch,measured_step_ms,low_ms,predicted_step_ms,high_ms,measured_attention_pct,"
      "attention_pct,measured_matmul_pct,matmul_pct,measured_host_pct,host_pct,"
      "measured_other_pct,other_pct,named_matmul_pct,named_other_pct\n");
  for (const auto& [key, row] : measured()) {
    const auto resolved = model::resolve_model(names.at(key.first));
    ASSERT_TRUE(resolved);
    DecodeQuestion question;
    question.device = *device::DeviceCatalogue::built_in().find("h100-sxm-64gb");
    question.context = 161 + 338 / 2;
    question.batches = {key.second};
    question.weights = op::DType::f16;
    question.engine_law = "vllm-0.6.3";  // the paper's
    const auto answer = predict_decode(resolved->view(), question, timing::TimingModel::built_in());
    ASSERT_TRUE(answer) << answer.error().to_string();
    const DecodeStep& step = answer->steps[0];
    const double whole = step.step.seconds;
    const Shares shares{{"attention", 100 * step.attention.time.seconds / whole},
                        {"matmul", 100 * step.matmul.time.seconds / whole},
                        {"cpu_gap", 100 * step.host.seconds / whole},
                        {"other", 100 * step.other.time.seconds / whole}};
    Shares named = shares;
    if (key.second <= kNamedUpToBatch) {
      const double moved =
          shares.at("matmul") * narrow_share(resolved->view(), question, key.second);
      named["matmul"] -= moved;
      named["other"] += moved;
    }
    std::printf("%s,%ld,%.3f,%.3f,%.3f,%.3f", key.first.c_str(), static_cast<long>(key.second),
                row.step_seconds * 1e3, step.step.low_seconds * 1e3, whole * 1e3,
                step.step.high_seconds * 1e3);
    for (const char* name : {"attention", "matmul", "cpu_gap", "other"}) {
      std::printf(",%.1f,%.1f", row.share_pct.at(name), shares.at(name));
    }
    std::printf(",%.1f,%.1f\n", named.at("matmul"), named.at("other"));
    if (key.first == "opt-1.3b") continue;
    as_they_are.add(shares, row.share_pct);
    as_one.add(with_one_class(shares), with_one_class(row.share_pct));
    as_named.add(named, row.share_pct);
    if (key.second > kNamedUpToBatch) of_large_batches.add(shares, row.share_pct);
    errors.push_back(100 * std::abs(whole / row.step_seconds - 1));
  }
  std::printf("# held out: median step error %.1f %%\n", median(errors));
  as_they_are.print("shares as they are");
  as_one.print("products and other as one");
  as_named.print("as the paper's script names kernels");
  of_large_batches.print("batches above 16, as they are");
  EXPECT_LT(median(errors), 15);
  EXPECT_LT(as_they_are.over_all(), 5);
  for (const ShareErrors* account : {&as_one, &as_named}) {
    for (const auto& [name, error] : account->medians()) EXPECT_LE(error, 5) << name;
  }
  // No name moves there; attention's 5.1 points are a law's (docs/measurements).
  EXPECT_LE(of_large_batches.medians().at("matmul"), 5);
  EXPECT_LE(of_large_batches.medians().at("other"), 5);
}

TEST(MemoryGapPaper, StepsBetweenTheEndsOfACurve) {
  if (!std::filesystem::exists(folder()))
    GTEST_SKIP() << "no " << folder() << ": set HEADROOM_DATA";
  EXPECT_LT(error_between_ends_pct("facebook/opt-2.7b", "opt-2.7b"), 3);
  EXPECT_LT(error_between_ends_pct("meta-llama/Llama-2-7b-hf", "llama-2-7b"), 3);
  // Misses the 3 % of the others (docs/measurements/2026-11-21-decode-steps).
  EXPECT_LT(error_between_ends_pct("facebook/opt-1.3b", "opt-1.3b"), 8);
}

}  // namespace
}  // namespace headroom::bench
