// `headroom fit` for Megatron-LM: a run that its arguments describe (--from pretrain_gpt.sh), or a
// model that a config.json describes (--engine megatron).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "engines/megatron.h"
#include "fit/setup/setup_file.h"

namespace headroom::cli {

// Of the file of --from; nothing where it is another kind of file, or none.
Result<std::optional<engines::MegatronArguments>> megatron_arguments(
    const Words& words, const std::optional<std::string>& content);

// By a file's arguments, with the flags before them.
Result<int> run_megatron(const Words& words, const Console& console,
                         const engines::MegatronArguments& arguments,
                         const std::vector<fit::EmitRequest>& emits);

// By the engine that --engine names: one setting where --method says it, else the best.
Result<int> run_engine(const Words& words, const Console& console,
                       const std::vector<fit::EmitRequest>& emits);

}  // namespace headroom::cli
