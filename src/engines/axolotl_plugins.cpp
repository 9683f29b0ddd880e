#include "engines/axolotl_plugins.h"

#include <algorithm>
#include <array>

namespace headroom::engines {

namespace {

constexpr std::array<std::string_view, 2> kWatching{"SwanLabPlugin", "LMEvalPlugin"};

struct Plugins {
  bool has_liger = false;
  bool has_cut = false;
};

// "axolotl.integrations.liger.LigerPlugin"
Result<Plugins> plugins_of(const SettingValues& in) {
  HEADROOM_ASSIGN(const auto names, in.names("plugins"));
  Plugins plugins;
  for (const std::string& name : names) {
    const std::string_view kind = std::string_view(name).substr(name.rfind('.') + 1);
    if (kind == "LigerPlugin") {
      plugins.has_liger = true;
    } else if (kind == "CutCrossEntropyPlugin") {
      plugins.has_cut = true;
    } else if (std::ranges::find(kWatching, kind) == kWatching.end()) {
      return in.view().error_at("plugins", "'" + name.substr(0, 80) + "' is not modelled",
                                "LigerPlugin and CutCrossEntropyPlugin are");
    }
  }
  return plugins;
}

// Its kernels are modelled all together, the loss apart.
Result<void> read_liger(const SettingValues& in, TrainingSetup& setup) {
  if (in.is_on("liger_use_token_scaling")) return in.not_modelled("liger_use_token_scaling");
  if (in.is_on("liger_rms_norm_gated")) return in.not_modelled("liger_rms_norm_gated");
  HEADROOM_ASSIGN(const auto rope, in.truth("liger_rope"));
  HEADROOM_ASSIGN(const auto norm, in.truth("liger_rms_norm"));
  HEADROOM_ASSIGN(const auto gate, in.truth("liger_glu_activation"));
  HEADROOM_ASSIGN(const auto former, in.truth("liger_swiglu"));
  HEADROOM_ASSIGN(const auto fused, in.truth("liger_cross_entropy"));
  HEADROOM_ASSIGN(const auto linear, in.truth("liger_fused_linear_cross_entropy"));
  const std::array<bool, 3> parts{rope.value_or(false), norm.value_or(false),
                                  gate.value_or(former.value_or(false))};
  const auto count = std::ranges::count(parts, true);
  if (count != 0 && count != static_cast<std::ptrdiff_t>(parts.size())) {
    return in.view().error("has some of Liger's kernels and not others, which is not modelled",
                           "liger_rope, liger_rms_norm and liger_glu_activation all true, or none");
  }
  if (count != 0) setup.has_liger = true;
  setup.loss = linear.value_or(false)  ? SetupLoss::fused_linear
               : fused.value_or(false) ? SetupLoss::fused
                                       : SetupLoss::own;
  return {};
}

}  // namespace

Result<bool> read_axolotl_plugins(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const Plugins plugins, plugins_of(in));
  if (plugins.has_liger) HEADROOM_TRY(read_liger(in, setup));
  HEADROOM_ASSIGN(const auto cuts, in.truth("cut_cross_entropy"));
  const bool is_cut = plugins.has_cut && cuts.value_or(true);
  if (is_cut) {
    setup.loss = SetupLoss::fused_linear;
    setup.notes.emplace_back(
        "cut cross entropy is taken as Liger's fused linear loss: neither has whole logits, but "
        "Liger's holds a chunk of them");
  }
  return is_cut;
}

}  // namespace headroom::engines
