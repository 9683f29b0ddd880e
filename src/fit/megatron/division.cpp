#include "fit/megatron/division.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/units.h"
#include "fit/search/methods.h"
#include "fit/words.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

using engines::MegatronArguments;

constexpr std::array kRecomputations{CheckpointingKind::none, CheckpointingKind::selective,
                                     CheckpointingKind::full};

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> small;
  std::vector<int64_t> large;
  for (int64_t i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.push_back(number / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

bool divides_layer(const MegatronArguments& model, int64_t tensor) {
  return model.heads % tensor == 0 && model.query_groups % tensor == 0 && model.ffn % tensor == 0 &&
         model.shared_expert_ffn % tensor == 0;
}

// Two parts of each sequence a rank, for causal attention to come out even; of that a part to each
// of those that share the rest.
bool divides_sequence(const MegatronArguments& model, const MegatronDivision& d) {
  const int64_t parts = d.context > 1 ? 2 * d.context : 1;
  return model.sequence % (parts * d.tensor) == 0;
}

class Lister {
 public:
  Lister(const MegatronArguments& model, const DivisionsAsked& asked)
      : model_(model), asked_(asked) {}

  std::vector<MegatronDivision> list() && {
    MegatronDivision d;
    for (const int64_t tensor : divisors_of(asked_.gpus)) {
      if (asked_.devices_per_node % tensor != 0 || !divides_layer(model_, tensor)) continue;
      d.tensor = tensor;
      for (const int64_t stages : divisors_of(asked_.gpus / tensor)) {
        d.stages = stages;
        d.ends_are_layers = model_.layers % stages != 0;
        const bool divides = !d.ends_are_layers || (model_.layers + 2) % stages == 0;
        if (divides) add_context(d);
      }
    }
    return std::move(all_);
  }

 private:
  void add_context(MegatronDivision d) {
    for (const int64_t context : divisors_of(asked_.gpus / d.tensor / d.stages)) {
      d.context = context;
      d.data = asked_.gpus / d.tensor / d.stages / context;
      if (divides_sequence(model_, d)) add_experts(d);
    }
  }

  void add_experts(MegatronDivision d) {
    d.expert_tensor = d.tensor;
    if (model_.experts == 0) return add_micro_batches(d);
    const int64_t of_stage = asked_.gpus / d.stages;
    for (const int64_t expert : divisors_of(of_stage)) {
      if (model_.experts % expert != 0) continue;
      d.expert = expert;
      const std::set<int64_t> shares{1, d.tensor};
      for (const int64_t expert_tensor : shares) {
        d.expert_tensor = expert_tensor;
        const bool divides =
            of_stage % (expert * expert_tensor) == 0 && model_.expert_ffn % expert_tensor == 0;
        if (divides) add_micro_batches(d);
      }
    }
  }

  void add_micro_batches(MegatronDivision d) {
    const int64_t global = model_.global_batch.value_or(0);
    if (global % d.data != 0) return;
    for (const int64_t micro_batch : divisors_of(global / d.data)) {
      if (asked_.micro_batch && *asked_.micro_batch != micro_batch) continue;
      d.micro_batch = micro_batch;
      add_chunks(d, global / d.data / micro_batch);
    }
  }

  void add_chunks(MegatronDivision d, int64_t micro_batches) {
    for (const int64_t chunks : divisors_of(layers_of_stage(model_, d))) {
      if (chunks > 1 && (d.stages == 1 || micro_batches % d.stages != 0)) break;
      d.chunks = chunks;
      add_kinds(d);
    }
  }

  void add_kinds(MegatronDivision d) {
    for (const CheckpointingKind kind : kRecomputations) {
      if (asked_.recomputation && *asked_.recomputation != kind) continue;
      d.recomputation = kind;
      for (const bool distributed : {false, true}) {
        if (distributed && d.holders() == 1) continue;
        d.distributed_optimizer = distributed;
        d.fp8 = false;
        all_.push_back(d);
        if (!asked_.any_precision) continue;
        d.fp8 = true;
        all_.push_back(d);
      }
    }
  }

  const MegatronArguments& model_;
  const DivisionsAsked& asked_;
  std::vector<MegatronDivision> all_;
};

struct NumberWord {
  std::string_view word;
  int64_t MegatronDivision::*field;
};
constexpr std::array kNumbers{NumberWord{"tp", &MegatronDivision::tensor},
                              NumberWord{"pp", &MegatronDivision::stages},
                              NumberWord{"vpp", &MegatronDivision::chunks},
                              NumberWord{"cp", &MegatronDivision::context},
                              NumberWord{"ep", &MegatronDivision::expert},
                              NumberWord{"etp", &MegatronDivision::expert_tensor},
                              NumberWord{"dp", &MegatronDivision::data}};
struct SwitchWord {
  std::string_view word;
  bool MegatronDivision::*field;
};
constexpr std::array kSwitches{SwitchWord{"ends", &MegatronDivision::ends_are_layers},
                               SwitchWord{"distopt", &MegatronDivision::distributed_optimizer},
                               SwitchWord{"fp8", &MegatronDivision::fp8}};
constexpr const char* kWords =
    "tp:N, pp:N, vpp:N (chunks of a stage), cp:N, ep:N, etp:N, dp:N, ends (embedding and loss are "
    "a layer each), distopt, fp8 (products), with commas between";

// 0 in what nobody said.
Result<void> read_word(std::string_view word, MegatronDivision& d) {
  const auto of_word = std::ranges::find(kSwitches, word, &SwitchWord::word);
  if (of_word != kSwitches.end() && !(d.*(of_word->field))) {
    d.*(of_word->field) = true;
    return {};
  }
  const size_t colon = std::min(word.find(':'), word.size());
  const auto number = std::ranges::find(kNumbers, word.substr(0, colon), &NumberWord::word);
  const bool is_known = number != kNumbers.end() && colon < word.size();
  const auto count = is_known ? text::parse_number<int64_t>(word.substr(colon + 1)) : std::nullopt;
  if (!count || *count < 1 || *count > kMostGpus || d.*(number->field) != 0) {
    return refuse("method", word, kWords);
  }
  d.*(number->field) = *count;
  return {};
}

Error does_not_divide(std::string_view words, int64_t once, int64_t gpus) {
  return Error{ErrorCode::usage,
               "'" + std::string(words.substr(0, 80)) + "' takes a multiple of " +
                   std::to_string(once) + " GPUs, and there are " + std::to_string(gpus),
               "--method", "tensor x pipeline x context x data parallel ranks are the GPUs"};
}

}  // namespace

int64_t layers_of_stage(const MegatronArguments& model, const MegatronDivision& division) {
  return (model.layers + (division.ends_are_layers ? 2 : 0)) / division.stages;
}

std::string division_words(const MegatronDivision& division) {
  std::string words;
  const auto add = [&](const std::string& word) { words += (words.empty() ? "" : ",") + word; };
  for (const NumberWord& number : kNumbers) {
    const int64_t count = division.*(number.field);
    const bool is_etp = number.field == &MegatronDivision::expert_tensor;
    if (is_etp ? count == division.tensor : count == 1) continue;
    add(std::string(number.word) + ":" + std::to_string(count));
  }
  for (const SwitchWord& of : kSwitches) {
    if (division.*(of.field)) add(std::string(of.word));
  }
  return words.empty() ? "dp:1" : words;
}

std::string checkpointing_of(const MegatronDivision& division) {
  return division.recomputation == CheckpointingKind::full        ? "full"
         : division.recomputation == CheckpointingKind::selective ? "selective"
                                                                  : "none";
}

std::string flags_of(const MegatronDivision& division) {
  std::string flags = "--method " + division_words(division);
  if (division.micro_batch > 1) flags += " --batch " + std::to_string(division.micro_batch);
  const std::string checkpointing = checkpointing_of(division);
  return checkpointing == "none" ? flags : flags + " --checkpointing " + checkpointing;
}

Result<MegatronDivision> parse_division(std::string_view words, std::optional<int64_t> gpus) {
  MegatronDivision d;
  for (const NumberWord& number : kNumbers) d.*(number.field) = 0;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    HEADROOM_TRY(read_word(words.substr(begin, end - begin), d));
    begin = end + 1;
  }
  const bool says_data = d.data > 0;
  if (d.expert_tensor == 0) d.expert_tensor = std::max<int64_t>(d.tensor, 1);
  for (const NumberWord& number : kNumbers) {
    d.*(number.field) = std::max<int64_t>(d.*(number.field), 1);
  }
  int64_t once = 1;
  for (const int64_t ranks : {d.tensor, d.stages, d.context, d.data}) {
    once = std::min(kMostGpus + 1, once * ranks);
  }
  if (once > kMostGpus) return does_not_divide(words, once, gpus.value_or(kMostGpus));
  if (!gpus) return d;
  if (*gpus % once != 0 || (says_data && *gpus != once)) return does_not_divide(words, once, *gpus);
  if (!says_data) d.data = *gpus / once;
  return d;
}

std::vector<MegatronDivision> megatron_divisions(const MegatronArguments& model,
                                                 const DivisionsAsked& asked) {
  return Lister(model, asked).list();
}

void divide(model::MegatronRank& rank, const MegatronDivision& division) {
  rank.tensor = division.tensor;
  rank.sequence_parallel = division.tensor > 1;
  rank.pipeline = division.stages;
  rank.context = division.context;
  rank.expert = division.expert;
  rank.expert_tensor = division.expert_tensor;
}

MegatronArguments divided(MegatronArguments model, const MegatronDivision& division) {
  model.tensor_ranks = division.tensor;
  model.sequence_parallel = division.tensor > 1;
  model.stages = division.stages;
  model.chunks.reset();
  if (division.chunks > 1) model.chunks = division.chunks;
  model.embedding_is_layer = model.loss_is_layer = division.ends_are_layers;
  model.context_ranks = division.context;
  model.expert_ranks = division.expert;
  model.expert_tensor_ranks = division.expert_tensor;
  model.micro_batch = division.micro_batch;
  model.recomputes_layers = division.recomputation == CheckpointingKind::full;
  model.recomputes_attention = division.recomputation == CheckpointingKind::selective;
  model.distributed_optimizer = division.distributed_optimizer;
  // What hides collectives, as runs have it.
  model.overlap_grad_reduce = division.holders() > 1;
  model.overlap_param_gather = division.distributed_optimizer;
  if (!division.fp8) return model;
  model.fp8_format = "hybrid";
  model.fp8_recipe = op::name_of(division.fp8_recipe());
  return model;
}

}  // namespace headroom::fit
