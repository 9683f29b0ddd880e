#include "formats/snapshot_fields.h"

#include <algorithm>
#include <utility>

namespace headroom::formats {
namespace {

constexpr std::array<std::string_view, kSnapshotFields> kNames = {"",
                                                                  "action",
                                                                  "active_size",
                                                                  "addr",
                                                                  "address",
                                                                  "allocated_size",
                                                                  "blocks",
                                                                  "device",
                                                                  "device_free",
                                                                  "filename",
                                                                  "frames",
                                                                  "history",
                                                                  "is_expandable",
                                                                  "line",
                                                                  "name",
                                                                  "real_size",
                                                                  "requested_size",
                                                                  "segment_pool_id",
                                                                  "segment_type",
                                                                  "size",
                                                                  "stage",
                                                                  "state",
                                                                  "stream",
                                                                  "time_us",
                                                                  "total_size"};

}  // namespace

std::string_view snapshot_field_name(SnapshotField field) {
  return kNames[static_cast<size_t>(field)];
}

uint8_t Vocabulary::look_up(const PickleDocument& document, PickleValue text) {
  if (text.index() >= known_.size()) known_.resize(text.index() + 1, kNotYet);
  const auto at = std::find(words_.begin() + 1, words_.end(), document.text(text));
  const auto found = at == words_.end() ? 0 : static_cast<uint8_t>(at - words_.begin());
  return known_[text.index()] = static_cast<uint8_t>(found);
}

SnapshotFields::SnapshotFields() : keys_(kNames) {}

bool SnapshotFields::has_last_keys(std::span<const PickleValue> items) const {
  if (items.size() != 2 * last_keys_.size()) return false;
  for (size_t i = 0; i < last_keys_.size(); ++i) {
    if (items[2 * i] != last_keys_[i]) return false;
  }
  return true;
}

void SnapshotFields::learn(size_t number, std::span<const PickleValue> items) {
  if (number >= layouts_.size()) layouts_.resize(number + 1);
  layouts_[number] = {};
  if (number == 0) last_keys_.clear();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const uint8_t field = keys_.find(*document_, items[i]);
    if (field != 0) layouts_[number].places[field] = static_cast<uint32_t>(i + 1);
    if (number == 0) last_keys_.push_back(items[i]);
  }
}

int64_t SnapshotFields::no_integer(Field field, std::optional<int64_t> fallback) {
  if ((*this)[field].kind() == PickleKind::none && fallback) return *fallback;
  const std::string name(snapshot_field_name(field));
  complain("'" + name + (has(field) ? "' is not a whole number" : "' is missing"));
  return 0;
}

int64_t SnapshotFields::no_size(Field field) {
  const std::string name(snapshot_field_name(field));
  complain("'" + name + "' is negative");
  return 0;
}

void SnapshotFields::complain(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

}  // namespace headroom::formats
