#include "report/page/charts.h"
#include "text/json_parts.h"

#include <algorithm>
#include <cstdint>

namespace headroom::report {
namespace {

double share(Bytes part, Bytes whole) {
  return whole.count <= 0
             ? 0.0
             : 100.0 * static_cast<double>(part.count) / static_cast<double>(whole.count);
}

text::Json json_array(const std::vector<int64_t>& values) {
  text::Json array = text::Json::array();
  for (const int64_t value : values) array.push_back(value);
  return array;
}

text::Json json_array(const std::vector<Bytes>& values) {
  text::Json array = text::Json::array();
  for (const Bytes value : values) array.push_back(value);
  return array;
}

// A limit beyond three times all that is drawn would press the picture flat: it is left off the
// scale and said in words.
bool is_far(const Limit& limit, Bytes most) { return limit.bytes.count / 3 > most.count; }

Bytes scale_end(const Limit& limit, Bytes most) {
  return is_far(limit, most) ? most + Bytes(most.count / 4) : std::max(most, limit.bytes);
}

// A part of a bar, as wide as its share of the whole; nothing of nothing.
void add_part(Html& html, const Part& part, Bytes whole) {
  if (part.bytes.count <= 0) return;
  const bool hatched = part.key == "cached_unused";
  html.raw(hatched ? Literal("<div class=\"part hatched\" style=\"width:")
                   : Literal("<div class=\"part\" style=\"width:"));
  html.percent(share(part.bytes, whole)).raw(";background-color:var(--").text(part.key);
  html.raw(")\" title=\"").text(part.label + ": " + format_bytes(part.bytes)).raw("\"></div>");
}

void add_limit_line(Html& html, const Limit& limit, Bytes span) {
  if (limit.bytes > span) return;
  html.raw("<i class=\"limit\" style=\"left:").percent(share(limit.bytes, span)).raw("\"></i>");
}

}  // namespace

Html stacked_bar(const std::vector<Part>& parts, const Limit& limit) {
  Bytes total;
  for (const Part& part : parts) total += part.bytes;
  const Bytes span = scale_end(limit, total);
  Html html;
  html.raw("<div class=\"stackbar\"><div class=\"track\">");
  for (const Part& part : parts) add_part(html, part, span);
  add_limit_line(html, limit, span);
  html.raw("</div><div class=\"scale\"><span class=\"start\">0</span>");
  // The used end would run into the limit's words when both are close, and then the table says it.
  const double used = share(total, span);
  const double offered = std::min(share(limit.bytes, span), 100.0);
  if (is_far(limit, total)) {
    html.raw("<span class=\"end\" style=\"left:").percent(100.0).raw("\">");
    html.text(format_bytes(total) + " used; " + limit.label + " " + format_bytes(limit.bytes));
    return html.raw("</span></div></div>\n");
  }
  if (used > 12.0 && (offered - used > 34.0 || used - offered > 34.0)) {
    html.raw(used > 90.0 ? Literal("<span class=\"end\" style=\"left:")
                         : Literal("<span style=\"left:"));
    html.percent(used).raw("\">").text(format_bytes(total));
    html.raw(" used</span>");
  }
  html.raw("<span class=\"end\" style=\"left:").percent(std::max(offered, 40.0)).raw("\">");
  html.text(limit.label + " " + format_bytes(limit.bytes)).raw("</span></div></div>\n");
  return html;
}

Html legend(const std::vector<Part>& parts) {
  Html html;
  html.raw("<ul class=\"legend\">");
  for (const Part& part : parts) {
    html.raw(part.key == "cached_unused"
                 ? Literal("<li><span class=\"swatch hatched\" style=\"background-color:var(--")
                 : Literal("<li><span class=\"swatch\" style=\"background-color:var(--"));
    html.text(part.key).raw(")\"></span>").text(part.label).raw("</li>");
  }
  return html.raw("</ul>\n");
}

Html limit_bars(const std::vector<LimitBar>& bars, const Limit& limit) {
  Bytes most;
  for (const LimitBar& bar : bars) most = std::max(most, bar.high);
  Bytes span = scale_end(limit, most);
  span += Bytes(span.count / 50);
  Html html;
  html.raw("<div class=\"bars\">\n");
  for (const LimitBar& bar : bars) {
    html.raw(bar.asked ? Literal("<div class=\"row asked tone-")
                       : Literal("<div class=\"row tone-"));
    html.text(bar.tone).raw("\"><div class=\"name\">");
    html.words(bar.name);
    if (!bar.note.empty()) html.raw("<small>").words(bar.note).raw("</small>");
    html.raw("</div><div class=\"lane\" title=\"");
    html.text(format_bytes(bar.low) + " to " + format_bytes(bar.high));
    html.raw(bar.parts.empty() ? Literal("\"><div class=\"fill\" style=\"width:")
                               : Literal("\"><div class=\"fill parts\" style=\"width:"));
    html.percent(share(bar.expected, span)).raw("\">");
    for (const Part& part : bar.parts) add_part(html, part, bar.expected);
    html.raw("</div>");
    if (bar.high > bar.low) {
      html.raw("<div class=\"whisker\" style=\"left:").percent(share(bar.low, span));
      html.raw(";width:").percent(share(bar.high - bar.low, span)).raw("\"></div>");
    }
    add_limit_line(html, limit, span);
    html.raw("</div><div class=\"figure\">").text(bar.figure);
    if (!bar.figure_note.empty()) html.raw("<small>").text(bar.figure_note).raw("</small>");
    html.raw("</div></div>\n");
  }
  return html.raw("</div>\n");
}

Html step_chart(const StepChart& chart) {
  text::Json series = text::Json::array();
  for (const StepSeries& layer : chart.series) {
    series.push_back(text::Json::object()
                         .set("key", layer.key)
                         .set("label", layer.label)
                         .set("bytes", json_array(layer.bytes)));
  }
  const text::Json data = text::Json::object()
                              .set("description", chart.description)
                              .set("limit_label", chart.limit.label)
                              .set("limit_bytes", chart.limit.bytes)
                              .set("peak", chart.peak)
                              .set("labels", text::json_array(chart.labels))
                              .set("event", json_array(chart.event))
                              .set("phase", json_array(chart.phase))
                              .set("module", json_array(chart.module))
                              .set("op", json_array(chart.op))
                              .set("allocated", json_array(chart.allocated))
                              .set("series", std::move(series));
  Html html;
  html.raw("<div class=\"step\" data-chart=\"step\">");
  html.raw("<noscript><p class=\"missing\">").text(chart.description);
  html.raw(" The chart itself needs JavaScript.</p></noscript>").json(data);
  return html.raw("</div>\n");
}

std::vector<size_t> thin_out(const std::vector<Bytes>& values, size_t keep, size_t most) {
  std::vector<size_t> kept;
  const size_t count = values.size();
  const size_t runs = most < 8 ? 1 : (most - 3) / 2;
  for (size_t run = 0; run < runs && count > most; ++run) {
    const size_t begin = count * run / runs;
    const size_t end = count * (run + 1) / runs;
    const auto [low, high] = std::minmax_element(values.begin() + static_cast<ptrdiff_t>(begin),
                                                 values.begin() + static_cast<ptrdiff_t>(end));
    kept.push_back(static_cast<size_t>(low - values.begin()));
    kept.push_back(static_cast<size_t>(high - values.begin()));
  }
  if (count <= most) {
    for (size_t i = 0; i < count; ++i) kept.push_back(i);
  } else {
    kept.insert(kept.end(), {size_t{0}, count - 1, std::min(keep, count - 1)});
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

}  // namespace headroom::report
