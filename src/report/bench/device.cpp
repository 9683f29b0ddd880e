#include "report/bench/device.h"

#include <cmath>

#include "text/json_parts.h"
#include "text/number.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {

namespace {

using bench::Agreement;
using bench::ClassAgreement;
using bench::ClassSummary;
using bench::DeviceAnswer;
using text::Align;
using text::formatted;
using text::Json;
using text::Table;
using text::Terminal;
using timing::HeldOutError;

// Above it other work took part in what was measured.
constexpr double kBusyLoad = 0.5;

std::string rate_words(double flops_per_second) {
  return flops_per_second >= 1e12 ? formatted("%.1f TFLOP/s", flops_per_second * 1e-12)
                                  : formatted("%.0f GFLOP/s", flops_per_second * 1e-9);
}

std::string best_words(const ClassSummary& summary) {
  return summary.best_flops_per_second > 0
             ? rate_words(summary.best_flops_per_second)
             : formatted("%.1f GB/s", summary.best_bytes_per_second * 1e-9);
}

// "-" where one round alone was measured.
std::string spread_words(const std::optional<double>& spread_pct) {
  return spread_pct ? formatted("%.0f %%", *spread_pct) : "-";
}

Json spread_json(const std::optional<double>& spread_pct) {
  return spread_pct ? Json(*spread_pct) : Json(nullptr);
}

std::string interval_words(const HeldOutError& error) {
  return formatted("+%.0f %%", 100 * std::expm1(error.half_width_log));
}

std::string first_line(const DeviceAnswer& answer, const std::string& file) {
  const device::Device& device = answer.device;
  std::string line =
      text::printable(answer.calibration.machine.product) + " (" + device.name + "): ";
  line += formatted("%.1f GB/s", device.bandwidth.value.value * 1e-9);
  for (const device::Rate rate : device::kRates) {
    if (!device.rate(rate).known()) continue;
    line +=
        ", " + rate_words(device.rate(rate).value.value) + " " + std::string(device::name_of(rate));
  }
  line += "; " + std::to_string(answer.calibration.points.size()) + " points, laws off by " +
          formatted("%.0f %%", bench::median_class_error_pct(answer));
  return line + (file.empty() ? "" : ", kept in " + text::printable(file)) + "\n";
}

std::string classes_table(const DeviceAnswer& answer, const Terminal& terminal) {
  Table table({{"operators", Align::left, true},
               {"points", Align::right, false},
               {"best", Align::right, false},
               {"spread", Align::right, false},
               {"large", Align::right, false},
               {"90 %", Align::right, false},
               {"small", Align::right, false},
               {"90 %", Align::right, false},
               {"roofline", Align::right, false}});
  for (const ClassSummary& summary : answer.classes) {
    table.row(
        {std::string(name_of(summary.kind)), std::to_string(summary.points), best_words(summary),
         spread_words(summary.spread_pct), formatted("%.1f %%", summary.law.large.median_error_pct),
         interval_words(summary.law.large),
         formatted("%.1f %%", summary.law.small.median_error_pct),
         interval_words(summary.law.small), formatted("%.0f %%", summary.roofline_error_pct)});
  }
  return table.render(terminal);
}

// Beyond the last cache, where a size is; and of the smallest, which a core holds.
std::string memory_words(const timing::Calibration& calibration) {
  if (calibration.memory.empty()) return {};
  const timing::MemoryPoint& small = calibration.memory.front();
  const timing::MemoryPoint& large = calibration.memory.back();
  const auto rates = [](const timing::MemoryPoint& point) {
    return formatted("read at %.1f GB/s, copied at ", point.read_bytes_per_second * 1e-9) +
           formatted("%.1f GB/s", point.copy_bytes_per_second * 1e-9);
  };
  std::string words = "Memory: " + format_bytes(large.size) + " are " + rates(large) + "; " +
                      format_bytes(small.size) + " " + rates(small) + ".";
  const timing::Latency& latency = calibration.latency;
  if (latency.round_trip_seconds > 0) {
    words += formatted(" A call that does nothing: %.1f us", latency.launch_seconds * 1e6) +
             formatted(", its result after %.1f us.", latency.round_trip_seconds * 1e6);
  }
  return words + "\n";
}

std::string unseen_line(const bench::UnseenShapes& unseen) {
  if (unseen.points == 0) return {};
  const double inside =
      100 * static_cast<double>(unseen.in_interval) / static_cast<double>(unseen.points);
  return std::to_string(unseen.points) +
         " shapes that the earlier run did not measure take what its laws say, but for " +
         formatted("%.0f %% in the median; ", unseen.median_error_pct) +
         formatted("%.0f %% are in the 90 %% interval; the plain roofline is off by ", inside) +
         formatted("%.0f %%.\n", unseen.roofline_error_pct);
}

std::string agreement_line(const Agreement& agreement) {
  if (agreement.points == 0) return unseen_line(agreement.unseen);
  const auto agrees = bench::agrees(agreement);
  if (!agrees) {
    return "Whether the two runs agree is not known: one of them measured each shape once, and so "
           "knows no spread (a run of more --seconds measures twice).\n" +
           unseen_line(agreement.unseen);
  }
  const double share =
      100 * static_cast<double>(agreement.within) / static_cast<double>(agreement.judged);
  return "The two runs " + std::string(*agrees ? "agree" : "do not agree") + ": " +
         formatted("%.0f %%", share) + " of " + std::to_string(agreement.judged) +
         " points are within the stated spread, where 90 % should be.\n" +
         unseen_line(agreement.unseen);
}

std::string agreement_table(const Agreement& agreement, const Terminal& terminal) {
  if (agreement.points == 0) return {};
  Table table({{"both runs", Align::left, true},
               {"points", Align::right, false},
               {"stated", Align::right, false},
               {"within", Align::right, false},
               {"90 % within", Align::right, false},
               {"later by", Align::right, false}});
  for (const ClassAgreement& one : agreement.classes) {
    const double share = 100 * static_cast<double>(one.within) / static_cast<double>(one.points);
    table.row({std::string(name_of(one.kind)), std::to_string(one.points),
               spread_words(one.stated_pct), one.stated_pct ? formatted("%.0f %%", share) : "-",
               formatted("%.0f %%", one.differ_90_pct),
               formatted("%+.0f %%", one.median_ratio_pct)});
  }
  return table.render(terminal);
}

Json unseen_json(const bench::UnseenShapes& unseen) {
  return Json::object()
      .set("points", unseen.points)
      .set("in_interval", unseen.in_interval)
      .set("median_error_pct", unseen.median_error_pct)
      .set("roofline_error_pct", unseen.roofline_error_pct);
}

Json agreement_json(const Agreement& agreement) {
  const auto agrees = bench::agrees(agreement);
  return Json::object()
      .set("agrees", agrees ? Json(*agrees) : Json(nullptr))
      .set("points", agreement.points)
      .set("judged", agreement.judged)
      .set("within", agreement.within)
      .set("level_pct", 90)
      .set("unseen", unseen_json(agreement.unseen))
      .set("unseen_by_class",
           text::json_array(agreement.unseen_by_class,
                            [](const bench::ClassUnseen& one) {
                              return unseen_json(one.shapes).set("class", name_of(one.kind));
                            }))
      .set("classes", text::json_array(agreement.classes, [](const ClassAgreement& one) {
             return Json::object()
                 .set("class", name_of(one.kind))
                 .set("points", one.points)
                 .set("within", one.within)
                 .set("stated_pct", spread_json(one.stated_pct))
                 .set("differ_90_pct", one.differ_90_pct)
                 .set("median_ratio_pct", one.median_ratio_pct);
           }));
}

Json class_json(const ClassSummary& summary) {
  const auto error_json = [](const HeldOutError& error) {
    return Json::object()
        .set("rows", error.rows)
        .set("median_error_pct", error.median_error_pct)
        .set("half_width_log", error.half_width_log);
  };
  return Json::object()
      .set("class", name_of(summary.kind))
      .set("points", summary.points)
      .set("best_bytes_per_second", summary.best_bytes_per_second)
      .set("best_flops_per_second", summary.best_flops_per_second)
      .set("median_uncertainty_pct", summary.median_uncertainty_pct)
      .set("spread_pct", spread_json(summary.spread_pct))
      .set("start_us", summary.law.start_seconds * 1e6)
      .set("held_out_large", error_json(summary.law.large))
      .set("held_out_small", error_json(summary.law.small))
      .set("roofline_error_pct", summary.roofline_error_pct)
      .set("provenance", name_of(Provenance::measured));
}

}  // namespace

std::string device_bench_text(const DeviceAnswer& answer, const std::string& file,
                              const Agreement* agreement, const Terminal& terminal) {
  std::string words = agreement != nullptr ? agreement_line(*agreement) : std::string();
  words += first_line(answer, file) + "\n" + classes_table(answer, terminal);
  if (agreement != nullptr) words += "\n" + agreement_table(*agreement, terminal);
  words +=
      "\nbest: the most that a point reached. spread: 90 % of the points of another run differ by "
      "no "
      "more, as far as two rounds\nof this one tell. large, small: the law's median error on "
      "shapes that "
      "took no part in it, for\noperands beyond two caches and smaller ones, and what its 90 % "
      "interval adds; roofline: the error without a law.\n";
  words += "The first line's error is the median of the column large.\n";
  words += memory_words(answer.calibration);
  const timing::Machine& machine = answer.calibration.machine;
  words += "Measured with " +
           (machine.engine.empty() ? "PyTorch " + text::printable(machine.torch)
                                   : text::printable(machine.engine)) +
           " on " + std::to_string(machine.units) +
           (machine.kind == "cpu" ? " threads" : " multiprocessors") + ".\n";
  if (machine.load > kBusyLoad && machine.kind == "cpu") {
    words += "The machine was busy (load " + formatted("%.1f", machine.load) +
             "): times hold what other work took.\n";
  }
  if (answer.disturbed.value_or(0) > 0) {
    words +=
        std::to_string(*answer.disturbed) + " points were disturbed beyond use and are left out.\n";
  }
  for (const timing::OperatorClass kind : answer.left_out) {
    words += "No law for " + std::string(name_of(kind)) + ": too few points.\n";
  }
  if (!file.empty()) {
    const std::string verb = machine.engine.empty() ? "bench decode MODEL --predict --device " +
                                                          answer.calibration.device
                                                    : "ops PROFILE";
    words += "`headroom " + verb + " --calibration " + text::printable(file) + "` uses it.\n";
  }
  return words;
}

Json device_bench_json(const DeviceAnswer& answer, const std::string& file,
                       const Agreement* agreement) {
  Json rates = Json::object();
  for (const device::Rate rate : device::kRates) {
    if (!answer.device.rate(rate).known()) continue;
    rates.set(device::name_of(rate), answer.device.rate(rate).value.value);
  }
  return Json::object()
      .set("schema", "headroom.bench_device/1")
      .set("device", answer.calibration.device)
      .set("machine", timing::machine_json(answer.calibration.machine))
      .set("bandwidth_bytes_per_second", answer.device.bandwidth.value.value)
      .set("dense_flops_per_second", std::move(rates))
      .set("calibration_file", file.empty() ? Json(nullptr) : Json(file))
      .set("points", static_cast<int64_t>(answer.calibration.points.size()))
      .set("agreement", agreement != nullptr ? agreement_json(*agreement) : Json(nullptr))
      .set("median_class_error_pct", bench::median_class_error_pct(answer))
      .set("disturbed_points", answer.disturbed ? Json(*answer.disturbed) : Json(nullptr))
      .set("classes", text::json_array(answer.classes, class_json))
      .set("classes_without_law", text::json_array(answer.left_out, [](timing::OperatorClass kind) {
             return Json(name_of(kind));
           }));
}

}  // namespace headroom::report
