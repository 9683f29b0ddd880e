// What a config.json says of its weights: their type, their quantization, the class they are of.
//
// Taken where the question says nothing, and said where the answer takes something else.
#pragma once

#include "fit/scenario/scenario.h"

namespace headroom::fit {

// "dtype" (or "torch_dtype", its name before transformers 4.56), where no flag names one.
Result<void> take_config_dtype(Scenario& scenario);

// "quantization_config": the group size of a GPTQ base, where no flag names one; a warning where
// the weights are quantized and the method takes them as if they were not. Errors: a GPTQ base of
// other than 4 bits.
Result<void> take_quantization_config(Scenario& scenario);

// "architectures": whether it names transformers' ...ForSequenceClassification.
Result<bool> names_a_classifier(const Scenario& scenario);

// "architectures": a warning where it names a class without a language model's head. To be called
// once the task is known.
Result<void> check_architecture(Scenario& scenario);

}  // namespace headroom::fit
