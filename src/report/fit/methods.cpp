#include "report/fit/methods.h"

#include <algorithm>
#include <map>

#include "fit/stages.h"
#include "report/fit/json.h"
#include "report/fit/step_section.h"
#include "report/fit/words.h"
#include "report/page/charts.h"
#include "report/page/curve_chart.h"
#include "report/run_cost.h"
#include "text/json_parts.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using fit::MethodRow;
using fit::MethodsAnswer;
using fit::Verdict;
using text::Align;
using text::Json;
using text::Style;

std::string step_words(const MethodsAnswer& answer) {
  return report::step_words(answer.model, answer.batch, answer.seq);
}

std::string devices_words(const MethodsAnswer& answer) {
  return report::hardware_words(answer.device.count, answer.device.name);
}

// "zero2:8 --checkpointing full": below a heading, or on a page, that has said what the flag is.
std::string without_flag(const std::string& flags) {
  constexpr std::string_view kFlag = "--method ";
  return flags.starts_with(kFlag) ? flags.substr(kFlag.size()) : flags;
}

// Where the columns come from.
std::string source_words(const MethodsAnswer& answer) {
  const auto row =
      std::ranges::find_if(answer.rows, [](const MethodRow& one) { return one.reason.empty(); });
  if (row == answer.rows.end()) return "";
  std::string words = "device used: " + std::string(name_of(row->device_used_provenance)) +
                      ", at most: its 90 % interval";
  if (row->time) {
    const fit::SecondsInterval& step = row->time->step_seconds;
    words += "; step: " + std::string(name_of(row->time->provenance)) + ", of the first " +
             seconds_interval_words(step) + " (90 %); * nothing that fits is faster and roomier";
  }
  return words;
}

// What can be asked; the rest has reasons.
std::vector<const MethodRow*> asked(const MethodsAnswer& answer) {
  std::vector<const MethodRow*> rows;
  for (const MethodRow& row : answer.rows) {
    if (row.reason.empty()) rows.push_back(&row);
  }
  return rows;
}

// "zero2:8 with full checkpointing and --offload optimizer"
std::string way_words(const MethodRow& row) {
  std::string words = row.method;
  const char* before = " with ";
  const auto add = [&](const std::string& with) { words += std::exchange(before, " and ") + with; };
  if (row.divides_sequences) add("sequences divided");
  if (!row.schedule.empty()) add("the schedule " + row.schedule);
  if (!row.checkpointing.empty() && row.checkpointing != "none") {
    add(row.checkpointing + " checkpointing");
  }
  if (!row.offload.empty()) words += " and --offload " + row.offload;
  if (row.precision) words += " " + row.precision->words();
  return words;
}

// ", the fastest: about 1.21 s a step, 54,100 tokens/s"
std::string fastest_words(const MethodRow& row) {
  if (!row.time) return "";
  const std::string pace = pace_words(*row.time);
  return ", the fastest: about " + seconds_words(row.time->step_seconds.expected) + " a step" +
         (pace.empty() ? "" : ", " + pace);
}

// "*1.21 s": of the frontier between speed and room.
std::string time_words(const MethodRow& row) {
  if (!row.time) return "";
  return (row.on_frontier ? "*" : "") + seconds_words(row.time->step_seconds.expected);
}

// What the device shows is no measure of the room where the cache takes all there is.
std::string room_words(const MethodRow& row) {
  if (row.room.low > fit::kLeastSegment) {
    return " with " + format_bytes(row.room.expected) + " of room";
  }
  return ", " + format_bytes(row.peak_allocated) +
         " in use at the peak and the rest cache that can be given back";
}

std::string sentence(const MethodsAnswer& answer) {
  const std::vector<const MethodRow*> rows = asked(answer);
  if (rows.empty()) return "no way to divide " + answer.model + " can be predicted";
  const MethodRow& first = *rows.front();
  const std::string room =
      format_bytes(Bytes(std::max(first.room.expected.count, -first.room.expected.count)));
  switch (first.verdict) {
    case Verdict::yes:
      return step_words(answer) + " fits " + devices_words(answer) + " by " + way_words(first) +
             room_words(first) + fastest_words(first);
    case Verdict::at_risk:
      return step_words(answer) + " may fit " + devices_words(answer) + " by " + way_words(first);
    case Verdict::no:
      break;
  }
  const std::string ways = answer.is_selection ? with_commas(answer.searched.settings) + " settings"
                                               : std::to_string(rows.size()) + " ways";
  return step_words(answer) + " fits " + devices_words(answer) + " by none of " + ways + "; " +
         way_words(first) + " misses least, " + room;
}

std::string batch_words(const MethodRow& row) {
  return row.largest_batch ? largest_words(*row.largest_batch) : "";
}

// "7,212 settings: 214 predicted, 5,310 need more than the device has, ..."
std::string searched_words(const MethodsAnswer& answer) {
  const fit::Searched& searched = answer.searched;
  std::string words = with_commas(searched.settings) +
                      " settings: " + with_commas(searched.predicted) + " predicted";
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) words += ", " + with_commas(count) + what;
  };
  add(searched.too_large,
      " need more than the device has by weights, states and activations alone");
  add(searched.beaten,
      answer.is_selection
          ? " are beaten by what fits in their kernels' time and in room"
          : " are beaten by what fits, which takes no longer than their stages compute");
  add(searched.refused, " cannot be asked");
  return words;
}

std::vector<std::string> remarks(const MethodsAnswer& answer) {
  std::vector<std::string> lines;
  // Where all settings are rows, why each loses is on the page; of a search, what is left out is
  // the rest of the answer.
  if (answer.is_selection) {
    for (const MethodRow& row : answer.rows) {
      if (row.verdict != Verdict::yes) lines.push_back(row.flags + ": " + row.why);
    }
    lines.push_back(searched_words(answer));
  }
  std::map<std::string, std::string> refused;  // by reason, the methods
  for (const MethodRow& row : answer.rows) {
    if (row.reason.empty()) continue;
    std::string& methods = refused[row.reason];
    methods += (methods.empty() ? "" : "; ") + row.flags;
  }
  for (const auto& [reason, methods] : refused) {
    lines.push_back("refused: " + reason + ": " + methods);
  }
  for (const fit::Emitted& emitted : answer.emitted) {
    for (std::string& line : emitted_words(emitted)) lines.push_back(std::move(line));
  }
  if (!asked(answer).empty()) {
    lines.push_back("OOM: the probability of out of memory " + std::string(kOomBasis));
  }
  for (const std::string& note : answer.notes) lines.push_back("note: " + note);
  // More than the rows: micro-batches and schedules of each.
  const bool chose_within = answer.searched.settings > static_cast<int64_t>(answer.rows.size());
  if (!answer.is_selection && chose_within) lines.push_back("searched: " + searched_words(answer));
  for (const std::string& words : answer.assumptions) lines.push_back("assumed: " + words);
  for (const std::string& words : answer.warnings) lines.push_back("warning: " + words);
  return lines;
}

// Of what fits and nothing beats: step time over the memory of a GPU.
Html frontier_of(const MethodsAnswer& answer) {
  Curve curve{"parameters", "fits, and nothing that fits is faster and roomier", {}};
  for (const MethodRow& row : answer.rows) {
    if (!row.on_frontier) continue;
    const fit::SecondsInterval& step = row.time->step_seconds;
    curve.points.push_back({.x = static_cast<double>(row.device_used.expected.count) / kGiB,
                            .y = step.expected * 1e3,
                            .low = step.low * 1e3,
                            .high = step.high * 1e3,
                            .words = row.flags + ": " + seconds_words(step.expected) + ", " +
                                     format_bytes(row.device_used.expected)});
  }
  Html part;
  if (curve.points.size() < 2) return part;
  std::ranges::sort(curve.points, {}, &CurvePoint::x);
  part.raw("<p class=\"lead\">The frontier between speed and room, with 90 % intervals of the ");
  part.raw("step: what is faster needs more memory.</p>");
  CurveChart chart;
  chart.description = "step time over memory of the settings on the frontier";
  chart.x_label = "device used, GiB";
  chart.y_label = "step, ms";
  chart.curves.push_back(std::move(curve));
  return part.add(curve_chart(chart));
}

Json row_json(const MethodRow& row) {
  if (!row.reason.empty()) {
    return Json::object().set("flags", row.flags).set("refused", row.reason);
  }
  Json json =
      Json::object()
          .set("method", row.method)
          .set("checkpointing", row.checkpointing.empty() ? Json(nullptr) : Json(row.checkpointing))
          .set("flags", row.flags)
          .set("batch", row.batch)
          .set("grad_accum", row.grad_accum)
          .set("fits", fit::name_of(row.verdict))
          .set("room_bytes", interval_json(row.room))
          .set("oom_probability", row.oom_probability)
          .set("peak_allocated_bytes", row.peak_allocated)
          .set("peak_reserved_bytes", row.peak_reserved)
          .set("device_used_bytes", interval_json(row.device_used))
          .set("breakdown_bytes", breakdown_json(row.breakdown))
          .set("largest_batch", largest_json(row.largest_batch))
          .set("sent_bytes", row.sent)
          .set("time", row.time ? time_json(*row.time) : Json(nullptr))
          .set("on_frontier", row.on_frontier)
          .set("why", row.why)
          .set("provenance", Json::object()
                                 .set("allocated", name_of(row.allocated_provenance))
                                 .set("reserved", name_of(row.reserved_provenance))
                                 .set("device_used", name_of(row.device_used_provenance))
                                 .set("sent", name_of(Provenance::counted)));
  if (fit::stage_count(row.question) > 1) json.set("stage", row.stage);
  if (row.divides_sequences) json.set("sequence_parallel", true);
  if (!row.schedule.empty()) json.set("pipeline_schedule", row.schedule);
  if (row.host) json.set("host_bytes", host_json(*row.host));
  if (row.precision) {
    json.set("dtype", row.precision->dtype).set("mixed_precision", row.precision->mixed_precision);
  }
  return json;
}

Json searched_json(const fit::Searched& searched) {
  return Json::object()
      .set("settings", searched.settings)
      .set("predicted", searched.predicted)
      .set("too_large", searched.too_large)
      .set("beaten", searched.beaten)
      .set("refused", searched.refused);
}

// What the table shows: of a search's frontier, what leaves a hundredth of the device more room
// than what is shown above it; all that does not fit.
std::vector<const MethodRow*> shown(const MethodsAnswer& answer) {
  std::vector<const MethodRow*> rows = asked(answer);
  if (!answer.is_selection) return rows;
  const int64_t step = answer.device.offered.count / 100;
  std::optional<int64_t> room;
  std::erase_if(rows, [&](const MethodRow* row) {
    if (!row->on_frontier) return false;
    const bool is_alike = room && row->room.expected.count < *room + step;
    if (!is_alike) room = row->room.expected.count;
    return is_alike;
  });
  return rows;
}

// "8 rows more in --json and --html: ..."; nothing where all are shown.
std::string left_out_words(const MethodsAnswer& answer) {
  const size_t left_out = asked(answer).size() - shown(answer).size();
  if (left_out == 0) return "";
  return std::to_string(left_out) +
         " more on the frontier leave less than a hundredth more room than the one above; "
         "--json and --html have them";
}

std::string methods_table(const MethodsAnswer& answer, const text::Terminal& terminal) {
  const bool has_host = std::ranges::any_of(
      shown(answer), [](const MethodRow* row) { return row->host.has_value(); });
  constexpr int kReadableFlags = 40;  // who reads them types them
  // What --method says stands below it, as a terminal has no room to say so in each row; ends of
  // the words tell rows apart as well as beginnings.
  std::vector<text::TableColumn> columns{
      {"--method", Align::left, true, 0, text::Cut::middle, kReadableFlags},
      {"fits", Align::left, false},
      {"step", Align::right, false},
      {"device used", Align::right, false},
      {"at most", Align::right, false, 5},
      {"OOM", Align::right, false, 7},
      {"largest batch", Align::right, false, 4},
      {"sent a step", Align::right, false, 6}};
  constexpr int64_t kLargestBatch = 6;
  // A search varies the batch itself.
  if (answer.is_selection) columns.erase(columns.begin() + kLargestBatch);
  if (has_host) columns.push_back({"host", Align::right, false, 2});
  columns.push_back({"why not", Align::left, true, 3});
  text::Table table(columns);
  for (const MethodRow* row : shown(answer)) {
    std::vector<text::TableCell> cells{
        without_flag(row->flags),
        {std::string(verdict_word(row->verdict)), verdict_style(row->verdict)},
        time_words(*row),
        format_bytes(row->device_used.expected),
        format_bytes(row->device_used.high),
        oom_words(row->oom_probability),
        batch_words(*row),
        format_bytes(row->sent)};
    if (answer.is_selection) cells.erase(cells.begin() + kLargestBatch);
    if (has_host) cells.emplace_back(row->host ? format_bytes(row->host->taken) : "");
    cells.emplace_back(row->why_briefly);
    table.row(std::move(cells));
  }
  return table.render(terminal);
}

}  // namespace

std::string methods_text(const MethodsAnswer& answer, const text::Terminal& terminal) {
  std::string lines = verdict_line(answer.verdict(), sentence(answer), terminal) + "\n" +
                      methods_table(answer, terminal);
  lines += text::paint(source_words(answer), Style::dim, terminal.colour) + "\n\n";
  if (answer.cost) lines += run_cost_text(*answer.cost, terminal) + "\n";
  const std::string left_out = left_out_words(answer);
  if (!left_out.empty()) lines += wrapped(left_out, terminal, 2);
  for (const std::string& remark : remarks(answer)) lines += wrapped(remark, terminal, 2);
  return lines;
}

Json methods_json(const MethodsAnswer& answer) {
  Json json = Json::object()
                  .set("schema", "headroom.fit_methods/1")
                  .set("fits", fit::name_of(answer.verdict()))
                  .set("model", answer.model)
                  .set("parameters", answer.parameter_count)
                  .set("trainable_parameters", answer.trainable_count)
                  .set("device", device_json(answer.device))
                  .set("batch", answer.batch)
                  .set("seq", answer.seq ? Json(*answer.seq) : Json(nullptr))
                  .set("grad_accum", answer.grad_accum)
                  .set("oom_probability_basis", kOomBasis)
                  .set("methods", text::json_array(answer.rows, row_json))
                  .set("notes", text::json_array(answer.notes))
                  .set("warnings", text::json_array(answer.warnings))
                  .set("assumptions", text::json_array(answer.assumptions))
                  .set("searched", searched_json(answer.searched));
  if (answer.cost) json.set("cost", run_cost_json(*answer.cost));
  if (answer.first_step) json.set("timeline", timeline_json(answer.first_step->timeline));
  add_emitted(answer.emitted, json);
  return json;
}

namespace {

std::vector<Part> parts_of(const fit::ComponentBytes& breakdown) {
  std::vector<Part> parts;
  for (size_t i = 0; i < fit::kComponentCount; ++i) {
    const auto component = static_cast<fit::Component>(i);
    if (breakdown.bytes[i].count == 0) continue;
    parts.push_back({std::string(fit::name_of(component)), std::string(fit::label_of(component)),
                     breakdown.bytes[i]});
  }
  return parts;
}

// Of the parts that any bar has, in the order of stacking.
Html legend_of(const std::vector<LimitBar>& bars) {
  std::vector<Part> all;
  for (size_t i = 0; i < fit::kComponentCount; ++i) {
    const auto name = fit::name_of(static_cast<fit::Component>(i));
    for (const LimitBar& bar : bars) {
      const auto part = std::ranges::find(bar.parts, name, &Part::key);
      if (part == bar.parts.end()) continue;
      all.push_back(*part);
      break;
    }
  }
  return legend(all);
}

// "on a device of stage 0 of 2, which needs most": what a row's figures are of.
std::string device_of(const MethodRow& row) {
  const int64_t stages = fit::stage_count(row.question);
  if (stages < 2) return "on a device that needs most";
  return "on a device of stage " + std::to_string(row.stage) + " of " + std::to_string(stages) +
         ", which needs most";
}

// The step of the first row.
Section first_step_section(const MethodRow& row, const fit::StepOverTime& step,
                           const fit::DeviceMemory& device) {
  Section section = step_section({.timeline = step.timeline,
                                  .peak_at = step.peak_at,
                                  .breakdown = row.breakdown,
                                  .device = device});
  Html html;
  html.raw("<h3>").words(row.flags).raw("</h3>\n<p class=\"lead\">");
  html.text(row.verdict == Verdict::no ? "What misses least, " : "The one to begin with, ");
  html.text(device_of(row) + ". The peak, " + format_bytes(row.peak_allocated) +
            " allocated, is in " + place_words(step.peak_at) + ". " + step.peak_at.why + ".");
  section.body = html.raw("</p>\n").add(section.body);
  return section;
}

// "1.21 s a step"
std::string step_figure(const MethodRow& row) {
  return row.time ? seconds_words(row.time->step_seconds.expected) + " a step" : "";
}

}  // namespace

std::vector<Section> methods_sections(const MethodsAnswer& answer) {
  const Verdict verdict = answer.verdict();
  Html head;
  head.raw("<h1>").text(std::string(verdict_word(verdict))).raw("</h1><p class=\"line\">");
  head.words(sentence(answer)).raw("</p>");
  std::vector<LimitBar> bars;
  std::vector<std::vector<std::string>> rows;
  for (const MethodRow* row : asked(answer)) {
    const bool is_first = row == asked(answer).front();
    bars.push_back({without_flag(row->flags), is_first ? "the one to begin with" : "",
                    std::string(fit::name_of(row->verdict)), row->device_used.low,
                    row->device_used.expected, row->device_used.high,
                    format_bytes(row->device_used.expected), step_figure(*row), false,
                    parts_of(row->breakdown)});
    rows.push_back({row->flags, std::string(verdict_word(row->verdict)), time_words(*row),
                    row->time ? seconds_interval_words(row->time->step_seconds) : "",
                    row->time ? pace_words(*row->time) : "", row->why,
                    format_bytes(row->peak_allocated), format_bytes(row->peak_reserved),
                    interval_words(row->device_used), oom_words(row->oom_probability),
                    batch_words(*row), format_bytes(row->sent)});
  }
  Html body;
  body.raw("<p class=\"lead\">Each bar is the memory of one GPU under one method, by what it is, ");
  body.raw("the line below it in the colour of whether it fits; the thin line is its 90 % ");
  body.raw("interval, the dashed one what ").text(answer.device.name).raw(" offers.</p>");
  body.add(limit_bars(bars, {answer.device.name + " offers", answer.device.offered}));
  body.add(legend_of(bars));
  body.add(frontier_of(answer));
  Html details;
  details.add(html_table(
      {"method", "fits", "#step", "#90 % of steps", "#throughput", "why not", "#peak allocated",
       "#peak reserved", "#device used", "#OOM", "#largest batch", "#sent a step"},
      rows));
  for (const std::string& remark : remarks(answer)) {
    details.raw("<p class=\"soft\">").text(remark).raw("</p>");
  }
  std::vector<Section> sections{{"answer", "", head, std::string(fit::name_of(verdict))}};
  // Before the methods, which may be many.
  if (answer.first_step) {
    sections.push_back(first_step_section(answer.rows.front(), *answer.first_step, answer.device));
  }
  sections.push_back({"methods", "Methods", body, ""});
  if (answer.cost) sections.push_back(run_cost_section(*answer.cost));
  sections.push_back({"figures", "Figures", details, ""});
  return sections;
}

}  // namespace headroom::report
