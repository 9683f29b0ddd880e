// A verb of the command line, as data: what main dispatches on and help shows.
//
// One file per verb defines one of these; verbs() lists them. Static data, thread-safe.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/console.h"
#include "cli/flags.h"

namespace headroom::cli {

struct Example {
  std::string_view command;  // whole, so that it can be copied and is run by a test
  std::string_view what;
};

// What a word of the answer means.
struct Term {
  std::string_view word;
  std::string_view meaning;
};

struct Verb {
  std::string_view name;
  std::string_view summary;   // one line
  std::string_view operands;  // "MODEL"
  size_t most_operands = 0;
  std::vector<Example> examples;
  std::vector<Flag> flags;
  std::vector<Term> terms;
  bool takes_command = false;  // what follows the flags is another program's command line
  int failure_exit = 0;        // its exit code where it fails; 0: by the kind of failure
  // The exit code, or what went wrong.
  Result<int> (*run)(const Words& words, const Console& console) = nullptr;
};

// In the order in which help shows them.
[[nodiscard]] const std::vector<Verb>& verbs();

[[nodiscard]] Verb batch_verb();
[[nodiscard]] Verb bench_verb();
[[nodiscard]] Verb devices_verb();
[[nodiscard]] Verb fit_verb();
[[nodiscard]] Verb models_verb();
[[nodiscard]] Verb ops_verb();
[[nodiscard]] Verb pack_verb();
[[nodiscard]] Verb run_verb();
[[nodiscard]] Verb study_verb();

// `headroom help [VERB]`, `headroom VERB --help`, and `headroom` alone.
[[nodiscard]] Result<int> run_help(const Words& words, const Console& console);

// What several verbs take.
inline constexpr Flag kHelpFlag{"help", "", "this text", 'h'};
inline constexpr Flag kJsonFlag{"json", "", "print one JSON object instead of text"};
inline constexpr Flag kHtmlFlag{"html", "FILE", "write a page that opens offline; - is stdout"};
inline constexpr Flag kOutputFlag{"output", "FILE", "write the answer there; - is stdout", 'o'};
inline constexpr Flag kQuietFlag{"quiet", "", "no remarks on stderr", 'q'};
inline constexpr Flag kNoColorFlag{"no-color", "", "no colour, as with NO_COLOR set"};

}  // namespace headroom::cli
