// Weights as the checkpoint of a question's model has them (timing/checkpoint_type.h). Pure;
// thread-safe.
#pragma once

#include <string>

#include "base/result.h"
#include "batch/question.h"
#include "text/json.h"

namespace headroom::batch {

// Where the config says that the checkpoint is quantized, its weights are predicted so. Errors:
// another type was asked for.
Result<void> take_checkpoint_type(const text::JsonView& config, BatchQuestion& question);

// The question as it is of another model, whose checkpoint has a type of its own.
Result<BatchQuestion> question_of_second(const text::JsonView& config, BatchQuestion question);

// What is to be said of that; "" where nothing is. `config` or null.
Result<std::string> checkpoint_note(const BatchQuestion& question, const text::JsonView* config);

}  // namespace headroom::batch
