#include "operator/kind.h"

#include <array>

namespace headroom::op {

namespace {

struct Entry {
  std::string_view name;
  OpGroup group;
};

constexpr auto kEntries = std::to_array<Entry>({
#define HEADROOM_OP_ENTRY(name, group) {#name, OpGroup::group},
    HEADROOM_OPS(HEADROOM_OP_ENTRY)
#undef HEADROOM_OP_ENTRY
});

}  // namespace

std::string_view name_of(OpKind kind) { return kEntries[static_cast<size_t>(kind)].name; }
OpGroup group_of(OpKind kind) { return kEntries[static_cast<size_t>(kind)].group; }

std::optional<OpKind> parse_op_kind(std::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<OpKind>(i);
  }
  return std::nullopt;
}

std::string_view name_of(OpGroup group) {
  static constexpr std::string_view kNames[] = {
      "gemm",    "attention", "normalization", "activation", "elementwise",
      "memory",  "softmax",   "embedding",     "loss",       "quantize",
      "routing", "optimizer", "communication", "none"};
  return kNames[static_cast<size_t>(group)];
}

}  // namespace headroom::op
