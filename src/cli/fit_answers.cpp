#include "cli/fit_answers.h"

#include <cmath>
#include <utility>

#include "base/version.h"
#include "cli/deliver.h"
#include "device/price.h"
#include "fit/run_cost.h"
#include "report/fit/html.h"
#include "report/fit/json.h"
#include "report/fit/methods.h"
#include "report/fit/text.h"

namespace headroom::cli {

namespace {

// What the answer costs by its time; nothing, and a note, where there is none.
template <typename Answer>
Result<void> add_cost(const Words& words, bool fits, const std::optional<fit::StepTime>& time,
                      double oom_probability, Answer& answer) {
  if (!words.has("price")) return {};
  HEADROOM_ASSIGN(const device::PriceQuestion price, device::parse_price(words.value("price")));
  std::optional<int64_t> epoch;
  if (words.has("epoch-tokens")) {
    HEADROOM_ASSIGN(const double count,
                    number_of<double>(words.value("epoch-tokens"), "epoch-tokens", 1,
                                      static_cast<double>(fit::kMostEpochTokens)));
    epoch = std::llround(count);
  }
  if (!fits) {
    answer.notes.emplace_back("no cost: what does not fit costs nothing");
    return {};
  }
  if (!time) {
    answer.notes.emplace_back("no cost: there is no step time to tell it by");
    return {};
  }
  if (epoch && time->tokens_per_second <= 0) {
    return Error{ErrorCode::usage, "what this model learns from are no tokens", "--epoch-tokens",
                 "leave it out: a thousand steps are priced"};
  }
  answer.cost = fit::run_cost(price, *time, answer.device.count, epoch);
  answer.cost->oom_probability = oom_probability;
  return {};
}

}  // namespace

report::Page page_of(std::string title, std::vector<report::Section> sections, const Words& words) {
  return {std::move(title), "fit", std::string(version()), command_line("fit", words),
          std::move(sections)};
}

Result<void> add_cost_of(const Words& words, fit::FitAnswer& answer) {
  return add_cost(words, answer.verdict != fit::Verdict::no, answer.time, answer.oom_probability,
                  answer);
}

Result<void> add_cost_of_first(const Words& words, fit::MethodsAnswer& answer) {
  const bool fits = answer.verdict() != fit::Verdict::no;
  return add_cost(words, fits, fits ? answer.rows.front().time : std::nullopt,
                  fits ? answer.rows.front().oom_probability : 0, answer);
}

Result<int> deliver_answer(const fit::FitAnswer& answer, const Words& words,
                           const Console& console) {
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) { return report::fit_text(answer, terminal); };
  forms.json = [&] { return report::fit_json(answer); };
  forms.page = [&] {
    return page_of("Will " + answer.model + " fit?", report::fit_sections(answer), words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.verdict == fit::Verdict::yes ? kExitYes : kExitNotPlainYes;
}

Result<int> deliver_methods(const fit::MethodsAnswer& answer, const Words& words,
                            const Console& console) {
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::methods_text(answer, terminal);
  };
  forms.json = [&] { return report::methods_json(answer); };
  forms.page = [&] {
    return page_of("How to divide " + answer.model, report::methods_sections(answer), words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.verdict() == fit::Verdict::yes ? kExitYes : kExitNotPlainYes;
}

}  // namespace headroom::cli
