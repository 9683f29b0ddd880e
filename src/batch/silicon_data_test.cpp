// Steps of Qwen3-32B in bfloat16 on H100s beside servers of vLLM 0.12 (AIConfigurator's
// silicon_sample.csv), whose rows leave nothing unsaid. What is shipped was fitted on them, too:
// this holds it where it is. Each model by what was fitted without it: tools/batch/silicon.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "batch/predicted.h"
#include "device/catalogue.h"
#include "model/builtin.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"

namespace headroom::batch {
namespace {

std::filesystem::path table() {
  return tests::data_dir() / "performance" / "aiconfigurator" / "silicon_sample.csv";
}

struct Setting {
  int64_t tensor_parallel = 1;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  auto operator<=>(const Setting&) const = default;
};

// {setting: {batch: seconds a token}}
std::map<Setting, std::map<int64_t, double>> measured() {
  std::map<Setting, std::map<int64_t, double>> curves;
  const std::string text = *read_file(table().string(), Bytes(8 * kMiB));
  text::CsvReader reader = *text::CsvReader::open(text, "silicon");
  const auto number = [&](const char* name) {
    return *reader.get_int(*reader.column(name), 1, 1 << 20);
  };
  while (*reader.next()) {
    const auto field = [&](const char* name) { return reader.field(*reader.column(name)); };
    if (field("mode") != "agg" || field("model_path") != "Qwen/Qwen3-32B" ||
        field("backend_version") != "0.12.0" || !field("precision").empty()) {
      continue;
    }
    const Setting setting{number("tp_size"), number("isl"), number("osl")};
    curves[setting][number("batch_size")] =
        *reader.get_double(*reader.column("silicon_tpot_ms"), 0, 1e6) * 1e-3;
  }
  return curves;
}

struct Judged {
  double median_pct = 0;
  double inside_pct = 0;
  size_t rows = 0;
};

Judged judged(const std::string& engine) {
  const auto resolved = *model::resolve_model("Qwen/Qwen3-32B");
  const auto device = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const auto model = timing::TimingModel::built_in();
  std::vector<double> errors;
  double inside = 0;
  for (const auto& [setting, curve] : measured()) {
    const Workload workload = workload_of(static_cast<double>(setting.input_tokens),
                                          static_cast<double>(setting.output_tokens), 0);
    timing::DecodeOptions options{.context = mean_context(workload), .variant = {.engine = engine}};
    options.variant.tensor_parallel = setting.tensor_parallel;
    const auto predicted = *Predicted::make(resolved.view(), device, options, workload, model);
    for (const auto& [batch, seconds] : curve) {
      const Interval itl = predicted.curve().at(batch)->itl_seconds;
      errors.push_back(100 * std::abs(itl.expected / seconds - 1));
      inside += itl.low <= seconds && seconds <= itl.high ? 1 : 0;
    }
  }
  std::ranges::sort(errors);
  const auto rows = static_cast<double>(errors.size());
  return {errors[errors.size() / 2], 100 * inside / rows, errors.size()};
}

TEST(SiliconSample, TodaysEngineIsNearerThanTheFormerOne) {
  if (!std::filesystem::exists(table())) {
    GTEST_SKIP() << "no " << table() << ": set HEADROOM_DATA";
  }
  const Judged today = judged("");
  const Judged former = judged("vllm-0.6.3");
  std::printf(
      "# %zu rows: today's engine median %.1f %%, %.0f %% inside; vLLM 0.6.3's %.1f, %.0f\n",
      today.rows, today.median_pct, today.inside_pct, former.median_pct, former.inside_pct);
  EXPECT_GE(today.rows, 80U);
  EXPECT_LE(today.median_pct, 10);
  EXPECT_GE(today.inside_pct, 85);
  EXPECT_GT(former.median_pct, 1.5 * today.median_pct);
}

}  // namespace
}  // namespace headroom::batch
