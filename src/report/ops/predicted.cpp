#include "report/ops/predicted.h"

#include "report/fit/words.h"
#include "report/ops/words.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"

namespace headroom::report {
namespace {

using text::Align;
using text::formatted;
using text::Json;
using text::Style;
using text::Table;
using text::Terminal;

std::string between(double low, double high) {
  return milliseconds(low) + " - " + milliseconds(high);
}

std::string step_words(const ops::PredictedRun& run) {
  if (run.phase == "decode") return "a decode step";
  if (run.phase == "run") return "one run";
  return run.phase == "train" ? "a training step" : "a prefill";
}

// What quantizing or fusing changes, where that was asked for.
std::string unchanged_line(const ops::PredictedRun& run) {
  if (!run.unchanged_ms) return "";
  return "without that " + milliseconds(*run.unchanged_ms) + ": " +
         formatted("%.2fx", *run.unchanged_ms / run.step_ms) + "\n";
}

// "needs 1.05 TiB of 21.31 GiB": of what an engine may take of the device's memory, or of all of
// it.
std::string memory_words(const ops::PredictedRun& run) {
  return (run.needs_more_than_weights ? "needs " : "its weights alone need ") +
         format_bytes(run.needed) +
         (run.available.count > 0 ? " of " + format_bytes(run.available)
                                  : ", and the device's memory is not known");
}

std::string engine_line(const ops::PredictedRun& run) {
  std::string lines = text::printable(run.model) + " on " + run.device + ", batch " +
                      std::to_string(run.batch) + ", " + std::to_string(run.seq) +
                      " tokens in each cache, host and sampling as in " + run.engine;
  if (run.quantize != "none") lines += ", linear layers in " + run.quantize;
  return lines + "; no trace was read\n" + unchanged_line(run);
}

// What the device does, and from when on it is not the device that matters.
std::string setting_lines(const ops::PredictedRun& run) {
  std::string lines = text::printable(run.model) + " on " + run.device;
  if (run.batch > 0) lines += ", batch " + std::to_string(run.batch);
  if (run.seq > 0) lines += ", " + std::to_string(run.seq) + " tokens each";
  if (run.quantize != "none") lines += ", linear layers in " + run.quantize;
  if (run.fuse) lines += ", elementwise chains fused";
  lines += "; no trace was read\n";
  lines += unchanged_line(run);
  const double launch_us = run.step_ms * 1e3 / static_cast<double>(run.launches);
  return lines + with_commas(run.launches) + " launches: a host that takes more than " +
         formatted("%.1f us", launch_us) + " for each sets the pace, not the device\n";
}

}  // namespace

std::string predicted_words(const ops::PredictedRun& run) {
  const ops::PredictedPart& most = run.parts.front();
  const std::string part = run.phase == "decode" ? "" : "the device's part of ";
  const std::string takes = run.fits
                                ? part + step_words(run) + " takes "
                                : step_words(run) + " does not fit: " + memory_words(run) + "; " +
                                      (part.empty() ? "it" : part + "it") + " would take ";
  return "Predicted: " + takes + milliseconds(run.step_ms) + " (" +
         between(run.step_ms_low, run.step_ms_high) + "), most of it " + most.title + ", " +
         percent_words(most.pct);
}

std::string predicted_setting_words(const ops::PredictedRun& run) {
  return run.engine.empty() ? setting_lines(run) : engine_line(run);
}

std::string ops_predicted_text(const ops::PredictedRun& run, const Terminal& terminal) {
  std::string lines = text::paint(predicted_words(run), Style::bold, terminal.colour) + "\n";
  lines += predicted_setting_words(run);
  Table table({{"", Align::left, true},
               {"a step", Align::right, false},
               {"", Align::right, false},
               {"90 %", Align::right, false},
               {"2x faster gives", Align::right, false, 1},
               {"from", Align::left, true, 2}});
  for (const ops::PredictedPart& part : run.parts) {
    table.row({part.title,
               {milliseconds(part.ms), Style::bold},
               percent_words(part.pct),
               between(part.ms_low, part.ms_high),
               formatted("%.2fx", part.speedup_2x),
               {text::printable(part.provenance + (part.basis.empty() ? "" : ": " + part.basis)),
                Style::dim}});
  }
  std::string notes;
  for (const std::string& note : run.notes) {
    notes += text::wrapped("note: " + note, terminal, kNoteIndent);
  }
  return lines + "\n" + table.render(terminal) +
         (run.engine.empty() ? "everything" : "attention and products") +
         " at the device's peaks: " + milliseconds(run.roofline_ms) + "\n" + notes;
}

Json ops_predicted_json(const ops::PredictedRun& run) {
  Json parts = Json::array();
  for (const ops::PredictedPart& part : run.parts) {
    parts.push_back(Json::object()
                        .set("name", part.name)
                        .set("ms_low", part.ms_low)
                        .set("ms", part.ms)
                        .set("ms_high", part.ms_high)
                        .set("pct", part.pct)
                        .set("flops", part.flops)
                        .set("bytes", part.bytes)
                        .set("speedup_2x_low", part.speedup_2x_low)
                        .set("speedup_2x", part.speedup_2x)
                        .set("speedup_2x_high", part.speedup_2x_high)
                        .set("provenance", part.provenance)
                        .set("basis", part.basis));
  }
  Json notes = Json::array();
  for (const std::string& note : run.notes) notes.push_back(note);
  return Json::object()
      .set("schema", "headroom.ops_predicted/1")
      .set("provenance", run.provenance)
      .set("is_prediction", true)
      .set("model", run.model)
      .set("device", run.device)
      .set("phase", run.phase)
      .set("quantize", run.quantize)
      .set("fuse", run.fuse)
      .set("batch", run.batch > 0 ? Json(run.batch) : Json(nullptr))
      .set("seq", run.seq > 0 ? Json(run.seq) : Json(nullptr))
      .set("fits", run.needed.count > 0 ? Json(run.fits) : Json(nullptr))
      .set("needed_bytes", run.needed.count > 0 ? Json(run.needed.count) : Json(nullptr))
      .set("available_bytes", run.available.count > 0 ? Json(run.available.count) : Json(nullptr))
      .set("engine", run.engine.empty() ? Json(nullptr) : Json(run.engine))
      .set("launches", run.engine.empty() ? Json(run.launches) : Json(nullptr))
      .set("unchanged_ms", run.unchanged_ms ? Json(*run.unchanged_ms) : Json(nullptr))
      .set("step_ms_low", run.step_ms_low)
      .set("step_ms", run.step_ms)
      .set("step_ms_high", run.step_ms_high)
      .set("roofline_ms", run.roofline_ms)
      .set("parts", std::move(parts))
      .set("notes", std::move(notes));
}

}  // namespace headroom::report
