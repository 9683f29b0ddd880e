#include "fit/checkpointing_words.h"

#include <array>

#include "fit/words.h"

namespace headroom::fit {

namespace {

constexpr std::string_view kCheckpointingWords =
    "none, full, every-N, selective, selective-attention, selective-products, selective-every-N";

// The words of checkpointing without a number in them.
constexpr std::array<Word<Checkpointing>, 5> kCheckpointings{
    {{"none", {CheckpointingKind::none}},
     {"full", {CheckpointingKind::full}},
     {"selective", {CheckpointingKind::selective, 1, SelectiveKeeps::products_and_attention}},
     {"selective-products", {CheckpointingKind::selective, 1, SelectiveKeeps::products}},
     {"selective-attention", {CheckpointingKind::selective, 1, SelectiveKeeps::attention}}}};
constexpr std::string_view kEveryLayer = "every-";
constexpr std::string_view kEveryProduct = "selective-every-";

}  // namespace

Result<void> set_checkpointing(std::string_view words, Checkpointing& field) {
  for (const Word<Checkpointing>& entry : kCheckpointings) {
    if (entry.word != words) continue;
    field = entry.value;
    return {};
  }
  field = {};
  if (words.starts_with(kEveryLayer)) {
    field.kind = CheckpointingKind::every_n;
    return count("checkpointing", words.substr(kEveryLayer.size()), 10'000, field.every);
  }
  if (words.starts_with(kEveryProduct)) {
    field.kind = CheckpointingKind::selective;
    return count("checkpointing", words.substr(kEveryProduct.size()), 10'000, field.but_every);
  }
  return refuse("checkpointing", words, "one of " + std::string(kCheckpointingWords));
}

std::string checkpointing_word(const Checkpointing& value) {
  if (value.kind == CheckpointingKind::every_n) {
    return std::string(kEveryLayer) + std::to_string(value.every);
  }
  if (value.but_every > 0) return std::string(kEveryProduct) + std::to_string(value.but_every);
  for (const Word<Checkpointing>& entry : kCheckpointings) {
    if (entry.value.kind == value.kind && entry.value.keeps == value.keeps) {
      return std::string(entry.word);
    }
  }
  return {};
}

}  // namespace headroom::fit
