#include "report/ops/captions.h"

#include "report/ops/words.h"

namespace headroom::report {

std::string idle_words(const ops::OpsAnswer& answer) {
  constexpr double kShownPct = 0.05;  // what one decimal shows
  const ops::IdleTime& idle = answer.idle;
  if (!answer.trace.has_device || idle.ms <= 0) return "";
  std::string words;
  const auto add = [&](double ms, const char* why) {
    const double pct = 100 * ms / idle.ms;
    if (pct < kShownPct) return;
    words += (words.empty() ? "idle: " : ", ") + percent_words(pct) + " " + why;
  };
  add(idle.host_ms, "waiting for the host");
  add(idle.launch_ms, "launched and not begun");
  add(idle.unknown_ms, "for what is not in the trace");
  return words;
}

std::string between_words(const ops::OpsAnswer& answer) {
  if (!answer.trace.has_device) {
    return "between: wider by the replay's error; of int8 by a calibration, the 90 % interval of "
           "its times";
  }
  return "between: with the latencies of host and device halved and doubled, and wider by the "
         "replay's error: how much hangs on them, no confidence interval";
}

}  // namespace headroom::report
