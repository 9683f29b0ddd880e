#include "fit/megatron/remedies.h"

namespace headroom::fit {

namespace {

// REQUIRES of all: question.megatron.
constexpr MegatronChange kChanges[kMegatronChanges] = {
    {"recompute-layers", "recompute every layer", "--checkpointing full",
     "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
     "one more forward pass: about a third more time",
     [](const FitQuestion& q) { return q.checkpointing.kind != CheckpointingKind::full; },
     [](FitQuestion& q) { q.checkpointing.kind = CheckpointingKind::full; }},
    {"recompute-attention", "recompute attention's core", "--checkpointing selective",
     "--recompute-granularity selective", "attention is computed twice",
     [](const FitQuestion& q) { return q.checkpointing.kind == CheckpointingKind::none; },
     [](FitQuestion& q) { q.checkpointing.kind = CheckpointingKind::selective; }},
    {"distributed-optimizer", "masters and states shared by data parallel ranks", "",
     "--use-distributed-optimizer", "parameters are gathered once a step",
     [](const FitQuestion& q) {
       return !q.megatron->data.distributed_optimizer && q.megatron->data.data_ranks > 1;
     },
     [](FitQuestion& q) { q.megatron->data.distributed_optimizer = true; }},
    {"sequence-parallel", "what lies between the matrices shared along the sequence", "",
     "--sequence-parallel", "",
     [](const FitQuestion& q) {
       const model::MegatronRank& r = q.megatron->stage.rank;
       return !r.sequence_parallel && r.tensor > 1;
     },
     [](FitQuestion& q) { q.megatron->stage.rank.sequence_parallel = true; }},
    {"fused-attention", "attention that keeps no scores", "", "--attention-backend auto", "",
     [](const FitQuestion& q) {
       return q.megatron->stage.model.attention == model::MegatronAttention::unfused;
     },
     [](FitQuestion& q) {
       q.megatron->stage.model.attention = model::MegatronAttention::automatic;
     }},
};

}  // namespace

const MegatronChange& megatron_change(size_t i) { return kChanges[i]; }

}  // namespace headroom::fit
