#include "report/ops/predicted_html.h"

#include <algorithm>

#include "report/fit/words.h"
#include "report/ops/bars.h"
#include "report/ops/predicted.h"
#include "report/ops/words.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using ops::PredictedPart;
using ops::PredictedRun;
using text::formatted;

std::string between(double low, double high) {
  return milliseconds(low) + " - " + milliseconds(high);
}

Section answer_section(const PredictedRun& run) {
  Html html;
  html.raw("<h1>").text(run.model).raw(" <span class=\"chip\">").text(run.device);
  html.raw("</span></h1>\n<p class=\"line\">").text(predicted_words(run)).raw("</p>\n");
  const std::string setting = predicted_setting_words(run);
  for (size_t at = 0; at < setting.size();) {
    const size_t end = std::min(setting.find('\n', at), setting.size());
    html.raw("<p class=\"sub\">").text(setting.substr(at, end - at)).raw("</p>\n");
    at = end + 1;
  }
  html.raw("<dl class=\"tiles\">");
  tile(html, "A step", milliseconds(run.step_ms),
       "90 %: " + between(run.step_ms_low, run.step_ms_high));
  tile(html, "At the peaks", milliseconds(run.roofline_ms),
       run.engine.empty() ? "everything, at the device's limits" : "attention and products");
  if (run.unchanged_ms) {
    tile(html, "Without that", milliseconds(*run.unchanged_ms),
         formatted("%.2fx", *run.unchanged_ms / run.step_ms) + " by quantizing and fusing");
  }
  if (run.launches > 0) {
    tile(html, "Launches", with_commas(run.launches),
         formatted("%.1f us", run.step_ms * 1e3 / static_cast<double>(run.launches)) +
             " each, or the host sets the pace");
  }
  html.raw("</dl>\n");
  return {"answer", "", html, run.fits ? "yes" : "no"};
}

// Decode's parts are wider than groups.
std::string_view group_of(const PredictedPart& part) {
  if (part.name == "host") return "idle";
  return part.name == "non_gemm" ? std::string_view("elementwise") : part.name;
}

Section parts_section(const PredictedRun& run) {
  Html html;
  html.raw("<p class=\"soft\">Each part with its 90 % interval; below the figure what the step ");
  html.raw("would gain with the part twice as fast.</p>\n");
  std::vector<StackPart> stack;
  double most = 0;
  double whole = 0;
  for (const PredictedPart& part : run.parts) {
    stack.push_back({group_of(part), part.title, part.ms});
    most = std::max(most, part.ms_high);
    whole += part.ms;
  }
  add_stack(html, stack, whole);
  add_legend(html, stack);
  html.raw("<div class=\"bars\">");
  for (const PredictedPart& part : run.parts) {
    const auto share = [&](double ms) { return most > 0 ? 100 * ms / most : 0; };
    add_row(html, {part.title, part.provenance,
                   bar_lane(BarTone::good, share(part.ms), share(part.ms_low), share(part.ms_high)),
                   milliseconds(part.ms) + ", " + percent_words(part.pct),
                   formatted("2x faster: %.2fx", part.speedup_2x)});
  }
  html.raw("</div>\n");
  return {"parts", "Where it goes", html, ""};
}

Section trust_section(const PredictedRun& run) {
  std::vector<std::vector<std::string>> rows;
  for (const PredictedPart& part : run.parts) {
    rows.push_back({part.title, between(part.ms_low, part.ms_high), part.provenance, part.basis});
  }
  Html html;
  html.raw(
      "<p class=\"soft\">Nobody ran this: no trace was read. Interpolated is within the tables ");
  html.raw("of this device, extrapolated anything else.</p>\n");
  html.add(html_table({"part", "#90 %", "", "law"}, rows));
  add_notes(html, run.notes);
  return {"trust", "Where it comes from", html, ""};
}

}  // namespace

std::vector<Section> ops_predicted_sections(const PredictedRun& run) {
  return {answer_section(run), parts_section(run), trust_section(run)};
}

}  // namespace headroom::report
