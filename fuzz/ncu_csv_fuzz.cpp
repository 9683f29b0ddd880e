// Counters of Nsight Compute: any bytes give a profile or an Error with its place, and what is made
// of a profile by kernel class is numbers.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/decode_counters.h"
#include "formats/ncu_csv.h"
#include "ops/counters.h"
#include "ops/kernel_name.h"

namespace {

using namespace headroom;

// Beside a trace in which every other launch has its full name, the rest their function's.
void join_with_a_trace(const formats::NcuProfile& profile) {
  std::vector<ops::KernelRow> kernels;
  for (const formats::NcuLaunch& launch : profile.launches) {
    const bool is_whole = kernels.size() % 2 == 0;
    const std::string_view name = launch.kernel;
    kernels.push_back({.name = std::string(is_whole ? name : ops::kernel_stem(name)),
                       .operation = {},
                       .group = {},
                       .name_group = {},
                       .count = 1,
                       .kernel_ms = 1,
                       .pct = 0});
  }
  const ops::KernelCounters joined = ops::counters_of(profile, kernels);
  for (const ops::CounterRow& row : joined.rows) {
    HEADROOM_CHECK(row.launches > 0 && row.count > 0, "a row of no launch");
    for (const ops::CounterValue& value : row.values) {
      HEADROOM_CHECK(std::isfinite(value.mean), "a mean that is no number");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto profile =
      formats::parse_ncu_csv(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!profile) {
    HEADROOM_CHECK(!profile.error().where.empty(), "an error without a place");
    return 0;
  }
  for (const formats::NcuLaunch& launch : profile->launches) {
    for (const auto& [metric, value] : launch.values) {
      HEADROOM_CHECK(metric < profile->metrics.size(), "a metric that is not there");
      HEADROOM_CHECK(std::isfinite(value), "a value that is no number");
    }
  }
  join_with_a_trace(*profile);
  const auto counters = bench::decode_counters(*profile, 1, "fuzz", [](std::string_view kernel) {
    return kernel.size() % 2 == 0 ? bench::KernelClass::attention : bench::KernelClass::other;
  });
  if (!counters) return 0;
  for (const bench::ClassCounters& one : counters->classes) {
    for (const auto& figure : {one.seconds, one.dram_bytes, one.dram_pct, one.thread_flops,
                               one.tensor_flops, one.bytes_per_second(), one.flops_per_byte()}) {
      HEADROOM_CHECK(!figure || (std::isfinite(*figure) && *figure >= 0), "a figure that is none");
    }
    for (const bench::Stall& stall : one.stalls) {
      HEADROOM_CHECK(stall.pct >= 0 && stall.pct <= 100.001, "a share that is none");
    }
  }
  return 0;
}
