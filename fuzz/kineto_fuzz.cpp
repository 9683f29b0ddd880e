// Kineto traces: any bytes give a trace or an Error with its place, and any trace can be linked,
// sorted and counted, with accountings that sum to their totals.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/kineto.h"
#include "ops/ops.h"

namespace {

void check(const headroom::ops::Accounting& accounting) {
  double sum = 0;
  for (const auto& group : accounting.groups) {
    HEADROOM_CHECK(group.ms >= 0, "a negative time");
    sum += group.ms;
  }
  HEADROOM_CHECK(std::abs(sum - accounting.total_ms) <= 1e-6 * (1 + accounting.total_ms),
                 "groups that do not sum to the total");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  static const ops::OperatorRules rules = *ops::OperatorRules::load("");
  const auto trace = formats::read_kineto(
      text::ByteFeed(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz"));
  if (!trace) {
    HEADROOM_CHECK(!trace.error().where.empty(), "an error without a place");
    return 0;
  }
  for (size_t i = 1; i < trace->events.size(); ++i) {
    HEADROOM_CHECK(trace->events[i - 1].start_ns <= trace->events[i].start_ns, "out of order");
  }
  const auto answer = ops::answer(*trace, rules);
  if (!answer) return 0;
  check(answer->kernel_time);
  check(answer->wall_time);
  check(answer->nongemm_bench);
  return 0;
}
