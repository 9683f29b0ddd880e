// The arguments of transformers' Trainer (5.23) as people have them: the JSON or YAML that its
// HfArgumentParser takes, or a shell script whose command has them. With them what TRL's scripts
// say in the same file of the model, its adapters and the length of a sequence.
//
// What is left out has the Trainer's own defaults where these decide memory: 8 sequences, gradients
// clipped at a norm of 1, torch's fused AdamW; DistributedDataParallel looks for unused parameters
// unless activations are checkpointed. What changes memory and is not modelled is an Error at its
// place. A script is not run (shell_words.h).
//
// Sources: transformers/training_args.py, trainer.py and integrations/deepspeed.py of 5.23; trl's
// ModelConfig and SFTConfig.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engines/setting_values.h"
#include "engines/training_setup.h"
#include "text/json.h"

namespace headroom::engines {

// The JSON or YAML of another file that is named, by the name as it is written.
using ReadNamed = std::function<Result<text::Json>(const std::string& name)>;

[[nodiscard]] bool has_trainer_arguments(const text::Json& root);
// Whether a text that is no JSON is a script with such arguments.
[[nodiscard]] bool is_trainer_script(std::string_view content);
// Its arguments by their names, without dashes: text, lists of it, and true for a switch; "" where
// a value needs more of a shell.
Result<text::Json> trainer_arguments_of(std::string_view script, const std::string& file);

Result<TrainingSetup> read_trainer(const text::JsonView& root, const ReadNamed& read_named);

// Of programs that are built around the Trainer: all its arguments but what says the model, its
// weights and adapters;
Result<void> read_trainer_loop(const SettingValues& in, const ReadNamed& read_named,
                               TrainingSetup& setup);
// how many processes and machines a command says;
Result<void> read_launcher(const SettingValues& in, TrainingSetup& setup);
// `deepspeed`, a file's name or what such a file has;
Result<void> read_deepspeed_of(const SettingValues& in, const ReadNamed& read_named,
                               TrainingSetup& setup);
// `accelerator_config`: whether gradients are reduced behind each micro-batch.
Result<void> read_accumulation(const SettingValues& in, const ReadNamed& read_named,
                               TrainingSetup& setup);

}  // namespace headroom::engines
