// How a run of Megatron-LM's is divided among GPUs: one setting as plain numbers, as the words of
// --method ("tp:4,pp:8,vpp:2,cp:2,dp:2,distopt"), and all that there are.
//
// A division is listed where Megatron-LM takes it (validate_args): what is shared comes out even,
// tensor parallel ranks are neighbours within a machine, a step is a whole number of micro-batches,
// with several chunks a multiple of the stages. Where heads or experts do not allow one it is not
// there; nor is it where layers do not come out even, but that embedding and loss count as layers
// where those alone do not. Layouts of other shapes are left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engines/megatron.h"
#include "fit/question.h"
#include "model/megatron.h"

namespace headroom::fit {

struct MegatronDivision {
  int64_t tensor = 1;            // with sequence parallelism wherever there are several
  int64_t stages = 1;            // of the pipeline
  int64_t chunks = 1;            // of the model on each, interleaved
  int64_t context = 1;           // ranks that share a sequence
  int64_t expert = 1;            // ranks that share the experts out
  int64_t expert_tensor = 1;     // ranks that share an expert's matrices
  int64_t data = 1;              // ranks with sequences of their own
  bool ends_are_layers = false;  // embedding and loss count as one each where stages share layers
  bool distributed_optimizer = false;
  bool fp8 = false;  // of products, by the recipe that Megatron-LM takes where none is said
  int64_t micro_batch = 1;
  CheckpointingKind recomputation = CheckpointingKind::none;  // selective: attention's core
  bool operator==(const MegatronDivision&) const = default;

  [[nodiscard]] int64_t gpus() const { return tensor * stages * context * data; }
  // That hold the same parameters.
  [[nodiscard]] int64_t holders() const { return data * context; }
  [[nodiscard]] op::Fp8Recipe fp8_recipe() const {
    return fp8 ? op::Fp8Recipe::delayed : op::Fp8Recipe::none;
  }
};

// Layers of a stage that is no end of the pipeline; both ends have one less where they count as
// one.
[[nodiscard]] int64_t layers_of_stage(const engines::MegatronArguments& model,
                                      const MegatronDivision& division);

// What --method says of it: "tp:4,pp:8,dp:2,distopt".
[[nodiscard]] std::string division_words(const MegatronDivision& division);
// What a person passes to be asked about it alone: --method, --batch and --checkpointing.
[[nodiscard]] std::string flags_of(const MegatronDivision& division);

// "none", "selective", "full".
[[nodiscard]] std::string checkpointing_of(const MegatronDivision& division);

// From the words of --method. `gpus`: in all, where they are known; else data parallel ranks are
// what the words say, or one.
Result<MegatronDivision> parse_division(std::string_view words, std::optional<int64_t> gpus);

// What is not to be varied.
struct DivisionsAsked {
  int64_t gpus = 1;
  int64_t devices_per_node = 8;
  std::optional<int64_t> micro_batch = std::nullopt;
  std::optional<CheckpointingKind> recomputation = std::nullopt;
  bool any_precision = false;  // FP8, too
};
// `model` has a global batch. In the order of the fields, small first.
[[nodiscard]] std::vector<MegatronDivision> megatron_divisions(
    const engines::MegatronArguments& model, const DivisionsAsked& asked);

// How many ranks share what.
void divide(model::MegatronRank& rank, const MegatronDivision& division);
// The same model, divided so.
[[nodiscard]] engines::MegatronArguments divided(engines::MegatronArguments model,
                                                 const MegatronDivision& division);

}  // namespace headroom::fit
