#include "step/model_parts.h"

namespace headroom::step {

using model::ModelPart;

std::optional<std::vector<ModelPart>> model_parts(int64_t layers, int64_t parts) {
  constexpr int64_t kEnds = 2;  // embedding and head
  const int64_t each = parts == 1 ? layers : (layers + kEnds) / parts;
  const int64_t more = parts == 1 ? 0 : (layers + kEnds) % parts;
  if (each < 1) return std::nullopt;
  std::vector<int64_t> of_each;
  for (int64_t i = 0; i < parts; ++i) {
    const bool is_end = parts > 1 && (i == 0 || i + 1 == parts);
    of_each.push_back(each + (i < more ? 1 : 0) - (is_end ? 1 : 0));
  }
  return model_parts(of_each);
}

std::vector<ModelPart> model_parts(std::span<const int64_t> layers) {
  std::vector<ModelPart> all;
  int64_t next = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    all.push_back({next, layers[i], i == 0, i + 1 == layers.size()});
    next += layers[i];
  }
  return all;
}

int64_t part_of(int64_t ranks, int64_t rank, int64_t chunk, bool is_mirrored) {
  if (is_mirrored && chunk == 1) return 2 * ranks - 1 - rank;
  return chunk * ranks + rank;
}

std::vector<ModelPart> parts_of_rank(const std::vector<ModelPart>& all, int64_t ranks, int64_t rank,
                                     bool is_mirrored) {
  const int64_t chunks = static_cast<int64_t>(all.size()) / ranks;
  std::vector<ModelPart> own;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    own.push_back(all[static_cast<size_t>(part_of(ranks, rank, chunk, is_mirrored))]);
  }
  return own;
}

}  // namespace headroom::step
