#include "model/megatron.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/megatron_bert.h"
#include "model/megatron_ends.h"
#include "model/megatron_fp8.h"
#include "model/megatron_layer.h"
#include "model/megatron_t5.h"

namespace headroom::model {

namespace {

// Far beyond any model or cluster, so that products of a few stay within 64 bits.
constexpr int64_t kSizeMax = int64_t{1} << 24;
constexpr int64_t kWidthMax = int64_t{1} << 20;
constexpr int64_t kRanksMax = 65'536;
constexpr int64_t kLayersMax = 1024;  // as of a model's config.json
constexpr int64_t kExpertsMax = 4096;

Error wrong(std::string what) { return Error{ErrorCode::bad_input, std::move(what), "", ""}; }

// Of a model with an encoder the layers are the encoder's.
Result<void> check_encoder_and_decoder(const MegatronStage& s) {
  const MegatronModel& m = s.model;
  const MegatronRank& r = s.rank;
  if (r.pipeline > 1 || r.context > 1 || r.chunks() != 1) {
    return wrong(
        "an encoder and decoder in a pipeline, or with parts of sequences, is not modelled");
  }
  if (m.experts > 0 || m.latent.key_rank > 0 || m.rotary) {
    return wrong(
        "an encoder and decoder with experts, latent attention or rotary positions is not "
        "modelled");
  }
  const int64_t ranks = r.sequence_parallel ? r.tensor : 1;
  if (m.decoder_layers > kLayersMax || s.decoder_sequence < 1 || s.decoder_sequence > kSizeMax ||
      s.decoder_sequence % ranks != 0 || m.kv_heads != m.heads ||
      (m.positions > 0 && s.decoder_sequence > m.positions)) {
    return wrong("a size of the decoder is out of range");
  }
  return {};
}

// Megatron-LM's own modules in the place of Transformer Engine's.
Result<void> check_local(const MegatronStage& s) {
  const MegatronModel& m = s.model;
  if (!m.local) return {};
  if (m.rms_norm || m.head_norms || m.latent.key_rank > 0 || s.rank.context > 1) {
    return wrong(
        "Megatron-LM's own modules (local) with RMSNorm, norms of heads, latent attention or "
        "context "
        "parallelism are not modelled");
  }
  if (m.attention != MegatronAttention::unfused) {
    return wrong("Megatron-LM's own modules (local) have no other attention than the unfused one");
  }
  return {};
}

// Which modules are in FP8; their sizes are checked once they are declared.
Result<void> check_fp8(const MegatronStage& s) {
  const MegatronModel& m = s.model;
  if (!m.fp8.is_on()) return {};
  if (m.local) return wrong("Megatron-LM's own modules (local) have no FP8");
  if (m.bert) return wrong("BERT in FP8 is not modelled");
  if (m.experts > 0 && !m.grouped_experts) {
    return wrong("experts in FP8 are modelled where they are grouped (--moe-grouped-gemm)");
  }
  constexpr int64_t kHistoryMax = int64_t{1} << 20;
  if (m.fp8.history < 1 || m.fp8.history > kHistoryMax) {
    return wrong("the history of largest values is out of range");
  }
  return {};
}

Result<void> check(const MegatronStage& s) {
  const MegatronModel& m = s.model;
  const MegatronRank& r = s.rank;
  struct Named {
    const char* name;
    int64_t size;
    int64_t most;
  };
  for (const Named& named :
       {Named{"number of layers", m.layers, kLayersMax}, Named{"hidden size", m.hidden, kSizeMax},
        Named{"number of heads", m.heads, kSizeMax},
        Named{"number of query groups", m.kv_heads, kSizeMax},
        Named{"size of a head", m.head_size, kSizeMax}, Named{"MLP's width", m.inner, kSizeMax},
        Named{"vocabulary", m.padded_vocabulary, kSizeMax},
        Named{"tensor parallel size", r.tensor, kRanksMax},
        Named{"pipeline parallel size", r.pipeline, kRanksMax},
        Named{"context parallel size", r.context, kRanksMax},
        Named{"number of chunks of a stage", r.chunks(), kLayersMax},
        Named{"micro-batch", s.micro_batch, kSizeMax},
        Named{"sequence length", s.sequence, kSizeMax}}) {
    if (named.size >= 1 && named.size <= named.most) continue;
    return wrong("the " + std::string(named.name) + " is " + std::to_string(named.size) +
                 ", where 1 to " + std::to_string(named.most) + " is possible");
  }
  if (r.stage < 0 || r.stage >= r.pipeline) return wrong("there is no such stage");
  if (r.chunks() > 1 && r.pipeline < 2) return wrong("one stage alone has one chunk");
  const auto is_count = [](int64_t layers) { return layers >= 0 && layers <= kLayersMax; };
  if (!std::ranges::all_of(r.chunk_layers, is_count) || r.layers() > kLayersMax) {
    return wrong("the layers of a stage are no count");
  }
  if (m.heads % r.tensor != 0 || m.inner % r.tensor != 0 || m.padded_vocabulary % r.tensor != 0) {
    return wrong("heads, the MLP or the vocabulary cannot be divided among tensor parallel ranks");
  }
  if (m.heads % m.kv_heads != 0) return wrong("the query groups do not divide the heads");
  if (m.kv_heads % r.tensor != 0) {
    return wrong("key and value heads cannot be divided among tensor parallel ranks");
  }
  if (m.experts > 0) {
    if (m.experts > kExpertsMax || r.expert < 1 || r.expert > kRanksMax || r.expert_tensor < 1 ||
        r.expert_tensor > kRanksMax || m.expert_inner < 1 || m.expert_inner > kSizeMax ||
        m.experts_per_token < 1 || m.experts_per_token > m.experts) {
      return wrong("a size of the mixture of experts is out of range");
    }
    constexpr double kShareMax = 1e4;
    if (!(m.expert_share > 0 && m.expert_share <= kShareMax)) {
      return wrong("the experts' share is out of range");
    }
    if (!(m.expert_capacity >= 0 && m.expert_capacity <= kShareMax) ||
        (m.fills_capacity && m.expert_capacity == 0)) {
      return wrong("the experts' capacity is out of range");
    }
    if (m.shared_inner < 0 || m.shared_inner > kSizeMax || m.shared_inner % r.tensor != 0) {
      return wrong("the shared expert's width is out of range, or cannot be divided");
    }
    if (m.linear_bias) return wrong("experts with biases are not modelled");
    if (m.experts % r.expert != 0 || m.expert_inner % r.expert_tensor != 0) {
      return wrong("the experts cannot be divided among their ranks");
    }
  }
  const MegatronLatent& l = m.latent;
  if (l.key_rank > 0) {
    for (const int64_t size :
         {l.key_rank, l.key_size, l.rotary_size, l.value_size, l.query_rank + 1}) {
      if (size < 1 || size > kWidthMax) {
        return wrong("a size of the latent attention is out of range");
      }
    }
    if (m.kv_heads != m.heads) return wrong("latent attention has no query groups");
    if (m.head_norms) return wrong("latent attention has norms of its own");
    if (l.rotary_size % 2 != 0) return wrong("the rotary part of a head is odd");
  }
  if (m.rotary_size < 0 || m.rotary_size > m.head_size || m.rotary_size % 2 != 0) {
    return wrong("the part of a head that is turned is odd, or more than there is");
  }
  if (m.decoder_layers > 0) {
    if (m.head_norms) return wrong("norms of heads beside an encoder are not modelled");
    HEADROOM_TRY(check_encoder_and_decoder(s));
  }
  HEADROOM_TRY(check_local(s));
  if (m.bert && (m.experts > 0 || m.latent.key_rank > 0 || r.context > 1 || r.sequence_parallel)) {
    return wrong("BERT with experts, latent attention or parts of sequences is not modelled");
  }
  const int64_t parts = (r.context > 1 ? 2 * r.context : 1) * (r.sequence_parallel ? r.tensor : 1);
  if (s.sequence % parts != 0) {
    return wrong("the sequence cannot be divided among the ranks that share it");
  }
  if (m.positions > 0 && s.sequence > m.positions) {
    return wrong("a sequence of " + std::to_string(s.sequence) + " is longer than the model's " +
                 std::to_string(m.positions) + " positions");
  }
  if (r.context > 1 && m.attention == MegatronAttention::unfused) {
    return wrong("unfused attention cannot share a sequence among ranks");
  }
  return check_fp8(s);
}

// Layers that follow each other in the model, behind its embeddings where they are the first, and
// with its head where they are the last.
class Chunk {
 public:
  Chunk(GraphBuilder& g, const MegatronSizes& sizes, int64_t chunk)
      : sizes_(sizes),
        is_first_(sizes.stage.rank.is_first() && chunk == 0),
        is_last_(sizes.stage.rank.is_last() && chunk + 1 == sizes.stage.rank.chunks()) {
    const MegatronModel& m = sizes.stage.model;
    const Dims table{m.padded_vocabulary / sizes.stage.rank.tensor, m.hidden};
    if (is_first_) {
      words_ = g.parameter("embedding.word_embeddings.weight", table, ParameterRole::embedding);
      if (m.positions > 0) {
        places_ = g.parameter("embedding.position_embeddings.weight", {m.positions, m.hidden},
                              ParameterRole::embedding);
      }
    }
    const auto at = sizes.stage.rank.chunk_layers.begin() + chunk;
    const int64_t before = std::accumulate(sizes.stage.rank.chunk_layers.begin(), at, int64_t{0});
    for (int64_t i = 0; i < *at; ++i) {
      layers_.emplace_back(g, sizes, "decoder.layers." + std::to_string(before + i));
    }
    if (is_first_ && m.bert) types_.emplace(g, sizes);
    if (!is_last_) return;
    norm_weight_ = g.parameter("decoder.final_layernorm.weight", {m.hidden}, ParameterRole::norm);
    if (!m.rms_norm) {
      norm_bias_ = g.parameter("decoder.final_layernorm.bias", {m.hidden}, ParameterRole::norm);
    }
    // Tied embeddings are one tensor where first and last stage are one, else a copy.
    head_ = m.tied && is_first_ ? words_
                                : g.parameter("output_layer.weight", table, ParameterRole::lm_head);
    if (m.bert) bert_head_.emplace(g, sizes);
  }

  // Hidden states to send on, or the loss where this is the last.
  Var operator()(GraphBuilder& g, const MegatronBuffers& shared) const {
    const MegatronStage& stage = sizes_.stage;
    const MegatronModel& m = stage.model;
    MegatronContext context;
    if (stage.rank.mask_from_loader && !m.bert && (is_first_ || is_last_)) {
      context.mask =
          g.input("attention_mask", {stage.micro_batch, 1, sizes_.local_sequence, stage.sequence},
                  DType::boolean);
    }
    Var x = is_first_
                ? megatron_embedding(g, sizes_, words_, places_, types_ ? &*types_ : nullptr)
                : g.received("hidden_states", {sizes_.hidden_rows(), stage.micro_batch, m.hidden});
    const Var angles = m.rotary && m.latent.key_rank == 0
                           ? g.full({sizes_.local_sequence, 1, 1, m.turned_columns()}, DType::f32)
                           : Var();
    context.angles = angles;
    context.gathered = shared.gathered;
    for (const MegatronLayer& layer : layers_) x = layer(g, std::move(x), context);
    // TransformerBlock: what passes through no layer is copied, for its gradient to be its own.
    if (!is_last_ && !is_first_ && layers_.empty()) x = g.clone(std::move(x));
    if (!is_last_) return x;
    x = g.apply(OpKind::te_norm, {std::move(x), norm_weight_, norm_bias_});
    if (bert_head_) return bert_loss(g, x, shared);
    Var logits = megatron_logits(g, sizes_, x, head_, Var(), shared.gathered);
    x = Var();
    return megatron_loss(g, sizes_, std::move(logits));
  }

  [[nodiscard]] bool is_last() const { return is_last_; }

 private:
  Var bert_loss(GraphBuilder& g, const Var& x, const MegatronBuffers& shared) const {
    const Var sentences = bert_head_->sentence_loss(g, x);
    const Var ready = (*bert_head_)(g, x);
    Var logits =
        megatron_logits(g, sizes_, ready, head_, bert_head_->vocabulary_bias(), shared.gathered);
    return g.add(megatron_loss(g, sizes_, std::move(logits)), sentences);
  }

  const MegatronSizes& sizes_;
  bool is_first_, is_last_;
  Var words_, places_;
  std::optional<BertTokenTypes> types_;
  std::optional<BertHead> bert_head_;
  std::vector<MegatronLayer> layers_;
  Var norm_weight_, norm_bias_, head_;
};

Graph build_chunks(const MegatronStage& stage) {
  MegatronSizes sizes(stage);
  sizes.is_encoder = stage.model.bert;
  GraphBuilder g;
  {
    const MegatronBuffers shared(g, sizes, stage.sequence);
    for (int64_t i = 0; i < stage.rank.chunks(); ++i) {
      const Chunk chunk(g, sizes, i);
      const Var end = chunk(g, shared);
      if (chunk.is_last()) {
        g.set_outputs(end, Var(), {});
      } else if (i + 1 < stage.rank.chunks()) {
        g.end_chunk(end);
      } else {
        g.set_outputs(Var(), Var(), {&end});
      }
    }
  }
  return g.finish();
}

}  // namespace

Result<Graph> build_megatron_stage(const MegatronStage& stage) {
  HEADROOM_TRY(check(stage));
  Graph graph = stage.model.decoder_layers > 0 ? build_megatron_t5(stage) : build_chunks(stage);
  HEADROOM_TRY(check_fp8_sizes(stage, graph));
  return graph;
}

}  // namespace headroom::model
