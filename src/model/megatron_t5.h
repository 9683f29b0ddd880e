// T5 as Megatron-LM builds it, on one rank of a tensor parallel group: an encoder, and a decoder
// whose layers look at what it gave. Words and positions are embedded by the same tables.
//
// Source: megatron/core/models/T5/{t5_model,t5_spec}.py, examples/t5/pretrain_t5.py, at d98e8a64.
#pragma once

#include "model/megatron.h"

namespace headroom::model {

// REQUIRES: sizes that build_megatron_stage() checked, and a decoder.
[[nodiscard]] Graph build_megatron_t5(const MegatronStage& stage);

}  // namespace headroom::model
