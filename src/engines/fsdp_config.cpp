#include "engines/fsdp_config.h"

#include <algorithm>

namespace headroom::engines {

namespace {

using text::Json;
using text::JsonView;

std::string key_of(const JsonView& config, const std::string& key) {
  return config.has("fsdp_" + key) ? "fsdp_" + key : key;
}

// What FSDP1 may be told in two ways.
Result<void> check_strategy(const SettingValues& in) {
  const std::string key = key_of(in.view(), "sharding_strategy");
  const Json* value = in.find(key);
  const bool is_full = value == nullptr || *value == Json("FULL_SHARD") ||
                       *value == Json("full_shard") || *value == Json(int64_t{1});
  if (!is_full) return in.not_modelled(key, "FULL_SHARD");
  const std::string policy = key_of(in.view(), "auto_wrap_policy");
  const Json* wrap = in.find(policy);
  const bool is_by_size = wrap != nullptr && *wrap == Json("SIZE_BASED_WRAP");
  if (is_by_size) return in.not_modelled(policy, "TRANSFORMER_BASED_WRAP");
  return {};
}

Result<void> read_resharding(const SettingValues& in, TrainingSetup& setup) {
  const std::string reshards = key_of(in.view(), "reshard_after_forward");
  const Json* value = in.find(reshards);
  if (value == nullptr) return {};
  const bool is_second = setup.sharing == Sharing::fsdp2;
  const bool is_whole = *value == Json(true) || *value == Json("full_shard") ||
                        *value == Json("FULL_SHARD") || *value == Json("true");
  const bool is_none = is_second && (*value == Json(false) || *value == Json("false"));
  if (!is_whole && !is_none) return in.not_modelled(reshards, "true or false");
  if (is_second) setup.reshards = is_whole;
  return {};
}

}  // namespace

Result<void> read_fsdp_config(const JsonView& config, const FsdpConfigKind& kind,
                              TrainingSetup& setup) {
  const SettingValues in(config);
  const std::string version_key = key_of(config, "version");
  HEADROOM_ASSIGN(const auto version, in.count(version_key));
  const int64_t chosen = version.value_or(kind.version);
  if (chosen > 2) return config.error_at(version_key, "is not known", "2");
  setup.sharing = chosen == 2 ? Sharing::fsdp2 : Sharing::fsdp1;
  HEADROOM_ASSIGN(const auto offloads, in.truth(key_of(config, kind.offload_key)));
  if (offloads) setup.offloads_parameters = offloads;
  for (const char* key : {kind.other_key, "xla"}) {
    HEADROOM_ASSIGN(const auto is_on, in.truth(key_of(config, key)));
    if (is_on.value_or(false)) return in.not_modelled(key_of(config, key), "false");
  }
  HEADROOM_TRY(check_strategy(in));
  HEADROOM_TRY(read_resharding(in, setup));
  if (chosen == 2) setup.shards_ends = true;
  HEADROOM_ASSIGN(const auto checkpoints, in.truth(key_of(config, "activation_checkpointing")));
  if (!setup.checkpoints.value_or(false) && checkpoints) setup.checkpoints = checkpoints;
  return {};
}

Result<void> read_fsdp_words(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto words, in.names("fsdp"));
  for (const std::string& item : words) {
    size_t begin = 0;
    while (begin < item.size()) {
      const size_t end = std::min(item.find(' ', begin), item.size());
      const std::string_view word = std::string_view(item).substr(begin, end - begin);
      begin = end + 1;
      if (word == "offload") setup.offloads_parameters = true;
      const bool is_known = word.empty() || word == "offload" || word == "full_shard" ||
                            word == "auto_wrap" || word == "true" || word == "True";
      if (!is_known) return in.not_modelled("fsdp", "full_shard auto_wrap");
    }
  }
  return {};
}

}  // namespace headroom::engines
