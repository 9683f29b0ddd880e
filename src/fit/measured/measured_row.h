// A row of a file of measurements (the columns of data/peak_memory/measured.csv) as a question of
// `fit`, and as the figures that were measured.
//
// People describe settings in words; what they mean is decided here, word by word, and a row that
// says something which the step model cannot follow is unsupported with the reason, never guessed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "fit/question.h"
#include "text/csv.h"

namespace headroom::fit {

enum class Metric : uint8_t { peak_allocated, after_step, peak_reserved, device_used };
inline constexpr std::array<Metric, 4> kMetrics{Metric::peak_allocated, Metric::after_step,
                                                Metric::peak_reserved, Metric::device_used};
[[nodiscard]] std::string_view name_of(Metric metric);

struct MeasuredFigure {
  Metric metric = Metric::peak_allocated;
  Bytes value;
  // Of after_step: read before gradients and outputs are let go, as a mean over batches.
  bool before_release = false;
};

// What a row says was measured, in the order of its columns; may be empty.
[[nodiscard]] std::vector<MeasuredFigure> figures_of(const text::CsvTable& table, size_t row);

// What the row says that a step took, in seconds; nothing where it says none.
[[nodiscard]] std::optional<double> step_seconds(const text::CsvTable& table, size_t row);

// The row as a question; the Error's message says why it cannot be asked. Where lengths vary, the
// question is of the longest batch.
Result<FitQuestion> question_of(const text::CsvTable& table, size_t row);
// Tokens in a mean sequence, for figures that are means over batches; nothing where all are alike.
[[nodiscard]] std::optional<int64_t> mean_sequence(const text::CsvTable& table, size_t row);
// The trainable parameters that the row counted; nothing where it did not.
[[nodiscard]] std::optional<int64_t> trainable_count(const text::CsvTable& table, size_t row);
// Whether the row's counters of allocated bytes lack the weights of adapters that FSDP ignores.
// fms-acceleration adds up what transformers' Trainer saw while it was made and while it trained
// (scripts/benchmarks/README.md), and moves those weights to the device between the two
// (fms_acceleration_foak/framework_plugin_fast_kernels.py, get_callbacks_and_ready_for_train).
[[nodiscard]] bool lacks_ignored_weights(const text::CsvTable& table, size_t row);

}  // namespace headroom::fit
