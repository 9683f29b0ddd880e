// What torch.compile is called on: each layer by itself, the loss function, or the model as a whole
// with the loss that it computes.
#pragma once

namespace headroom::step {

struct CompiledParts {
  bool layers = false;
  bool loss = false;
  bool model = false;  // neither of the others beside it
  [[nodiscard]] bool any() const { return layers || loss || model; }
  bool operator==(const CompiledParts&) const = default;
};

}  // namespace headroom::step
