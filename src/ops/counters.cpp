#include "ops/counters.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ops/kernel_name.h"

namespace headroom::ops {
namespace {

struct Sum {
  double total = 0;
  int64_t count = 0;
};

// The launches of one kernel in the profile.
struct Launches {
  int64_t count = 0;
  std::map<uint32_t, Sum> metrics;  // in the order of the profile
};

std::map<std::string, Launches> by_kernel(const formats::NcuProfile& profile) {
  std::map<std::string, Launches> kernels;
  for (const formats::NcuLaunch& launch : profile.launches) {
    Launches& one = kernels[launch.kernel];
    ++one.count;
    for (const auto& [metric, value] : launch.values) {
      Sum& sum = one.metrics[metric];
      sum.total += value;
      ++sum.count;
    }
  }
  return kernels;
}

// The rows of a trace by kernel, whatever operator launched it.
std::map<std::string, CounterRow> rows_of(const std::vector<KernelRow>& kernels) {
  std::map<std::string, CounterRow> rows;
  for (const KernelRow& kernel : kernels) {
    CounterRow& row = rows[kernel.name];
    row.kernel = kernel.name;
    row.group = kernel.group;
    row.count += kernel.count;
    row.kernel_ms += kernel.kernel_ms;
    row.pct += kernel.pct;
  }
  return rows;
}

}  // namespace

KernelCounters counters_of(const formats::NcuProfile& profile,
                           const std::vector<KernelRow>& kernels) {
  std::map<std::string, CounterRow> rows = rows_of(kernels);
  std::unordered_map<std::string_view, std::vector<CounterRow*>> by_function;
  for (auto& [name, row] : rows) by_function[kernel_stem(name)].push_back(&row);
  KernelCounters counters;
  for (const auto& [name, launches] : by_kernel(profile)) {
    const auto same = rows.find(name);
    CounterRow* row = same == rows.end() ? nullptr : &same->second;
    const auto function = by_function.find(kernel_stem(name));
    if (row == nullptr && function != by_function.end() && function->second.size() == 1) {
      row = function->second.front();
    }
    if (row == nullptr) {
      counters.unmatched_launches += launches.count;
      continue;
    }
    if (row->launches > 0) continue;  // by its full name already
    row->launches = launches.count;
    for (const auto& [metric, sum] : launches.metrics) {
      const formats::NcuMetric& what = profile.metrics[metric];
      row->values.push_back({what.name, what.unit, sum.total / static_cast<double>(sum.count)});
    }
  }
  for (auto& [name, row] : rows) {
    if (row.launches == 0) continue;
    counters.covered_pct += row.pct;
    counters.rows.push_back(std::move(row));
  }
  std::stable_sort(counters.rows.begin(), counters.rows.end(),
                   [](const auto& a, const auto& b) { return a.kernel_ms > b.kernel_ms; });
  return counters;
}

}  // namespace headroom::ops
