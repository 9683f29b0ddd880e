#include "report/ops_words.h"

#include "text/number.h"

namespace headroom::report {
namespace {

std::string percent(double share) { return text::formatted("%.1f %%", share); }

double share_of(const ops::Accounting& accounting, std::string_view name) {
  for (const ops::GroupShare& group : accounting.groups) {
    if (group.name == name) return group.pct;
  }
  return 0;
}

std::string host_words(const ops::OpsAnswer& answer) {
  const double idle = share_of(answer.wall_time, "idle");
  if (!answer.trace.has_device) {
    return "What is outside of operators bounds this run: " + percent(idle) +
           " of the time no operator runs";
  }
  const bool is_host = answer.idle.host_ms >= answer.idle.launch_ms;
  return std::string(is_host ? "The host" : "Launching") + " bounds this run: the device is idle " +
         percent(idle) + " of the time, " +
         (is_host ? "waiting for the next launch" : "with the next kernel launched but not begun");
}

}  // namespace

std::string_view bound_name(ops::Bound bound) {
  switch (bound) {
    case ops::Bound::nothing:
      return "nothing";
    case ops::Bound::host:
      return "host";
    case ops::Bound::communication:
      return "communication";
    case ops::Bound::gemm_attention:
      return "gemm_attention";
    case ops::Bound::non_gemm:
      return "non_gemm";
    case ops::Bound::mixed:
      return "mixed";
  }
  return "nothing";
}

std::string bound_words(const ops::OpsAnswer& answer) {
  const std::string share = percent(answer.bound_pct);
  switch (answer.bound) {
    case ops::Bound::host:
      return host_words(answer);
    case ops::Bound::communication:
      return "Communication bounds this run: " + share + " of the time nothing hides it";
    case ops::Bound::gemm_attention:
      return "GEMM and attention bound this run: " + share + " of the time";
    case ops::Bound::non_gemm:
      return "Non-GEMM operators bound this run: " + share + " of the time";
    case ops::Bound::mixed: {
      const double gemm =
          share_of(answer.wall_time, "gemm") + share_of(answer.wall_time, "attention");
      const double idle = share_of(answer.wall_time, "idle");
      const double communication = share_of(answer.wall_time, "communication");
      return "No one thing bounds this run: GEMM and attention " + percent(gemm) + ", non-GEMM " +
             percent(100 - gemm - idle - communication) + ", communication " +
             percent(communication) + ", idle " + percent(idle);
    }
    case ops::Bound::nothing:
      break;
  }
  return "The trace covers no time";
}

}  // namespace headroom::report
