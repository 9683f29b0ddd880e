#include "ops/ops.h"

#include <algorithm>

#include "base/version.h"
#include "cli/deliver.h"
#include "cli/verb.h"
#include "ops/comparison.h"
#include "ops/ranks.h"
#include "report/ops_comparison.h"
#include "report/ops_html.h"
#include "report/ops_json.h"
#include "report/ops_ranks.h"
#include "report/ops_text.h"

namespace headroom::cli {
namespace {

// "5%" and "5" are five percent.
Result<double> percent_of(std::string word, std::string_view flag) {
  if (word.ends_with('%')) word.pop_back();
  return number_of<double>(word, flag, 0.0, 1e6);
}

Result<int> deliver_comparison(const ops::OpsComparison& comparison, const Words& words,
                               const Console& console) {
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::ops_comparison_text(comparison, terminal);
  };
  forms.json = [&] { return report::ops_comparison_json(comparison); };
  HEADROOM_TRY(deliver(forms, words, console));
  if (comparison.verdict == ops::Slowdown::beyond_limit) return kExitNotPlainYes;
  const bool is_partial = comparison.before.is_partial || comparison.after.is_partial;
  return is_partial ? exit_code_of(ErrorCode::partial) : kExitYes;
}

Result<int> deliver_ranks(const Result<ops::RanksAnswer>& answered, const Words& words,
                          const Console& console) {
  if (!answered) return answered.error();
  const ops::RanksAnswer& answer = *answered;
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::ops_ranks_text(answer, terminal);
  };
  forms.json = [&] { return report::ops_ranks_json(answer); };
  HEADROOM_TRY(deliver(forms, words, console));
  const bool is_partial = std::any_of(answer.ranks.begin(), answer.ranks.end(),
                                      [](const ops::RankTimes& rank) { return rank.is_partial; });
  return is_partial ? exit_code_of(ErrorCode::partial) : kExitYes;
}

// Two traces are compared, unless they say that they are ranks of one run.
Result<int> run_two(const ops::OperatorRules& rules, const Words& words, const Console& console) {
  std::optional<double> most;
  if (words.has("max-slowdown")) {
    HEADROOM_ASSIGN(most, percent_of(words.value("max-slowdown"), "max-slowdown"));
  }
  HEADROOM_ASSIGN(const ops::RecordedRun before, ops::read_run(words.operands[0], rules));
  HEADROOM_ASSIGN(const ops::RecordedRun after, ops::read_run(words.operands[1], rules));
  if (!most && ops::are_ranks_of_one_run(before, after)) {
    console.note("these are ranks of one run; --max-slowdown compares them as two runs");
    std::vector<ops::RankSummary> ranks{ops::summary_of(before, rules),
                                        ops::summary_of(after, rules)};
    return deliver_ranks(ops::answer_ranks(std::move(ranks)), words, console);
  }
  return deliver_comparison(ops::compare(before, after, rules, most), words, console);
}

Result<int> run_several(const Words& words, const Console& console) {
  HEADROOM_ASSIGN(const ops::OperatorRules rules, ops::OperatorRules::load(words.value("rules")));
  if (words.has("html")) {
    return Error{ErrorCode::usage, "--html is about one trace", "",
                 "headroom ops TRACE --html FILE; --json takes several"};
  }
  const size_t count = words.operands.size();
  if (count == 2 && !words.has("ranks")) return run_two(rules, words, console);
  if (words.has("max-slowdown")) {
    return Error{ErrorCode::usage, "--max-slowdown compares two traces", "",
                 "headroom ops BEFORE AFTER --max-slowdown 5%"};
  }
  return deliver_ranks(ops::answer_ranks(words.operands, rules), words, console);
}

Result<int> run_ops(const Words& words, const Console& console) {
  if (words.operands.empty()) {
    return Error{
        ErrorCode::usage, "which trace?", "",
        "a file of torch.profiler's export_chrome_trace(), .json or .json.gz, or a profile "
        "of ONNX Runtime"};
  }
  if (words.operands.size() > 1) return run_several(words, console);
  if (words.has("ranks")) {
    return Error{ErrorCode::usage, "--ranks takes the traces of several ranks", "",
                 "headroom ops rank*.json.gz"};
  }
  if (words.has("max-slowdown")) {
    return Error{ErrorCode::usage, "--max-slowdown compares two traces", "",
                 "headroom ops BEFORE AFTER --max-slowdown 5%"};
  }
  ops::OpsQuestion question;
  question.file = words.operands.front();
  question.rules = words.value("rules");
  question.device = words.value("device");
  question.other_device = words.value("other-device");
  HEADROOM_TRY(check_places(words));
  HEADROOM_ASSIGN(const ops::AnsweredRun answered, ops::answer_run(question));
  const ops::OpsAnswer& answer = answered.answer;
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) { return report::ops_text(answer, terminal); };
  forms.json = [&] { return report::ops_json(answer); };
  forms.page = [&] {
    return report::Page{"Time of " + answer.trace.file, "ops", std::string(version()),
                        command_line("ops", words),
                        report::ops_sections(answer, ops::timeline_of(answered.run))};
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.trace.is_partial ? exit_code_of(ErrorCode::partial) : kExitYes;
}

}  // namespace

Verb ops_verb() {
  Verb verb;
  verb.name = "ops";
  verb.summary = "where the time of a recorded run goes";
  verb.operands = "TRACE...";
  verb.most_operands = 100'000;
  verb.examples = {
      {"headroom ops trace.json.gz", "a file of torch.profiler's export_chrome_trace()"},
      {"headroom ops trace.json.gz --json -o ops.json", "all operators and kernels, as JSON"},
      {"headroom ops trace.json.gz --html ops.html",
       "a page with the timeline, what would help, and the roofline"},
      {"headroom ops before.json.gz after.json.gz --max-slowdown 5%",
       "what got slower and why; exit code 1 where a step takes 5 % longer"},
      {"headroom ops rank0.json.gz rank1.json.gz rank2.json.gz",
       "three or more, or two that say so, are ranks of one run: who keeps whom waiting"},
      {"headroom ops onnxruntime_profile.json", "a profile of ONNX Runtime's enable_profiling"},
      {"headroom ops trace.json.gz --rules mine.json",
       "with groups for operators of your own (data/operator_rules.json is an example)"},
  };
  verb.flags = {
      {"rules", "FILE", "rules that sort operators into groups, before the built-in ones"},
      {"device", "NAME", "whose limits operators are held against; else the trace's own device"},
      {"other-device", "NAME", "add to the horizon what the run would take there, by roofline"},
      {"max-slowdown", "PERCENT",
       "of two traces: exit code 1 where the second is slower by more, beyond what steps differ"},
      {"ranks", "", "two traces are ranks of one run, though they do not say so"},
      kJsonFlag,
      kHtmlFlag,
      kOutputFlag,
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.run = run_ops;
  return verb;
}

}  // namespace headroom::cli
