// ViT (transformers' ViTForImageClassification): an image cut into patches, a token for the class
// before them, layers with a norm before each part, and a linear classifier on the first token. The
// number of tokens follows from the image, so BuildOptions::sequence is not read.
#include "model/families/vit.h"

#include <array>
#include <string>
#include <vector>

#include "model/blocks/loss.h"
#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/blocks/plain_attention.h"
#include "model/builder.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

struct Config {
  int64_t hidden, inner, layers, heads, channels, classes;
  std::array<int64_t, 2> image, patch;  // height and width, in pixels
  double hidden_dropout, attention_dropout;
  Activation activation;
  bool qkv_bias;

  [[nodiscard]] std::array<int64_t, 2> grid() const {
    return {image[0] / patch[0], image[1] / patch[1]};
  }
  [[nodiscard]] int64_t tokens() const { return grid()[0] * grid()[1] + 1; }
};

constexpr int64_t kPixelsMax = 1 << 14;

// One number for both directions, or two.
std::array<int64_t, 2> read_square(ConfigReader& in, const text::JsonView& json, const char* key,
                                   int64_t otherwise) {
  const text::Json* found = json.json().find(key);
  if (found == nullptr || !found->is_array()) {
    const int64_t side = in.size({key}, otherwise, kPixelsMax);
    return {side, side};
  }
  std::array<int64_t, 2> sides{otherwise, otherwise};
  const auto items = json.optional_array(key, 2);
  in.require(items && *items && (*items)->size() == 2, key, "expected a number, or two");
  if (in.error()) return sides;
  for (size_t i = 0; i < 2; ++i) {
    const auto side = (**items)[i].to_int(1, kPixelsMax);
    in.require(side.has_value(), key, "expected sizes in pixels");
    if (side) sides[i] = *side;
  }
  return sides;
}

Result<Config> read_config(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c{};
  c.hidden = in.size({"hidden_size"}, 768);
  c.inner = in.size({"intermediate_size"}, 3072);
  c.layers = in.size({"num_hidden_layers"}, 12, kLayersMax);
  c.heads = in.size({"num_attention_heads"}, 12, kHeadsMax);
  c.channels = in.size({"num_channels"}, 3, 1 << 12);
  c.image = read_square(in, json, "image_size", 224);
  c.patch = read_square(in, json, "patch_size", 16);
  c.classes = read_classes(in, json);
  c.hidden_dropout = in.dropout("hidden_dropout_prob", 0, options);
  c.attention_dropout = in.dropout("attention_probs_dropout_prob", 0, options);
  c.activation = in.activation("hidden_act", Activation::gelu);
  c.qkv_bias = in.flag("qkv_bias", true);
  in.require(c.hidden % c.heads == 0, "num_attention_heads", "the heads do not divide hidden_size");
  in.require(c.patch[0] <= c.image[0] && c.patch[1] <= c.image[1], "patch_size",
             "larger than the image");
  in.require(c.classes > 1, "num_labels", "one class is a regression, which is not modelled");
  if (in.error()) return *in.error();
  return c;
}

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& c, const std::string& name)
      : name_(name),
        tokens_(c.tokens()),
        dropout_(c.hidden_dropout),
        attention_(g,
                   {.hidden = c.hidden,
                    .heads = c.heads,
                    .head_dim = c.hidden / c.heads,
                    .qkv_bias = c.qkv_bias,
                    .float32_softmax = true,
                    .dropout = c.attention_dropout},
                   {.output = "o_proj"}, name + ".attention"),
        norm_before_(g, name + ".layernorm_before", c.hidden),
        norm_after_(g, name + ".layernorm_after", c.hidden),
        mlp_{Linear(g, name + ".mlp.fc1", c.hidden, c.inner, true),
             Linear(g, name + ".mlp.fc2", c.inner, c.hidden, true), c.activation, 0} {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    RegionScope region(g, RegionKind::layer, name_, {&input});
    Var residual = input;
    Var x = norm_before_(g, input);
    Var unused_weights;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".attention", {&x});
      const Attended attended = attention_(g, options, x, tokens_, x, tokens_, {});
      x = attended.output;
      unused_weights = attended.weights;
      inner.leave({&x});
    }
    x = g.dropout(x, dropout_);
    x = g.add(x, residual);
    residual = x;
    x = norm_after_(g, x);
    {
      RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&x});
      x = mlp_(g, options, x);
      inner.leave({&x});
    }
    x = g.dropout(x, dropout_);
    x = g.add(x, residual);
    region.leave({&x});
    return x;
  }

 private:
  std::string name_;
  int64_t tokens_;
  double dropout_;
  PlainAttention attention_;
  LayerNorm norm_before_, norm_after_;
  Mlp<Linear> mlp_;
};

class Embeddings {
 public:
  Embeddings(GraphBuilder& g, const Config& c, const std::string& name)
      : c_(c),
        class_token_(g.parameter(name + ".cls_token", {1, 1, c.hidden}, ParameterRole::other)),
        places_(g.parameter(name + ".position_embeddings", {1, c.tokens(), c.hidden},
                            ParameterRole::embedding)),
        weight_(g.parameter(name + ".patch_embeddings.projection.weight",
                            {c.hidden, c.channels, c.patch[0], c.patch[1]}, ParameterRole::other)),
        bias_(g.parameter(name + ".patch_embeddings.projection.bias", {c.hidden},
                          ParameterRole::bias)) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& pixels) const {
    Var x = patches(g, options, pixels);
    {
      const std::array<Var, 2> parts{g.expand(class_token_, {options.batch, -1, -1}), x};
      x = g.cat(parts, 1);
    }
    x = g.add(x, places_);
    x = g.dropout(x, c_.hidden_dropout);
    return x;
  }

 private:
  // [batch, patches, hidden]
  Var patches(GraphBuilder& g, const BuildOptions& options, const Var& pixels) const {
    const auto [rows, columns] = c_.grid();
    Var x = g.conv2d(pixels, weight_, bias_, c_.patch);
    x = g.view(std::move(x), {options.batch, c_.hidden, rows * columns});
    return g.transpose(std::move(x), 1, 2);
  }

  const Config& c_;
  Var class_token_, places_, weight_, bias_;
};

}  // namespace

Result<Graph> build_vit(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const Config c, read_config(json, options));
  GraphBuilder g;
  {
    const Embeddings embeddings(g, c, "vit.embeddings");
    std::vector<Layer> layers;
    for (int64_t i = 0; i < c.layers; ++i) {
      layers.emplace_back(g, c, "vit.layers." + std::to_string(i));
    }
    const LayerNorm norm(g, "vit.layernorm", c.hidden);
    const Var weight =
        g.parameter("classifier.weight", {c.classes, c.hidden}, ParameterRole::lm_head);
    const Var bias = g.parameter("classifier.bias", {c.classes}, ParameterRole::bias);
    const Var pixels =
        g.input("pixel_values", {options.batch, c.channels, c.image[0], c.image[1]}, std::nullopt);
    const Var labels = g.input("labels", {options.batch}, DType::i64);

    Var x;
    {
      const Var embedded = embeddings(g, options, pixels);
      x = embedded;
      for (const Layer& layer : layers) x = layer(g, options, x);
      x = norm(g, x);
    }
    const Var first = g.select(x, 1, 0);
    Var logits;
    {
      RegionScope region(g, RegionKind::lm_head, "classifier", {&first});
      logits = g.linear(first, weight, bias);
      region.leave({&logits});
    }
    const Var loss = token_loss(g, options, logits, labels, c.classes);
    g.set_outputs(loss, logits, {});
  }
  return g.finish();
}

}  // namespace headroom::model
