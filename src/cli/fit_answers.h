// What every way to ask `headroom fit` does with its answer: what it costs, and handing it over.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "fit/answer.h"
#include "fit/search/methods.h"
#include "fit/search/smallest.h"
#include "report/page/html.h"

namespace headroom::cli {

// A page of this verb's.
[[nodiscard]] report::Page page_of(std::string title, std::vector<report::Section> sections,
                                   const Words& words);

// What an answer costs by its time, where --price asks; a note, where it has none or does not fit.
Result<void> add_cost_of(const Words& words, fit::FitAnswer& answer);
// By the first row's.
Result<void> add_cost_of_first(const Words& words, fit::MethodsAnswer& answer);
// By the least hardware's: an hour of another GPU has another price.
Result<void> add_cost_of_least(const Words& words, fit::SmallestAnswer& answer);

// By --json, --html and --output; the exit code.
Result<int> deliver_answer(const fit::FitAnswer& answer, const Words& words,
                           const Console& console);
Result<int> deliver_methods(const fit::MethodsAnswer& answer, const Words& words,
                            const Console& console);

}  // namespace headroom::cli
