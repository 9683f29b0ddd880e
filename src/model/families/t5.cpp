// T5 (transformers' T5ForConditionalGeneration): an encoder, and a decoder that attends to what it
// gives; positions as biases on the scores that the first layer of each makes for all; no biases in
// linear layers. The encoder reads BuildOptions::sequence tokens, the decoder decoder_sequence.
#include "model/families/t5.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/loss.h"
#include "model/blocks/mask.h"
#include "model/blocks/norm.h"
#include "model/blocks/plain_attention.h"
#include "model/builder.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t vocabulary, hidden, inner, encoder_layers, decoder_layers, heads, head_dim, buckets;
  int64_t source, target;  // tokens that the encoder and the decoder read
  double dropout;
  Activation activation;
  bool gated, scaled_output, tied;
};

// Since then the weights are tied whatever the config says (T5Config.__post_init__).
constexpr op::Version kAlwaysTied{5, 0};

// "relu" or "gated-gelu": the activation, and whether a second projection is multiplied by it.
void read_feed_forward(ConfigReader& in, const text::JsonView& json, Config& c) {
  const auto kind = json.optional_string("feed_forward_proj");
  in.require(kind.has_value(), "feed_forward_proj", "expected the name of an activation");
  if (!kind) return;
  std::string name = kind->value_or("relu");
  c.gated = name.starts_with("gated-");
  if (c.gated) name = name.substr(6);
  if (c.gated && name == "gelu") name = "gelu_new";
  text::Json wrapped = text::Json::object();
  wrapped.set("feed_forward_proj", name);
  const auto activation =
      read_activation({wrapped, json.place()}, "feed_forward_proj", Activation::relu);
  in.require(activation.has_value(), "feed_forward_proj", "unknown activation '" + name + "'");
  if (activation) c.activation = *activation;
}

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.vocabulary = options.vocabulary.value_or(in.size({"vocab_size"}, 32128));
  c.hidden = in.size({"d_model"}, 512);
  c.inner = in.size({"d_ff"}, 2048);
  c.encoder_layers = in.size({"num_layers"}, 6, kLayersMax);
  c.decoder_layers = in.size({"num_decoder_layers"}, c.encoder_layers, kLayersMax);
  c.heads = in.size({"num_heads"}, 8, kHeadsMax);
  c.head_dim = in.size({"d_kv"}, 64);
  c.buckets = in.size({"relative_attention_num_buckets"}, 32);
  c.dropout = in.dropout("dropout_rate", 0.1, options);
  c.source = options.sequence;
  c.target = options.decoder_sequence.value_or(options.sequence);
  read_feed_forward(in, json, c);
  const bool tied = in.flag("tie_word_embeddings", true);
  c.scaled_output = tied;
  c.tied = tied || options.transformers >= kAlwaysTied;
  in.require(c.heads * c.head_dim <= kSizeMax, "d_kv", "more than 2^24 columns in all heads");
  in.require(options.attention != Attention::flash_attention_2, "model_type",
             "T5 has no FlashAttention-2 implementation");
  if (in.error()) return *in.error();
  return c;
}

// Of `difference`, how far each query is from each key, the number of a bucket: [queries, keys].
Var relative_buckets(GraphBuilder& g, const Var& difference, int64_t queries, int64_t keys,
                     bool causal) {
  Var distance;
  Var buckets;
  if (causal) {
    // The smaller of difference and zero, negated.
    Var zeros = g.full({queries, keys}, DType::i64);
    distance = g.neg(g.add(difference, std::move(zeros)));
  } else {
    // Integers times a number, for which a sum stands: no integer becomes a float.
    buckets = g.add(g.add(g.to(g.compare(difference), DType::i64), 0.0), 0.0);
    distance = g.neg(difference);  // the absolute value
  }
  const Var is_small = g.compare(distance);
  Var large =
      g.to(g.mul(g.div(g.log(g.div(g.to(distance, DType::f32), 8.0)), 2.0), 8.0), DType::i64);
  large = g.add(large, 8.0);
  large = g.add(large, g.full({queries, keys}, DType::i64));  // the smaller of both
  const Var chosen = g.where(is_small, distance, large);
  return causal ? g.add(chosen, 0.0) : g.add_assign(buckets, chosen);
}

class BiasedAttention {
 public:
  BiasedAttention(GraphBuilder& g, const Config& c, bool causal, bool has_bias,
                  const std::string& name)
      : c_(c),
        causal_(causal),
        attention_(g,
                   {.hidden = c.hidden,
                    .heads = c.heads,
                    .head_dim = c.head_dim,
                    .qkv_bias = false,
                    .output_bias = false,
                    .causal = causal,
                    .dropout = c.dropout},
                   {"q", "k", "v", "o"}, name) {
    if (!has_bias) return;
    bias_ = g.parameter(name + ".relative_attention_bias.weight", {c.buckets, c.heads},
                        ParameterRole::embedding);
  }

  // `position_bias` is made where it is empty.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, int64_t sequence,
                      const Var& context, int64_t context_length, const Var& mask,
                      Var& position_bias) const {
    return attention_(g, options, x, sequence, context, context_length, mask, [&] {
      if (!position_bias) position_bias = make_bias(g, options, x, sequence, context_length);
      return position_bias;
    });
  }

 private:
  Var make_bias(GraphBuilder& g, const BuildOptions& options, const Var& like, int64_t queries,
                int64_t keys) const {
    if (!bias_) {
      Var zeros = g.full_like({1, c_.heads, queries, keys}, like);
      return options.checkpointing ? g.require_grad(zeros) : zeros;
    }
    const Var context = g.add(g.unsqueeze(g.arange(queries), -1), 0.0);
    const Var memory = g.unsqueeze(g.arange(keys), 0);
    const Var difference = g.sub(memory, context);
    const Var buckets = relative_buckets(g, difference, queries, keys, causal_);
    const Var values = g.embedding(bias_, buckets);
    return g.unsqueeze(g.permute(values, {2, 0, 1}), 0);
  }

  const Config& c_;
  bool causal_;
  PlainAttention attention_;
  Var bias_;  // empty but in the first layer
};

// norm, attention, dropout, and the sum with what went in.
class AttentionPart {
 public:
  AttentionPart(GraphBuilder& g, const Config& c, bool causal, bool has_bias,
                const std::string& name, const std::string& attention)
      : name_(name + "." + attention),
        dropout_(c.dropout),
        attention_(g, c, causal, has_bias, name_),
        norm_(g, name + ".layer_norm", c.hidden) {}

  // Attends to `context`, or to itself where that is null.
  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x, int64_t sequence,
                      const Var* context, int64_t context_length, const Var& mask,
                      Var& position_bias) const {
    const Var normed = norm_(g, x);
    Attended attended;
    {
      RegionScope region(g, RegionKind::attention, name_, {&normed});
      const Var& other = context != nullptr ? *context : normed;
      attended =
          attention_(g, options, normed, sequence, other, context_length, mask, position_bias);
      region.leave({&attended.output});
    }
    attended.output = g.add(x, g.dropout(attended.output, dropout_));
    return attended;
  }

 private:
  std::string name_;
  double dropout_;
  BiasedAttention attention_;
  WideScaleNorm norm_;
};

class FeedForwardPart {
 public:
  FeedForwardPart(GraphBuilder& g, const Config& c, const std::string& name)
      : c_(c),
        name_(name + ".DenseReluDense"),
        in_(g, name_ + (c.gated ? ".wi_0" : ".wi"), c.hidden, c.inner, false) {
    if (c.gated) gate_.emplace(g, name_ + ".wi_1", c.hidden, c.inner, false);
    out_ = Linear(g, name_ + ".wo", c.inner, c.hidden, false);
    norm_.emplace(g, name + ".layer_norm", c.hidden);
  }

  Var operator()(GraphBuilder& g, const Var& x) const {
    Var forwarded = (*norm_)(g, x);
    {
      RegionScope region(g, RegionKind::mlp, name_, {&forwarded});
      forwarded = dense(g, forwarded);
      region.leave({&forwarded});
    }
    return g.add(x, g.dropout(forwarded, c_.dropout));
  }

 private:
  Var dense(GraphBuilder& g, const Var& input) const {
    Var x = in_(g, input);
    if (!gate_) {
      x = activate(g, c_.activation, x);
      x = g.dropout(x, c_.dropout);
      return out_(g, x);
    }
    x = activate(g, c_.activation, x);
    const Var linear = (*gate_)(g, input);
    Var product = g.mul(x, linear);
    product = g.dropout(product, c_.dropout);
    return out_(g, product);
  }

  const Config& c_;
  std::string name_;
  Linear in_, out_;
  std::optional<Linear> gate_;
  std::optional<WideScaleNorm> norm_;
};

// What the layers of a stack share: the first one makes the biases for all.
struct StackInputs {
  Var mask;
  Var bias, cross_bias;
  const Var* encoded = nullptr;  // what the decoder attends to
};

class Block {
 public:
  Block(GraphBuilder& g, const Config& c, bool is_decoder, bool is_first, const std::string& name)
      : c_(c), name_(name), self_(g, c, is_decoder, is_first, name + ".layer.0", "SelfAttention") {
    if (is_decoder) cross_.emplace(g, c, false, false, name + ".layer.1", "EncDecAttention");
    forward_.emplace(g, c, name + (is_decoder ? ".layer.2" : ".layer.1"));
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input, int64_t sequence,
                 StackInputs& in) const {
    const Var no_encoded;
    const Var& encoded = in.encoded != nullptr ? *in.encoded : no_encoded;
    const Var bias_in = in.bias;
    const Var cross_in = in.cross_bias;
    const Var no_mask;
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.mask, &bias_in, &encoded, &no_mask, &cross_in});
    region.set_positional(6);
    Var x = input;
    Var bias = bias_in;
    Var cross_bias = cross_in;
    Var unused_weights;
    {
      const Attended attended = self_(g, options, x, sequence, nullptr, sequence, in.mask, bias);
      x = attended.output;
      unused_weights = attended.weights;
    }
    if (cross_) {
      const Attended attended =
          (*cross_)(g, options, x, sequence, in.encoded, c_.source, {}, cross_bias);
      x = attended.output;
      unused_weights = attended.weights;
    }
    x = (*forward_)(g, x);
    region.leave({&x, &bias, &cross_bias});
    in.bias = bias;
    in.cross_bias = cross_bias;
    return x;
  }

 private:
  const Config& c_;
  std::string name_;
  AttentionPart self_;
  std::optional<AttentionPart> cross_;
  std::optional<FeedForwardPart> forward_;
};

class Stack {
 public:
  Stack(GraphBuilder& g, const Config& c, const Var& shared, bool is_decoder)
      : c_(c), is_decoder_(is_decoder) {
    const std::string name = is_decoder ? "decoder" : "encoder";
    embed_ = g.tied(name + ".embed_tokens.weight", shared, ParameterRole::embedding);
    const int64_t layers = is_decoder ? c.decoder_layers : c.encoder_layers;
    for (int64_t i = 0; i < layers; ++i) {
      blocks_.emplace_back(g, c, is_decoder, i == 0, name + ".block." + std::to_string(i));
    }
    norm_.emplace(g, name + ".final_layer_norm", c.hidden);
  }

  // `encoded` is what the decoder attends to.
  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& ids,
                 const Var* encoded) const {
    const int64_t sequence = is_decoder_ ? c_.target : c_.source;
    const Var embedded = g.embedding(embed_, ids);
    StackInputs in;
    in.encoded = encoded;
    if (is_decoder_) {
      BuildOptions of_decoder = options;
      of_decoder.sequence = sequence;
      in.mask = causal_mask(g, of_decoder, embedded, {});
    }
    Var x = g.dropout(embedded, c_.dropout);
    for (const Block& block : blocks_) x = block(g, options, x, sequence, in);
    x = (*norm_)(g, x);
    x = g.dropout(x, c_.dropout);
    return x;
  }

 private:
  const Config& c_;
  bool is_decoder_;
  Var embed_;
  std::vector<Block> blocks_;
  std::optional<WideScaleNorm> norm_;
};

// The labels one place to the right, behind the token that the decoder begins with.
Var shifted_right(GraphBuilder& g, const BuildOptions& options, const Config& c,
                  const Var& labels) {
  Var shifted = g.full({options.batch, c.target}, DType::i64);
  shifted = g.copy_slice(shifted, g.clone(g.slice(labels, -1, 0, c.target - 1)), -1, 1, c.target);
  g.compare(shifted);
  return shifted;
}

}  // namespace

Result<Graph> build_t5(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Var shared =
        g.parameter("shared.weight", {c.vocabulary, c.hidden}, ParameterRole::embedding);
    const Stack encoder(g, c, shared, false);
    const Stack decoder(g, c, shared, true);
    const LmHead head(g, options, "lm_head", c.vocabulary, c.hidden, c.tied ? shared : Var());
    const Var ids = g.input("input_ids", {options.batch, c.source}, DType::i64);
    const Var labels = g.input("labels", {options.batch, c.target}, DType::i64);

    const Var encoded = encoder(g, options, ids, nullptr);
    const Var decoder_ids = shifted_right(g, options, c, labels);
    const Var decoded = decoder(g, options, decoder_ids, &encoded);
    const Var x = c.scaled_output ? g.mul(decoded, 0.5) : decoded;
    const Var logits = head.logits(g, x);
    const Var loss = token_loss(g, options, logits, labels, c.vocabulary);
    g.set_outputs(loss, logits, {});
  }
  return g.finish();
}

}  // namespace headroom::model
