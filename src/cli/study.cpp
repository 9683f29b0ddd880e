#include "study/study.h"

#include <algorithm>

#include "base/file.h"
#include "base/version.h"
#include "cli/asking.h"
#include "cli/deliver.h"
#include "cli/verb.h"
#include "report/study.h"

namespace headroom::cli {
namespace {

// "openai-community/gpt2" and "dir/gpt2.json" make study-gpt2.html: the last part of the name, and
// of that only what every file system takes.
std::string page_name(std::string_view model) {
  model.remove_prefix(std::min(model.find_last_of("/:") + 1, model.size()));
  if (model.ends_with(".json")) model.remove_suffix(5);
  std::string name;
  for (const char c : model.substr(0, 80)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.';
    name += plain ? c : '-';
  }
  return "study-" + (name.empty() ? "model" : name) + ".html";
}

std::string page_path(const Words& words) {
  std::string folder = words.value("output");
  std::string name = page_name(words.operands.front());
  if (folder.empty()) return name;
  if (folder == "-" || folder.ends_with(".html")) return folder;
  return folder + (folder.ends_with('/') ? "" : "/") + name;
}

Result<int> run_study(const Words& words, const Console& console) {
  if (words.has("json") && words.value("output") == "-") {
    return Error{ErrorCode::usage, "the page and the JSON object both go to standard output",
                 "--output", "name a file or a folder for the page"};
  }
  HEADROOM_ASSIGN(fit::FitQuestion question, question_of(words, console));
  question.timeline = true;
  HEADROOM_ASSIGN(const study::StudyAnswer answer, study::study(question));
  const report::Page page{"Headroom: " + answer.fit.model, "study", std::string(version()),
                          command_line("study", words), report::study_sections(answer)};
  const int exit_code = answer.fit.verdict == fit::Verdict::yes ? kExitYes : kExitNotPlainYes;
  const std::string path = page_path(words);
  if (path == "-") {
    HEADROOM_TRY(console.answer(report::render_page(page)));
    return exit_code;
  }
  HEADROOM_TRY(write_file_atomic(path, report::render_page(page)));
  if (words.has("json")) {
    HEADROOM_TRY(console.answer(report::study_json(answer).dump(2) + "\n"));
  } else {
    HEADROOM_TRY(console.answer(report::study_text(answer, console.out)));
  }
  console.note("wrote " + path);
  return exit_code;
}

}  // namespace

Verb study_verb() {
  Verb verb;
  verb.name = "study";
  verb.summary = "every question about one model on one machine, as one page";
  verb.operands = "MODEL";
  verb.most_operands = 1;
  verb.examples = {
      {"headroom study openai-community/gpt2", "writes study-gpt2.html into this folder"},
      {"headroom study openai-community/gpt2 --device h100-sxm-80gb -o .",
       "for a machine that is elsewhere"},
  };
  verb.flags =
      question_and({{"output", "FOLDER",
                     "where the page goes; a name that ends in .html is the page itself", 'o'},
                    kJsonFlag,
                    kQuietFlag,
                    kNoColorFlag,
                    kHelpFlag});
  verb.run = run_study;
  return verb;
}

}  // namespace headroom::cli
