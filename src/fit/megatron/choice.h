// `headroom fit MODEL --engine megatron`: a model that a config.json describes, asked of
// Megatron-LM: one setting (--method tp:4,pp:8,...), or which of all among so many GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engines/megatron.h"
#include "fit/megatron/division.h"
#include "fit/megatron/search.h"
#include "fit/question.h"
#include "fit/search/methods.h"
#include "fit/setup/setup_file.h"

namespace headroom::fit {

struct MegatronModel {
  FitQuestion question;              // name, device, machines; nothing divided yet
  engines::MegatronArguments model;  // with the global batch, where it was asked; undivided
  std::vector<std::string> warnings;
  std::vector<std::string> assumptions;
};

// Reads the model that the question names. `gpus`: where they are known; of more than a machine
// has, machines of eight on a stated network are assumed where nobody says how they are joined.
Result<MegatronModel> megatron_model(FitQuestion question, std::optional<int64_t> gpus);

// One setting, for fit::answer() and emit_megatron().
engines::MegatronArguments setting_arguments(const MegatronModel& model,
                                             const MegatronDivision& division);
Result<FitQuestion> setting_question(const MegatronModel& model, const MegatronDivision& division);

// `--emit megatron=FILE` of it: read with --from, the same setting.
Result<Emitted> emit_setting(const MegatronModel& model, const MegatronDivision& division,
                             const EmitRequest& request);

struct MegatronChoice {
  MethodsAnswer answer;
  MegatronDivision first;  // the setting of the first row
};

// The fastest setting that fits first, then the frontier, then what is faster and does not fit.
// Each row is what fit::answer() says of that setting alone. The Error is about a global batch or
// a device that no setting can be asked of.
Result<MegatronChoice> choose_megatron(const MegatronModel& model, int64_t gpus,
                                       const SearchProgress& progress = {});

}  // namespace headroom::fit
