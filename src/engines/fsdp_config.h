// fsdp and fsdp_config: how transformers' Trainer, and what is built around it, are told of FSDP.
//
// Sources: transformers/training_args.py (5.23); axolotl/utils/schemas/fsdp.py and
// axolotl/utils/trainer.py (0.18).
#pragma once

#include "base/result.h"
#include "engines/setting_values.h"
#include "engines/training_setup.h"

namespace headroom::engines {

// Where the programs differ.
struct FsdpConfigKind {
  int64_t version;          // where the file says none
  const char* offload_key;  // parameters to the CPU
  const char* other_key;    // the other's word for it, that is not read here
};
inline constexpr FsdpConfigKind kTransformersFsdp{2, "cpu_offload", "offload_params"};
inline constexpr FsdpConfigKind kAxolotlFsdp{1, "offload_params", "cpu_offload"};

// The members with or without their former prefix, "fsdp_".
Result<void> read_fsdp_config(const text::JsonView& config, const FsdpConfigKind& kind,
                              TrainingSetup& setup);

// "full_shard auto_wrap offload", as it was said before fsdp_config said it. Where both speak of
// offload, fsdp_config counts.
Result<void> read_fsdp_words(const SettingValues& in, TrainingSetup& setup);

}  // namespace headroom::engines
