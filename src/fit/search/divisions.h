// The words of --method for each way to divide a step among so many GPUs. REQUIRES: gpus >= 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::fit {

// How a step is divided: as the words of --method end, and whether sequences are, too.
struct WayToDivide {
  std::string words;
  bool divides_sequences = false;  // --sequence-parallel true
  bool operator==(const WayToDivide&) const = default;
};

// Data parallel: "ddp:8", ..., "fsdp2:8", "fsdp2:4,replicate:2", ..., the same of FSDP's first
// version.
[[nodiscard]] std::vector<std::string> divisions_among(int64_t gpus);
// With tensor parallelism, in groups of up to `most`: "tp:8", "fsdp2:4,tp:2", "ddp:4,tp:2", ...
[[nodiscard]] std::vector<std::string> tensor_divisions_among(int64_t gpus, int64_t most);
// With a mixture's experts shared out, among some or each of a group: "fsdp2:8,ep:8",
// "fsdp2:8,ep:4", "fsdp2:4,replicate:2,ep:4", ...
[[nodiscard]] std::vector<std::string> expert_divisions_among(int64_t gpus);
// With sequences shared among some ranks or all of them: "fsdp2:1,cp:8", "fsdp2:2,cp:4", ...
[[nodiscard]] std::vector<std::string> context_divisions_among(int64_t gpus);
// With sequences shared and another division beside: replicas, or tensor parallel ranks, up to
// `most`, that divide sequences, and stages: "fsdp2:2,replicate:2,cp:2", "fsdp2:2,cp:2,tp:2", ...
[[nodiscard]] std::vector<WayToDivide> shared_divisions_among(int64_t gpus, int64_t most);
// Pipelines, alone and with fully_shard within each stage.
[[nodiscard]] std::vector<std::string> pipelines_among(int64_t gpus);
// With sequences divided among tensor parallel ranks, up to `most`, too: alone, within DDP and
// fully_shard, and within its stages.
[[nodiscard]] std::vector<std::string> sequence_divisions_among(int64_t gpus, int64_t most);

}  // namespace headroom::fit
