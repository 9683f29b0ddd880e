#include "memory/free_index.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::memory {

// The first entry of a bin from this one on.
FreeIndex::Cursor FreeIndex::first_from(uint32_t bin) const {
  uint32_t word = bin / 64;
  if (word >= kWords) return end();
  uint64_t bits = filled_[word] & (~uint64_t{0} << bin % 64);
  while (bits == 0) {
    if (++word == kWords) return end();
    bits = filled_[word];
  }
  return {64 * word + static_cast<uint32_t>(std::countr_zero(bits)), 0, 0};
}

// How many entries of the run are below the key. Halves are taken without a branch, which nobody
// could predict.
size_t FreeIndex::place_in(const Run& run, Key key) {
  const Entry* first = run.data();
  size_t count = run.size();
  if (count == 0) return 0;
  while (count > 1) {
    const size_t half = count / 2;
    first += key_of(first[half - 1]) < key ? half : 0;
    count -= half;
  }
  return static_cast<size_t>(first - run.data()) + (key_of(*first) < key ? 1 : 0);
}

FreeIndex::Cursor FreeIndex::lower_bound(int64_t size, int64_t address) const {
  const uint32_t bin = bin_of(size);
  if (!has(bin)) return first_from(bin);
  const Key key = key_of(size, address);
  const std::vector<Run>& runs = bins_[bin].runs;
  size_t run = 0;
  if (runs.size() > 1) {
    const auto is_below = [&](const Run& r) { return key_of(r.back()) < key; };
    run = static_cast<size_t>(std::ranges::partition_point(runs, is_below) - runs.begin());
    if (run == runs.size()) return first_from(bin + 1);
  }
  const size_t slot = place_in(runs[run], key);
  if (slot == runs[run].size()) return first_from(bin + 1);
  return {bin, static_cast<uint32_t>(run), static_cast<uint32_t>(slot)};
}

void FreeIndex::insert(const Entry& entry) {
  if (bins_.empty()) bins_.resize(kBins);
  const uint32_t bin = bin_of(entry.size);
  const Key key = key_of(entry);
  std::vector<Run>& runs = bins_[bin].runs;
  ++size_;
  filled_[bin / 64] |= uint64_t{1} << bin % 64;
  if (runs.empty()) runs.emplace_back();
  size_t at = 0;
  if (runs.size() > 1) {
    const auto is_below = [&](const Run& r) { return key_of(r.back()) < key; };
    at = static_cast<size_t>(std::ranges::partition_point(runs, is_below) - runs.begin());
    at = std::min(at, runs.size() - 1);
  }
  if (runs[at].size() == kRunEntries) {
    const auto middle = runs[at].begin() + kRunEntries / 2;
    Run right(middle, runs[at].end());
    runs[at].erase(middle, runs[at].end());
    runs.insert(runs.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(right));
    if (key_of(runs[at].back()) < key) ++at;
  }
  Run& run = runs[at];
  run.insert(run.begin() + static_cast<ptrdiff_t>(place_in(run, key)), entry);
}

void FreeIndex::erase(int64_t size, int64_t address) {
  const Cursor cursor = lower_bound(size, address);
  HEADROOM_CHECK(cursor != end() && at(cursor).size == size && at(cursor).address == address,
                 "a cached block is missing from its index");
  erase(cursor);
}

void FreeIndex::erase(Cursor cursor) {
  std::vector<Run>& runs = bins_[cursor.bin].runs;
  Run& run = runs[cursor.run];
  run.erase(run.begin() + cursor.slot);
  --size_;
  if (!run.empty()) return;
  if (runs.size() > 1) {
    runs.erase(runs.begin() + cursor.run);
    return;
  }
  filled_[cursor.bin / 64] &= ~(uint64_t{1} << cursor.bin % 64);
}

FreeIndex::Cursor FreeIndex::next(Cursor cursor) const {
  const std::vector<Run>& runs = bins_[cursor.bin].runs;
  if (cursor.slot + 1 < runs[cursor.run].size()) {
    return {cursor.bin, cursor.run, cursor.slot + 1};
  }
  if (cursor.run + 1 < runs.size()) return {cursor.bin, cursor.run + 1, 0};
  return first_from(cursor.bin + 1);
}

FreeIndex::Cursor FreeIndex::previous(Cursor cursor) const {
  if (cursor.slot > 0) return {cursor.bin, cursor.run, cursor.slot - 1};
  const auto last_of = [&](uint32_t bin, size_t run) -> Cursor {
    return {bin, static_cast<uint32_t>(run),
            static_cast<uint32_t>(bins_[bin].runs[run].size() - 1)};
  };
  if (cursor.run > 0) return last_of(cursor.bin, cursor.run - 1);
  uint32_t bin = cursor.bin;
  do {
    HEADROOM_CHECK(bin > 0, "previous() of the first entry");
    --bin;
  } while (!has(bin));
  return last_of(bin, bins_[bin].runs.size() - 1);
}

}  // namespace headroom::memory
