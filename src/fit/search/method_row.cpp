#include "fit/search/method_row.h"

#include <algorithm>
#include <array>

#include "fit/explain.h"
#include "fit/measured/correction.h"
#include "fit/search/network.h"
#include "fit/time/step_timer.h"
#include "text/number.h"

namespace headroom::fit {

namespace {

std::string why_it_does_not_fit(const MethodRow& row, const DetailedPrediction& detail) {
  const ComponentBytes& breakdown = detail.prediction.breakdown;
  const auto largest = std::ranges::max_element(breakdown.bytes);
  const auto component = static_cast<Component>(largest - breakdown.bytes.begin());
  const bool is_sure = row.verdict == Verdict::no;
  const Bytes missing = is_sure ? row.room.expected : row.room.low;
  return (is_sure ? "misses " : "may miss ") + format_bytes(Bytes(-missing.count)) + " in " +
         peak_place(detail).phase + ", where " + std::string(label_of(component)) + " hold " +
         format_bytes(*largest);
}

}  // namespace

int rank_of(Verdict verdict) {
  return verdict == Verdict::yes ? 0 : verdict == Verdict::at_risk ? 1 : 2;
}

Bytes sent_in(const Scenario& scenario, const step::StepTrace& trace) {
  constexpr double kMost = 9e18;
  const auto repeated = repeated_calls(scenario, trace);
  if (!repeated) return {};
  const double bytes = timing::sent_bytes(trace, division_of(scenario.question), *repeated);
  return Bytes(static_cast<int64_t>(std::min(bytes, kMost)));
}

void take_prediction(const Scenario& scenario, const DetailedPrediction& detail, MethodRow& row) {
  const Prediction& prediction = detail.prediction;
  row.verdict = prediction.verdict;
  row.allocated_provenance = provenance_of(scenario, Metric::peak_allocated);
  row.reserved_provenance = provenance_of(scenario, Metric::peak_reserved);
  row.device_used_provenance = provenance_of(scenario, Metric::device_used);
  row.peak_allocated = prediction.peak_allocated;
  row.peak_reserved = prediction.peak_reserved;
  row.device_used = prediction.device_used;
  row.breakdown = prediction.breakdown;
  row.batch = scenario.question.batch;
  row.grad_accum = scenario.question.grad_accum;
  row.host = prediction.host;
  row.room = room_within(scenario, row.device_used);
  row.oom_probability = prediction.oom_probability;
  if (row.verdict != Verdict::yes) row.why = why_it_does_not_fit(row, detail);
}

std::string why_it_is_slower(const StepTime& time, const StepTime& first) {
  const double more = time.step_seconds.expected - first.step_seconds.expected;
  if (more <= 0) return {};
  const auto percent = [&](double seconds) {
    return text::formatted("%.1f %%", 100 * seconds / first.step_seconds.expected);
  };
  struct Part {
    double seconds;
    const char* before;
    const char* behind;
  };
  const std::array parts{
      Part{time.compute_seconds - first.compute_seconds, "computes ", " more"},
      Part{time.exposed_seconds - first.exposed_seconds, "stands still ", " longer"},
      Part{time.pipeline_seconds - first.pipeline_seconds, "stages wait ", " longer"}};
  const Part& most = *std::ranges::max_element(parts, {}, &Part::seconds);
  return percent(more) + " slower: " + most.before + percent(most.seconds) + most.behind;
}

void mark_frontier(std::vector<MethodRow>& rows) {
  const auto fits = [](const MethodRow& row) {
    return row.reason.empty() && row.verdict == Verdict::yes && row.time.has_value();
  };
  const auto seconds = [](const MethodRow& row) { return row.time->step_seconds.expected; };
  const auto room = [](const MethodRow& row) { return row.room.expected.count; };
  for (MethodRow& row : rows) {
    row.on_frontier = fits(row) && std::ranges::none_of(rows, [&](const MethodRow& other) {
                        return fits(other) && seconds(other) <= seconds(row) &&
                               room(other) >= room(row) &&
                               (seconds(other) < seconds(row) || room(other) > room(row));
                      });
  }
}

void explain_slower(std::vector<MethodRow>& rows) {
  const std::optional<StepTime>& first = rows.front().time;
  for (MethodRow& row : rows) {
    if (row.why.empty() && row.time && first) row.why = why_it_is_slower(*row.time, *first);
  }
}

}  // namespace headroom::fit
