#include "report/ops/words.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/bound.h"
#include "text/number.h"

namespace headroom::report {
namespace {

std::string host_words(const ops::OpsAnswer& answer) {
  const double idle = ops::wall_shares(answer.wall_time).idle;
  if (!answer.trace.has_device) {
    return "What is outside of operators bounds this run: " + percent_words(idle) +
           " of the time no operator runs";
  }
  if (answer.trace.devices > 1) {  // one may wait while another works
    return "The host bounds this run: for " + percent_words(idle) + " of the time none of its " +
           std::to_string(answer.trace.devices) + " devices works";
  }
  const bool is_host = answer.idle.host_ms >= answer.idle.launch_ms;
  const double cause = is_host ? answer.idle.host_ms : answer.idle.launch_ms;
  return std::string(is_host ? "The host" : "Launching") + " bounds this run: the device is idle " +
         percent_words(idle) + " of the time, " + percent_words(100 * cause / answer.idle.ms) +
         " of that " +
         (is_host ? "waiting for the next launch" : "with the next kernel launched but not begun") +
         (answer.trace.is_cut ? "; the file was cut off: where kernels were lost looks idle" : "");
}

std::string not_recorded_words(const ops::TraceFacts& trace) {
  const std::string words = "What bounds this run is not in the trace: ";
  if (trace.has_device) {
    return words + "the file was cut off, and " +
           percent_words(100 * static_cast<double>(trace.lost_launches) /
                         static_cast<double>(trace.launches)) +
           " of its launches have no kernel";
  }
  return words +
         (trace.lacks_devices ? "the file was cut off before it says whether a device took part"
                              : "it is of a run on a device, and has no kernel") +
         "; what follows is the host's part alone";
}

// Which of the device's two limits its operators are under, where most of them could be counted.
std::string limit_words(const ops::OpsAnswer& answer) {
  constexpr double kMost = 50;
  if (!answer.roofline || answer.roofline->covered_pct < kMost) return "";
  const double compute = answer.roofline->compute_bound_pct;
  const bool is_compute = compute >= kMost;
  return std::string("; by the device's limits mostly ") +
         (is_compute ? "compute, " : "memory traffic, ") +
         percent_words(is_compute ? compute : 100 - compute) + " of what could be counted";
}

// What can be said by durations alone.
std::string no_starts_words(const ops::OpsAnswer& answer) {
  if (answer.kernel_time.total_ms <= 0) {
    return "How long anything took is not in the file, nor when it began" + limit_words(answer);
  }
  const ops::WallShares kernel = ops::wall_shares(answer.kernel_time);
  return "Of the kernel time GEMM and attention take " + percent_words(kernel.gemm) +
         ", non-GEMM operators " + percent_words(kernel.non_gemm) + ", communication " +
         percent_words(kernel.communication) +
         "; what bounds the run is not in the file, which has no times of start" +
         limit_words(answer);
}

// "8 TB/s", "400 GFLOP/s".
std::string rate_of(double per_second, const std::string& unit) {
  const bool is_tera = per_second >= 1e12;
  return text::formatted("%.4g ", per_second / (is_tera ? 1e12 : 1e9)) + (is_tera ? "T" : "G") +
         unit;
}

}  // namespace

std::string milliseconds(double ms) {
  return text::formatted(ms >= 1000 ? "%.0f ms" : ms >= 10 ? "%.2f ms" : "%.4f ms", ms);
}

std::string percent_words(double share) { return text::formatted("%.1f %%", share); }

const ops::GroupShare* find_group(const ops::Accounting& accounting, std::string_view name) {
  const auto found = std::find_if(accounting.groups.begin(), accounting.groups.end(),
                                  [&](const ops::GroupShare& group) { return group.name == name; });
  return found == accounting.groups.end() ? nullptr : &*found;
}

std::string_view group_colour(std::string_view group) {
  using Colour = std::pair<std::string_view, std::string_view>;
  constexpr std::array kColours{Colour{"gemm", "site-0"},
                                Colour{"attention", "site-4"},
                                Colour{"communication", "site-5"},
                                Colour{"normalization", "site-2"},
                                Colour{"activation", "site-3"},
                                Colour{"elementwise", "site-1"},
                                Colour{"memory", "site-7"},
                                Colour{"softmax", "site-6"},
                                Colour{"embedding", "lm_head_gradient"},
                                Colour{"optimizer", "other"},
                                Colour{"quantize", "loss"},
                                Colour{"idle", "cached_unused"},
                                Colour{"unclassified", "no"}};
  const auto* found = std::find_if(kColours.begin(), kColours.end(),
                                   [&](const Colour& colour) { return colour.first == group; });
  return found == kColours.end() ? std::string_view("site-other") : found->second;
}

std::string limits_words(const ops::OperatorRoofline& roofline) {
  std::string words;
  for (const std::string& name : roofline.given) {
    words += (words.empty() ? "" : ", ") + name + " ";
    if (name == "bandwidth") words += rate_of(roofline.bytes_per_second, "B/s");
    for (const auto& [rate, flops] : roofline.flops_per_second) {
      if (rate == name) words += rate_of(flops, "FLOP/s");
    }
  }
  if (words.empty()) return std::string(name_of(roofline.provenance));
  words += " as given";
  return roofline.not_given ? words + ", else " + std::string(name_of(*roofline.not_given)) : words;
}

bool is_replay_trusted(const ops::OpsAnswer& answer) {
  constexpr double kTrustedErrorPct = 5;
  return answer.replay && std::abs(answer.replay->error_pct) <= kTrustedErrorPct;
}

std::string replay_words(const ops::OpsAnswer& answer) {
  constexpr double kShown = 0.05;
  const double error = answer.replay->error_pct;
  return "the replay of the run as it was is " +
         (std::abs(error) < kShown ? "less than 0.1 %" : text::formatted("%+.1f %%", error)) +
         " off what was measured";
}

std::string best_changes_words(const ops::OpsAnswer& answer) {
  constexpr size_t kBestChanges = 3;
  constexpr double kHelps = 1.005;  // what "1.01x" begins at
  std::string words;
  size_t shown = 0;
  if (!is_replay_trusted(answer)) return words;
  for (const ops::HorizonChange& change : answer.horizon) {
    if (change.change.ends_with("_instant") || shown == kBestChanges) continue;
    // All of them together would hide which of them it is; what was asked for stands below.
    const bool is_found = change.change != "non_gemm_2x" && !change.change.starts_with("faster:");
    if (!is_found || change.speedup < kHelps) continue;
    words += (shown == 0 ? "Most would help: " : ", ") + change.title +
             text::formatted(" %.2fx", change.speedup);
    ++shown;
  }
  return words;
}

std::string_view bound_name(ops::Bound bound) {
  switch (bound) {
    case ops::Bound::nothing:
      return "nothing";
    case ops::Bound::host:
      return "host";
    case ops::Bound::idle:
      return "idle";
    case ops::Bound::unseen:
      return "unseen";
    case ops::Bound::not_recorded:
      return "not_recorded";
    case ops::Bound::no_starts:
      return "no_starts";
    case ops::Bound::communication:
      return "communication";
    case ops::Bound::gemm_attention:
      return "gemm_attention";
    case ops::Bound::non_gemm:
      return "non_gemm";
    case ops::Bound::unclassified:
      return "unclassified";
    case ops::Bound::mixed:
      return "mixed";
  }
  return "nothing";
}

std::string bound_words(const ops::OpsAnswer& answer) {
  const std::string share = percent_words(answer.bound_pct);
  switch (answer.bound) {
    case ops::Bound::host:
      return host_words(answer);
    case ops::Bound::idle:
      return "The device is idle " + share + " of the time; why was not recorded" +
             (answer.idle.host_ms + answer.idle.launch_ms == 0 ? ", as the trace has no launches"
                                                               : "");
    case ops::Bound::unseen:
      return "What bounds this run was not recorded: for " + share +
             " of the time the device did, or the host waited for, what the profiler has nothing "
             "of";
    case ops::Bound::not_recorded:
      return not_recorded_words(answer.trace);
    case ops::Bound::no_starts:
      return no_starts_words(answer);
    case ops::Bound::communication:
      return "Communication bounds this run: " + share + " of the time nothing hides it";
    case ops::Bound::gemm_attention:
      return "GEMM and attention bound this run: " + share + " of the time" + limit_words(answer);
    case ops::Bound::non_gemm:
      return "Non-GEMM operators bound this run: " + share + " of the time" + limit_words(answer);
    case ops::Bound::unclassified:
      return "What bounds this run is not known: " + share +
             " of the time is in operators that no rule sorts (--rules FILE adds some)";
    case ops::Bound::mixed: {
      const ops::WallShares wall = ops::wall_shares(answer.wall_time);
      return "No one thing bounds this run: GEMM and attention " + percent_words(wall.gemm) +
             ", non-GEMM " + percent_words(wall.non_gemm) + ", communication " +
             percent_words(wall.communication) + ", idle " + percent_words(wall.idle) +
             limit_words(answer);
    }
    case ops::Bound::nothing:
      break;
  }
  return "The trace covers no time";
}

}  // namespace headroom::report
