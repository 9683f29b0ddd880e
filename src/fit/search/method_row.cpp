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

void say_why_it_does_not_fit(const DetailedPrediction& detail, MethodRow& row) {
  const ComponentBytes& breakdown = detail.prediction.breakdown;
  const auto largest = std::ranges::max_element(breakdown.bytes);
  const auto component = static_cast<Component>(largest - breakdown.bytes.begin());
  const bool is_sure = row.verdict == Verdict::no;
  const Bytes missing = is_sure ? row.room.expected : row.room.low;
  row.why_briefly = (is_sure ? "misses " : "may miss ") + format_bytes(Bytes(-missing.count)) +
                    " in " + peak_place(detail).phase;
  row.why = row.why_briefly + ", where " + std::string(label_of(component)) + " hold " +
            format_bytes(*largest);
}

// Where the time goes that `first` does not take: kernels run again, or waiting for others or the
// host.
void say_why_it_is_slower(const StepTime& first, MethodRow& row) {
  const StepTime& time = *row.time;
  const double more = time.step_seconds.expected - first.step_seconds.expected;
  if (more <= 0) return;
  const double step = first.step_seconds.expected;
  const bool is_far = more >= 10 * step;  // so that a part of the first's step says nothing
  const auto part = [&](double seconds) {
    if (!is_far) return text::formatted("%.1f %%", 100 * seconds / step);
    return text::formatted(seconds < 1000 ? "%.3g s" : "%.0f s", seconds);
  };
  struct Part {
    double seconds;
    const char* before;
    const char* behind;
  };
  const std::array parts{
      Part{time.compute_seconds - first.compute_seconds, "computes ", " more"},
      Part{time.exposed_seconds - first.exposed_seconds, "stands still ", " longer"},
      Part{time.host_seconds - first.host_seconds, "waits for the host ", " longer"},
      Part{time.pipeline_seconds - first.pipeline_seconds, "stages wait ", " longer"}};
  const Part& most = *std::ranges::max_element(parts, {}, &Part::seconds);
  row.why_briefly = most.before + part(most.seconds) + most.behind;
  row.why = part(more) + (is_far ? " longer: " : " slower: ") + row.why_briefly;
}

// Where none has a step time; nothing where all that is known of them is alike.
void say_why_it_is_behind(const MethodRow& first, MethodRow& row) {
  if (row.checkpointing != first.checkpointing) {
    row.why_briefly = "recomputes more";
  } else if (row.sent > first.sent) {
    row.why_briefly = "sends " + format_bytes(row.sent - first.sent) + " more";
  } else if (row.host && first.host && row.host->taken > first.host->taken) {
    row.why_briefly =
        "takes " + format_bytes(row.host->taken - first.host->taken) + " more of the host's memory";
  }
  row.why = row.why_briefly;
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
  if (row.verdict != Verdict::yes) say_why_it_does_not_fit(detail, row);
}

void name_stage(int64_t stage, int64_t stages, MethodRow& row) {
  row.stage = stage;
  if (stages < 2 || row.why.empty()) return;
  const std::string place = "stage " + std::to_string(stage);
  row.why = place + " of " + std::to_string(stages) + " " + row.why;
  row.why_briefly = place + " " + row.why_briefly;
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

void explain_order(std::vector<MethodRow>& rows) {
  const MethodRow first = rows.front();
  for (size_t i = 1; i < rows.size(); ++i) {
    MethodRow& row = rows[i];
    if (!row.reason.empty() || !row.why.empty()) continue;
    if (row.time && first.time) {
      say_why_it_is_slower(*first.time, row);
    } else if (first.time) {
      row.why = row.why_briefly = "no step time is known";
    } else {
      say_why_it_is_behind(first, row);
    }
  }
}

}  // namespace headroom::fit
