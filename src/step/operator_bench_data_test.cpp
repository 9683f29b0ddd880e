// Single operators against published measurements (Liger-Kernel's own benchmark tables). Half of the
// kernels, named below, were never looked at while the operators were written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "step/operator_bench.h"
#include "text/csv.h"

namespace headroom::step {
namespace {

std::string measured_file() {
  const char* data = std::getenv("HEADROOM_DATA");
  const std::filesystem::path root = data ? data : HEADROOM_SOURCE_DIR "/../shared/data";
  return (root / "peak_memory" / "measured.csv").string();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

TEST(OperatorBenchData, PredictsPublishedPeaks) {
  const std::string path = measured_file();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path << ": set HEADROOM_DATA";
  const auto content = read_file(path, Bytes(64 * kMiB));
  ASSERT_TRUE(content) << content.error().to_string();
  auto reader = text::CsvReader::open(*content, path);
  ASSERT_TRUE(reader);
  std::map<std::string, size_t> at;
  for (const char* name : {"source", "model", "method", "scope", "notes", "framework", "value_bytes"}) {
    at[name] = *reader->column(name);
  }
  const std::set<std::string> held_aside{"embedding", "geglu", "layer_norm", "rms_norm"};
  std::vector<double> errors[2];
  std::map<std::string, std::vector<double>> by_kernel;
  while (*reader->next()) {
    if (reader->field(at["source"]) != "liger-op") continue;
    const std::string kernel(reader->field(at["model"]));
    const OperatorRow row{reader->field(at["model"]), reader->field(at["method"]),
                          reader->field(at["scope"]), reader->field(at["notes"]),
                          reader->field(at["framework"])};
    const auto bench = parse_operator_bench(row);
    ASSERT_TRUE(bench) << bench.error().to_string();
    const auto peak = operator_peak(*bench, operator_bench_environment());
    ASSERT_TRUE(peak) << peak.error().to_string();
    const double measured = *reader->get_double(at["value_bytes"], 1, 1e15);
    const double error = std::abs(static_cast<double>(*peak) - measured) / measured;
    errors[held_aside.contains(kernel) ? 1 : 0].push_back(error);
    const std::string group = kernel + " " + std::string(row.provider) + " " +
                              std::string(row.scope);
    by_kernel[group].push_back(error);
    if (std::getenv("HEADROOM_SHOW")) {
      std::printf("%s %s: measured %.0f, predicted %+.0f\n", group.c_str(),
                  std::string(row.setting).c_str(), measured,
                  static_cast<double>(*peak) - measured);
    }
  }
  for (const auto& [group, list] : by_kernel) {
    std::printf("%-52s median %.4f %%, worst %.4f %%\n", group.c_str(), 100 * median(list),
                100 * *std::max_element(list.begin(), list.end()));
  }
  std::printf("looked at: %zu rows, median %.4f %%; held aside: %zu rows, median %.4f %%\n",
              errors[0].size(), 100 * median(errors[0]), errors[1].size(),
              100 * median(errors[1]));
  EXPECT_LE(median(errors[0]), 0.01);
  EXPECT_LE(median(errors[1]), 0.01);
}

}  // namespace
}  // namespace headroom::step
