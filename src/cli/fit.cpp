#include "fit/fit.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/asking.h"
#include "cli/deliver.h"
#include "cli/fit_answers.h"
#include "cli/fit_megatron.h"
#include "cli/search_bar.h"
#include "cli/verb.h"
#include "device/price.h"
#include "fit/search/methods.h"
#include "fit/search/network.h"
#include "fit/search/smallest.h"
#include "fit/setup/as_written.h"
#include "fit/setup/setup_file.h"
#include "model/builtin.h"
#include "report/fit/html.h"
#include "report/fit/json.h"
#include "report/fit/smallest.h"
#include "report/fit/text.h"
#include "text/gzip.h"

namespace headroom::cli {
namespace {

using Emits = std::vector<fit::EmitRequest>;

Result<int> run_against(const Words& words, const Console& console) {
  if (!words.operands.empty()) {
    return Error{ErrorCode::usage, "--against takes its models from the file", words.operands[0],
                 "leave the model out"};
  }
  for (const auto& [flag, value] : words.flags) {
    const bool is_of_a_question =
        flag == "gpus" || flag == "from" || flag == "emit" || flag == "price" ||
        flag == "epoch-tokens" || flag == "smallest" || flag == "engine" ||
        std::ranges::find(fit::question_flags(), flag, &fit::QuestionFlag::name) !=
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

// Nothing without --from.
Result<std::optional<std::string>> setup_content(const Words& words) {
  if (!words.has("from")) return std::optional<std::string>();
  HEADROOM_ASSIGN(std::string content, text::read_input(words.value("from"), fit::kMostSetup));
  return std::optional(std::move(content));
}

// A folder of the machine that trains, and not of this one.
bool is_missing_path(const std::string& model) {
  const bool is_path = model.starts_with('/') || model.starts_with('.') || model.starts_with('~');
  std::error_code ignored;
  return is_path && !std::filesystem::exists(model, ignored);
}

// What a file says of the setting; the model, too, if nobody else does.
Result<fit::SetupFlags> read_setup(const std::optional<std::string>& content, Words& words) {
  if (!content) return fit::SetupFlags();
  const std::string file = words.value("from");
  fit::BesideSetup beside{.method = words.value("method"), .gpus = std::nullopt, .read = {}};
  if (words.has("gpus")) {
    HEADROOM_ASSIGN(beside.gpus,
                    number_of<int64_t>(words.value("gpus"), "gpus", 1, fit::kMostGpus));
  }
  HEADROOM_ASSIGN(fit::SetupFlags setup, fit::flags_of_setup(*content, file, beside));
  if (words.operands.empty() && setup.model.empty()) {
    return Error{ErrorCode::usage, "says no model", "--from " + file,
                 "name one before it; a file of Megatron-LM's arguments has --num-layers and "
                 "--hidden-size, one of the Trainer's may have model_name_or_path"};
  }
  if (words.operands.empty() && is_missing_path(setup.model)) {
    return Error{ErrorCode::bad_input, "its model is " + setup.model + ", which is not here",
                 "--from " + file, "name it before the file: headroom fit MODEL --from " + file};
  }
  if (words.operands.empty()) words.operands.push_back(setup.model);
  return setup;
}

// Under the flags that were given.
Result<void> apply_setup(const Words& words, const fit::SetupFlags& setup,
                         fit::FitQuestion& question) {
  for (const auto& [name, value] : setup.flags) {
    if (name == "method" || !words.has(name)) HEADROOM_TRY(question.set(name, value));
  }
  return {};
}

// The question of one setting as it was answered: the model's own configuration may say the type.
Result<fit::FitQuestion> as_answered(fit::FitQuestion answered, int64_t devices,
                                     const std::string& dtype) {
  fit::assume_machines(devices, answered);
  fit::FitQuestion typed;  // so that nobody is said to have given it
  if (!dtype.empty()) HEADROOM_TRY(typed.set("dtype", dtype));
  answered.dtype = typed.dtype;
  return answered;
}

// The question that a row is of; `plain` says the type where the model's configuration does.
fit::FitQuestion question_of_row(const fit::FitQuestion& plain, const fit::MethodRow& row) {
  fit::FitQuestion asked = row.question;
  if (!row.precision) asked.dtype = plain.dtype;
  asked.grad_accum = row.grad_accum;  // a pipeline's own, where nobody said how many
  return asked;
}

// What would be said beside a file of the setting that a search chose: what was given, and how
// large the step is and of which type, which a training script says that knows of no file.
fit::FitQuestion beside_file(const fit::FitQuestion& given, const fit::FitQuestion& chosen) {
  fit::FitQuestion beside = given;
  beside.batch = chosen.batch;
  beside.grad_accum = chosen.grad_accum;
  beside.global_batch.reset();
  beside.any_precision = false;
  beside.dtype = chosen.dtype;
  beside.mixed_precision = chosen.mixed_precision;
  beside.kbit_preparation = chosen.kbit_preparation;
  return beside;
}

// The setting of the first row that a file can say, as a file for an engine; of the first, where
// none can, to be told why.
Result<void> emit_choice(const fit::FitQuestion& question, int64_t gpus,
                         const fit::EmitRequest& request, fit::MethodsAnswer& answer) {
  HEADROOM_ASSIGN(fit::FitQuestion searched, fit::with_accumulation_of_a_search(question, gpus));
  HEADROOM_ASSIGN(const fit::FitQuestion plain,
                  as_answered(std::move(searched), gpus, answer.dtype));
  std::optional<fit::FitQuestion> chosen;
  std::string why;  // of the first none can be written
  for (const fit::MethodRow& row : answer.rows) {
    if (!row.reason.empty()) break;
    const fit::FitQuestion asked = question_of_row(plain, row);
    const auto said = fit::check_said(asked, request.kind);
    if (said || !chosen) chosen = asked;
    if (!said) {
      if (&row == &answer.rows.front()) why = said.error().message;
      continue;
    }
    if (&row != &answer.rows.front()) {
      answer.notes.push_back(
          request.file + " is of " + row.flags + ", the first in order that such a file says" +
          (row.verdict == fit::Verdict::yes ? "" : "; it does not fit for sure") + "; not of " +
          answer.rows.front().flags + ": " + why);
    }
    break;
  }
  if (!chosen) return {};
  HEADROOM_ASSIGN(fit::Emitted emitted, fit::emit_setup(*chosen, request));
  fit::predict_written(*chosen, beside_file(plain, *chosen), emitted);
  answer.emitted.push_back(std::move(emitted));
  return {};
}

// Each file; none, where one of them cannot say the setting.
Result<void> emit_answered(const fit::FitQuestion& question, const Emits& emits,
                           fit::FitAnswer& answer) {
  if (emits.empty()) return {};
  HEADROOM_ASSIGN(fit::FitQuestion accumulated,
                  fit::with_accumulation(question, fit::data_ranks_of(question)));
  HEADROOM_ASSIGN(const fit::FitQuestion answered,
                  as_answered(std::move(accumulated), fit::devices_of(question),
                              fit::setting_of(answer.settings, "dtype")));
  for (const fit::EmitRequest& request : emits) {
    HEADROOM_TRY(fit::check_said(answered, request.kind));
  }
  for (const fit::EmitRequest& request : emits) {
    HEADROOM_ASSIGN(fit::Emitted emitted, fit::emit_setup(answered, request));
    fit::predict_written(answered, answered, emitted);
    answer.emitted.push_back(std::move(emitted));
  }
  return {};
}

// Which way to divide the step among so many devices.
Result<int> run_methods(const fit::FitQuestion& question, const Words& words,
                        const Console& console, const Emits& emits) {
  HEADROOM_ASSIGN(const int64_t gpus,
                  number_of<int64_t>(words.value("gpus"), "gpus", 2, fit::kMostGpus));
  for (const char* const flag : {"events", "placements"}) {
    if (!words.has(flag)) continue;
    return Error{ErrorCode::usage, "is of one method", std::string("--") + flag,
                 "--method ddp:8, say, in place of --gpus"};
  }
  fit::MethodsAnswer answer;
  {
    SearchBar bar(console);
    HEADROOM_ASSIGN(answer, fit::choose_method(question, gpus, bar.progress()));
  }
  for (const fit::EmitRequest& request : emits) {
    HEADROOM_TRY(emit_choice(question, gpus, request, answer));
  }
  HEADROOM_TRY(add_cost_of_first(words, answer));
  return deliver_methods(answer, words, console);
}

// The least hardware that does it: of every known device, or of the one that was named.
Result<int> run_smallest(const fit::FitQuestion& question, const Words& words,
                         const Console& console) {
  if (fit::is_divided(question)) {
    return Error{ErrorCode::usage, "--method says already how the step is divided", "--smallest",
                 "leave one of them out"};
  }
  for (const char* const flag : {"events", "placements", "emit"}) {
    if (!words.has(flag)) continue;
    return Error{ErrorCode::usage, "is of one answer, and --smallest looks for it",
                 std::string("--") + flag, "ask again with the --device and --gpus it names"};
  }
  if (question.nodes > 1 || !question.link.empty()) {
    return Error{ErrorCode::usage, "--smallest looks within one machine",
                 question.nodes > 1 ? "--nodes" : "--link",
                 "leave it out; --gpus N without --smallest divides among machines"};
  }
  if (model::is_python_function(question.model) && !words.has("device")) {
    return Error{ErrorCode::usage, "each device would be a run of " + question.model, "--smallest",
                 "name one: --device a100-sxm-80gb, say"};
  }
  int64_t most = fit::kMostOfAMachine;
  if (words.has("gpus")) {
    HEADROOM_ASSIGN(most, number_of<int64_t>(words.value("gpus"), "gpus", 1, fit::kMostGpus));
  }
  std::optional<std::string> only;
  if (words.has("device")) only = question.device;
  fit::SmallestAnswer answer;
  {
    SearchBar bar(console);
    HEADROOM_ASSIGN(answer, fit::find_smallest(question, most, only, bar.progress()));
  }
  HEADROOM_TRY(add_cost_of_least(words, answer));
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::smallest_text(answer, terminal);
  };
  forms.json = [&] { return report::smallest_json(answer); };
  forms.page = [&] {
    return page_of("The least for " + answer.model, report::smallest_sections(answer), words);
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return answer.rows.empty() ? kExitNotPlainYes : kExitYes;
}

// As many GPUs as a file or --method says that the step is divided among.
Result<void> check_as_many(const Words& words, int64_t devices) {
  HEADROOM_ASSIGN(const int64_t gpus,
                  number_of<int64_t>(words.value("gpus"), "gpus", 1, fit::kMostGpus));
  if (gpus == devices) return {};
  const bool by_method = words.has("method");
  return Error{
      ErrorCode::usage,
      (by_method ? "--method divides the step among " : "the file divides the step among ") +
          std::to_string(devices),
      "--gpus " + words.value("gpus"),
      std::string("leave --gpus out, or ") + (by_method ? "what divides it" : "--from") +
          ", to see every way among so many"};
}

// Flags that say nothing without another.
Result<void> check_companions(const Words& words) {
  if (words.has("save-calibration")) {
    return Error{ErrorCode::usage, "a calibration is learned from measurements",
                 "--save-calibration", "name them: --against FILE.csv"};
  }
  if (words.has("epoch-tokens") && !words.has("price")) {
    return Error{ErrorCode::usage, "is for what an epoch costs", "--epoch-tokens",
                 "add --price 2.10/gpu-hour, say"};
  }
  return {};
}

Result<int> run_fit(const Words& words, const Console& console) {
  HEADROOM_TRY(check_places(words));
  if (words.has("price")) HEADROOM_TRY(device::parse_price(words.value("price")));
  if (words.has("against")) return run_against(words, console);
  HEADROOM_TRY(check_companions(words));
  HEADROOM_ASSIGN(const auto content, setup_content(words));
  HEADROOM_ASSIGN(const Emits emits, fit::parse_emits(words.values("emit"), words.value("from")));
  if (words.has("engine")) return run_engine(words, console, emits);
  HEADROOM_ASSIGN(const auto megatron, megatron_arguments(words, content));
  if (megatron) return run_megatron(words, console, *megatron, emits);
  Words asked = words;
  HEADROOM_ASSIGN(const fit::SetupFlags setup, read_setup(content, asked));
  for (const std::string& note : setup.notes) console.note(note);
  // Every device is tried; none is to be taken for granted.
  const bool tries_all = words.has("smallest") && !words.has("device");
  if (tries_all) asked.flags.emplace_back("device", "auto");
  HEADROOM_ASSIGN(fit::FitQuestion question, question_of(asked, console));
  HEADROOM_TRY(apply_setup(words, setup, question));
  if (words.has("html")) question.timeline = true;
  if (words.has("smallest")) return run_smallest(question, words, console);
  if (words.has("gpus")) {
    if (!fit::is_divided(question)) return run_methods(question, words, console, emits);
    HEADROOM_TRY(check_as_many(words, fit::devices_of(question)));
  }
  // What is not shown is not searched.
  if (!words.has("html") && !words.has("json")) question.remedy_batches = report::kMostRemedies;
  HEADROOM_ASSIGN(fit::FitAnswer answer, fit::answer(question));
  HEADROOM_TRY(emit_answered(question, emits, answer));
  HEADROOM_TRY(add_cost_of(words, answer));
  return deliver_answer(answer, words, console);
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
      {"headroom fit meta-llama/Llama-2-7b-hf --device h100-sxm-80gb --gpus 8 --emit accelerate",
       "and accelerate.yaml with the choice, ready to launch"},
      {"headroom fit meta-llama/Llama-2-7b-hf --device h100-sxm-80gb --from ds_config.json",
       "will it fit as this file of DeepSpeed's, or of accelerate's, divides it?"},
      {"headroom fit --from sft.yaml --device a100-sxm-80gb",
       "will this fine-tuning fit, by its Trainer's arguments, LLaMA-Factory's or axolotl's"},
      {"headroom fit --from pretrain_gpt.sh --device h100-sxm-80gb --gpus 64",
       "a run of Megatron-LM, model and all, stage by stage"},
      {"headroom fit meta-llama/Llama-3.1-8B --engine megatron --device h100-sxm-80gb --gpus 16 "
       "--global-batch 128 --seq 8192 --emit megatron=pretrain.sh",
       "the settings of Megatron-LM that a model is fastest with, as a script"},
      {"headroom fit --from pretrain_gpt.sh --gpus 128 --checkpointing full --emit "
       "megatron=full.sh",
       "and the same run with other settings, as a script"},
      {"headroom fit meta-llama/Llama-2-7b-hf --device h100-sxm-80gb --gpus 8 --price "
       "2.10/gpu-hour,owned=30000",
       "what a billion tokens cost, rented and owned"},
      {"headroom fit meta-llama/Llama-2-7b-hf --seq 4096 --smallest",
       "the least hardware that does it"},
      {"headroom fit train.py:build --device rtx-4090 --batch 8",
       "a module of your own: build() returns it, its inputs and a loss function"},
      {"headroom fit openai-community/gpt2 --batch 16 --json", "one JSON object, for programs"},
      {"headroom fit openai-community/gpt2 --html gpt2.html", "a page with memory over the step"},
      {"headroom fit openai-community/gpt2 --batch 8 --placements step.csv",
       "a plan of this step; headroom pack step.csv --alignment 512 holds it against allocators"},
  };
  verb.flags = question_and(
      {{"gpus", "N",
        "every way to divide the step among N GPUs, and the one to begin with; where --method or a "
        "file divides it, that way alone"},
       {"engine", "NAME",
        "megatron: Megatron-LM runs the model; --method says one setting (tp:4,pp:8,vpp:2,cp:2,"
        "ep:8,etp:1,dp:2,distopt,fp8), else all are searched, with --mixed-precision any in FP8, "
        "too"},
       {"smallest", "",
        "the least hardware that does it: of every known GPU, or of --device, up to --gpus of it "
        "in a machine (8)"},
       {"from", "FILE",
        "the setting of accelerate's YAML, DeepSpeed's JSON, torchtitan's command, the Trainer's "
        "arguments (JSON, YAML or a script), LLaMA-Factory's or axolotl's YAML, flags come before "
        "it; or, without a MODEL, Megatron-LM's arguments"},
       {"price", "LIST",
        "what a billion tokens cost: 2.10/gpu-hour (rented), owned=30000 (one GPU with its share "
        "of the machine), years=4, watts=1000 and kwh=0.15, busy=0.6"},
       {"epoch-tokens", "N", "with --price: and what an epoch of so many tokens costs and takes"},
       {"emit", "KIND=FILE",
        "write the setting, or the one to begin with: accelerate, deepspeed, torchtitan; "
        "megatron. More than once for several",
        0, true},
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
