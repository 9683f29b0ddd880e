#include "bench/decode_counters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>

namespace headroom::bench {
namespace {

using formats::NcuLaunch;
using formats::NcuMetric;
using formats::NcuProfile;

constexpr std::string_view kTime = "gpu__time_duration.sum";
constexpr std::string_view kDram = "dram__bytes.sum";
constexpr std::string_view kDramRead = "dram__bytes_read.sum";
constexpr std::string_view kDramWritten = "dram__bytes_write.sum";

// What a metric adds to.
enum class Figure : uint8_t { none, seconds, dram, dram_part, dram_pct, thread, tensor, stall };

struct Meaning {
  Figure figure = Figure::none;
  double factor = 1;     // of FLOPs: two of a multiply-add
  std::string reason{};  // of a stall
};

// "sm__sass_thread_inst_executed_op_ffma_pred_on.sum", of whole multiprocessors or their parts.
std::optional<double> flops_of_instruction(std::string_view name) {
  constexpr std::string_view kPrefix = "sass_thread_inst_executed_op_";
  const size_t at = name.find(kPrefix);
  if (at == std::string_view::npos || !name.ends_with("_pred_on.sum")) return std::nullopt;
  const std::string_view rest = name.substr(at + kPrefix.size());
  const bool is_of_floats = rest.starts_with('f') || rest.starts_with('h') || rest.starts_with('d');
  if (!is_of_floats) return std::nullopt;
  const std::string_view operation = rest.substr(1);
  if (operation.starts_with("fma_")) return 2;
  if (operation.starts_with("add_") || operation.starts_with("mul_")) return 1;
  return std::nullopt;
}

// "sm__ops_path_tensor_src_bf16_dst_fp32.sum": operations of one pair of types. Not its parts
// ("..._sparsity_off"), and not what sums up several types ("src_fp16_bf16_tf32_dst_fp32").
bool is_of_one_tensor_path(std::string_view name) {
  constexpr std::string_view kSource = "__ops_path_tensor_src_";
  constexpr std::string_view kTarget = "_dst_";
  constexpr std::string_view kEnd = ".sum";
  const size_t at = name.find(kSource);
  if (at == std::string_view::npos || !name.ends_with(kEnd)) return false;
  const std::string_view types =
      name.substr(at + kSource.size(), name.size() - at - kSource.size() - kEnd.size());
  const size_t target = types.find(kTarget);
  if (target == std::string_view::npos) return false;
  const auto is_type = [](std::string_view word) {
    return !word.empty() && word.find('_') == std::string_view::npos;
  };
  return is_type(types.substr(0, target)) && is_type(types.substr(target + kTarget.size()));
}

// "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "long_scoreboard".
std::string stall_reason(std::string_view name) {
  constexpr std::string_view kStalled = "issue_stalled_";
  const size_t at = name.find(kStalled);
  if (at == std::string_view::npos || !name.ends_with(".ratio")) return {};
  std::string_view reason = name.substr(at + kStalled.size());
  reason = reason.substr(0, std::min(reason.find("_per_"), reason.find('.')));
  // The same waiting again, of cycles in which nothing was issued at all.
  return reason.ends_with("_not_issued") ? std::string() : std::string(reason);
}

Meaning meaning_of(const NcuMetric& metric) {
  const std::string_view name = metric.name;
  if (name == kTime) return {Figure::seconds};
  if (name == kDram) return {Figure::dram};
  if (name == kDramRead || name == kDramWritten) return {Figure::dram_part};
  if (name.starts_with("dram__throughput.") && metric.unit == "%") return {Figure::dram_pct};
  if (is_of_one_tensor_path(name)) return {Figure::tensor};
  if (const auto factor = flops_of_instruction(name)) return {Figure::thread, *factor};
  if (std::string reason = stall_reason(name); !reason.empty()) {
    return {Figure::stall, 1, std::move(reason)};
  }
  return {};
}

// A part of a multiprocessor ("smsp__") counts what the whole one ("sm__") does: where a file has
// both, the parts add nothing.
std::vector<Meaning> meanings_of(const NcuProfile& profile) {
  constexpr std::string_view kWhole = "sm__";
  constexpr std::string_view kPart = "smsp__";
  std::set<std::string_view> wholes;
  for (const std::string_view name : profile.metrics | std::views::transform(&NcuMetric::name)) {
    if (name.starts_with(kWhole)) wholes.insert(name.substr(kWhole.size()));
  }
  std::vector<Meaning> meanings;
  for (const NcuMetric& metric : profile.metrics) {
    const std::string_view name = metric.name;
    const bool is_double = name.starts_with(kPart) && wholes.contains(name.substr(kPart.size()));
    meanings.push_back(is_double ? Meaning{} : meaning_of(metric));
  }
  return meanings;
}

bool has(const std::vector<Meaning>& meanings, Figure figure) {
  return std::ranges::find(meanings, figure, &Meaning::figure) != meanings.end();
}

// 0 where it is not known; a time below that is none, and would turn shares around.
double launch_seconds(const NcuLaunch& launch, const std::vector<Meaning>& meanings) {
  for (const auto& [metric, value] : launch.values) {
    if (meanings[metric].figure == Figure::seconds) return std::max(value, 0.0);
  }
  return 0;
}

// A class while its launches are being added.
struct Sum {
  int64_t launches = 0;
  double seconds = 0;
  double dram = 0;
  double dram_pct_seconds = 0;
  double thread = 0;
  double tensor = 0;
  std::map<std::string, double> stall_seconds;

  void add(const NcuLaunch& launch, const std::vector<Meaning>& meanings) {
    ++launches;
    const double took = launch_seconds(launch, meanings);
    const bool has_whole = has(meanings, Figure::dram);
    for (const auto& [metric, value] : launch.values) {
      const Meaning& meaning = meanings[metric];
      if (value < 0) continue;  // nothing that is counted is
      switch (meaning.figure) {
        case Figure::none:
          break;
        case Figure::seconds:
          seconds += value;
          break;
        case Figure::dram:
          dram += value;
          break;
        case Figure::dram_part:
          if (!has_whole) dram += value;
          break;
        case Figure::dram_pct:
          dram_pct_seconds += value * took;
          break;
        case Figure::thread:
          thread += meaning.factor * value;
          break;
        case Figure::tensor:
          tensor += value;
          break;
        case Figure::stall:
          stall_seconds[meaning.reason] += value * took;
          break;
      }
    }
  }
};

std::vector<Stall> stalls_of(const Sum& sum) {
  double whole = 0;
  for (const auto& [reason, seconds] : sum.stall_seconds) whole += seconds;
  std::vector<Stall> stalls;
  if (!(whole > 0) || !std::isfinite(whole)) return stalls;
  for (const auto& [reason, seconds] : sum.stall_seconds) {
    stalls.push_back({reason, 100 * seconds / whole});
  }
  std::ranges::stable_sort(stalls, std::greater<>(), &Stall::pct);
  return stalls;
}

// Of a file whose figures add up to no number nothing is known.
std::optional<double> known(bool is_there, double value) {
  if (!is_there || !std::isfinite(value)) return std::nullopt;
  return value;
}

ClassCounters counters_of(KernelClass kind, const Sum& sum, const std::vector<Meaning>& meanings) {
  const bool has_dram = has(meanings, Figure::dram) || has(meanings, Figure::dram_part);
  ClassCounters counters;
  counters.kind = kind;
  counters.launches = sum.launches;
  counters.seconds = known(has(meanings, Figure::seconds), sum.seconds);
  counters.dram_bytes = known(has_dram, sum.dram);
  counters.dram_pct = known(has(meanings, Figure::dram_pct), sum.dram_pct_seconds / sum.seconds);
  counters.thread_flops = known(has(meanings, Figure::thread), sum.thread);
  counters.tensor_flops = known(has(meanings, Figure::tensor), sum.tensor);
  counters.stalls = stalls_of(sum);
  return counters;
}

std::vector<std::string> missing_metrics(const std::vector<Meaning>& meanings) {
  std::vector<std::string> missing;
  const auto want = [&](bool is_there, const char* metrics) {
    if (!is_there) missing.emplace_back(metrics);
  };
  want(has(meanings, Figure::seconds), "gpu__time_duration.sum");
  want(has(meanings, Figure::dram) || has(meanings, Figure::dram_part),
       "dram__bytes_read.sum,dram__bytes_write.sum");
  want(has(meanings, Figure::dram_pct), "dram__throughput.avg.pct_of_peak_sustained_elapsed");
  want(has(meanings, Figure::thread),
       "regex:sm__sass_thread_inst_executed_op_[fh](add|mul|fma)_pred_on.sum");
  want(has(meanings, Figure::tensor),
       "regex:sm__ops_path_tensor_src_[a-z0-9]+_dst_[a-z0-9]+\\.sum$");
  want(has(meanings, Figure::stall),
       "regex:smsp__average_warps_issue_stalled_.*_per_issue_active.ratio");
  return missing;
}

std::optional<double> ratio(const std::optional<double>& above,
                            const std::optional<double>& below) {
  if (!above || !below) return std::nullopt;
  return known(*below > 0, *above / *below);
}

}  // namespace

std::string_view name_of(KernelClass kind) {
  constexpr std::array<std::string_view, kKernelClasses> kNames{"attention", "matmul", "other"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<double> ClassCounters::bytes_per_second() const { return ratio(dram_bytes, seconds); }

std::optional<double> ClassCounters::flops_per_byte() const {
  if (!tensor_flops) return std::nullopt;
  return ratio(thread_flops.value_or(0) + *tensor_flops, dram_bytes);
}

std::optional<double> ClassCounters::thread_flops_per_byte() const {
  return ratio(thread_flops, dram_bytes);
}

Result<DecodeCounters> decode_counters(
    const NcuProfile& profile, int64_t batch, const std::string& file,
    const std::function<KernelClass(std::string_view)>& class_of) {
  if (profile.launches.empty()) {
    return Error{ErrorCode::bad_input, "holds no kernel", file,
                 "ncu --csv --page raw prints one a line"};
  }
  const std::vector<Meaning> meanings = meanings_of(profile);
  DecodeCounters counters;
  counters.batch = batch;
  counters.file = file;
  counters.missing = missing_metrics(meanings);
  if (std::ranges::all_of(meanings,
                          [](const Meaning& one) { return one.figure == Figure::none; })) {
    return Error{ErrorCode::bad_input, "holds no counter that is known here", file,
                 "ncu --metrics " + counters.missing.front()};
  }
  std::array<Sum, kKernelClasses> sums;
  std::map<std::string_view, KernelClass> classified;
  for (const NcuLaunch& launch : profile.launches) {
    auto found = classified.find(launch.kernel);
    if (found == classified.end())
      found = classified.emplace(launch.kernel, class_of(launch.kernel)).first;
    sums[static_cast<size_t>(found->second)].add(launch, meanings);
  }
  for (size_t i = 0; i < kKernelClasses; ++i) {
    counters.classes[i] = counters_of(static_cast<KernelClass>(i), sums[i], meanings);
  }
  return counters;
}

}  // namespace headroom::bench
