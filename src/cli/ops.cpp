#include "ops/ops.h"

#include <algorithm>

#include "base/version.h"
#include "cli/deliver.h"
#include "cli/ops_model.h"
#include "cli/verb.h"
#include "model/onnx_file.h"
#include "ops/comparison.h"
#include "ops/ranks.h"
#include "report/ops/comparison.h"
#include "report/ops/comparison_html.h"
#include "report/ops/html.h"
#include "report/ops/json.h"
#include "report/ops/ranks.h"
#include "report/ops/ranks_html.h"
#include "report/ops/text.h"

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
  forms.page = [&] {
    return report::Page{"Time of " + comparison.before.file + " and " + comparison.after.file,
                        "ops", std::string(version()), command_line("ops", words),
                        report::ops_comparison_sections(comparison)};
  };
  HEADROOM_TRY(deliver(forms, words, console));
  const bool is_partial = comparison.before.is_partial || comparison.after.is_partial;
  if (is_partial) return exit_code_of(ErrorCode::partial);
  return comparison.verdict == ops::Slowdown::beyond_limit ? kExitNotPlainYes : kExitYes;
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
  forms.page = [&] {
    return report::Page{"Time of " + std::to_string(answer.ranks.size()) + " ranks", "ops",
                        std::string(version()), command_line("ops", words),
                        report::ops_ranks_sections(answer)};
  };
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
  for (const char* const flag : {"device", "calibration", "faster", "other-device",
                                 "execution-trace", "capture", "counters"}) {
    if (words.has(flag)) {
      return Error{ErrorCode::usage, "--" + std::string(flag) + " is about one trace", "",
                   "leave it out, or give one trace"};
    }
  }
  HEADROOM_TRY(check_places(words));
  HEADROOM_ASSIGN(const ops::OperatorRules rules, ops::OperatorRules::load(words.value("rules")));
  const size_t count = words.operands.size();
  if (count == 2 && !words.has("ranks")) return run_two(rules, words, console);
  if (words.has("max-slowdown")) {
    return Error{ErrorCode::usage, "--max-slowdown compares two traces", "",
                 "headroom ops BEFORE AFTER --max-slowdown 5%"};
  }
  return deliver_ranks(ops::answer_ranks(words.operands, rules), words, console);
}

// Flags that ask for what the others do not answer.
Result<void> check_together(const Words& words) {
  for (const char* const flag : {"phase", "batch", "seq", "dim", "dtype", "quantize", "fuse"}) {
    if (words.has(flag) && !words.has("model")) {
      return Error{ErrorCode::usage, "--" + std::string(flag) + " goes with --model", "", ""};
    }
  }
  for (const char* const flag : {"max-slowdown", "ranks", "faster", "other-device", "rules",
                                 "execution-trace", "capture", "counters"}) {
    if (words.has(flag) && words.has("model")) {
      return Error{ErrorCode::usage, "--" + std::string(flag) + " is about traces", "",
                   "leave it or --model out"};
    }
  }
  return {};
}

Result<int> run_one(const Words& words, const Console& console) {
  if (words.has("ranks")) {
    return Error{ErrorCode::usage, "--ranks takes the traces of several ranks", "",
                 "headroom ops rank*.json.gz"};
  }
  if (words.has("max-slowdown")) {
    return Error{ErrorCode::usage, "--max-slowdown compares two traces", "",
                 "headroom ops BEFORE AFTER --max-slowdown 5%"};
  }
  if (words.has("faster") && words.value("faster").empty()) {
    return Error{ErrorCode::usage, "names no group", "--faster", "gemm=4, or gemm=4,attention=2"};
  }
  ops::OpsQuestion question;
  question.file = words.operands.front();
  question.rules = words.value("rules");
  question.device = words.value("device");
  question.other_device = words.value("other-device");
  question.execution_trace = words.value("execution-trace");
  question.faster = words.value("faster");
  question.capture = words.value("capture");
  question.counters = words.value("counters");
  question.calibration = words.value("calibration");
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

Result<int> run_ops(const Words& words, const Console& console) {
  HEADROOM_TRY(check_together(words));
  if (words.has("model")) return run_ops_model(words, console);
  if (words.operands.empty()) {
    return Error{
        ErrorCode::usage, "which trace?", "",
        "a file of torch.profiler's export_chrome_trace(), .json or .json.gz, a profile of ONNX "
        "Runtime, an export of Nsight Systems (.sqlite), rocprofv3's JSON or rocpd, or Chakra's "
        ".et"};
  }
  if (model::is_onnx_name(words.operands.front())) {
    return Error{
        ErrorCode::usage, "is a model, no trace", words.operands.front(),
        "headroom ops --model FILE.onnx --device NAME, or ONNX Runtime's profile of a run"};
  }
  return words.operands.size() > 1 ? run_several(words, console) : run_one(words, console);
}

std::vector<Example> examples() {
  return {
      {"headroom ops trace.json.gz", "a file of torch.profiler's export_chrome_trace()"},
      {"headroom ops trace.json.gz --json -o ops.json", "all operators and kernels, as JSON"},
      {"headroom ops trace.json.gz --html ops.html",
       "a page with the timeline, what would help, and the roofline"},
      {"headroom ops before.json.gz after.json.gz --max-slowdown 5%",
       "what got slower and why; exit code 1 where a step takes 5 % longer"},
      {"headroom ops rank0.json.gz rank1.json.gz rank2.json.gz",
       "three or more, or two that say so, are ranks of one run: who keeps whom waiting"},
      {"headroom ops onnxruntime_profile.json", "a profile of ONNX Runtime's enable_profiling"},
      {"headroom ops report.sqlite",
       "of `nsys export --type sqlite`; rocprofv3's rocpd or JSON too"},
      {"headroom ops trace.et",
       "of Chakra's converter: kernel time alone, as it has no times of start"},
      {"headroom ops decode.json.gz --capture capture.json.gz",
       "kernels in graphs with the operators that launched them when the graph was captured"},
      {"headroom ops trace.json.gz --counters ncu.csv",
       "with what Nsight Compute counted of the same kernels"},
      {"headroom ops --model meta-llama/Llama-2-7b-hf --device h100-sxm-80gb --batch 8 --seq 1024",
       "no trace: a decode step predicted, with intervals"},
      {"headroom ops --model train.py:build --device h100-sxm-80gb --phase train",
       "a training step of any module, by the operators that it makes"},
      {"headroom ops --model model.onnx --device h100-sxm-80gb --quantize int8 --fuse",
       "one run of an ONNX graph, and what quantization and fusion change"},
      {"headroom ops trace.json.gz --rules mine.json",
       "with groups for operators of your own (docs/formats/operator_rules.md has the form)"},
  };
}

std::vector<Flag> trace_flags() {
  return {
      {"rules", "FILE", "rules that sort operators into groups, before the built-in ones"},
      {"device", "NAME", "whose limits operators are held against; else the trace's own device"},
      {"faster", "GROUP=TIMES,..",
       "add to the horizon what the run would take with groups so many times faster: "
       "gemm=4,attention=2 (non_gemm: all but GEMM, attention, communication, unclassified)"},
      {"other-device", "NAME", "add to the horizon what the run would take there, by roofline"},
      {"execution-trace", "FILE",
       "of PyTorch's ExecutionTraceObserver, or Chakra's .et of it, of the same run: shapes that "
       "the "
       "trace lacks"},
      {"capture", "FILE",
       "a profiler's trace of the capture of its CUDA or HIP graphs: operators and shapes of their "
       "kernels"},
      {"counters", "FILE", "of ncu --csv: what the trace's kernels reached, as hardware counts it"},
      {"max-slowdown", "PERCENT",
       "of two traces: exit code 1 where the second is slower by more, beyond what steps differ"}};
}

}  // namespace

Verb ops_verb() {
  Verb verb;
  verb.name = "ops";
  verb.summary = "where the time of a recorded run goes, or of a step that is predicted";
  verb.operands = "TRACE...";
  verb.most_operands = 100'000;
  verb.examples = examples();
  verb.flags = trace_flags();
  for (const Flag& flag : ops_model_flags()) verb.flags.push_back(flag);
  for (const Flag& flag :
       {Flag{"ranks", "", "two traces are ranks of one run, though they do not say so"}, kJsonFlag,
        kHtmlFlag, kOutputFlag, kQuietFlag, kNoColorFlag, kHelpFlag}) {
    verb.flags.push_back(flag);
  }
  verb.run = run_ops;
  return verb;
}

}  // namespace headroom::cli
