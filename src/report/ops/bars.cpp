#include "report/ops/bars.h"

#include <algorithm>

#include "report/ops/words.h"

namespace headroom::report {

void add_stack(Html& html, const std::vector<StackPart>& parts, double whole_ms) {
  html.raw("<div class=\"stackbar\"><div class=\"track\">");
  for (const StackPart& part : parts) {
    if (part.ms <= 0 || whole_ms <= 0) continue;
    html.raw(part.group == "idle" ? Literal("<div class=\"part hatched\" style=\"width:")
                                  : Literal("<div class=\"part\" style=\"width:"));
    html.percent(100 * part.ms / whole_ms)
        .raw(";background-color:var(--")
        .text(group_colour(part.group));
    html.raw(")\" title=\"")
        .text(part.title + ": " + milliseconds(part.ms) + part.remark)
        .raw("\"></div>");
  }
  html.raw("</div></div>");
}

void add_legend(Html& html, const std::vector<StackPart>& parts) {
  std::vector<std::string_view> shown;
  html.raw("<ul class=\"legend\">");
  for (const StackPart& part : parts) {
    if (part.ms <= 0 || std::ranges::count(shown, part.title) > 0) continue;
    shown.push_back(part.title);
    html.raw("<li><span class=\"swatch\" style=\"background-color:var(--")
        .text(group_colour(part.group));
    html.raw(")\"></span>").text(part.title).raw("</li>");
  }
  html.raw("</ul>\n");
}

void add_row(Html& html, const BarRow& row) {
  html.raw("<div class=\"row\"><div class=\"name\"");
  if (!row.whole.empty()) html.raw(" title=\"").text(row.whole).raw("\"");
  html.raw(">").text(row.name);
  if (!row.remark.empty()) html.raw("<small>").text(row.remark).raw("</small>");
  html.raw("</div>").add(row.lane).raw("<div class=\"figure\">").text(row.figure);
  if (!row.note.empty()) html.raw("<small>").text(row.note).raw("</small>");
  html.raw("</div></div>\n");
}

Html bar_lane(BarTone tone, double pct, double low_pct, double high_pct) {
  Html lane;
  lane.raw(tone == BarTone::good ? Literal("<div class=\"lane tone-yes\">")
                                 : Literal("<div class=\"lane tone-no\">"));
  lane.raw("<i class=\"fill\" style=\"width:").percent(pct);
  lane.raw("\"></i>");
  if (high_pct > low_pct) {
    lane.raw("<i class=\"whisker\" style=\"left:").percent(low_pct);
    lane.raw(";width:").percent(high_pct - low_pct).raw("\"></i>");
  }
  return lane.raw("</div>");
}

void add_notes(Html& html, const std::vector<std::string>& notes) {
  if (notes.empty()) return;
  html.raw("<h3>Notes</h3><ul class=\"notes\">");
  for (const std::string& note : notes) html.raw("<li>").text(note).raw("</li>");
  html.raw("</ul>\n");
}

}  // namespace headroom::report
