#include "report/bench/decode_html.h"

#include <algorithm>
#include <optional>

#include "report/bench/decode_intervals.h"
#include "report/bench/text.h"
#include "report/fit/words.h"
#include "report/ops/words.h"
#include "report/page/curve_chart.h"
#include "report/page/roofline_chart.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using bench::DecodeAnswer;
using bench::DecodeStep;
using bench::KernelTime;
using text::formatted;

std::string percent(double part, double whole) {
  return whole > 0 ? percent_words(100 * part / whole) : "-";
}

std::string gigabytes(double bytes_per_second) {
  return bytes_per_second > 0 ? formatted("%.1f GB/s", bytes_per_second * 1e-9) : "-";
}

// Of a step: no more digits than it is known to.
std::string step_words(double seconds) { return formatted("%.3g ms", seconds * 1e3); }

Section answer_section(const DecodeAnswer& answer) {
  Html html;
  html.raw("<h1>Decode steps <span class=\"chip\">").text(answer.model);
  html.raw("</span></h1>\n<p class=\"line\">").text(decode_sentence(answer)).raw("</p>\n");
  const DecodeStep* last = decode_shown_step(answer);
  if (last == nullptr) return {"answer", "", html, "no"};
  html.raw("<dl class=\"tiles\">");
  const std::string at = "at batch " + std::to_string(last->batch);
  // Below each predicted figure its interval.
  const auto beneath = [&](const std::string& range, const std::string& words) {
    return answer.measured ? words : range + " (90 %), predicted, " + words;
  };
  const auto between = [](const Spread& spread, double scale, const std::string& unit) {
    return formatted("%.3g", scale * spread.low) + " to " + formatted("%.3g", scale * spread.high) +
           unit;
  };
  tile(html, "Step", step_words(last->step.seconds),
       beneath(between({last->step.low_seconds, last->step.high_seconds}, 1e3, " ms"), at));
  const Spread tokens = rate_spread(static_cast<double>(last->batch), last->step);
  tile(html, "Tokens a second", rate_words(static_cast<double>(last->batch) / last->step.seconds),
       beneath(rate_words(tokens.low) + " to " + rate_words(tokens.high), at));
  tile(
      html, "Attention", percent(last->attention.time.seconds, last->parts_seconds()),
      beneath(between(share_spread(*last, last->attention.time), 100, " %"), "of the step, " + at));
  if (last->attention.bytes > 0) {
    const Spread reached = rate_spread(last->attention.bytes, last->attention.time);
    tile(html, "Attention reaches",
         percent(last->attention.bytes_per_second(), answer.peak_bytes_per_second),
         beneath(between(reached, 100 / answer.peak_bytes_per_second, " %"),
                 "of " + gigabytes(answer.peak_bytes_per_second) + ", " + at));
    const Spread busy =
        rate_spread(decode_compute_share(*last, answer) * last->step.seconds, last->step);
    tile(html, "Compute idle", percent_words(100 * (1 - decode_compute_share(*last, answer))),
         beneath(between({1 - busy.high, 1 - busy.low}, 100, " %"), at));
  }
  html.raw("</dl>\n");
  const bool is_partial = answer.measured && !answer.measured->not_run.empty();
  return {"answer", "", html, answer.largest_batch > 0 ? (is_partial ? "at_risk" : "yes") : "no"};
}

struct ClassPart {
  const char* name;
  const char* group;  // whose colour it has
  double seconds;
};

std::vector<ClassPart> parts_of(const DecodeStep& step) {
  return {{"attention", "attention", step.attention.time.seconds},
          {"matmul", "gemm", step.matmul.time.seconds},
          {"other", "elementwise", step.other.time.seconds},
          {"host gap", "idle", step.host.seconds}};
}

void step_lane(Html& html, const DecodeStep& step) {
  html.raw("<div class=\"row\"><div class=\"name\">batch ").text(std::to_string(step.batch));
  html.raw("<small>").text(step.fits ? format_bytes(step.kv_cache) + " of cache" : "does not fit");
  html.raw("</small></div><div class=\"lane\"><div class=\"stackbar\"><div class=\"track\">");
  for (const ClassPart& part : parts_of(step)) {
    if (part.seconds <= 0) continue;
    html.raw("<div class=\"part\" style=\"width:");
    html.percent(100 * part.seconds / step.parts_seconds()).raw(";background-color:var(--");
    html.text(group_colour(part.group)).raw(")\" title=\"");
    html.text(std::string(part.name) + ": " + step_words(part.seconds) + ", " +
              percent(part.seconds, step.parts_seconds()));
    html.raw("\"></div>");
  }
  html.raw("</div></div></div><div class=\"figure\">");
  html.text(step_words(step.step.seconds)).raw("<small>");
  html.text(rate_words(static_cast<double>(step.batch) / step.step.seconds) + " tokens/s");
  html.raw("</small></div></div>\n");
}

Section shares_section(const DecodeAnswer& answer) {
  Html html;
  html.raw("<p class=\"soft\">Shares of a step by kernel class; the host gap is what no kernel ");
  html.raw("fills. At the right the time of a step.</p>\n<ul class=\"legend\">");
  for (const ClassPart& part : parts_of(answer.steps.front())) {
    html.raw("<li><span class=\"swatch\" style=\"background-color:var(--");
    html.text(group_colour(part.group)).raw(")\"></span>").text(part.name).raw("</li>");
  }
  html.raw("</ul>\n<div class=\"bars\">");
  for (const DecodeStep& step : answer.steps) step_lane(html, step);
  html.raw("</div>\n");
  return {"shares", "Where a step's time goes", html, ""};
}

void add_roofline_row(const DecodeAnswer& answer, const DecodeStep& step, const char* name,
                      const char* group, const KernelTime& kernels, ops::OperatorRoofline& chart) {
  ops::RooflineRow row;
  row.name = name;
  row.shapes = "at batch " + std::to_string(step.batch);
  row.group = group;
  row.rate = answer.dtype;
  row.flops = kernels.flops;
  row.bytes = kernels.bytes;
  row.kernel_ms = kernels.time.seconds * 1e3;
  row.floor_ms = 1e3 * std::max(kernels.flops / answer.peak_flops_per_second,
                                kernels.bytes / answer.peak_bytes_per_second);
  row.above_ms = std::max(0.0, row.kernel_ms - row.floor_ms);
  row.flops_per_second = kernels.time.seconds > 0 ? kernels.flops / kernels.time.seconds : 0;
  row.bytes_per_second = kernels.bytes_per_second();
  chart.rows.push_back(std::move(row));
}

Section roofline_section(const DecodeAnswer& answer) {
  ops::OperatorRoofline chart;
  chart.device = answer.device;
  chart.bytes_per_second = answer.peak_bytes_per_second;
  chart.flops_per_second = {{answer.dtype, answer.peak_flops_per_second}};
  for (const DecodeStep& step : answer.steps) {
    add_roofline_row(answer, step, "attention", "attention", step.attention, chart);
    add_roofline_row(answer, step, "matrix products", "gemm", step.matmul, chart);
  }
  Html html;
  html.raw(
      "<p class=\"soft\">Work a byte of each class at each batch, and what it reaches, under ");
  html.raw("the peaks; a circle is as large as its time. Attention stays where it is however ");
  html.raw("large the batch; products move to the right.</p>\n");
  html.add(roofline_chart(chart));
  html.raw("<p class=\"sub\">Peaks: ").text(answer.peaks + ", ");
  html.text(gigabytes(answer.peak_bytes_per_second) + " and " +
            formatted("%.4g TFLOP/s.", answer.peak_flops_per_second * 1e-12));
  html.raw("</p>\n");
  return {"roofline", "Roofline", html, ""};
}

Curve bandwidth_curve(const DecodeAnswer& answer, const char* key, const char* label,
                      KernelTime DecodeStep::*kernels) {
  Curve curve{key, label, {}};
  for (const DecodeStep& step : answer.steps) {
    CurvePoint point;
    point.x = static_cast<double>(step.batch);
    point.y = 100 * (step.*kernels).bytes_per_second() / answer.peak_bytes_per_second;
    point.low = point.high = point.y;
    point.measured = answer.measured.has_value();
    point.words = std::string(label) + ", batch " + std::to_string(step.batch) + ": " +
                  gigabytes((step.*kernels).bytes_per_second());
    curve.points.push_back(std::move(point));
  }
  return curve;
}

Section bandwidth_section(const DecodeAnswer& answer) {
  CurveChart chart;
  chart.description = "Bandwidth that attention and products reach, by batch.";
  chart.x_label = "batch";
  chart.y_label = "% of the peak bandwidth";
  chart.curves.push_back(bandwidth_curve(answer, "site-4", "attention", &DecodeStep::attention));
  chart.curves.push_back(bandwidth_curve(answer, "site-0", "products", &DecodeStep::matmul));
  chart.level = CurveMark{100, "peak, " + answer.peaks};
  if (answer.saturation_batch) {
    chart.upright = CurveMark{static_cast<double>(*answer.saturation_batch),
                              "no more from " + std::to_string(*answer.saturation_batch)};
  }
  Html html;
  html.raw("<p class=\"soft\">Counted traffic by the time of the class. Above the peak it comes ");
  html.raw("from caches.</p>\n");
  html.add(curve_chart(chart));
  return {"bandwidth", "DRAM by batch", html, ""};
}

// Measured steps, less what other programs took of the cores; nothing where that is not known.
std::optional<Curve> undisturbed_curve(const DecodeAnswer& answer) {
  Curve curve{"scoped", "less other programs' turns", {}};
  if (!answer.measured) return std::nullopt;
  for (const bench::DecodeRun& run : answer.measured->runs) {
    if (!run.undisturbed_seconds) return std::nullopt;
    CurvePoint point;
    point.x = static_cast<double>(run.batch);
    point.y = *run.undisturbed_seconds * 1e3;
    point.low = point.high = point.y;
    point.measured = true;
    point.words = "less other programs' turns, batch " + std::to_string(run.batch) + ": " +
                  milliseconds(point.y);
    curve.points.push_back(std::move(point));
  }
  return curve;
}

Section latency_section(const DecodeAnswer& answer) {
  CurveChart chart;
  chart.description = "Time of a step by batch.";
  chart.x_label = "batch";
  chart.y_label = "ms a step";
  chart.logarithmic_y = true;
  const auto curve_of = [](const std::vector<DecodeStep>& steps, const char* key,
                           const char* label) {
    Curve curve{key, label, {}};
    for (const DecodeStep& step : steps) {
      CurvePoint point;
      point.x = static_cast<double>(step.batch);
      point.y = step.step.seconds * 1e3;
      point.low = step.step.low_seconds * 1e3;
      point.high = step.step.high_seconds * 1e3;
      point.measured = step.provenance == Provenance::measured;
      point.words = std::string(label) + ", batch " + std::to_string(step.batch) + ": " +
                    milliseconds(point.y);
      curve.points.push_back(std::move(point));
    }
    return curve;
  };
  const char* name = answer.measured ? "measured" : "predicted";
  chart.curves.push_back(curve_of(answer.steps, "parameters", name));
  if (auto alone = undisturbed_curve(answer)) chart.curves.push_back(std::move(*alone));
  if (!answer.predicted.empty()) {
    chart.curves.push_back(curve_of(answer.predicted, "logits", "predicted"));
  }
  Html html;
  html.add(curve_chart(chart));
  return {"steps", "Time of a step", html, ""};
}

Section figures_section(const DecodeAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (const DecodeStep& step : answer.steps) {
    const auto ms = [](double seconds) { return formatted("%.4g", seconds * 1e3); };
    const bool is_counted = step.attention.bytes > 0;
    const auto counted = [&](const char* format, double value) {
      return is_counted ? formatted(format, value) : std::string("-");
    };
    rows.push_back({std::to_string(step.batch), ms(step.step.seconds),
                    ms(step.step.low_seconds) + " to " + ms(step.step.high_seconds),
                    ms(step.attention.time.seconds), ms(step.matmul.time.seconds),
                    ms(step.other.time.seconds), ms(step.host.seconds),
                    counted("%.2f", step.attention.arithmetic_intensity()),
                    counted("%.1f", step.attention.bytes_per_second() * 1e-9),
                    counted("%.2f", step.matmul.arithmetic_intensity()),
                    counted("%.1f", step.matmul.bytes_per_second() * 1e-9)});
  }
  Html html;
  html.raw("<p class=\"soft\">Milliseconds; of attention and of matrix products FLOPs a byte and ");
  html.raw("GB/s.</p>\n");
  html.add(html_table({"#batch", "#step", "#interval", "#attention", "#matmul", "#other",
                       "#host gap", "#att. FLOP/B", "#GB/s", "#mat. FLOP/B", "#GB/s"},
                      rows));
  return {"figures", "Figures", html, ""};
}

// Of ncu, batch by batch.
Section counters_section(const DecodeAnswer& answer) {
  const auto or_dash = [](const std::optional<double>& value, const char* format, double factor) {
    return value ? formatted(format, factor * *value) : std::string("-");
  };
  std::vector<std::vector<std::string>> rows;
  for (const bench::DecodeCounters& counters : answer.counters) {
    for (const bench::ClassCounters& one : counters.classes) {
      if (one.launches == 0) continue;
      const bool stalls = !one.stalls.empty();
      rows.push_back(
          {std::to_string(counters.batch), std::string(bench::name_of(one.kind)),
           std::to_string(one.launches), or_dash(one.bytes_per_second(), "%.0f", 1e-9),
           or_dash(one.dram_pct, "%.0f %%", 1), or_dash(one.flops_per_byte(), "%.2f", 1),
           or_dash(one.thread_flops_per_byte(), "%.2f", 1),
           stalls ? one.stalls.front().reason + formatted(", %.0f %%", one.stalls.front().pct)
                  : "-"});
    }
  }
  Html html;
  html.raw(
      "<p class=\"soft\">Counted by ncu, which runs each kernel alone: ratios, not times of a ");
  html.raw(
      "step. FLOPs a byte with the tensor cores and, as the paper counts, without them.</p>\n");
  html.add(html_table({"#batch", "kernels", "#launches", "#DRAM GB/s", "#of its peak", "#FLOP/B",
                       "#without tensor cores", "warps wait for"},
                      rows));
  return {"counters", "Hardware counters", html, ""};
}

Section trust_section(const DecodeAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (std::string& line : decode_sources(answer)) {
    const size_t colon = std::min(line.find(": "), line.size());
    rows.push_back({line.substr(0, colon), line.substr(std::min(colon + 2, line.size()))});
  }
  Html html;
  html.add(html_table({"figure", "from"}, rows));
  const bool has_gaps = answer.measured && !answer.measured->not_run.empty();
  if (has_gaps) {
    std::vector<std::vector<std::string>> gaps;
    for (const bench::DecodeNotRun& one : answer.measured->not_run) {
      gaps.push_back(
          {std::to_string(one.batch), one.is_failure ? "failed" : "refused", one.reason});
    }
    html.raw("<h3>Not measured</h3>").add(html_table({"#batch", "", "reason"}, gaps));
  }
  return {"trust", "What to trust", html, ""};
}

}  // namespace

std::vector<Section> decode_sections(const DecodeAnswer& answer) {
  std::vector<Section> sections{answer_section(answer)};
  if (answer.steps.empty()) return sections;
  sections.push_back(shares_section(answer));
  const bool is_counted = answer.steps.front().attention.bytes > 0;
  if (is_counted) {
    sections.push_back(roofline_section(answer));
    sections.push_back(bandwidth_section(answer));
  }
  sections.push_back(latency_section(answer));
  sections.push_back(figures_section(answer));
  if (!answer.counters.empty()) sections.push_back(counters_section(answer));
  sections.push_back(trust_section(answer));
  return sections;
}

}  // namespace headroom::report
