#include "base/interner.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace headroom {
namespace {

constexpr size_t kFirstSlots = 64;
constexpr size_t kBlockBytes = size_t{1} << 16;

}  // namespace

Interner::Interner() : seed_(hash_seed()), slots_(kFirstSlots) {}

std::string_view Interner::keep(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (bytes.size() > kBlockBytes / 4) {  // a block of its own; the last one stays the last one
    auto block = std::make_unique_for_overwrite<char[]>(bytes.size());
    std::memcpy(block.get(), bytes.data(), bytes.size());
    const std::string_view kept(block.get(), bytes.size());
    blocks_.push_back(std::move(block));
    return kept;
  }
  if (vacant_bytes_ < bytes.size()) {
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(kBlockBytes));
    vacant_ = blocks_.back().get();
    vacant_bytes_ = kBlockBytes;
  }
  std::memcpy(vacant_, bytes.data(), bytes.size());
  const std::string_view kept(vacant_, bytes.size());
  vacant_ += bytes.size();
  vacant_bytes_ -= bytes.size();
  return kept;
}

void Interner::grow() {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(2 * old.size(), Slot{});
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.number == kVacant) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].number != kVacant) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

uint32_t Interner::add(std::string_view bytes, uint64_t hash, size_t at) {
  if (2 * (strings_.size() + 1) > slots_.size()) {
    grow();
    at = slot_of(bytes, hash);
  }
  // So many that the low half of a hash still reaches every slot.
  HEADROOM_CHECK(strings_.size() < kMostStrings, "too many strings to number");
  const auto number = static_cast<uint32_t>(strings_.size());
  strings_.push_back(keep(bytes));
  slots_[at] = {static_cast<uint32_t>(hash), number};
  return number;
}

}  // namespace headroom
