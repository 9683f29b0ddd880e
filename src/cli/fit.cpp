#include "fit/fit.h"

#include <algorithm>

#include "base/version.h"
#include "cli/asking.h"
#include "cli/deliver.h"
#include "cli/verb.h"
#include "fit/methods.h"
#include "report/fit_html.h"
#include "report/fit_json.h"
#include "report/fit_methods.h"
#include "report/fit_text.h"

namespace headroom::cli {
namespace {

report::Page page_of(std::string title, std::vector<report::Section> sections, const Words& words) {
  return {std::move(title), "fit", std::string(version()), command_line("fit", words),
          std::move(sections)};
}

Result<int> run_against(const Words& words, const Console& console) {
  if (!words.operands.empty()) {
    return Error{ErrorCode::usage, "--against takes its models from the file", words.operands[0],
                 "leave the model out"};
  }
  for (const auto& [flag, value] : words.flags) {
    const bool is_of_a_question = flag == "gpus" || std::ranges::find(fit::question_flags(), flag,
                                                                      &fit::QuestionFlag::name) !=
                                                        fit::question_flags().end();
    if (!is_of_a_question || flag == "calibration") continue;
    return Error{ErrorCode::usage, "--against takes its settings from the file", "--" + flag,
                 "leave it out"};
  }
  fit::AgainstQuestion question;
  question.file = words.value("against");
  question.calibration = words.value("calibration");
  question.save_calibration = words.value("save-calibration");
  HEADROOM_ASSIGN(const fit::AgainstAnswer answer, fit::answer_against(question));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::against_text(answer, terminal);
  };
  forms.json = [&] { return report::against_json(answer); };
  forms.page = [&] {
    return page_of("Predictions held against " + answer.file, report::against_sections(answer),
                   words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return kExitYes;
}

// Which way to divide the step among so many devices.
Result<int> run_methods(const fit::FitQuestion& question, const Words& words,
                        const Console& console) {
  HEADROOM_ASSIGN(const int64_t gpus,
                  number_of<int64_t>(words.value("gpus"), "gpus", 2, fit::kMostGpus));
  if (question.division != fit::Division::none) {
    return Error{ErrorCode::usage, "--method says already how the step is divided", "--gpus",
                 "leave one of them out"};
  }
  for (const char* const flag : {"events", "placements"}) {
    if (!words.has(flag)) continue;
    return Error{ErrorCode::usage, "is of one method", std::string("--") + flag,
                 "--method ddp:8, say, in place of --gpus"};
  }
  HEADROOM_ASSIGN(const fit::MethodsAnswer answer, fit::choose_method(question, gpus));
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

Result<int> run_fit(const Words& words, const Console& console) {
  HEADROOM_TRY(check_places(words));
  if (words.has("against")) return run_against(words, console);
  if (words.has("save-calibration")) {
    return Error{ErrorCode::usage, "a calibration is learned from measurements",
                 "--save-calibration", "name them: --against FILE.csv"};
  }
  HEADROOM_ASSIGN(fit::FitQuestion question, question_of(words, console));
  if (words.has("gpus")) return run_methods(question, words, console);
  if (words.has("html")) question.timeline = true;
  // What is not shown is not searched.
  if (!words.has("html") && !words.has("json")) question.remedy_batches = report::kMostRemedies;
  HEADROOM_ASSIGN(const fit::FitAnswer answer, fit::answer(question));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) { return report::fit_text(answer, terminal); };
  forms.json = [&] { return report::fit_json(answer); };
  forms.page = [&] {
    return page_of("Will " + answer.model + " fit?", report::fit_sections(answer), words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.verdict == fit::Verdict::yes ? kExitYes : kExitNotPlainYes;
}

}  // namespace

Verb fit_verb() {
  Verb verb;
  verb.name = "fit";
  verb.summary = "will this training step fit, with how much room, and what to change";
  verb.operands = "MODEL";
  verb.most_operands = 1;
  verb.examples = {
      {"headroom fit mistralai/Mistral-7B-v0.1 --device a100-sxm-80gb --batch 4 --seq 4096",
       "full fine-tuning in bf16 with AdamW"},
      {"headroom fit mistralai/Mistral-7B-v0.1 --device rtx-4090 --method qlora --checkpointing "
       "full",
       "the same model on a smaller GPU"},
      {"headroom fit meta-llama/Llama-2-7b-hf --device h100-sxm-80gb --gpus 8 --seq 4096",
       "which way to divide it among eight GPUs: DDP, ZeRO, FSDP2, with and without recomputation"},
      {"headroom fit train.py:build --device rtx-4090 --batch 8",
       "a module of your own: build() returns it, its inputs and a loss function"},
      {"headroom fit openai-community/gpt2 --batch 16 --json", "one JSON object, for programs"},
      {"headroom fit openai-community/gpt2 --html gpt2.html", "a page with memory over the step"},
      {"headroom fit openai-community/gpt2 --batch 8 --placements step.csv",
       "a plan of this step; headroom pack step.csv --alignment 512 holds it against allocators"},
  };
  verb.flags = question_and(
      {{"gpus", "N", "every way to divide the step among N GPUs, and the one to begin with"},
       {"against", "FILE.csv", "no MODEL: hold predictions against these measurements"},
       {"save-calibration", "FILE", "with --against: keep the correction that was learned"},
       kJsonFlag,
       kHtmlFlag,
       kOutputFlag,
       kQuietFlag,
       kNoColorFlag,
       kHelpFlag});
  verb.run = run_fit;
  return verb;
}

}  // namespace headroom::cli
