#include "report/fit/html.h"

#include <algorithm>

#include "report/fit/step_section.h"
#include "report/fit/words.h"
#include "report/page/charts.h"
#include "report/run_cost.h"
#include "text/number.h"

namespace headroom::report {
namespace {

using fit::Component;

std::string verdict_title(fit::Verdict verdict) {
  switch (verdict) {
    case fit::Verdict::yes:
      return "\u2713 Yes";
    case fit::Verdict::at_risk:
      return "! At risk";
    case fit::Verdict::no:
      return "\u2715 No";
  }
  return {};
}

std::string parameter_words(const fit::FitAnswer& answer) {
  std::string words = count_words(answer.parameter_count) + " parameters";
  if (answer.trainable_count == answer.parameter_count) return words + ", all trained";
  return words + ", " + count_words(answer.trainable_count) + " trained";
}

Section answer_section(const fit::FitAnswer& answer) {
  const fit::MemoryFigures& memory = answer.memory;
  Html html;
  html.raw("<h1>Will it fit? <span class=\"chip\">").text(parameter_words(answer));
  html.raw("</span></h1>\n<p class=\"line\"><span class=\"verdict\">");
  html.text(verdict_title(answer.verdict)).raw("</span>").text(answer_sentence(answer));
  html.raw("</p>\n<p class=\"sub\">").text("In 90 % of cases " + room_sentence(answer) + ". ");
  html.text(memory.peak_at.why).raw("</p>\n<dl class=\"tiles\">");
  tile(html, "Peak allocated", format_bytes(memory.peak_allocated),
       memory.peak_allocated_interval
           ? interval_words(*memory.peak_allocated_interval) + ", by its experts' share"
           : std::string("in blocks that are in use"));
  tile(html, "Peak reserved", format_bytes(memory.peak_reserved), "held by the allocator");
  tile(html, "Device used", format_bytes(memory.device_used.expected),
       interval_words(memory.device_used));
  tile(html, "Between steps", format_bytes(memory.steady_allocated), "allocated");
  if (memory.host) {
    tile(html, "Host memory", format_bytes(memory.host->taken), host_words(*memory.host));
  }
  if (answer.time) {
    const std::string pace = pace_words(*answer.time);
    tile(html, "Step time", seconds_words(answer.time->step_seconds.expected),
         "predicted, " + seconds_interval_words(answer.time->step_seconds) +
             (pace.empty() ? "" : "; " + pace));
  }
  if (answer.largest_batch) {
    tile(html, "Largest batch", largest_words(*answer.largest_batch), "that fits, same length");
  }
  if (answer.longest_seq) {
    tile(html, "Longest sequence", largest_words(*answer.longest_seq),
         "that fits, same batch; in steps of 64");
  }
  html.raw("</dl>\n");
  return {"answer", "", html, std::string(fit::name_of(answer.verdict))};
}

void component_row(Html& html, const fit::MemoryFigures& memory, Component component, Bytes whole) {
  const Bytes bytes = memory.breakdown[component];
  if (bytes.count == 0) return;
  html.raw("<tr><td><span class=\"swatch");
  if (component == Component::cached_unused) html.raw(" hatched");
  html.raw("\" style=\"background-color:var(--").text(fit::name_of(component)).raw(")\"></span>");
  html.text(fit::label_of(component)).raw("</td><td class=\"number\">").text(format_bytes(bytes));
  html.raw("</td><td class=\"number\">").text(share_words(bytes, whole)).raw("</td></tr>\n");
}

Html component_table(const fit::FitAnswer& answer, std::string_view caption,
                     const std::vector<Component>& components, std::string_view sum_name) {
  const Bytes whole = answer.memory.breakdown.total();
  Bytes sum;
  for (const Component component : components) sum += answer.memory.breakdown[component];
  Html html;
  html.raw("<div class=\"scroll\"><table><caption>").text(caption).raw("</caption><tbody>\n");
  for (const Component component : components) {
    component_row(html, answer.memory, component, whole);
  }
  html.raw("<tr class=\"sum\"><td>").text(sum_name).raw("</td><td class=\"number\">");
  html.text(format_bytes(sum)).raw("</td><td class=\"number\">").text(share_words(sum, whole));
  return html.raw("</td></tr></tbody></table></div>\n");
}

Section breakdown_section(const fit::FitAnswer& answer) {
  const fit::MemoryFigures& memory = answer.memory;
  std::vector<Part> parts;
  for (size_t i = 0; i < fit::kComponentCount; ++i) {
    const auto component = static_cast<Component>(i);
    if (memory.breakdown.bytes[i].count == 0) continue;
    parts.push_back({std::string(fit::name_of(component)), std::string(fit::label_of(component)),
                     memory.breakdown.bytes[i]});
  }
  Html html;
  html.raw("<p class=\"lead\">The peak is in ").text(place_words(memory.peak_at)).raw(". ");
  html.text(memory.peak_at.why).raw("</p>\n").add(stacked_bar(parts, device_limit(answer.device)));
  html.raw("<div class=\"split\">\n");
  html.add(component_table(answer, "The transformer and what training adds",
                           {Component::parameters, Component::gathered, Component::communication,
                            Component::gradients, Component::optimizer_states,
                            Component::saved_activations, Component::temporaries, Component::other},
                           "without lm_head"));
  html.raw("<div>\n");
  html.add(component_table(answer, "The head, which grows with the vocabulary or the classes",
                           {Component::lm_head_weight, Component::lm_head_gradient,
                            Component::lm_head_state, Component::logits, Component::loss},
                           "lm_head in all"));
  html.add(component_table(answer, "What is not tensors",
                           {Component::workspaces, Component::cached_unused, Component::context},
                           "overhead"));
  html.raw("</div></div>\n");
  return {"peak", "What the peak is made of", html, ""};
}

LimitBar remedy_bar(const fit::Remedy& remedy) {
  LimitBar bar;
  bar.name = remedy.title;
  bar.note = remedy.flag;
  bar.tone = fit::name_of(remedy.verdict);
  bar.low = remedy.device_used.low;
  bar.expected = remedy.device_used.expected;
  bar.high = remedy.device_used.high;
  bar.figure = remedy.saves.count >= 0 ? "saves " + format_bytes(remedy.saves)
                                       : "costs " + format_bytes(Bytes(-remedy.saves.count));
  if (remedy.largest_batch) {
    bar.figure_note = "largest batch " + largest_words(*remedy.largest_batch);
  }
  return bar;
}

Section remedies_section(const fit::FitAnswer& answer) {
  std::vector<LimitBar> bars;
  LimitBar asked;
  asked.name = "as asked";
  asked.tone = fit::name_of(answer.verdict);
  asked.low = answer.memory.device_used.low;
  asked.expected = answer.memory.device_used.expected;
  asked.high = answer.memory.device_used.high;
  asked.figure = format_bytes(answer.memory.device_used.expected);
  if (answer.largest_batch) {
    asked.figure_note = "largest batch " + largest_words(*answer.largest_batch);
  }
  asked.asked = true;
  bars.push_back(asked);
  for (const fit::Remedy& remedy : answer.remedies) bars.push_back(remedy_bar(remedy));
  Html html;
  html.raw(
      "<p class=\"lead\">Each bar is the device memory of the same step with one thing changed, ");
  html.raw("found by running the model again. The dashed line is what ").text(answer.device.name);
  html.text(" offers (" + format_bytes(answer.device.offered));
  html.raw("; left out where every bar is far below it), the thin line the 90 % interval.</p>\n")
      .add(limit_bars(bars, device_limit(answer.device)));
  html.raw("<details><summary>How to make each change, and what it costs</summary>");
  html.raw("<div class=\"how\">\n");
  for (const fit::Remedy& remedy : answer.remedies) {
    html.raw("<div><h3>").text(remedy.title).raw("</h3><p>").text(remedy.how).raw("</p>");
    if (!remedy.cost.empty()) {
      html.raw("<p class=\"soft\">Costs: ").text(remedy.cost).raw("</p>");
    }
    html.raw("<p class=\"soft\">");
    if (!remedy.flag.empty()) {
      html.raw("Ask again with <code>").text(remedy.flag).raw("</code>; peak ");
    } else {
      html.raw("Peak ");
    }
    html.text(format_bytes(remedy.peak_allocated)).raw(" allocated.</p></div>\n");
  }
  html.raw("</div></details>\n");
  return {"change", "What to change", html, ""};
}

Section stages_section(const fit::FitAnswer& answer) {
  std::vector<LimitBar> bars;
  for (const fit::StageFigures& stage : answer.stages) {
    LimitBar bar;
    bar.name = "stage " + with_commas(stage.stage);
    bar.tone = fit::name_of(stage.verdict);
    bar.low = stage.device_used.low;
    bar.expected = stage.device_used.expected;
    bar.high = stage.device_used.high;
    bar.figure = format_bytes(stage.device_used.expected);
    bar.figure_note = with_commas(stage.layers) + " layers, " +
                      text::formatted("%.4g", stage.in_flight) +
                      (stage.in_flight == 1 ? " micro-batch" : " micro-batches") + " in flight";
    bars.push_back(std::move(bar));
  }
  Html html;
  html.raw(
      "<p class=\"lead\">Each stage of the pipeline on its own devices; all else on this page ");
  html.raw("is of the one that needs most. The dashed line is what a device offers.</p>\n");
  html.add(limit_bars(bars, device_limit(answer.device)));
  return {"stages", "The stages of the pipeline", html, ""};
}

LimitBar move_bar(const fit::PipelineMove& move) {
  LimitBar bar;
  bar.name = move.title;
  bar.note = move.cost;
  bar.tone = fit::name_of(move.verdict);
  bar.low = move.device_used.low;
  bar.expected = move.device_used.expected;
  bar.high = move.device_used.high;
  bar.figure = "saves " + format_bytes(move.saves);
  if (move.time) {
    bar.figure_note = seconds_words(move.time->step_seconds.expected) + " a step";
  }
  return bar;
}

Section moves_section(const fit::FitAnswer& answer) {
  std::vector<LimitBar> bars;
  for (const fit::PipelineMove& move : answer.moves) bars.push_back(move_bar(move));
  Html html;
  html.raw("<p class=\"lead\">Each bar is the fullest stage of the pipeline with one thing ");
  html.raw("changed, all stages and the step's time predicted again.</p>\n");
  html.add(limit_bars(bars, device_limit(answer.device)));
  html.raw("<details><summary>How to make each change</summary><div class=\"how\">\n");
  for (const fit::PipelineMove& move : answer.moves) {
    html.raw("<div><h3>").text(move.title).raw("</h3><p>").text(move.how).raw("</p></div>\n");
  }
  html.raw("</div></details>\n");
  return {"moves", "What to move between stages", html, ""};
}

Section question_section(const fit::FitAnswer& answer) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(answer.settings.size());
  for (const fit::Setting& setting : answer.settings) {
    rows.push_back({setting.name, setting.value, std::string(fit::name_of(setting.origin))});
  }
  Html html;
  html.add(html_table({"setting", "value", "from"}, rows));
  return {"question", "The question as understood", html, ""};
}

void notes(Html& html, std::string_view heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  html.raw("<h3>").text(heading).raw("</h3><ul class=\"notes\">");
  for (const std::string& line : lines) html.raw("<li>").text(line).raw("</li>");
  html.raw("</ul>\n");
}

Section trust_section(const fit::FitAnswer& answer) {
  const fit::MemoryFigures& memory = answer.memory;
  Html html;
  for (const fit::Emitted& emitted : answer.emitted) {
    notes(html, "Written", emitted_words(emitted));
  }
  notes(html, "Notes", answer.notes);
  notes(html, "Warnings", answer.warnings);
  notes(html, "Assumptions", answer.assumptions);
  html.add(
      html_table({"figure", "where it comes from"},
                 {{"allocated, and its parts", std::string(name_of(memory.allocated_provenance))},
                  {"reserved", std::string(name_of(memory.reserved_provenance))},
                  {"device used", std::string(name_of(memory.device_used_provenance))},
                  {"what " + answer.device.name + " offers",
                   std::string(name_of(answer.device.provenance))}}));
  html.raw("<p class=\"soft\">Counted: follows from shapes and PyTorch's rules, nothing fitted. ");
  html.raw("Calibrated: corrected by measurements. Extrapolated: rests on an assumption above. ");
  html.raw("Datasheet: the maker's figure. 1 GiB is 2<sup>30</sup> bytes.</p>\n");
  return {"trust", "How sure this is", html, ""};
}

}  // namespace

std::vector<Section> fit_sections(const fit::FitAnswer& answer) {
  std::vector<Section> sections;
  sections.push_back(answer_section(answer));
  if (answer.cost) sections.push_back(run_cost_section(*answer.cost));
  if (!answer.stages.empty()) sections.push_back(stages_section(answer));
  if (!answer.moves.empty()) sections.push_back(moves_section(answer));
  if (!answer.timeline.points.empty()) {
    sections.push_back(step_section({.timeline = answer.timeline,
                                     .peak_at = answer.memory.peak_at,
                                     .breakdown = answer.memory.breakdown,
                                     .device = answer.device}));
  }
  sections.push_back(breakdown_section(answer));
  if (!answer.remedies.empty()) sections.push_back(remedies_section(answer));
  sections.push_back(question_section(answer));
  sections.push_back(trust_section(answer));
  return sections;
}

std::vector<Section> against_sections(const fit::AgainstAnswer& answer) {
  std::vector<std::vector<std::string>> summary;
  summary.reserve(answer.summary.size());
  for (const fit::AgainstSummary& line : answer.summary) {
    summary.push_back({line.source, line.metric, with_commas(line.supported),
                       with_commas(line.rows), size_words(line.median_pct),
                       size_words(line.p90_pct), size_words(line.worst_pct), line.worst_id,
                       size_words(line.covered_pct)});
  }
  std::vector<std::vector<std::string>> rows;
  rows.reserve(answer.rows.size());
  for (const fit::AgainstRow& row : answer.rows) {
    std::string measured = row.measured ? format_bytes(*row.measured) : "";
    std::string predicted = row.predicted ? format_bytes(*row.predicted) : "";
    if (row.measured_seconds) measured = seconds_words(*row.measured_seconds);
    if (row.predicted_seconds) predicted = seconds_words(row.predicted_seconds->expected);
    rows.push_back({row.id, row.model, row.metric, std::move(measured), std::move(predicted),
                    row.supported ? signed_words(row.error_pct) : "unsupported: " + row.reason});
  }
  Html head;
  head.raw("<h1>Predictions held against measurements</h1><p class=\"line\">").text(answer.file);
  head.raw("</p>");
  if (!answer.calibration.empty()) {
    head.raw("<p class=\"sub\">Corrected by ").text(answer.calibration).raw(".</p>");
  }
  notes(head, "Warnings", answer.warnings);
  head.add(html_table({"source", "metric", "#modelled", "#rows", "#median", "#p90", "#worst",
                       "worst row", "#in interval"},
                      summary));
  Html body;
  body.add(html_table({"row", "model", "metric", "#measured", "#predicted", "error"}, rows));
  return {{"answer", "", head, ""}, {"rows", "Row by row", body, ""}};
}

}  // namespace headroom::report
