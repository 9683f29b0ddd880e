#include "model/megatron.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/megatron_attention.h"
#include "model/megatron_mla.h"
#include "model/megatron_moe.h"
#include "model/megatron_parts.h"

namespace headroom::model {

namespace {

// Far beyond any model or cluster, so that products of a few stay within 64 bits.
constexpr int64_t kSizeMax = int64_t{1} << 24;
constexpr int64_t kWidthMax = int64_t{1} << 20;
constexpr int64_t kRanksMax = 65'536;
constexpr int64_t kLayersMax = 1024;  // as of a model's config.json
constexpr int64_t kExpertsMax = 4096;

Error wrong(std::string what) { return Error{ErrorCode::bad_input, std::move(what), "", ""}; }

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
    if (l.rotary_size % 2 != 0) return wrong("the rotary part of a head is odd");
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
  return {};
}

// The MLP of every token, its norm fused with its first product.
struct DenseMlp {
  MegatronNorm norm;
  Var fc1_weight, fc1_bias, fc2_weight, fc2_bias;

  DenseMlp(GraphBuilder& g, const MegatronStage& stage, const std::string& path)
      : norm(g, path + ".linear_fc1.layer_norm_", stage.model, stage.model.hidden) {
    const MegatronModel& m = stage.model;
    const int64_t width = m.inner / stage.rank.tensor;
    const int64_t columns = width * (m.gated ? 2 : 1);
    fc1_weight =
        g.parameter(path + ".linear_fc1.weight", {columns, m.hidden}, ParameterRole::linear);
    if (m.linear_bias)
      fc1_bias = g.parameter(path + ".linear_fc1.bias", {columns}, ParameterRole::bias);
    fc2_weight = g.parameter(path + ".linear_fc2.weight", {m.hidden, width}, ParameterRole::linear);
    if (m.linear_bias)
      fc2_bias = g.parameter(path + ".linear_fc2.bias", {m.hidden}, ParameterRole::bias);
  }

  Var operator()(GraphBuilder& g, const MegatronStage& stage, const Var& input) const {
    const Attributes parallel = divided(stage.rank);
    Var x = g.apply(OpKind::te_norm_linear, {input, norm.weight, norm.bias, fc1_weight, Var()},
                    parallel);
    x = g.apply(stage.model.gated ? OpKind::bias_swiglu : OpKind::bias_gelu,
                {std::move(x), fc1_bias});
    return g.apply(OpKind::te_row_linear, {std::move(x), fc2_weight}, parallel);
  }
};

// A mixture of experts behind a norm of its own.
struct ExpertMlp {
  MegatronNorm norm;
  MegatronExperts experts;

  ExpertMlp(GraphBuilder& g, const MegatronStage& stage, const std::string& layer)
      : norm(g, layer + ".pre_mlp_layernorm.", stage.model, stage.model.hidden),
        experts(g, stage, layer + ".mlp") {}

  Var operator()(GraphBuilder& g, const Var& input, const Var& gathered) const {
    const Var x = g.apply(OpKind::te_norm, {input, norm.weight, norm.bias});
    return experts(g, x, gathered);
  }
};

// Every head with keys and values of its own, or groups of heads that share them.
class SelfAttention {
 public:
  SelfAttention(GraphBuilder& g, const MegatronSizes& sizes, const std::string& layer)
      : sizes_(sizes), name_(layer + ".self_attention") {
    const MegatronModel& m = sizes.stage.model;
    const int64_t features = (sizes.heads + 2 * sizes.kv_heads) * m.head_size;
    proj_weight_ = g.parameter(name_ + ".linear_proj.weight", {m.hidden, sizes.heads * m.head_size},
                               ParameterRole::linear);
    norm_ = MegatronNorm(g, name_ + ".linear_qkv.layer_norm_", m, m.hidden);
    qkv_weight_ =
        g.parameter(name_ + ".linear_qkv.weight", {features, m.hidden}, ParameterRole::linear);
    if (m.linear_bias) {
      proj_bias_ = g.parameter(name_ + ".linear_proj.bias", {m.hidden}, ParameterRole::bias);
    }
    if (m.qkv_bias) {
      qkv_bias_ = g.parameter(name_ + ".linear_qkv.bias", {features}, ParameterRole::bias);
    }
  }

  Var operator()(GraphBuilder& g, const Var& input, const Var& angles) const {
    const int64_t s = sizes_.local_sequence;
    const int64_t b = sizes_.stage.micro_batch;
    const int64_t d = sizes_.stage.model.head_size;
    const Attributes parallel = divided(sizes_.stage.rank);
    const Var qkv = g.apply(OpKind::te_norm_linear,
                            {input, norm_.weight, norm_.bias, qkv_weight_, qkv_bias_}, parallel);
    const int64_t group = sizes_.heads / sizes_.kv_heads;
    std::vector<Var> parts =
        g.split(g.view(qkv, {s, b, sizes_.kv_heads, (group + 2) * d}), {group * d, d, d}, 3);
    parts[0] = g.reshape(parts[0], {s, b, sizes_.heads, d});
    if (angles) {
      for (size_t i = 0; i < 2; ++i) parts[i] = g.apply(OpKind::te_rotary, {parts[i], angles});
    }
    const CoreAttention core{s, s, sizes_.heads, sizes_.kv_heads, d, d, static_cast<bool>(angles)};
    Var context = core(g, sizes_.stage, std::move(parts), name_);
    return g.apply(OpKind::te_row_linear, {std::move(context), proj_weight_}, parallel);
  }

  [[nodiscard]] const Var& bias() const { return proj_bias_; }

 private:
  const MegatronSizes& sizes_;
  std::string name_;
  Var proj_weight_, proj_bias_;
  MegatronNorm norm_;
  Var qkv_weight_, qkv_bias_;
};

// As the modules' constructors declare them: attention, then the MLP. Of each there is one kind.
class Layer {
 public:
  Layer(GraphBuilder& g, const MegatronSizes& sizes, const std::string& path)
      : sizes_(sizes), name_(path) {
    const MegatronModel& m = sizes.stage.model;
    if (m.latent.key_rank > 0) {
      latent_.emplace(g, sizes, path);
    } else {
      heads_.emplace(g, sizes, path);
    }
    if (m.experts > 0) {
      mixture_.emplace(g, sizes.stage, path);
    } else {
      dense_.emplace(g, sizes.stage, path + ".mlp");
    }
  }

  Var operator()(GraphBuilder& g, Var input, const Var& angles, const Var& gathered) const {
    RegionScope region(g, RegionKind::layer, name_, {&input, &angles});
    Var x;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attention", {&input});
      x = latent_ ? (*latent_)(g, input) : (*heads_)(g, input, angles);
      inner.leave({&x});
    }
    const Var residual =
        add(g, std::move(x), latent_ ? latent_->bias() : heads_->bias(), std::move(input));
    {
      RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&residual});
      x = dense_ ? (*dense_)(g, sizes_.stage, residual) : (*mixture_)(g, residual, gathered);
      inner.leave({&x});
    }
    x = add(g, std::move(x), dense_ ? dense_->fc2_bias : Var(), residual);
    region.leave({&x});
    return x;
  }

 private:
  Var add(GraphBuilder& g, Var x, const Var& its_bias, Var residual) const {
    Attributes attributes;
    attributes.number = sizes_.stage.model.hidden_dropout;
    return g.apply(OpKind::bias_dropout_add, {std::move(x), its_bias, std::move(residual)},
                   std::move(attributes));
  }

  const MegatronSizes& sizes_;
  std::string name_;
  std::optional<SelfAttention> heads_;
  std::optional<MegatronLatentAttention> latent_;
  std::optional<DenseMlp> dense_;
  std::optional<ExpertMlp> mixture_;
};

// VocabParallelEmbedding and learned positions, then [s, b, h], scattered and dropped out.
Var embed(GraphBuilder& g, const MegatronSizes& sizes, const Var& words, const Var& places) {
  const MegatronStage& stage = sizes.stage;
  const int64_t s = sizes.local_sequence;
  const int64_t b = stage.micro_batch;
  const Var ids = g.input("tokens", {b, s}, DType::i64);
  const Var position_ids = g.input("position_ids", {b, s}, DType::i64);
  Var x;
  if (stage.rank.tensor > 1) {
    const Var outside = g.compare(ids, ids);
    Var masked = g.add(g.clone(ids), 0.0);
    masked = g.masked_fill(masked, outside);
    x = g.embedding(words, masked);
    x = g.masked_fill(x, g.unsqueeze(outside, 2));
  } else {
    x = g.embedding(words, ids);
  }
  if (places) x = g.add(std::move(x), g.embedding(places, position_ids));
  x = g.contiguous(g.transpose(std::move(x), 0, 1));
  if (sizes.sequence_ranks > 1) {
    x = g.clone(g.slice(std::move(x), 0, 0, sizes.hidden_rows()));
  }
  return g.dropout(std::move(x), stage.model.hidden_dropout);
}

// pretrain_gpt.py's loss_func over what the vocabulary's parts give.
Var loss_of(GraphBuilder& g, const MegatronSizes& sizes, Var logits) {
  const int64_t s = sizes.local_sequence;
  const int64_t b = sizes.stage.micro_batch;
  const Var labels = g.input("labels", {b, s}, DType::i64);
  const Var loss_mask = g.input("loss_mask", {b, s}, DType::f32);
  RegionScope region(g, RegionKind::loss, "loss", {&logits});
  const Var targets = g.contiguous(g.transpose(labels, 0, 1));
  Var losses = g.apply(OpKind::parallel_cross_entropy, {std::move(logits), targets});
  losses = g.contiguous(g.transpose(std::move(losses), 0, 1));
  Var masked = g.mul(g.view(std::move(losses), {-1}), g.view(loss_mask, {-1}));
  Var loss = g.sum(std::move(masked), {0}, false);
  region.leave({&loss});
  return loss;
}

// LanguageModel.output_layer over the whole sequence, which is gathered into a lasting buffer.
Var logits_of(GraphBuilder& g, const MegatronSizes& sizes, const Var& hidden, const Var& weight,
              const Var& gathered) {
  RegionScope region(g, RegionKind::lm_head, "output_layer", {&hidden});
  Var logits =
      g.apply(OpKind::column_linear, {hidden, weight, gathered}, divided(sizes.stage.rank));
  region.leave({&logits});
  return logits;
}

// What is made once for all chunks.
struct Shared {
  Var gathered;  // sequences put together; none where nothing is
  Var workspace;

  Shared(GraphBuilder& g, const MegatronSizes& sizes) {
    const MegatronStage& stage = sizes.stage;
    const int64_t head_elements =
        stage.rank.is_last() && sizes.sequence_ranks > 1
            ? sizes.local_sequence * stage.micro_batch * stage.model.hidden
            : 0;
    const int64_t gathers = std::max(head_elements, MegatronExperts::gathered_elements(stage));
    if (gathers > 0) {
      gathered = g.buffer("global_memory_buffer.mpu", {gathers}, std::nullopt, false);
    }
    if (stage.workspace_bytes > 0) {
      workspace =
          g.buffer("transformer_engine.workspace", {stage.workspace_bytes}, DType::u8, false);
    }
  }
};

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
    if (!is_last_) return;
    norm_weight_ = g.parameter("decoder.final_layernorm.weight", {m.hidden}, ParameterRole::norm);
    if (!m.rms_norm) {
      norm_bias_ = g.parameter("decoder.final_layernorm.bias", {m.hidden}, ParameterRole::norm);
    }
    // Tied embeddings are one tensor where first and last stage are one, else a copy.
    head_ = m.tied && is_first_ ? words_
                                : g.parameter("output_layer.weight", table, ParameterRole::lm_head);
  }

  // Hidden states to send on, or the loss where this is the last.
  Var operator()(GraphBuilder& g, const Shared& shared) const {
    const MegatronStage& stage = sizes_.stage;
    const MegatronModel& m = stage.model;
    if (stage.rank.mask_from_loader && (is_first_ || is_last_)) {
      const Var mask =
          g.input("attention_mask", {stage.micro_batch, 1, sizes_.local_sequence, stage.sequence},
                  DType::boolean);
    }
    Var x = is_first_
                ? embed(g, sizes_, words_, places_)
                : g.received("hidden_states", {sizes_.hidden_rows(), stage.micro_batch, m.hidden});
    const Var angles = m.rotary && m.latent.key_rank == 0
                           ? g.full({sizes_.local_sequence, 1, 1, m.head_size}, DType::f32)
                           : Var();
    for (const Layer& layer : layers_) x = layer(g, std::move(x), angles, shared.gathered);
    if (!is_last_) return x;
    x = g.apply(OpKind::te_norm, {std::move(x), norm_weight_, norm_bias_});
    Var logits = logits_of(g, sizes_, x, head_, shared.gathered);
    x = Var();
    return loss_of(g, sizes_, std::move(logits));
  }

  [[nodiscard]] bool is_last() const { return is_last_; }

 private:
  const MegatronSizes& sizes_;
  bool is_first_, is_last_;
  Var words_, places_;
  std::vector<Layer> layers_;
  Var norm_weight_, norm_bias_, head_;
};

}  // namespace

Result<Graph> build_megatron_stage(const MegatronStage& stage) {
  HEADROOM_TRY(check(stage));
  const MegatronSizes sizes(stage);
  GraphBuilder g;
  {
    const Shared shared(g, sizes);
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

}  // namespace headroom::model
