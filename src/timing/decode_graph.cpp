#include "timing/decode_graph.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/language_part.h"
#include "model/load.h"
#include "model/positions.h"
#include "step/inference.h"

namespace headroom::timing {
namespace {

Result<model::Graph> graph_behind(const text::JsonView& config, int64_t past, int64_t batch) {
  HEADROOM_ASSIGN(const model::Family* family, model::find_family(config));
  if (family->task != model::Task::causal_lm) {
    return Error{ErrorCode::usage,
                 "a model that writes no text token by token has no decode step",
                 {},
                 "ask about a causal language model"};
  }
  model::BuildOptions build;
  build.batch = batch;
  build.sequence = 1;
  build.past = past;
  build.use_cache = true;
  build.training = false;
  build.labels = false;
  return model::build_graph(config, build);
}

}  // namespace

Bytes weight_bytes(const model::Graph& graph, op::DType weights) {
  Bytes bytes;
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.tied_to) continue;
    bytes +=
        Bytes(op::product(parameter.shape) * op::element_size(parameter.dtype.value_or(weights)));
  }
  return bytes;
}

Result<model::Graph> decode_graph(const text::JsonView& config, const DecodeOptions& options,
                                  int64_t batch) {
  return graph_behind(config, options.context - 1, batch);
}

Result<model::Graph> graph_without_past(const text::JsonView& config, int64_t batch) {
  return graph_behind(config, 0, batch);
}

int64_t devices_of(const DecodeOptions& options) {
  return options.variant.tensor_parallel * options.variant.pipeline_parallel;
}

int64_t saved_weight_bytes(const DecodeOperators& shapes, const DecodeSizes& sizes) {
  double count = 0;
  for (size_t i = 0; i + 1 < shapes.products.size(); ++i) {
    count += elements(shapes.products[i].shape.n, shapes.products[i].shape.k);
  }
  for (const ExpertProduct& product : shapes.experts) {
    count += static_cast<double>(product.experts) * elements(product.n, product.k);
  }
  return std::llround(count * (sizes.element_bytes - *sizes.variant.weight_element_bytes));
}

// States of linear attention are as they are, whatever the length and the type of the cache; heads
// of them are shared among the devices as those of keys are.
Bytes cache_bytes(const model::Graph& graph, const DecodeOptions& options,
                  const DecodeOperators& shapes, const DecodeSizes& sizes) {
  double states = 0;
  double states_here = 0;
  for (const auto& [state, times] : shapes.states) {
    // A step reads them and writes them.
    const double bytes = static_cast<double>(sizes.batch * times) * state.bytes / 2;
    states += bytes;
    states_here +=
        bytes * static_cast<double>(sizes.shared(state.width)) / static_cast<double>(state.width);
  }
  const auto whole = static_cast<double>(step::kv_cache_bytes(graph, options.weights)) - states;
  const double of_cache = sizes.cache_elements() / sizes.model_cache_elements();
  const double of_element = sizes.cache_element_bytes() / sizes.element_bytes;
  const double kept =
      static_cast<double>(sizes.kept_context()) / static_cast<double>(sizes.context);
  return Bytes(std::llround((whole * of_cache * of_element * kept + states_here) /
                            static_cast<double>(options.variant.pipeline_parallel)));
}

Bytes memory_for_decoding(const device::Device& device) {
  if (!device.usable_memory.known()) return Bytes(0);
  return Bytes(
      static_cast<int64_t>(kMemoryShare * static_cast<double>(device.usable_memory.value.count)));
}

int64_t largest_batch_of(const device::Device& device, Bytes weights, int64_t kv_of_one) {
  if (!device.usable_memory.known() || kv_of_one <= 0) return 0;
  const double budget = kMemoryShare * static_cast<double>(device.usable_memory.value.count) -
                        static_cast<double>(weights.count);
  if (budget < static_cast<double>(kv_of_one)) return 0;
  return std::min(kMostBatch, static_cast<int64_t>(budget / static_cast<double>(kv_of_one)));
}

Result<void> refuse_beyond_positions(const text::JsonView& config, const DecodeOptions& options) {
  HEADROOM_ASSIGN(const auto positions, model::served_positions_of(config));
  if (!positions || options.context <= *positions) return {};
  const std::string most = std::to_string(*positions);
  return Error{ErrorCode::usage,
               "a sequence of " + std::to_string(options.context) + " tokens, and the model has " +
                   most + " positions",
               {},
               "take " + most + " tokens or less"};
}

Result<void> refuse_beyond_window(const text::JsonView& config, const DecodeOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView language, model::language_part(config));
  HEADROOM_ASSIGN(const auto window, language.optional_int("sliding_window", 0, int64_t{1} << 53));
  HEADROOM_ASSIGN(const auto is_used, language.optional_bool("use_sliding_window"));
  if (window && is_used.value_or(true) && *window < options.context) {
    return Error{ErrorCode::unavailable,
                 "contexts beyond the sliding window of " + std::to_string(*window) +
                     " tokens are not predicted yet",
                 {},
                 "a context of " + std::to_string(*window) + " tokens or less"};
  }
  return {};
}

}  // namespace headroom::timing
