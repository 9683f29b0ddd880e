// A run of Megatron-LM as a question of `fit`: its arguments, read from a file, on so many GPUs;
// and its stages, of which the one that needs most decides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engines/megatron.h"
#include "fit/answer.h"
#include "fit/prediction.h"
#include "fit/question.h"
#include "fit/scenario/scenario.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

// `gpus`: of the whole run; where nobody says, what the file gives torchrun, else as many as hold
// the model once. Settings that were given stay. The Error is about what does not divide.
Result<FitQuestion> megatron_question(FitQuestion question, const engines::MegatronArguments& from,
                                      const std::string& file, std::optional<int64_t> gpus);

// The arguments with what the question was given beside them in their place.
[[nodiscard]] engines::MegatronArguments as_given(const FitQuestion& question,
                                                  engines::MegatronArguments from);

// What the answer lists of such a question, instead of the flags for transformers.
[[nodiscard]] std::vector<Setting> megatron_settings(const FitQuestion& question);

// What its memory figures are to be known with.
[[nodiscard]] std::vector<std::string> megatron_notes(const FitQuestion& question);
// And its times: by which published steps their interval is known.
[[nodiscard]] std::string megatron_time_note(const StepTimer& timer, const Scenario& scenario);

// Parameters of the whole model. The Error is build_megatron_stage's.
Result<int64_t> megatron_parameters(const MegatronSetting& setting);

}  // namespace headroom::fit
