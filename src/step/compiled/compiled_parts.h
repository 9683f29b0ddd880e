// What torch.compile is called on: each layer by itself, the loss function.
#pragma once

namespace headroom::step {

struct CompiledParts {
  bool layers = false;
  bool loss = false;
  [[nodiscard]] bool any() const { return layers || loss; }
  bool operator==(const CompiledParts&) const = default;
};

}  // namespace headroom::step
