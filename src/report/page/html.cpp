#include "report/page/html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "text/utf8.h"

// The files of src/report/assets.
namespace headroom::embedded {
extern const std::string_view kPageHtml;
extern const std::string_view kPageCss;
extern const std::string_view kDarkCss;
extern const std::string_view kChartsJs;
extern const std::string_view kMapPanelJs;
extern const std::string_view kMapJs;
extern const std::string_view kTimelineJs;
}  // namespace headroom::embedded

namespace headroom::report {
namespace {

// The dark colours hold where the reader's system prefers them and where the reader chose them.
std::string style() {
  std::string css(embedded::kPageCss);
  css.append("@media (prefers-color-scheme: dark) { :root:not([data-theme=\"light\"]) {\n");
  css.append(embedded::kDarkCss).append("} }\n:root[data-theme=\"dark\"] { color-scheme: dark;\n");
  return css.append(embedded::kDarkCss).append("}\n");
}

// Fills the {{places}} of `shell` in one pass, so that nothing inside a value is taken for a place.
std::string fill(std::string_view shell,
                 const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string filled;
  while (true) {
    const size_t open = shell.find("{{");
    const size_t close = open == std::string_view::npos ? open : shell.find("}}", open);
    if (close == std::string_view::npos) break;
    filled += shell.substr(0, open);
    const std::string_view name = shell.substr(open + 2, close - open - 2);
    const auto value = std::find_if(values.begin(), values.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    HEADROOM_CHECK(value != values.end(), "the page shell names a place that nothing fills");
    filled += value->second;
    shell.remove_prefix(close + 2);
  }
  filled += shell;
  return filled;
}

Html section_html(const Section& section) {
  Html html;
  html.raw("<section class=\"card");
  if (section.has_map || section.has_timeline) html.raw(" wide");
  if (!section.tone.empty()) html.raw(" answer tone-").text(section.tone);
  html.raw("\" id=\"").text(section.id).raw("\"");
  if (!section.heading.empty()) {
    html.raw(" aria-labelledby=\"").text(section.id).raw("-heading\"><h2 id=\"").text(section.id);
    html.raw("-heading\">").text(section.heading).raw("</h2>\n");
  } else {
    html.raw(">\n");
  }
  return html.add(section.body).raw("</section>\n");
}

}  // namespace

Html& Html::text(std::string_view words) {
  while (!words.empty()) {
    const text::DecodedCharacter character = text::decode_utf8(words);
    const std::string_view bytes = words.substr(0, character.length);
    const bool control = character.code < 0x20 && bytes != "\n" && bytes != "\t";
    if (!character.valid || control || character.code == 0x7f) {
      markup_ += "\xEF\xBF\xBD";
    } else if (bytes == "&") {
      markup_ += "&amp;";
    } else if (bytes == "<") {
      markup_ += "&lt;";
    } else if (bytes == ">") {
      markup_ += "&gt;";
    } else if (bytes == "\"") {
      markup_ += "&quot;";
    } else if (bytes == "'") {
      markup_ += "&#39;";
    } else {
      markup_ += bytes;
    }
    words.remove_prefix(character.length);
  }
  return *this;
}

Html& Html::words(std::string_view words) {
  while (!words.empty()) {
    const size_t blank = std::min(words.find(' '), words.size());
    std::string_view word = words.substr(0, blank);
    const bool is_flag = word.starts_with("--");
    if (is_flag) raw("<span class=\"flag\">");
    for (size_t comma = word.find(','); comma != std::string_view::npos; comma = word.find(',')) {
      text(word.substr(0, comma + 1));
      word.remove_prefix(comma + 1);
      const bool is_in_number = !word.empty() && word.front() >= '0' && word.front() <= '9';
      if (!is_in_number) raw("<wbr>");
    }
    text(word);
    if (is_flag) raw("</span>");
    if (blank < words.size()) append(" ");
    words.remove_prefix(std::min(blank + 1, words.size()));
  }
  return *this;
}

Html& Html::percent(double value) {
  const double clamped = std::isfinite(value) ? std::clamp(value, 0.0, 100.0) : 0.0;
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3f%%", clamped);
  return append(digits.data());
}

Html& Html::json(const text::Json& data) {
  markup_ += "<script type=\"application/json\">";
  // These three only occur inside strings, where JSON has another spelling for them; without them
  // no string can end the script element or open a comment in it.
  for (const char c : data.dump()) {
    if (c == '<') {
      markup_ += "\\u003c";
    } else if (c == '>') {
      markup_ += "\\u003e";
    } else if (c == '&') {
      markup_ += "\\u0026";
    } else {
      markup_ += c;
    }
  }
  markup_ += "</script>";
  return *this;
}

std::string render_page(const Page& page) {
  Html title;
  title.text(page.title);
  Html crumb;
  crumb.text(page.crumb);
  Html version;
  version.text(page.version);
  Html nav;
  Html body;
  for (const Section& section : page.sections) {
    if (!section.heading.empty()) {
      nav.raw("<a href=\"#").text(section.id).raw("\">").text(section.heading).raw("</a>");
    }
    body.add(section_html(section));
  }
  std::string script(embedded::kChartsJs);
  const bool has_map = std::any_of(page.sections.begin(), page.sections.end(),
                                   [](const Section& section) { return section.has_map; });
  const bool has_timeline = std::any_of(page.sections.begin(), page.sections.end(),
                                        [](const Section& part) { return part.has_timeline; });
  if (has_map || has_timeline) script.append(embedded::kMapPanelJs);
  if (has_map) script.append(embedded::kMapJs);
  if (has_timeline) script.append(embedded::kTimelineJs);
  const std::string css = style();
  Html footer;
  if (!page.command.empty()) {
    footer.raw("<p>Asked by: <code>").text(page.command).raw("</code></p>");
  }
  return fill(embedded::kPageHtml, {{"title", title.markup()},
                                    {"crumb", crumb.markup()},
                                    {"version", version.markup()},
                                    {"nav", nav.markup()},
                                    {"body", body.markup()},
                                    {"footer", footer.markup()},
                                    {"style", css},
                                    {"script", script}});
}

void tile(Html& html, std::string_view name, const std::string& figure, const std::string& note) {
  html.raw("<div class=\"tile\"><dt>").text(name).raw("</dt><dd>").text(figure);
  html.raw("<small>").text(note).raw("</small></dd></div>");
}

Html html_table(const std::vector<std::string>& columns,
                const std::vector<std::vector<std::string>>& rows) {
  Html html;
  html.raw("<div class=\"scroll\"><table><thead><tr>");
  const auto is_figure = [&](size_t i) {
    return i < columns.size() && columns[i].starts_with('#');
  };
  for (size_t i = 0; i < columns.size(); ++i) {
    html.raw(is_figure(i) ? Literal("<th scope=\"col\" class=\"number\">")
                          : Literal("<th scope=\"col\">"));
    html.text(std::string_view(columns[i]).substr(is_figure(i) ? 1 : 0)).raw("</th>");
  }
  html.raw("</tr></thead><tbody>\n");
  for (const std::vector<std::string>& row : rows) {
    html.raw("<tr>");
    for (size_t i = 0; i < row.size(); ++i) {
      html.raw(is_figure(i) ? Literal("<td class=\"number\">") : Literal("<td class=\"text\">"));
      html.text(row[i]).raw("</td>");
    }
    html.raw("</tr>\n");
  }
  return html.raw("</tbody></table></div>\n");
}

}  // namespace headroom::report
