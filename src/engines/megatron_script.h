// Megatron-LM's arguments as a script that starts them: read_megatron_arguments() the other way
// round.
//
// What a step's memory and time depend on is written out, defaults too where they follow from other
// arguments; the other arguments are handed on as they came, and those of the script itself ("$@")
// come last. On several machines it is started once on each: Slurm says which, or NODE_RANK and
// HEAD_NODE do.
//
// Source: megatron/training/arguments.py at d98e8a64 (version 0.20, August 2026).
#pragma once

#include <string>

#include "engines/megatron.h"

namespace headroom::engines {

[[nodiscard]] std::string megatron_script(const MegatronArguments& arguments);

// What starts it.
[[nodiscard]] std::string megatron_line(const MegatronArguments& arguments,
                                        const std::string& file);

}  // namespace headroom::engines
