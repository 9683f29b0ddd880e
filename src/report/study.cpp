#include "report/study.h"

#include "report/batch/html.h"
#include "report/batch/json.h"
#include "report/batch/text.h"
#include "report/fit/html.h"
#include "report/fit/json.h"
#include "report/fit/text.h"
#include "report/pack/html.h"
#include "report/pack/json.h"
#include "report/pack/words.h"
#include "text/number.h"

namespace headroom::report {
namespace {

// A verb's sections within a study: ids of their own, and the answer under a heading.
void append(std::vector<Section>& page, std::vector<Section> part, const std::string& verb,
            const std::string& heading) {
  for (Section& section : part) {
    section.id = verb + "-" + section.id;
    if (section.heading.empty()) section.heading = heading;
    page.push_back(std::move(section));
  }
}

// One line a setting that matters: the default, expandable segments, the plan.
std::string packed_words(const pack::PackAnswer& answer) {
  std::string lines;
  if (answer.loss) lines += loss_sentence(*answer.loss) + "\n";
  for (const pack::AllocatorFigures& figures : answer.allocators) {
    if (figures.name != "torch" && figures.name != "torch-expandable" &&
        figures.name != "planned") {
      continue;
    }
    lines += "  " + figures.name + ": " + format_bytes(figures.peak_reserved) + " reserved, " +
             text::formatted("%.1f %%", 100 * figures.efficiency) + " used\n";
  }
  return lines;
}

}  // namespace

std::string study_text(const study::StudyAnswer& answer, const text::Terminal& terminal) {
  std::string out = fit_text(answer.fit, terminal);
  if (answer.pack) out += "\nIts memory, packed (headroom pack):\n" + packed_words(*answer.pack);
  if (answer.batch)
    out +=
        "\nServing it (headroom batch --slo itl=2x@32):\n" + batch_sentence(*answer.batch) + "\n";
  for (const study::MissingPart& missing : answer.missing) {
    out += "\nno " + missing.part + " part: " + missing.why + "\n";
  }
  return out;
}

text::Json study_json(const study::StudyAnswer& answer) {
  text::Json missing = text::Json::array();
  for (const study::MissingPart& part : answer.missing) {
    missing.push_back(text::Json::object().set("part", part.part).set("why", part.why));
  }
  return text::Json::object()
      .set("schema", "headroom.study/1")
      .set("fit", fit_json(answer.fit))
      .set("pack", answer.pack ? pack_json(*answer.pack) : text::Json(nullptr))
      .set("batch", answer.batch ? batch_json(*answer.batch) : text::Json(nullptr))
      .set("missing", std::move(missing));
}

std::vector<Section> study_sections(const study::StudyAnswer& answer) {
  std::vector<Section> page = fit_sections(answer.fit);
  if (answer.pack) append(page, pack_sections(*answer.pack), "pack", "Its memory, packed");
  if (answer.batch) append(page, batch_sections(*answer.batch), "batch", "Serving it");
  if (answer.missing.empty()) return page;
  Html html;
  html.raw("<ul class=\"notes\">");
  for (const study::MissingPart& part : answer.missing) {
    html.raw("<li>").text("No " + part.part + " part: " + part.why).raw("</li>");
  }
  html.raw("</ul>\n");
  page.push_back({"missing", "What is not here", html, ""});
  return page;
}

}  // namespace headroom::report
