#include "fit/megatron/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "fit/megatron/question.h"
#include "model/families/decoder_config.h"
#include "model/families/moe_config.h"
#include "model/load.h"
#include "text/number.h"

namespace headroom::fit {

namespace {

using engines::MegatronArguments;
using model::Activation;
using model::ConfigReader;
using text::JsonView;

// What reading a family's config needs.
struct Reading {
  const JsonView& json;
  const model::BuildOptions& options;
  ConfigReader in;
  MegatronArguments& to;
};

// Megatron-LM's SwiGLU is with SiLU, its fused GELU the approximation by tanh.
void require_silu(Reading& read, Activation activation) {
  read.in.require(activation == Activation::silu, "hidden_act", "Megatron-LM's --swiglu has silu");
  read.to.swiglu = true;
}

void require_gelu(Reading& read, const char* key, Activation activation) {
  read.in.require(activation == Activation::gelu_new || activation == Activation::gelu_tanh, key,
                  "Megatron-LM's fused GELU is gelu_new (the approximation by tanh)");
}

// Windows change nothing for a sequence that is no longer.
void require_no_window(Reading& read, int64_t window) {
  read.in.require(window == 0 || read.options.sequence <= window, "sliding_window",
                  "a window (--window-size) is not modelled: --seq " + std::to_string(window) +
                      " or less has none");
}

int64_t window_of(const model::DecoderFrame& frame) {
  return std::ranges::find(frame.masks, model::LayerMask::sliding) == frame.masks.end()
             ? 0
             : frame.sliding_window;
}

void take_decoder(Reading& read, const model::DecoderSpec& spec) {
  MegatronArguments& a = read.to;
  a.layers = spec.layers;
  a.hidden = spec.hidden;
  a.heads = spec.heads;
  a.query_groups = spec.kv_heads;
  a.kv_channels = spec.head_dim;
  a.ffn = spec.intermediate;
  a.vocabulary = spec.vocabulary;
  a.tied = spec.tied;
  a.attention_dropout = spec.attention_dropout;
  a.rotary = true;
  a.rms_norm = true;
  // int(kv_channels * rotary_percent), there.
  a.rotary_percent = static_cast<double>(spec.rotary_dims) / static_cast<double>(spec.head_dim);
  const double turned = a.rotary_percent * static_cast<double>(spec.head_dim);
  read.in.require(static_cast<int64_t>(turned) == spec.rotary_dims, "partial_rotary_factor",
                  "no --rotary-percent turns as much of a head");
}

void read_llama(Reading& read) {
  const model::DecoderSpec spec = model::read_decoder(read.in, read.json, read.options);
  take_decoder(read, spec);
  require_silu(read, spec.activation);
  read.to.linear_bias = read.in.flag("mlp_bias", false);
  read.in.require(read.to.linear_bias == read.in.flag("attention_bias", false), "attention_bias",
                  "Megatron-LM has biases in all products, or, of attention, in the first alone");
}

void read_mistral(Reading& read) {
  model::DecoderSpec spec = model::read_decoder(read.in, read.json, read.options, {.kv_heads = 8});
  model::read_sliding_window(read.in, read.json, spec, 4096);
  take_decoder(read, spec);
  require_silu(read, spec.activation);
  require_no_window(read, window_of(spec));
}

void read_qwen2(Reading& read) {
  const model::DecoderSpec spec =
      model::read_decoder(read.in, read.json, read.options, {.kv_heads = 32});
  take_decoder(read, spec);
  require_silu(read, spec.activation);
  read.to.qkv_bias = true;
  if (!read.in.flag("use_sliding_window", false)) return;
  require_no_window(read, read.in.size({"sliding_window"}, 4096, model::kWindowMax));
}

void read_qwen3(Reading& read) {
  const model::DecoderSpec spec =
      model::read_decoder(read.in, read.json, read.options, {.kv_heads = 32, .head_dim = 128});
  take_decoder(read, spec);
  require_silu(read, spec.activation);
  read.in.require(!read.in.flag("attention_bias", false), "attention_bias",
                  "Megatron-LM has biases in all products, or, of attention, in the first alone");
  read.to.qk_layernorm = true;
  if (!read.in.flag("use_sliding_window", false)) return;
  require_no_window(read, read.in.size({"sliding_window"}, 4096, model::kWindowMax));
}

void read_phi3(Reading& read) {
  model::DecoderSpec spec = model::read_decoder(read.in, read.json, read.options);
  model::read_sliding_window(read.in, read.json, spec, {});
  take_decoder(read, spec);
  require_silu(read, spec.activation);
  require_no_window(read, window_of(spec));
  read.in.require(read.in.dropout("resid_pdrop", 0, read.options) == 0, "resid_pdrop",
                  "Megatron-LM drops out behind the embedding as well");
}

void read_starcoder2(Reading& read) {
  model::DecoderSpec spec =
      model::read_decoder(read.in, read.json, read.options,
                          {.tied = true, .activation = Activation::gelu_tanh, .kv_heads = 2});
  model::read_sliding_window(read.in, read.json, spec, {});
  take_decoder(read, spec);
  require_gelu(read, "hidden_act", spec.activation);
  require_no_window(read, window_of(spec));
  read.to.rms_norm = false;
  read.to.linear_bias = read.in.flag("use_bias", true);
  read.to.hidden_dropout = read.in.dropout("residual_dropout", 0, read.options);
  read.in.require(read.in.dropout("embedding_dropout", 0, read.options) == read.to.hidden_dropout,
                  "embedding_dropout",
                  "Megatron-LM's --hidden-dropout is behind the embedding as well");
}

void read_gpt2(Reading& read) {
  MegatronArguments& a = read.to;
  ConfigReader& in = read.in;
  a.vocabulary = read.options.vocabulary.value_or(in.size({"vocab_size"}, 50257));
  a.positions = in.size({"n_positions", "max_position_embeddings"}, 1024);
  a.hidden = in.size({"n_embd", "hidden_size"}, 768);
  a.ffn = in.size({"n_inner"}, 4 * a.hidden, 4 * model::kSizeMax);
  a.layers = in.size({"n_layer", "num_hidden_layers"}, 12, model::kLayersMax);
  a.heads = in.size({"n_head", "num_attention_heads"}, 12, model::kHeadsMax);
  a.query_groups = a.heads;
  a.kv_channels = std::max<int64_t>(a.hidden / a.heads, 1);
  in.require(a.hidden % a.heads == 0, "n_head", "the heads do not divide n_embd");
  a.hidden_dropout = in.dropout("resid_pdrop", 0.1, read.options);
  a.attention_dropout = in.dropout("attn_pdrop", 0.1, read.options);
  in.require(in.dropout("embd_pdrop", 0.1, read.options) == a.hidden_dropout, "embd_pdrop",
             "Megatron-LM's --hidden-dropout is behind the embedding as well");
  require_gelu(read, "activation_function",
               in.activation("activation_function", Activation::gelu_new));
  a.tied = in.flag("tie_word_embeddings", true);
}

void take_experts(Reading& read, const model::MoeConfig& config) {
  MegatronArguments& a = read.to;
  a.layers = config.decoder.layers;
  a.hidden = config.decoder.hidden;
  a.heads = config.attention.heads;
  a.query_groups = config.attention.kv_heads;
  a.kv_channels = config.attention.head_dim;
  a.vocabulary = config.decoder.vocabulary;
  a.tied = config.decoder.tied;
  a.attention_dropout = config.attention.dropout;
  a.ffn = config.intermediate;
  a.rotary = true;
  a.rms_norm = true;
  require_silu(read, config.activation);
}

void read_mixtral(Reading& read) {
  model::MoeConfig config;
  config.read(read.in, read.options, {"num_local_experts"}, "intermediate_size");
  take_experts(read, config);
  read.to.experts = config.experts.experts;
  read.to.experts_per_token = config.experts.top_k;
  read.to.expert_ffn = config.experts.intermediate;
  read.to.grouped_experts = true;
  const bool has_window = read.json.has("sliding_window");
  require_no_window(read, has_window ? read.in.size({"sliding_window"}, {}, model::kWindowMax) : 0);
}

// What Qwen's mixtures have in common.
void read_qwen_moe(Reading& read) {
  model::MoeConfig config;
  config.read(read.in, read.options, {"num_experts"}, "moe_intermediate_size");
  take_experts(read, config);
  MegatronArguments& a = read.to;
  a.experts = config.experts.experts;
  a.experts_per_token = config.experts.top_k;
  a.expert_ffn = config.experts.intermediate;
  a.grouped_experts = true;
  if (read.in.flag("use_sliding_window", false)) {
    require_no_window(read, read.in.size({"sliding_window"}, 4096, model::kWindowMax));
  }
  const auto sparse = model::sparse_layers(read.json, a.layers);
  read.in.require(sparse && std::ranges::count(*sparse, false) == 0, "decoder_sparse_step",
                  "layers without experts between others (--moe-layer-freq) are not modelled");
}

void read_qwen2_moe(Reading& read) {
  read_qwen_moe(read);
  read.to.qkv_bias = read.in.flag("qkv_bias", true);
  read.to.shared_expert_ffn = read.in.size({"shared_expert_intermediate_size"});
  read.to.shared_expert_gate = true;
}

void read_qwen3_moe(Reading& read) {
  read_qwen_moe(read);
  read.to.qk_layernorm = true;
  read.in.require(!read.in.flag("attention_bias", false), "attention_bias",
                  "Megatron-LM has biases in all products, or, of attention, in the first alone");
}

// Latent attention; of these models' experts none are like Megatron-LM's that are modelled, so that
// only a model whose layers all are dense is taken.
void read_deepseek(Reading& read) {
  model::MoeConfig config;
  config.read(read.in, read.options, {"n_routed_experts", "num_local_experts"},
              "moe_intermediate_size");
  take_experts(read, config);
  MegatronArguments& a = read.to;
  a.query_groups = a.heads;
  a.q_lora_rank = read.json.has("q_lora_rank") ? read.in.size({"q_lora_rank"}) : 0;
  a.kv_lora_rank = read.in.size({"kv_lora_rank"}, 512);
  a.qk_head_dim = read.in.size({"qk_nope_head_dim"}, 128);
  a.qk_pos_emb_head_dim = read.in.size({"qk_rope_head_dim"}, 64);
  a.v_head_dim = read.in.size({"v_head_dim"}, 128);
  a.qk_layernorm = true;
  read.in.require(!read.in.flag("attention_bias", false), "attention_bias",
                  "biases of latent attention are not modelled");
  read.in.require(read.in.number("first_k_dense_replace", 0, 0, model::kLayersMax) >=
                      static_cast<double>(a.layers),
                  "first_k_dense_replace",
                  "layers with experts behind others without (--moe-layer-freq) are not modelled");
}

struct ReadFamily {
  std::string_view model_type;
  void (*read)(Reading&);
};
constexpr std::array kFamilies{
    ReadFamily{"deepseek_v2", read_deepseek},
    ReadFamily{"deepseek_v3", read_deepseek},
    ReadFamily{"gpt2", read_gpt2},
    ReadFamily{"kimi_k2", read_deepseek},
    ReadFamily{"llama", read_llama},
    ReadFamily{"mistral", read_mistral},
    ReadFamily{"mixtral", read_mixtral},
    ReadFamily{"phi3", read_phi3},
    ReadFamily{"qwen2", read_qwen2},
    ReadFamily{"qwen2_moe", read_qwen2_moe},
    ReadFamily{"qwen3", read_qwen3},
    ReadFamily{"qwen3_moe", read_qwen3_moe},
    ReadFamily{"starcoder2", read_starcoder2},
};

Error refused(const JsonView& config, const std::string& reason) {
  std::string taken;
  for (const ReadFamily& family : kFamilies) {
    taken += (taken.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return config.error_at("model_type", "as Megatron-LM runs it: " + reason, "taken are " + taken);
}

// As transformers builds the model, whose graph is held against PyTorch's own modules in a test.
Result<int64_t> parameters_in_transformers(const JsonView& config, const FitQuestion& question) {
  model::BuildOptions options;
  options.sequence = 8;
  options.vocabulary = question.vocab;
  HEADROOM_ASSIGN(const model::Graph graph, model::build_graph(config, options));
  return model::parameter_count(graph, false);
}

Result<void> check_parameters(const JsonView& config, const FitQuestion& question,
                              const MegatronArguments& a) {
  HEADROOM_ASSIGN(const int64_t there, parameters_in_transformers(config, question));
  FitQuestion plain = question;
  plain.given = {};
  HEADROOM_ASSIGN(plain, megatron_question(std::move(plain), a, question.model, 1));
  HEADROOM_ASSIGN(const int64_t padded, megatron_parameters(*plain.megatron));
  const int64_t rows = plain.megatron->stage.model.padded_vocabulary - a.vocabulary.value_or(0);
  const int64_t here = padded - rows * a.hidden * (a.tied ? 1 : 2);
  if (here == there) return {};
  return refused(config, "it would have " + std::to_string(here) + " parameters, and has " +
                             std::to_string(there));
}

// What decides numbers, and no memory: handed on, so that the file starts the same model.
void take_numbers(Reading& read) {
  MegatronArguments& a = read.to;
  constexpr double kMost = 1e15;
  const char* epsilon = a.rms_norm ? "rms_norm_eps" : "layer_norm_epsilon";
  if (read.json.has(epsilon)) {
    const double number = read.in.number(epsilon, 0, 0, 1);
    a.others.push_back({"norm-epsilon", {text::formatted("%.9g", number)}, true});
  }
  if (!a.rotary || !read.json.has("rope_theta")) return;
  // A whole number, there.
  const double base = read.in.number("rope_theta", 0, 1, kMost);
  a.others.push_back({"rotary-base", {std::to_string(std::llround(base))}, true});
}

// Positions that are rotated have no table: a longer sequence runs, and --emit says it.
void take_positions(Reading& read, std::vector<std::string>& warnings) {
  MegatronArguments& a = read.to;
  if (!a.rotary || !read.json.has("max_position_embeddings")) return;
  const int64_t most = read.in.size({"max_position_embeddings"}, {}, model::kSizeMax);
  a.longest = std::max(most, a.sequence);
  if (a.sequence <= most) return;
  warnings.push_back("a sequence of " + std::to_string(a.sequence) +
                     " is longer than the model's " + std::to_string(most) + " positions");
}

}  // namespace

Result<MegatronDescription> describe_for_megatron(const JsonView& config,
                                                  const FitQuestion& question) {
  HEADROOM_ASSIGN(const model::Family* known, model::find_family(config));
  const auto family = std::ranges::find(kFamilies, known->model_type, &ReadFamily::model_type);
  if (family == kFamilies.end()) {
    return refused(config, "'" + std::string(known->model_type) + "' is not modelled");
  }
  model::BuildOptions options;
  options.sequence = question.seq;
  options.vocabulary = question.vocab;
  MegatronDescription described;
  MegatronArguments& a = described.arguments;
  a.hidden_dropout = a.attention_dropout = 0;
  a.linear_bias = family->model_type == "gpt2";
  a.sequence = question.seq;
  a.type = question.dtype == Dtype::bf16 ? "bf16" : question.dtype == Dtype::fp16 ? "fp16" : "fp32";
  a.allocator = question.allocator;
  a.mask_from_loader = false;  // causal attention makes its own
  Reading read{config, options, ConfigReader(config), a};
  family->read(read);
  if (a.experts == 0) a.expert_ffn = a.ffn;  // as arguments that name no experts are read
  take_positions(read, described.warnings);
  take_numbers(read);
  if (read.in.error()) return *read.in.error();
  HEADROOM_TRY(check_parameters(config, question, a));
  return described;
}

}  // namespace headroom::fit
