#include "report/models.h"

#include "cli/deliver.h"
#include "cli/verb.h"
#include "model/builtin.h"
#include "model/families/family.h"

namespace headroom::cli {
namespace {

Result<int> run_models(const Words& words, const Console& console) {
  std::span<const model::BuiltinModel> shown = model::builtin_models();
  if (!words.operands.empty()) {
    HEADROOM_ASSIGN(const model::BuiltinModel* found, model::find_builtin(words.operands.front()));
    shown = {found, 1};
  }
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return words.operands.empty() ? report::models_text(shown, model::families(), terminal)
                                  : report::model_text(shown.front(), model::families(), terminal);
  };
  forms.json = [&] { return report::models_json(shown, model::families()); };
  HEADROOM_TRY(deliver(forms, words, console));
  return kExitYes;
}

}  // namespace

Verb models_verb() {
  Verb verb;
  verb.name = "models";
  verb.summary = "the models that are known by name, and the families";
  verb.operands = "[NAME]";
  verb.most_operands = 1;
  verb.examples = {
      {"headroom models", "one line each, and the families of any config.json"},
      {"headroom models mistralai/Mistral-7B-v0.1", "one of them, with its configuration"},
      {"headroom models --json", "one JSON object, for programs"},
  };
  verb.flags = {kJsonFlag, kOutputFlag, kQuietFlag, kNoColorFlag, kHelpFlag};
  verb.run = run_models;
  return verb;
}

}  // namespace headroom::cli
