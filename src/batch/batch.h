// `headroom batch`: the batch size that meets a latency target and still pays, the key-value cache
// it needs, and what the rest of the memory would hold.
//
// Pure but for what it is given; thread-safe. Milliseconds with points; predicted, some ten
// milliseconds a candidate of a 7B model.
#pragma once

#include <optional>

#include "base/result.h"
#include "batch/answer.h"
#include "batch/question.h"
#include "batch/watch_base.h"
#include "text/json.h"
#include "timing/timing_model.h"

namespace headroom::batch {

// `config`: of the question's model, or null where it names none. An Error where a value is out of
// range, the points make no law, or the model's steps are not predicted yet. `companion`: a second
// model for what is set free, or null.
Result<BatchAnswer> answer(const BatchQuestion& question, const text::JsonView* config,
                           const timing::TimingModel& model, const Companion* companion = nullptr);

// Whether all of the question but its points can be answered, so that nothing is measured in vain.
Result<void> check_before_measuring(const BatchQuestion& question, const text::JsonView* config,
                                    const timing::TimingModel& model,
                                    const Companion* companion = nullptr);

// What watching a server starts from: the question's points, or its model on its device as
// predicted; nothing where it has neither.
Result<std::optional<StepBase>> base_of(const BatchQuestion& question, const text::JsonView* config,
                                        const timing::TimingModel& model);

// Whether the lengths of the requests are in range.
Result<void> check_workload(const BatchQuestion& question);

}  // namespace headroom::batch
