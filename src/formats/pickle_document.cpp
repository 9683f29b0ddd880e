// What a pickle held: handles of eight bytes, and the few things that do not fit into one.
#include <bit>

#include "formats/pickle.h"

namespace headroom::formats {

std::span<const PickleValue> PickleDocument::items(PickleValue value) const {
  if (!value.is_container()) return {};
  const Container container = containers_[value.index()];
  if (!container.is(State::kept)) return {};
  if (value.kind() != PickleKind::tuple) return kept_[container.at()];
  const PickleValue* const first = &tuples_[container.at()];
  return {first + 1, first->index()};
}

std::optional<PickleValue> PickleDocument::find(PickleValue dict, std::string_view key) const {
  if (dict.kind() != PickleKind::dict) return std::nullopt;
  const auto number = texts_.find(key);
  if (!number) return std::nullopt;
  const auto pairs = items(dict);
  for (size_t i = pairs.size(); i >= 2; i -= 2) {
    const PickleValue candidate = pairs[i - 2];
    if (candidate.kind() == PickleKind::text && candidate.index() == *number) return pairs[i - 1];
  }
  return std::nullopt;
}

double PickleDocument::real(PickleValue value) const {
  if (value.kind() == PickleKind::real) return std::bit_cast<double>(wide_[value.index()]);
  return static_cast<double>(integer(value).value_or(0));
}

PickleValue PickleDocument::make_wide_integer(uint64_t bits) {
  wide_.push_back(bits);
  PickleValue result(PickleKind::integer, wide_.size() - 1);
  result.bits_ |= PickleValue::kIsWide;
  return result;
}

PickleValue PickleDocument::make_real(uint64_t bits) {
  wide_.push_back(bits);
  return {PickleKind::real, wide_.size() - 1};
}

std::vector<PickleValue>& PickleDocument::items_to_keep(PickleValue value) {
  Container& container = containers_[value.index()];
  if (container.is(State::empty)) {
    container.set(State::kept, kept_.size());
    kept_.emplace_back();
  }
  return kept_[container.at()];
}

void PickleDocument::keep_tuple(PickleValue tuple, std::span<const PickleValue> items) {
  containers_[tuple.index()].set(State::kept, tuples_.size());
  tuples_.emplace_back(PickleKind::integer, items.size());
  tuples_.insert(tuples_.end(), items.begin(), items.end());
}

}  // namespace headroom::formats
