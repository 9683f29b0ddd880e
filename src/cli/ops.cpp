#include "ops/ops.h"

#include "cli/deliver.h"
#include "cli/verb.h"
#include "report/ops_json.h"
#include "report/ops_text.h"

namespace headroom::cli {
namespace {

Result<int> run_ops(const Words& words, const Console& console) {
  if (words.operands.empty()) {
    return Error{ErrorCode::usage, "which trace?", "",
                 "a file of torch.profiler's export_chrome_trace(), .json or .json.gz"};
  }
  ops::OpsQuestion question;
  question.file = words.operands.front();
  question.rules = words.value("rules");
  HEADROOM_ASSIGN(const ops::OpsAnswer answer, ops::answer(question));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) { return report::ops_text(answer, terminal); };
  forms.json = [&] { return report::ops_json(answer); };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.trace.is_partial ? exit_code_of(ErrorCode::partial) : kExitYes;
}

}  // namespace

Verb ops_verb() {
  Verb verb;
  verb.name = "ops";
  verb.summary = "where the time of a recorded run goes";
  verb.operands = "TRACE";
  verb.most_operands = 1;
  verb.examples = {
      {"headroom ops trace.json.gz", "a file of torch.profiler's export_chrome_trace()"},
      {"headroom ops trace.json.gz --json -o ops.json", "all operators and kernels, as JSON"},
      {"headroom ops trace.json.gz --rules mine.json",
       "with groups for operators of your own (data/operator_rules.json is an example)"},
  };
  verb.flags = {
      {"rules", "FILE", "rules that sort operators into groups, before the built-in ones"},
      kJsonFlag,
      kOutputFlag,
      kQuietFlag,
      kNoColorFlag,
      kHelpFlag};
  verb.run = run_ops;
  return verb;
}

}  // namespace headroom::cli
