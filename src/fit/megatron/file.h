// `--emit megatron=FILE`: a run of Megatron-LM as a script of its arguments, with torchrun's or
// Slurm's command.
#pragma once

#include <string>

#include "base/result.h"
#include "engines/megatron.h"
#include "fit/answer.h"
#include "fit/question.h"
#include "fit/setup/setup_file.h"

namespace headroom::fit {

// Writes the file. `question` is megatron_question()'s of `from`; other arguments of `from` are
// handed on, and those whose values it does not say are in Emitted::by_hand. The Error is about
// another kind of file, and about what Megatron-LM refuses.
Result<Emitted> emit_megatron(const FitQuestion& question, const engines::MegatronArguments& from,
                              const EmitRequest& request);

}  // namespace headroom::fit
