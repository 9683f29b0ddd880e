// How a script starts torchrun on one machine or several, and what starts the script: once on each
// machine, as Slurm does it; without Slurm, NODE_RANK and HEAD_NODE say which it is.
//
// Source: torch/distributed/run.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::engines {

// Whether an argument, without dashes, is torchrun's own.
[[nodiscard]] bool is_of_torchrun(std::string_view name);
// Lines that come before torchrun's; nothing for one machine.
[[nodiscard]] std::string machine_names(int64_t nodes);
// PYTORCH_CUDA_ALLOC_CONF's, which every release of PyTorch knows; nothing where it is empty.
[[nodiscard]] std::string allocator_line(const std::string& settings);
// "torchrun --nproc_per_node 8 ...", without the program.
[[nodiscard]] std::string torchrun_line(int64_t nodes, int64_t ranks_per_node);
[[nodiscard]] std::string script_line(int64_t nodes, const std::string& file);

}  // namespace headroom::engines
