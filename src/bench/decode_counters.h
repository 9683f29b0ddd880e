// What hardware counters say of a decode step's kernels, by class: DRAM traffic, arithmetic with
// and without the tensor cores, and what warps wait for.
//
// Of Nsight Compute's CSV (formats/ncu_csv.h), whatever process it profiled. ncu runs each kernel
// alone and several times, so that its times are no step's; ratios are what is compared: FLOPs a
// byte, bytes a second of kernel time. The memory-gap paper counted the arithmetic of its roofline
// by instructions of single threads, which leave the tensor cores out; both are given. Metrics by
// the names of NVIDIA's guide; tested on files made up after it, no recorded one was at hand. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/ncu_csv.h"

namespace headroom::bench {

enum class KernelClass : uint8_t { attention, matmul, other };
inline constexpr size_t kKernelClasses = 3;
[[nodiscard]] std::string_view name_of(KernelClass kind);

// Of the warps' waiting, a reason's share: "long_scoreboard" waits for memory.
struct Stall {
  std::string reason;
  double pct = 0;
};

// Nothing where the file lacks the metric.
struct ClassCounters {
  KernelClass kind{};
  int64_t launches = 0;
  std::optional<double> seconds;
  std::optional<double> dram_bytes;
  std::optional<double> dram_pct;      // of the peak that ncu knows, weighted by time
  std::optional<double> thread_flops;  // by instructions of single threads
  std::optional<double> tensor_flops;
  std::vector<Stall> stalls;  // the most first, weighted by time

  [[nodiscard]] std::optional<double> bytes_per_second() const;
  [[nodiscard]] std::optional<double> flops_per_byte() const;  // with the tensor cores
  [[nodiscard]] std::optional<double> thread_flops_per_byte() const;
};

struct DecodeCounters {
  int64_t batch = 0;  // that was profiled
  std::string file;
  std::array<ClassCounters, kKernelClasses> classes{};
  std::vector<std::string> missing;  // metrics that the file lacks, to be asked of ncu
};

// An Error where the file holds no launch, or none of the metrics.
Result<DecodeCounters> decode_counters(
    const formats::NcuProfile& profile, int64_t batch, const std::string& file,
    const std::function<KernelClass(std::string_view)>& class_of);

}  // namespace headroom::bench
