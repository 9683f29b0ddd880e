// A row of measured.csv that torchtitan's pages printed, as a question: fully_shard of one of its
// models, run eagerly.
//
// torchtitan's model is taken as transformers' of the same sizes. Compiled steps, float8, and
// tensor, context, pipeline and expert parallelism as torchtitan has them are an Error with the
// reason.
//
// Source: train.py, torchtitan/{optimizer,config_manager}.py, parallelisms/parallelize_llama.py at
// 9dec370 (December 2024): AdamW by foreach, norms clipped at 1, gradients reduced in float32, the
// logits let go before backward.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "fit/question.h"
#include "text/csv.h"

namespace headroom::fit {

[[nodiscard]] bool is_torchtitan_row(const text::CsvTable& table, size_t row);

// `model` by the name that fit knows. The Error names what of the row is not modelled.
Result<FitQuestion> torchtitan_question_of(const text::CsvTable& table, size_t row,
                                           std::string model);

}  // namespace headroom::fit
