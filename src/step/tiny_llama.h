// For tests: Llama's architecture in small sizes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "model/load.h"
#include "step/transform/enclose.h"
#include "text/json.h"

namespace headroom::step {

struct TinyLlama {
  int64_t layers = 2;
  int64_t hidden = 64;
  int64_t features = 112;
  int64_t heads = 4;
  int64_t key_heads = 2;
  int64_t vocabulary = 96;
  int64_t batch = 2;
  int64_t sequence = 24;
  double attention_dropout = 0;
  bool checkpointing = false;
  bool compiled = false;  // as a whole
};

inline model::Graph tiny_llama(const TinyLlama& sizes) {
  text::Json config = text::Json::object();
  config.set("model_type", "llama")
      .set("vocab_size", sizes.vocabulary)
      .set("hidden_size", sizes.hidden)
      .set("intermediate_size", sizes.features)
      .set("num_attention_heads", sizes.heads)
      .set("num_key_value_heads", sizes.key_heads)
      .set("num_hidden_layers", sizes.layers)
      .set("max_position_embeddings", int64_t{4096})
      .set("tie_word_embeddings", false)
      .set("attention_dropout", sizes.attention_dropout);
  model::BuildOptions build;
  build.batch = sizes.batch;
  build.sequence = sizes.sequence;
  build.checkpointing = sizes.checkpointing;
  build.compiled = sizes.compiled;
  model::Graph graph = model::build_graph({config, "test"}, build).value();
  return sizes.compiled ? enclose(std::move(graph), "llama") : graph;
}

}  // namespace headroom::step
