// Single operators against published measurements (Liger-Kernel's own benchmark tables). Half of
// the kernels, named below, were held aside while the operators were written. At the first look at
// them geglu and layer_norm agreed to the byte; rms_norm was 10 % (plain) and 44 % (Liger) low,
// which is how the staging buffers of reductions were found (scratch.h); so only the first two are
// unseen.
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
#include "base/median.h"
#include "step/operator_bench.h"
#include "tests/tools/room_test.h"
#include "text/csv.h"

namespace headroom::step {
namespace {

std::string measured_file() {
  const std::filesystem::path root = tests::data_dir();
  return (root / "peak_memory" / "measured.csv").string();
}

TEST(OperatorBenchData, PredictsPublishedPeaks) {
  const std::string path = measured_file();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path << ": set HEADROOM_DATA";
  const auto content = read_file(path, Bytes(64 * kMiB));
  ASSERT_TRUE(content) << content.error().to_string();
  auto reader = text::CsvReader::open(*content, path);
  ASSERT_TRUE(reader);
  std::map<std::string, size_t> at;
  for (const char* name :
       {"source", "model", "method", "scope", "notes", "framework", "value_bytes"}) {
    at[name] = *reader->column(name);
  }
  const std::set<std::string> held_aside{"embedding", "geglu", "layer_norm", "rms_norm"};
  std::vector<double> errors[2];
  std::map<std::string, std::vector<double>> by_kernel;
  std::map<std::string, std::set<int64_t>> left_behind;  // by what was measured together
  while (*reader->next()) {
    if (reader->field(at["source"]) != "liger-op") continue;
    const OperatorRow row{reader->field(at["model"]), reader->field(at["method"]),
                          reader->field(at["scope"]), reader->field(at["notes"]),
                          reader->field(at["framework"])};
    const auto bench = parse_operator_bench(row);
    ASSERT_TRUE(bench) << bench.error().to_string();
    const auto peak = operator_peak(*bench, operator_bench_environment());
    ASSERT_TRUE(peak) << peak.error().to_string();
    const int64_t measured = *reader->get_int(at["value_bytes"], 1, int64_t{1} << 50);
    const std::string kernel(row.kernel);
    if (!operator_row_caveat(row).empty()) {
      left_behind[std::to_string(bench->width)].insert((measured - *peak) >> 20);
      continue;
    }
    const double error =
        std::abs(static_cast<double>(*peak - measured)) / static_cast<double>(measured);
    errors[held_aside.contains(kernel) ? 1 : 0].push_back(error);
    by_kernel[kernel + " " + std::string(row.provider) + " " + std::string(row.scope)].push_back(
        error);
  }
  // Sixteen rows each, of both providers and eight vocabularies: one figure, to the MiB.
  for (const auto& [width, figures] : left_behind) {
    std::printf("embedding of width %s: %zu figures for what was left behind\n", width.c_str(),
                figures.size());
    EXPECT_LE(figures.size(), 2U);
  }
  for (const auto& [group, list] : by_kernel) {
    std::printf("%-52s median %.4f %%, worst %.4f %%\n", group.c_str(), 100 * median(list),
                100 * *std::max_element(list.begin(), list.end()));
  }
  std::printf("looked at: %zu rows, median %.4f %%; held aside: %zu rows, median %.4f %%\n",
              errors[0].size(), 100 * median(errors[0]), errors[1].size(), 100 * median(errors[1]));
  for (const auto& group : errors) {
    ASSERT_FALSE(group.empty());
    EXPECT_LE(*std::max_element(group.begin(), group.end()), 0.001);
  }
}

}  // namespace
}  // namespace headroom::step
