// Html: markup under construction, in which text from outside cannot become markup; and Page, the
// one shell that every page of Headroom is poured into.
//
// raw() takes nothing but literals of the program (checked at compile time), so a model's name, a
// file's path or a warning can only enter through text(), which escapes it, or json(), which keeps
// it inside a script element of type application/json. Not synchronised; linear in the output.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json.h"

namespace headroom::report {

// Markup that was written in the source of Headroom.
struct Literal {
  // NOLINTNEXTLINE(google-explicit-constructor): that only literals convert is the point.
  consteval Literal(const char* markup) : view(markup) {}
  std::string_view view;
};

class Html {
 public:
  Html& raw(Literal markup) { return append(markup.view); }
  // Escaped for element content and for attribute values in double quotes. Characters that HTML
  // forbids and bytes that are not UTF-8 become U+FFFD.
  Html& text(std::string_view words);
  // Element content in which settings are named: a flag stays whole where a line is too narrow (it
  // would break behind its hyphens), a list without blanks breaks behind its commas.
  Html& words(std::string_view words);
  // "12.345%" with a clamp to [0, 100]: the only number that reaches a style attribute.
  Html& percent(double value);
  // <script type="application/json">: the data of a chart.
  Html& json(const text::Json& data);
  Html& add(const Html& other) { return append(other.markup_); }

  [[nodiscard]] const std::string& markup() const { return markup_; }
  [[nodiscard]] bool empty() const { return markup_.empty(); }

 private:
  Html& append(std::string_view markup) {
    markup_ += markup;
    return *this;
  }
  std::string markup_;
};

// One card of a page.
struct Section {
  std::string id;       // of the element, and the target of its link: letters and dashes
  std::string heading;  // also its name in the navigation; empty for the answer itself
  Html body;
  std::string tone;  // "yes", "at_risk" or "no" where the card as a whole says so; or empty
  bool has_timeline = false;  // as wide as the window too, and timeline.js is needed
  bool has_map = false;  // an address map: the card is as wide as the window, and map.js is needed
};

struct Page {
  std::string title;    // of the window
  std::string crumb;    // beside the brand: "fit", "study"
  std::string version;  // of Headroom
  std::string command;  // what was asked, so that somebody else can ask again; may be empty
  std::vector<Section> sections;
};

// The whole file: style, script and data inside, nothing loaded from elsewhere.
[[nodiscard]] std::string render_page(const Page& page);

// One figure in a <dl class="tiles">.
void tile(Html& html, std::string_view name, const std::string& figure, const std::string& note);

// A table; every cell is text. Columns whose name begins with '#' hold figures, set to the right.
[[nodiscard]] Html html_table(const std::vector<std::string>& columns,
                              const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::report
