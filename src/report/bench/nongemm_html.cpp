#include "report/bench/nongemm_html.h"

#include <algorithm>

#include "report/bench/nongemm.h"
#include "report/ops/words.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using bench::NongemmAnswer;
using bench::NongemmEffects;
using bench::NongemmRow;
using text::formatted;

std::string of(int64_t part, int64_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole);
}

Section answer_section(const NongemmAnswer& answer) {
  const NongemmEffects& effects = answer.effects;
  Html html;
  html.raw("<h1>Non-GEMM work <span class=\"chip\">").text(answer.machine.product);
  html.raw("</span></h1>\n<p class=\"line\">").text(nongemm_verdict(answer)).raw("</p>\n");
  html.raw("<dl class=\"tiles\">");
  tile(html, "Settings", std::to_string(answer.rows.size()),
       "measured; " + std::to_string(answer.refused.size()) + " not");
  if (effects.compared > 0) {
    tile(html, "In the paper's range", of(effects.within, effects.compared),
         "11.3 to 73.6 %, by its formula");
  }
  if (effects.int8_pairs > 0) {
    tile(html, "int8 raises the share", of(effects.int8_raised, effects.int8_pairs), "pairs");
  }
  if (effects.int4_pairs > 0) {
    tile(html, "int4 of weights does", of(effects.int4_raised, effects.int4_pairs), "pairs");
  }
  if (effects.fusion_pairs > 0) {
    tile(html, "Fusion lowers it", of(effects.fusion_lowered, effects.fusion_pairs),
         "pairs, without removing it");
  }
  html.raw("</dl>\n");
  return {"answer", "", html, answer.refused.empty() ? "yes" : "at_risk"};
}

// One setting: its groups side by side.
void setting_lane(Html& html, const NongemmLane& lane) {
  const NongemmRow& row = lane.row;
  double total = 0;
  for (const auto& [name, ms] : row.groups) total += ms;
  html.raw("<div class=\"row\"><div class=\"name\">").text(lane.before);
  html.text(nongemm_title(row.setting.model))
      .raw("<small>")
      .text(nongemm_setting_words(row.setting))
      .raw("</small></div>");
  html.raw("<div class=\"lane\"><div class=\"stackbar\"><div class=\"track\">");
  for (const auto& [name, ms] : row.groups) {
    if (ms <= 0) continue;
    const double pct = 100 * ms / total;
    html.raw("<div class=\"part\" style=\"width:").percent(pct).raw(";background-color:var(--");
    html.text(group_colour(name)).raw(")\" title=\"");
    html.text(name + ": " + milliseconds(ms) + ", " + percent_words(pct)).raw("\"></div>");
  }
  html.raw("</div></div></div><div class=\"figure\">");
  html.text(formatted("%.1f %%", row.nongemm_pct)).raw("<small>");
  const bool is_extrapolated = row.provenance == Provenance::extrapolated;
  html.text(time_words(row) + (is_extrapolated ? ", extrapolated" : ""))
      .raw("</small></div></div>\n");
}

Section effects_section(const NongemmAnswer& answer) {
  Html html;
  for (const std::string& line : nongemm_effects(answer)) {
    html.raw("<p>").text(line).raw("</p>\n");
  }
  if (!answer.effects.exceptions.empty()) {
    html.raw("<h3>Exceptions</h3><ul class=\"notes\">");
    for (const std::string& words : answer.effects.exceptions) {
      html.raw("<li>").text(words).raw("</li>");
    }
    html.raw("</ul>\n");
  }
  return {"paper", "Beside the paper", html, ""};
}

std::string layers_words(const NongemmRow& row) {
  if (row.measured_layers.size() != 2) return std::string(name_of(row.provenance));
  return std::string(name_of(row.provenance)) + " from " + std::to_string(row.measured_layers[0]) +
         " and " + of(row.measured_layers[1], row.layers_of_model.value_or(0)) + " layers";
}

Section table_section(const NongemmAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (const NongemmRow& row : answer.rows) {
    rows.push_back({nongemm_title(row.setting.model), nongemm_setting_words(row.setting),
                    time_words(row), interval_words(row), percent_words(row.gemm_pct),
                    percent_words(row.attention_pct), percent_words(row.nongemm_pct),
                    row.paper_nongemm_pct ? percent_words(*row.paper_nongemm_pct) : "-",
                    percent_words(100 - row.covered_pct),
                    row.joules ? formatted("%.3g J", *row.joules) : "-", layers_words(row)});
  }
  Html html;
  html.add(html_table({"model", "setting", "#time", "#±", "#GEMM", "#attention", "#non-GEMM",
                       "#paper's formula", "#host", "#energy", "from"},
                      rows));
  return {"figures", "Figures", html, ""};
}

Section trust_section(const NongemmAnswer& answer) {
  Html html;
  if (!answer.refused.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const bench::NongemmRecord& record : answer.refused) {
      rows.push_back({nongemm_title(record.setting.model), nongemm_setting_words(record.setting),
                      std::string(name_of(record.status)), record.reason});
    }
    html.raw("<h3>Not measured</h3>").add(html_table({"model", "setting", "", "reason"}, rows));
  }
  html.raw("<h3>Where it comes from</h3>");
  html.add(html_table(
      {"figure", "from"},
      {{"time", "measured: the median of single runs; ±: half of its interval"},
       {"shares",
        "measured: of each stretch of a run the least of up to fifteen profiled ones, sorted by "
        "the "
        "rules of `headroom ops`"},
       {"paper's formula",
        "the same run, host and device time of top-level operators, by the paper's lists of names"},
       {"host", "of the profiled time, when no operator ran: Python or the engine between them"},
       {"energy", "of the processor packages or the GPU, a run, where the machine says"},
       {"extrapolated", "composed of two numbers of layers, as layers are alike"},
       {"weights", "random: routing of mixtures and proposals follow them"},
       {"machine", answer.machine.product + ", " + std::to_string(answer.machine.units) +
                       " threads or multiprocessors, PyTorch " + answer.machine.torch +
                       formatted(", load %.1f", answer.machine.load)}}));
  return {"trust", "What to trust", html, answer.refused.empty() ? "" : "at_risk"};
}

}  // namespace

Html nongemm_lanes(const std::vector<NongemmLane>& lanes) {
  Html html;
  html.raw("<p class=\"soft\">What operators take, by group; at the right what is neither GEMM ");
  html.raw("nor attention, and the time of a run.</p>\n<ul class=\"legend\">");
  std::vector<std::string> groups;
  for (const NongemmLane& lane : lanes) {
    for (const auto& [name, ms] : lane.row.groups) {
      const bool is_new = ms > 0 && std::ranges::find(groups, name) == groups.end();
      if (is_new) groups.push_back(name);
    }
  }
  for (const std::string& name : groups) {
    html.raw("<li><span class=\"swatch\" style=\"background-color:var(--");
    html.text(group_colour(name)).raw(")\"></span>").text(name).raw("</li>");
  }
  html.raw("</ul>\n<div class=\"bars\">");
  for (const NongemmLane& lane : lanes) setting_lane(html, lane);
  html.raw("</div>\n");
  return html;
}

std::vector<Section> nongemm_sections(const NongemmAnswer& answer) {
  std::vector<Section> sections{answer_section(answer)};
  std::vector<NongemmLane> lanes;
  for (const NongemmRow& row : answer.rows) lanes.push_back({"", row});
  if (!lanes.empty()) {
    sections.push_back({"shares", "Where the time goes", nongemm_lanes(lanes), ""});
  }
  if (answer.effects.compared + answer.effects.int8_pairs + answer.effects.int4_pairs +
          answer.effects.fusion_pairs >
      0) {
    sections.push_back(effects_section(answer));
  }
  if (!answer.rows.empty()) sections.push_back(table_section(answer));
  sections.push_back(trust_section(answer));
  return sections;
}

}  // namespace headroom::report
