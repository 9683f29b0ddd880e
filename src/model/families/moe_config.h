// What the configs of mixture-of-experts decoders have in common, and the blocks made from it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/blocks/decoder.h"
#include "model/blocks/gated_mlp.h"
#include "model/blocks/moe.h"
#include "model/blocks/self_attention.h"
#include "model/families/config.h"

namespace headroom::model {

inline constexpr int64_t kExpertsMax = 4096;
inline constexpr int64_t kExpertsOfModelMax = int64_t{1} << 17;

// Sizes that every one of them has; the reader keeps the first error.
struct MoeConfig {
  DecoderShape decoder;
  SelfAttentionShape attention;
  RouterShape router;
  ExpertsShape experts;
  int64_t intermediate = 0;  // of a layer without experts
  bool mlp_bias = false;     // of such a layer, and of shared experts
  Activation activation = Activation::silu;
  // Where the config does not say; else as many as heads, and as wide as they come out.
  std::optional<int64_t> default_kv_heads, default_head_dim;

  // `experts_key`: how the family calls the number of experts; `size_key` their inner size.
  void read(ConfigReader& reader, const BuildOptions& options, ConfigReader::Names experts_key,
            const char* size_key);
};

// What follows `attention` in a layer: the experts behind their router, beside shared experts.
struct MoeLayout {
  bool router_first = true;  // in the order of parameters
  std::string router_name = "gate";
  int64_t shared_size = 0;  // inner size of the shared experts; 0: none
  std::string shared_name = "shared_experts";
  bool jitters_input = false;  // of the block, and of the router once more (Phi-3.5-MoE)
  bool shared_first = false;   // they run before the router, on rows
  bool shared_gate = false;    // Qwen2: the same, behind a gate of their own
};

class MoeBlock {
 public:
  MoeBlock(GraphBuilder& g, const BuildOptions& options, const MoeConfig& config,
           const MoeLayout& layout, const std::string& name);
  FeedForward operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const;

 private:
  Var with_shared_first(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Var jittered_rows(GraphBuilder& g, const BuildOptions& options, const Var& x) const;
  Var with_shared(GraphBuilder& g, const BuildOptions& options, const Var& x) const;

  MoeConfig config_;
  MoeLayout layout_;
  std::vector<Router> router_;    // one
  std::vector<Experts> experts_;  // one
  std::vector<GatedMlp> shared_;  // none or one
  std::vector<Linear> shared_gate_;
};

// Which layers have experts: every decoder_sparse_step-th, those in mlp_only_layers excepted
// (Qwen).
Result<std::vector<bool>> sparse_layers(const text::JsonView& json, int64_t layers);

// Layers of grouped attention and experts, or, where `sparse` says no, of one feed-forward layer.
// What is passed must outlive the maker.
LayerMaker layer_maker(const BuildOptions& options, const MoeConfig& config,
                       const MoeLayout& layout, std::vector<bool> sparse = {});

// The parts of a layer, as functions that own their blocks.
FeedForwardCall moe_call(GraphBuilder& g, const BuildOptions& options, const MoeConfig& config,
                         const MoeLayout& layout, const std::string& name);
FeedForwardCall dense_call(GraphBuilder& g, const MoeConfig& config, const std::string& name);

}  // namespace headroom::model
