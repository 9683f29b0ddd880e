// A family: an architecture of transformers, as the function that turns its config into a Graph.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/graph.h"
#include "model/options.h"
#include "text/json.h"

namespace headroom::model {

// What a training step of it is.
enum class Task : uint8_t {
  causal_lm,               // every token predicts the next one
  masked_lm,               // every token is predicted in its place
  seq2seq_lm,              // an encoder reads, a decoder predicts
  image_classification,    // a batch of images, one class each
  sequence_classification  // one class for a sequence of tokens
};

// "causal_lm".
[[nodiscard]] std::string_view task_name(Task task);
// What a sequence is in such a step, for people: "an encoder reads --seq tokens, ...".
[[nodiscard]] std::string_view meaning_of_seq(Task task);

struct Family {
  std::string_view model_type;  // config.json's "model_type"
  Result<Graph> (*build)(const text::JsonView& config, const BuildOptions& options);
  Task task = Task::causal_lm;
  // What figures of it take for granted about how it is run, for people; empty: nothing special.
  std::string_view assumes = {};
  bool leaves_parameters_idle = false;  // a step gives some no gradient, and never reads them
};

// Whether transformers has a ...ForSequenceClassification of the architecture that is modelled.
[[nodiscard]] bool classifies_sequences(const Family& family);
// Of the config's labels: two where it names none. Errors: "num_labels" or "id2label" of another
// type.
[[nodiscard]] Result<int64_t> label_count(const text::JsonView& config);

// All families, sorted by name.
[[nodiscard]] std::span<const Family> families();

}  // namespace headroom::model
