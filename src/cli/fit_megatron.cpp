#include "cli/fit_megatron.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "cli/asking.h"
#include "cli/fit_answers.h"
#include "cli/search_bar.h"
#include "fit/fit.h"
#include "fit/megatron/choice.h"
#include "fit/megatron/file.h"
#include "fit/megatron/question.h"
#include "fit/search/methods.h"

namespace headroom::cli {
namespace {

using Emits = std::vector<fit::EmitRequest>;

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : ", ") + word;
  return line;
}

// Flags of a question that Megatron-LM's runs have as well; others are about transformers.
constexpr std::array<std::string_view, 16> kOfRuns{
    "nodes",      "link",   "calibration", "device",          "batch", "seq",
    "vocab",      "dtype",  "allocator",   "checkpointing",   "torch", "events",
    "placements", "search", "timeline",    "expert-imbalance"};
// And those of them that say a run which a file says else, or a search.
constexpr std::array<std::string_view, 1> kOfFiles{"grad-accum"};
constexpr std::array<std::string_view, 3> kOfModels{"method", "global-batch", "mixed-precision"};

Result<void> check_flags(const Words& words, std::span<const std::string_view> more,
                         const char* with) {
  for (const auto& [flag, value] : words.flags) {
    const bool is_of_question =
        std::ranges::find(fit::question_flags(), flag, &fit::QuestionFlag::name) !=
        fit::question_flags().end();
    if (!is_of_question && flag != "smallest") continue;
    if (std::ranges::find(kOfRuns, flag) != kOfRuns.end()) continue;
    if (std::ranges::find(more, flag) != more.end()) continue;
    return Error{ErrorCode::usage, std::string("does not go with ") + with, "--" + flag,
                 "leave it out"};
  }
  return {};
}

Result<std::optional<int64_t>> gpus_of(const Words& words) {
  if (!words.has("gpus")) return std::optional<int64_t>();
  HEADROOM_ASSIGN(const int64_t gpus,
                  number_of<int64_t>(words.value("gpus"), "gpus", 1, fit::kMostGpus));
  return std::optional(gpus);
}

Result<void> check_recomputation(const fit::FitQuestion& question, const Words& words) {
  if (question.checkpointing.kind != fit::CheckpointingKind::every_n) return {};
  return Error{ErrorCode::usage, "'" + words.value("checkpointing") + "' is not modelled",
               "--checkpointing", "none, selective (attention's core) or full (every layer)"};
}

Result<fit::FitQuestion> question_of_file(const Words& words, const Console& console,
                                          const engines::MegatronArguments& arguments) {
  HEADROOM_TRY(check_flags(words, kOfFiles, "Megatron-LM's arguments"));
  Words named = words;
  named.operands.push_back(words.value("from"));
  HEADROOM_ASSIGN(fit::FitQuestion question, question_of(named, console));
  HEADROOM_TRY(check_recomputation(question, words));
  HEADROOM_ASSIGN(const auto gpus, gpus_of(words));
  return fit::megatron_question(std::move(question), arguments, words.value("from"), gpus);
}

// How a file of one setting is written.
using Emit = std::function<Result<fit::Emitted>(const fit::FitQuestion&, const fit::EmitRequest&)>;

Result<fit::FitAnswer> answer_setting(fit::FitQuestion question, const Words& words,
                                      const Emits& emits, const Emit& emit) {
  for (const fit::EmitRequest& request : emits) {
    HEADROOM_TRY(fit::check_said(question, request.kind));
  }
  if (words.has("html")) question.timeline = true;
  HEADROOM_ASSIGN(fit::FitAnswer answer, fit::answer(question));
  for (const fit::EmitRequest& request : emits) {
    HEADROOM_ASSIGN(fit::Emitted emitted, emit(question, request));
    answer.emitted.push_back(std::move(emitted));
  }
  return answer;
}

// Weights have the type of --dtype, and masters beside them; what is left to look at is FP8.
Result<void> check_precision(const Words& words) {
  if (!words.has("mixed-precision")) return {};
  if (words.value("mixed-precision") != "any") {
    return Error{ErrorCode::usage, "Megatron-LM's weights have the type of --dtype",
                 "--mixed-precision", "any looks at FP8, too; or leave it out"};
  }
  if (!words.has("method")) return {};
  return Error{ErrorCode::usage, "any is for a search, and --method names one setting",
               "--mixed-precision", "leave it out; fp8 is a word of --method: tp:2,dp:4,fp8"};
}

// The model that the words name, without what divides it.
Result<fit::MegatronModel> model_of(const Words& words, const Console& console,
                                    std::optional<int64_t> gpus) {
  HEADROOM_TRY(check_flags(words, kOfModels, "--engine megatron"));
  HEADROOM_TRY(check_precision(words));
  if (words.has("from")) {
    return Error{ErrorCode::usage, "a file of Megatron-LM's arguments names its engine itself",
                 "--from", "leave --engine out, or --from"};
  }
  Words named = words;
  std::erase_if(named.flags, [](const auto& flag) { return flag.first == "method"; });
  HEADROOM_ASSIGN(fit::FitQuestion question, question_of(named, console));
  HEADROOM_TRY(check_recomputation(question, words));
  return fit::megatron_model(std::move(question), gpus);
}

Result<int> run_setting(const Words& words, const Console& console, const Emits& emits) {
  HEADROOM_ASSIGN(const auto gpus, gpus_of(words));
  HEADROOM_ASSIGN(fit::MegatronDivision division, fit::parse_division(words.value("method"), gpus));
  HEADROOM_ASSIGN(const fit::MegatronModel model, model_of(words, console, division.gpus()));
  division.micro_batch = model.question.batch;
  division.recomputation = model.question.checkpointing.kind;
  HEADROOM_ASSIGN(fit::FitQuestion question, fit::setting_question(model, division));
  const Emit emit = [&](const fit::FitQuestion&, const fit::EmitRequest& request) {
    return fit::emit_setting(model, division, request);
  };
  HEADROOM_ASSIGN(fit::FitAnswer answer, answer_setting(std::move(question), words, emits, emit));
  answer.warnings.insert(answer.warnings.end(), model.warnings.begin(), model.warnings.end());
  answer.assumptions.insert(answer.assumptions.end(), model.assumptions.begin(),
                            model.assumptions.end());
  HEADROOM_TRY(add_cost_of(words, answer));
  return deliver_answer(answer, words, console);
}

Result<int> run_search(const Words& words, const Console& console, const Emits& emits) {
  HEADROOM_ASSIGN(const auto gpus, gpus_of(words));
  if (!gpus || !words.has("global-batch")) {
    return Error{
        ErrorCode::usage, "how to divide which step?", "--engine megatron",
        "--gpus 64 --global-batch 256 search all settings; --method tp:4,pp:8,dp:2 is one"};
  }
  for (const char* const flag : {"events", "placements", "search"}) {
    if (!words.has(flag)) continue;
    return Error{ErrorCode::usage, "is of one setting", std::string("--") + flag,
                 "--method tp:4,pp:8, say, names one"};
  }
  for (const fit::EmitRequest& request : emits) {
    fit::FitQuestion any;
    any.megatron.emplace();
    HEADROOM_TRY(fit::check_said(any, request.kind));
  }
  HEADROOM_ASSIGN(fit::MegatronModel model, model_of(words, console, gpus));
  if (words.has("html")) model.question.timeline = true;
  fit::MegatronChoice choice;
  {
    SearchBar bar(console);
    HEADROOM_ASSIGN(choice, fit::choose_megatron(model, *gpus, bar.progress()));
  }
  for (const fit::EmitRequest& request : emits) {
    HEADROOM_ASSIGN(fit::Emitted emitted, fit::emit_setting(model, choice.first, request));
    choice.answer.emitted.push_back(std::move(emitted));
  }
  HEADROOM_TRY(add_cost_of_first(words, choice.answer));
  return deliver_methods(choice.answer, words, console);
}

}  // namespace

Result<std::optional<engines::MegatronArguments>> megatron_arguments(
    const Words& words, const std::optional<std::string>& content) {
  if (!content || !engines::has_megatron_arguments(*content)) {
    return std::optional<engines::MegatronArguments>();
  }
  if (!words.operands.empty()) {
    return Error{ErrorCode::usage, "Megatron-LM's arguments say the model, too", words.operands[0],
                 "leave it out"};
  }
  HEADROOM_ASSIGN(auto arguments, engines::read_megatron_arguments(*content, words.value("from")));
  return std::optional(std::move(arguments));
}

Result<int> run_megatron(const Words& words, const Console& console,
                         const engines::MegatronArguments& arguments,
                         const std::vector<fit::EmitRequest>& emits) {
  HEADROOM_ASSIGN(fit::FitQuestion question, question_of_file(words, console, arguments));
  const Emit emit = [&](const fit::FitQuestion& asked, const fit::EmitRequest& request) {
    return fit::emit_megatron(asked, arguments, request);
  };
  HEADROOM_ASSIGN(fit::FitAnswer answer, answer_setting(std::move(question), words, emits, emit));
  if (!arguments.harmless.empty()) {
    answer.notes.push_back("of no matter here: " + joined(arguments.harmless));
  }
  if (!arguments.unknown.empty()) {
    answer.warnings.push_back("nobody looked at these, which may change memory: " +
                              joined(arguments.unknown));
  }
  if (!arguments.contradictions.empty()) {
    answer.warnings.push_back("said twice, the last one counts: " +
                              joined(arguments.contradictions));
  }
  HEADROOM_TRY(add_cost_of(words, answer));
  return deliver_answer(answer, words, console);
}

Result<int> run_engine(const Words& words, const Console& console,
                       const std::vector<fit::EmitRequest>& emits) {
  if (words.value("engine") != "megatron") {
    return Error{ErrorCode::usage, "'" + words.value("engine").substr(0, 80) + "' is no engine",
                 "--engine", "megatron; without --engine it is PyTorch with transformers"};
  }
  return words.has("method") ? run_setting(words, console, emits)
                             : run_search(words, console, emits);
}

}  // namespace headroom::cli
