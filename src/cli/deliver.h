// Handing over an answer the way the flags say: text or JSON, to stdout or a file, and a page.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "base/result.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "report/page/html.h"
#include "text/json.h"

namespace headroom::cli {

// The forms of one answer; only those that are asked for are made. Without `text`, standard output
// belongs to another answer.
struct Forms {
  std::function<std::string(const text::Terminal&)> text;
  std::function<text::Json()> json;
  std::function<report::Page()> page;
};

// By --json, --html FILE and --output FILE. A page on stdout takes the place of the text.
Result<void> deliver(const Forms& forms, const Words& words, const Console& console);

// Whether the flags name a place of its own, that can be written to, for each form that they ask
// for, `files` being the verb's own flags that write one (of which "-" is standard output, in place
// of the answer as text); a usage Error else. To be called before the work is done; deliver() does
// it again.
Result<void> check_places(const Words& words, std::initializer_list<std::string_view> files = {});

// The command that asked, as a person would type it: for the foot of a page.
[[nodiscard]] std::string command_line(std::string_view verb, const Words& words);

}  // namespace headroom::cli
