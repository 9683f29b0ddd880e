#include "report/fit/smallest.h"

#include <algorithm>

#include "report/fit/json.h"
#include "report/fit/words.h"
#include "report/page/charts.h"
#include "report/run_cost.h"
#include "text/json_parts.h"
#include "text/paragraph.h"
#include "text/table.h"

namespace headroom::report {
namespace {

using fit::Hardware;
using fit::SmallestAnswer;
using text::Align;
using text::Json;
using text::Style;

std::string step_words(const SmallestAnswer& answer) {
  return report::step_words(answer.model, answer.batch, answer.seq);
}

std::string hardware_words(const Hardware& hardware) {
  return report::hardware_words(hardware.device.count, hardware.device.name);
}

std::string time_words(const Hardware& hardware) {
  return hardware.row.time ? seconds_words(hardware.row.time->step_seconds.expected) : "";
}

constexpr const char* kRoomWords =
    "room: at the least, a GPU (90 % interval); cache: the allocator's may fill the device, and is "
    "given back; steps as predicted";

// A step whose allocator may fill the device with its cache, which it gives back where it must, has
// no room that could be told.
bool may_fill_it(const Hardware& hardware) { return hardware.row.room.low <= fit::kLeastSegment; }

std::string room_words(const Hardware& hardware) {
  return may_fill_it(hardware) ? "cache" : format_bytes(hardware.row.room.low);
}

std::string sentence(const SmallestAnswer& answer) {
  if (answer.rows.empty()) {
    const std::string most = with_commas(answer.most);
    if (answer.too_small.size() == 1) {
      return answer.model + " does not fit " + most + " x " + answer.too_small.front();
    }
    return answer.model + " fits none of " + std::to_string(answer.too_small.size()) +
           " devices, up to " + most + " of each in a machine";
  }
  const Hardware& least = answer.rows.front();
  const std::string time = time_words(least);
  return hardware_words(least) + " is the least that does it: " + step_words(answer) + " fits by " +
         least.row.flags +
         (may_fill_it(least) ? ", once its cache gives memory back"
                             : " with at least " + room_words(least) + " of room") +
         (time.empty() ? "" : ", about " + time + " a step");
}

std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::vector<std::string> remarks(const SmallestAnswer& answer) {
  std::vector<std::string> lines;
  if (!answer.rows.empty()) {
    lines.push_back("OOM: the probability of out of memory " + std::string(kOomBasis));
  }
  if (!answer.larger.empty()) lines.push_back("larger, and do it too: " + listed(answer.larger));
  if (!answer.too_small.empty()) {
    lines.push_back("too small, " + with_commas(answer.most) +
                    " in a machine or fewer: " + listed(answer.too_small));
  }
  const bool lacks_time = std::ranges::any_of(
      answer.rows, [](const Hardware& hardware) { return !hardware.row.time.has_value(); });
  if (lacks_time) {
    lines.emplace_back(
        "note: no step time where a device's rate for this precision is not known; `headroom fit "
        "--device NAME` says why");
  }
  for (const std::string& note : answer.notes) lines.push_back("note: " + note);
  for (const std::string& words : answer.assumptions) lines.push_back("assumed: " + words);
  for (const std::string& words : answer.warnings) lines.push_back("warning: " + words);
  return lines;
}

std::vector<std::string> cells_of(const Hardware& hardware) {
  return {hardware_words(hardware),
          format_bytes(hardware.offered()),
          hardware.row.flags,
          room_words(hardware),
          oom_words(hardware.row.oom_probability),
          time_words(hardware),
          hardware.row.time ? pace_words(*hardware.row.time) : ""};
}

Json row_json(const Hardware& hardware) {
  const fit::MethodRow& row = hardware.row;
  return Json::object()
      .set("device", device_json(hardware.device))
      .set("offered_bytes", hardware.offered().count)
      .set("method", row.method)
      .set("checkpointing", row.checkpointing)
      .set("flags", row.flags)
      .set("device_used_bytes", interval_json(row.device_used))
      .set("room_bytes", interval_json(row.room))
      .set("oom_probability", row.oom_probability)
      .set("time", row.time ? time_json(*row.time) : Json(nullptr));
}

}  // namespace

std::string smallest_text(const SmallestAnswer& answer, const text::Terminal& terminal) {
  const auto verdict = answer.rows.empty() ? fit::Verdict::no : fit::Verdict::yes;
  std::string lines = verdict_line(verdict, sentence(answer), terminal) + "\n";
  text::Table table({{"hardware", Align::left, false},
                     {"offers", Align::right, false},
                     {"the fastest way that fits", Align::left, true},
                     {"room", Align::right, false},
                     {"OOM", Align::right, false, 2},
                     {"step", Align::right, false},
                     {"throughput", Align::right, false, 1}});
  for (const Hardware& hardware : answer.rows) {
    std::vector<text::TableCell> cells;
    for (std::string& words : cells_of(hardware)) cells.emplace_back(std::move(words));
    table.row(std::move(cells));
  }
  if (!answer.rows.empty()) {
    lines += table.render(terminal);
    lines += text::paint(kRoomWords, Style::dim, terminal.colour) + "\n\n";
  }
  if (answer.cost) lines += run_cost_text(*answer.cost, terminal) + "\n";
  for (const std::string& remark : remarks(answer)) lines += wrapped(remark, terminal, 2);
  return lines;
}

Json smallest_json(const SmallestAnswer& answer) {
  Json json =
      Json::object()
          .set("schema", "headroom.fit_smallest/1")
          .set("fits", fit::name_of(answer.rows.empty() ? fit::Verdict::no : fit::Verdict::yes))
          .set("model", answer.model)
          .set("parameters", answer.parameter_count)
          .set("trainable_parameters", answer.trainable_count)
          .set("batch", answer.batch)
          .set("seq", answer.seq ? Json(*answer.seq) : Json(nullptr))
          .set("most_gpus", answer.most)
          .set("oom_probability_basis", kOomBasis)
          .set("hardware", text::json_array(answer.rows, row_json))
          .set("larger", text::json_array(answer.larger))
          .set("too_small", text::json_array(answer.too_small))
          .set("notes", text::json_array(answer.notes))
          .set("warnings", text::json_array(answer.warnings))
          .set("assumptions", text::json_array(answer.assumptions));
  if (answer.cost) json.set("cost", run_cost_json(*answer.cost));
  return json;
}

std::vector<Section> smallest_sections(const SmallestAnswer& answer) {
  const auto verdict = answer.rows.empty() ? fit::Verdict::no : fit::Verdict::yes;
  Html head;
  head.raw("<h1>The least that does it</h1><p class=\"line\">").words(sentence(answer)).raw("</p>");
  std::vector<std::vector<std::string>> rows;
  for (const Hardware& hardware : answer.rows) rows.push_back(cells_of(hardware));
  Html body;
  body.add(html_table(
      {"hardware", "#offers", "the fastest way that fits", "#room", "#OOM", "#step", "#throughput"},
      rows));
  if (!rows.empty()) body.raw("<p class=\"soft\">").text(kRoomWords).raw("</p>");
  for (const std::string& remark : remarks(answer)) {
    body.raw("<p class=\"soft\">").text(remark).raw("</p>");
  }
  std::vector<Section> sections{{"answer", "", head, std::string(fit::name_of(verdict))},
                                {"hardware", "Hardware", body, ""}};
  if (answer.cost) sections.push_back(run_cost_section(*answer.cost));
  return sections;
}

}  // namespace headroom::report
