#include "fit/components.h"

namespace headroom::fit {

Component component_of(memory::Category category) {
  using memory::Category;
  switch (category) {
    case Category::parameter:
      return Component::parameters;
    case Category::gradient:
      return Component::gradients;
    case Category::optimizer_state:
      return Component::optimizer_states;
    case Category::activation:
      return Component::saved_activations;
    case Category::lm_head_weight:
      return Component::lm_head_weight;
    case Category::lm_head_gradient:
      return Component::lm_head_gradient;
    case Category::lm_head_state:
      return Component::lm_head_state;
    case Category::logits:
      return Component::logits;
    case Category::loss:
      return Component::loss;
    case Category::gathered:
      return Component::gathered;
    case Category::communication:
      return Component::communication;
    case Category::workspace:
      return Component::workspaces;
    case Category::temporary:
    case Category::input:
    case Category::kv_cache:
    case Category::other:
      return Component::temporaries;
  }
  return Component::temporaries;
}

ComponentBytes components_of(const memory::CategoryBytes& bytes) {
  ComponentBytes components;
  for (size_t i = 0; i < bytes.size(); ++i) {
    components[component_of(static_cast<memory::Category>(i))] += Bytes(bytes[i]);
  }
  return components;
}

}  // namespace headroom::fit
