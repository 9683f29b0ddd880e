// A row of measured.csv that Megatron-LM's own tests recorded, as the setting of the rank that they
// measured: the last one.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "fit/question.h"
#include "text/csv.h"

namespace headroom::fit {

[[nodiscard]] bool is_megatron_row(const text::CsvTable& table, size_t row);

// The Error names what of it is not modelled.
Result<FitQuestion> megatron_question_of(const text::CsvTable& table, size_t row);

}  // namespace headroom::fit
