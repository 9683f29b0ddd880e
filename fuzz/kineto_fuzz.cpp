// Kineto traces: any bytes give a trace or an Error with its place, and any trace can be linked,
// sorted, counted, drawn and held against itself, with accountings that sum to their totals.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "device/catalogue.h"
#include "formats/kineto.h"
#include "ops/comparison.h"
#include "ops/ops.h"
#include "ops/ranks.h"
#include "ops/timeline.h"

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

const headroom::device::Device& some_device() {
  static const headroom::device::Device kDevice =
      *headroom::device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  return kDevice;
}

// What is made of a run besides its answer.
void check(const headroom::ops::RecordedRun& run, const headroom::ops::OperatorRules& rules) {
  using namespace headroom;
  const ops::Timeline timeline = ops::timeline_of(run);
  for (const ops::TimelineRow& row : timeline.rows) {
    for (const ops::Mark& mark : row.marks) {
      HEADROOM_CHECK(mark.start_ns >= 0 && mark.span_ns > 0 &&
                         mark.start_ns + mark.span_ns <= timeline.length_ns,
                     "a mark outside of the run");
      HEADROOM_CHECK(mark.name < timeline.names.size(), "a mark without a name");
    }
  }
  const ops::OpsComparison same = ops::compare(run, run, rules, 5.0);
  HEADROOM_CHECK(same.slowdown_pct == 0, "a run that is slower than itself");
  const ops::RankSummary summary = ops::summary_of(run, rules);
  const auto ranks = ops::answer_ranks({summary, summary});
  if (!ranks) return;
  for (const ops::RankTimes& rank : ranks->ranks) {
    HEADROOM_CHECK(rank.waiting_ms == 0, "a rank that waits for itself");
  }
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
  const auto run = ops::run_of(*trace, rules);
  if (!run) return 0;
  const ops::OpsAnswer answer =
      ops::answer(*run, rules, {.device = &some_device(), .other = &some_device()});
  check(answer.kernel_time);
  check(answer.wall_time);
  check(answer.nongemm_bench);
  check(*run, rules);
  return 0;
}
