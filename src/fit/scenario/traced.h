// A Scenario whose model is FILE.py:FUNCTION: which of a question's settings go to the tracer,
// which hold for any graph, and which are the function's own business and so refused.
//
//   to the tracer       batch and seq (where the function takes them), dtype, mixed-precision, and
//                       which kernel SDPA chooses
//   hold for any graph  optimizer, checkpointing, grad-accum, clip, allocator, device, ...
//   refused             what a family does by its configuration: method, loss, kernels, vocab, ...
#pragma once

#include <vector>

#include "fit/answer.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// Fills model, traced and what follows from them. Errors: usage, and those of the tracer.
Result<void> trace_model(Scenario& scenario);

// The trace of `from`, or another one where the question of `varied` asks for other shapes or
// types.
Result<void> trace_again(const Scenario& from, Scenario& varied);

// An Error where layers are to be checkpointed and the trace shows none.
Result<void> check_layers(const Scenario& scenario);

// Which sizes a search may try. Each size of a traced model is a trace of its own, which takes
// seconds, so that a search has to be asked for.
struct Searchable {
  bool batch = true;
  bool sequence = true;
};
[[nodiscard]] Searchable searchable_sizes(const Scenario& scenario);

// The settings that hold for a trace, its inputs and versions among them. REQUIRES: traced.
[[nodiscard]] std::vector<Setting> settings_of_trace(const Scenario& scenario);

// What to know about a trace before trusting the answer. REQUIRES: traced.
void add_trace_notes(const Scenario& scenario, FitAnswer& answer);

}  // namespace headroom::fit
