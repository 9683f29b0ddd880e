#include "cli/search_bar.h"

#include <unistd.h>

#include <string>

#include "report/fit/words.h"

namespace headroom::cli {
namespace {

// "214 predicted, 5,310 passed over"
std::string counts_words(const fit::SearchState& state) {
  std::string words;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) words += (words.empty() ? "" : ", ") + report::with_commas(count) + what;
  };
  add(state.predicted, " predicted");
  add(state.passed_over, " passed over");
  return words;
}

}  // namespace

SearchBar::SearchBar(const Console& console)
    : bar_("searching", 0, console.err, console.quiet, text::sink_for(STDERR_FILENO)) {}

fit::SearchProgress SearchBar::progress() {
  return [this](const fit::SearchState& state) {
    bar_.set_total(state.of);
    bar_.set_note(counts_words(state));
    bar_.update(state.done);
  };
}

}  // namespace headroom::cli
