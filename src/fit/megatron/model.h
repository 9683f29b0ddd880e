// A model that a config.json describes, as Megatron-LM's arguments: what `fit --engine megatron`
// begins with.
//
// Only architectures that the stage of model/megatron.h builds are taken, each key by the reader
// that transformers' graph of it has; what Megatron-LM has no modelled argument for (dense layers
// between mixtures, a window that the sequence is longer than) is refused with its name. Both
// graphs must come to the same number of parameters, but for the vocabulary's padding: that is
// checked of every model that is asked about, not only in a test.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engines/megatron.h"
#include "fit/question.h"
#include "text/json.h"

namespace headroom::fit {

struct MegatronDescription {
  engines::MegatronArguments arguments;  // undivided; batch, length and type as the question says
  std::vector<std::string> warnings;
};

// `config` is the model's, for what the question asks (its length, type and vocabulary count).
Result<MegatronDescription> describe_for_megatron(const text::JsonView& config,
                                                  const FitQuestion& question);

}  // namespace headroom::fit
