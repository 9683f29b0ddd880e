#include "engines/script_launch.h"

#include <algorithm>
#include <array>

#include "engines/shell_words.h"

namespace headroom::engines {

namespace {

constexpr auto kOfTorchrun = std::to_array<std::string_view>({
    "duplicate-stderr-filters",
    "duplicate-stdout-filters",
    "event-log-handler",
    "local-addr",
    "local-ranks-filter",
    "log-dir",
    "logs-specs",
    "master-addr",
    "master-port",
    "max-restarts",
    "module",
    "monitor-interval",
    "nnodes",
    "no-python",
    "node-rank",
    "nproc-per-node",
    "numa-binding",
    "rdzv-backend",
    "rdzv-conf",
    "rdzv-endpoint",
    "rdzv-id",
    "redirects",
    "role",
    "run-path",
    "signals-to-handle",
    "standalone",
    "start-method",
    "tee",
    "virtual-local-rank",
});

}  // namespace

bool is_of_torchrun(std::string_view name) { return std::ranges::count(kOfTorchrun, name) > 0; }

std::string machine_names(int64_t nodes) {
  if (nodes == 1) return "";
  return "HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)}\n"
         "NODE_RANK=${NODE_RANK:-${SLURM_NODEID:?is not set, nor is NODE_RANK}}\n";
}

std::string allocator_line(const std::string& settings) {
  return settings.empty() ? "" : "export PYTORCH_CUDA_ALLOC_CONF=" + shell_word(settings) + "\n";
}

std::string torchrun_line(int64_t nodes, int64_t ranks_per_node) {
  std::string line = "torchrun --nproc_per_node " + std::to_string(ranks_per_node);
  if (nodes == 1) return line;
  return line + " --nnodes " + std::to_string(nodes) +
         " --node_rank \"$NODE_RANK\" \\\n  --master_addr \"$HEAD_NODE\" --master_port 29500";
}

std::string script_line(int64_t nodes, const std::string& file) {
  std::string line = "bash " + shell_word(file);
  if (nodes == 1) return line;
  return "srun --nodes " + std::to_string(nodes) + " --ntasks-per-node 1 " + line;
}

}  // namespace headroom::engines
