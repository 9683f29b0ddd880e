// torchtitan's settings (0.3.0) as people have them: a shell script that starts `torchtitan.train`
// with --module and --config, of torchtitan's own registry, and what is said beside them.
//
// A script is not run (shell_words.h). What a configuration of the registry says is known for those
// whose step is modelled; others, and what changes memory and is not modelled (expert parallelism,
// a loss in chunks beside a pipeline), are an Error. Which of torchtitan's own
// parts are taken as others is in the setup's notes: layers and attention.
// --training.enable_cpu_offload is fully_shard's CPUOffloadPolicy of every unit: parameters,
// gradients and the optimizer's states are the host's, and gradients are clipped there.
//
// Sources: torchtitan/config/{manager,configs}.py, trainer.py, models/{llama3,qwen3}/
// config_registry.py, distributed/{fsdp,activation_checkpoint}.py, components/{loss,optimizer}.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engines/training_setup.h"

namespace headroom::engines {

// Whether a text is such a script.
[[nodiscard]] bool is_torchtitan_script(std::string_view content);

// `gpus`: of the whole run, where the script does not say it to torchrun.
Result<TrainingSetup> read_torchtitan(std::string_view content, const std::string& file,
                                      std::optional<int64_t> gpus);

// REQUIRES: fsdp2. The Error names models that torchtitan has a configuration of, or says what of a
// pipeline it has no words for.
Result<std::string> torchtitan_script(const TrainingSetup& setup);
// What starts it.
[[nodiscard]] std::string torchtitan_line(const TrainingSetup& setup, const std::string& file);

}  // namespace headroom::engines
