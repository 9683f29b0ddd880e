// Quantized base weights under adapters: QLoRA's nf4 and int8 (bitsandbytes), GPTQ (auto-gptq).
//
// Every linear module but the head gets a packed weight and the tables that unpack it, and is
// called through operator/quantized.cpp. All else stays in the model's type, or in float32 where
// peft's prepare_model_for_kbit_training casts it. Packed weights cannot be trained: the model is
// frozen.
//
// Apply it first: before LoRA, which recognizes the modules, and before autocast.
//
// Sources: bitsandbytes' functional.quantize_4bit and QuantState; auto-gptq's qlinear_tritonv2.py;
// peft/utils/other.py prepare_model_for_kbit_training.
#pragma once

#include "base/result.h"
#include "model/graph.h"
#include "operator/functional.h"

namespace headroom::step {

struct QuantizeOptions {
  op::QuantizedFormat format = op::QuantizedFormat::nf4_double;
  model::DType weights = model::DType::bf16;  // the model's type: what unpacking gives
  model::DType compute = model::DType::bf16;  // bnb_4bit_compute_dtype
  // nf4: what the packed bytes are elements of (bnb_4bit_quant_storage).
  model::DType storage = model::DType::u8;
  // prepare_model_for_kbit_training: embeddings, norms and the head in float32. GPTQ models are
  // left as they are, and so are all by fms-acceleration's own preparation.
  bool float32_rest = false;
  bool float32_norms = false;      // norms alone, as TRL leaves it
  bool float32_others = false;     // all but norms, embeddings and head, as axolotl leaves it
  int64_t group_size = 128;        // GPTQ: input features that share a scale; 0: all of them
  bool calls_keep_inputs = false;  // nf4 in bitsandbytes before 0.43.2
};

// Errors: no linear module, sizes that GPTQ cannot pack.
[[nodiscard]] Result<model::Graph> apply_quantization(const model::Graph& graph,
                                                      const QuantizeOptions& options);

}  // namespace headroom::step
