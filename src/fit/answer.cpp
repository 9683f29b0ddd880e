#include "fit/answer.h"

#include "base/check.h"

namespace headroom::fit {
namespace {

struct ComponentNames {
  std::string_view name;
  std::string_view label;
};

constexpr std::array<ComponentNames, kComponentCount> kComponentNames = {{
    {"parameters", "parameters"},
    {"gathered", "gathered parameters"},
    {"communication", "communication buffers"},
    {"gradients", "gradients"},
    {"optimizer_states", "optimizer states"},
    {"lm_head_weight", "lm_head weight"},
    {"lm_head_gradient", "lm_head gradient"},
    {"lm_head_state", "lm_head state"},
    {"saved_activations", "saved activations"},
    {"logits", "logits"},
    {"loss", "loss"},
    {"temporaries", "temporaries"},
    {"other", "inputs and other"},
    {"workspaces", "workspaces"},
    {"cached_unused", "cached, unused"},
    {"context", "context and rest"},
}};

const ComponentNames& names_of(Component component) {
  const auto index = static_cast<size_t>(component);
  HEADROOM_CHECK(index < kComponentCount, "no such component");
  return kComponentNames[index];
}

}  // namespace

std::string_view name_of(Component component) { return names_of(component).name; }
std::string_view label_of(Component component) { return names_of(component).label; }

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::yes:
      return "yes";
    case Verdict::at_risk:
      return "at_risk";
    case Verdict::no:
      return "no";
  }
  return "no";
}

std::string_view name_of(SettingOrigin origin) {
  switch (origin) {
    case SettingOrigin::given:
      return "given";
    case SettingOrigin::config:
      return "config";
    case SettingOrigin::standard:
      return "default";
    case SettingOrigin::detected:
      return "detected";
    case SettingOrigin::derived:
      return "derived";
    case SettingOrigin::assumed:
      return "assumed";
  }
  return "assumed";
}

Bytes ComponentBytes::allocated() const {
  Bytes sum;
  for (size_t i = 0; i < kAllocatedComponentCount; ++i) sum += bytes[i];
  return sum;
}

Bytes ComponentBytes::total() const {
  Bytes sum;
  for (const Bytes& part : bytes) sum += part;
  return sum;
}

}  // namespace headroom::fit
