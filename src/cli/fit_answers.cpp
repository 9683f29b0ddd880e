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

// What is priced: a step of so many devices.
struct Priced {
  bool fits = false;
  std::optional<fit::StepTime> time;
  double oom_probability = 0;
  int64_t devices = 1;
};

// What the answer costs by its time; nothing, and a note, where there is none.
template <typename Answer>
Result<void> add_cost(const Words& words, const Priced& priced, Answer& answer) {
  if (!words.has("price")) return {};
  HEADROOM_ASSIGN(const device::PriceQuestion price, device::parse_price(words.value("price")));
  std::optional<int64_t> epoch;
  if (words.has("epoch-tokens")) {
    HEADROOM_ASSIGN(const double count,
                    number_of<double>(words.value("epoch-tokens"), "epoch-tokens", 1,
                                      static_cast<double>(fit::kMostEpochTokens)));
    epoch = std::llround(count);
  }
  if (!priced.fits) {
    answer.notes.emplace_back("no cost: what does not fit costs nothing");
    return {};
  }
  if (!priced.time) {
    answer.notes.emplace_back("no cost: there is no step time to tell it by");
    return {};
  }
  if (epoch && priced.time->tokens_per_second <= 0) {
    return Error{ErrorCode::usage, "what this model learns from are no tokens", "--epoch-tokens",
                 "leave it out: a thousand steps are priced"};
  }
  answer.cost = fit::run_cost(price, *priced.time, priced.devices, epoch);
  answer.cost->oom_probability = priced.oom_probability;
  return {};
}

}  // namespace

report::Page page_of(std::string title, std::vector<report::Section> sections, const Words& words) {
  return {std::move(title), "fit", std::string(version()), command_line("fit", words),
          std::move(sections)};
}

Result<void> add_cost_of(const Words& words, fit::FitAnswer& answer) {
  const Priced priced{.fits = answer.verdict != fit::Verdict::no,
                      .time = answer.time,
                      .oom_probability = answer.oom_probability,
                      .devices = answer.device.count};
  return add_cost(words, priced, answer);
}

Result<void> add_cost_of_first(const Words& words, fit::MethodsAnswer& answer) {
  Priced priced;
  priced.devices = answer.device.count;
  if (answer.verdict() != fit::Verdict::no) {
    priced.fits = true;
    priced.time = answer.rows.front().time;
    priced.oom_probability = answer.rows.front().oom_probability;
  }
  return add_cost(words, priced, answer);
}

Result<void> add_cost_of_least(const Words& words, fit::SmallestAnswer& answer) {
  Priced priced;
  if (!answer.rows.empty()) {
    const fit::Hardware& least = answer.rows.front();
    priced = {.fits = true,
              .time = least.row.time,
              .oom_probability = least.row.oom_probability,
              .devices = least.device.count};
  }
  HEADROOM_TRY(add_cost(words, priced, answer));
  if (answer.cost && answer.rows.size() > 1) {
    answer.notes.push_back("costs are of " + answer.rows.front().device.name +
                           " alone, at the price that was given; an hour of another GPU has a "
                           "price of its own: --device NAME beside --smallest has its costs");
  }
  return {};
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
