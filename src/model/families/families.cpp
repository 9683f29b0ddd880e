#include <array>

#include "model/families/family.h"
#include "model/families/llama.h"

namespace headroom::model {

std::span<const Family> families() {
  static constexpr auto kFamilies = std::to_array<Family>({
      {"llama", build_llama},
      {"mistral", build_llama},
  });
  return kFamilies;
}

}  // namespace headroom::model
