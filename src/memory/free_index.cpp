#include "memory/free_index.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::memory {

// First the first chunk whose last entry is not below the key, then the place in it. Halves are
// taken without a branch, which nobody could predict.
FreeIndex::Cursor FreeIndex::lower_bound(Key key) const {
  if (chunks_.empty() || last_keys_.back() < key) return end();
  const Key* last = last_keys_.data();
  for (size_t count = last_keys_.size(); count > 1;) {
    const size_t half = count / 2;
    last += last[half - 1] < key ? half : 0;
    count -= half;
  }
  const auto index = static_cast<uint32_t>(last - last_keys_.data());
  const Chunk& chunk = *chunks_[index];
  const Entry* first = chunk.entries.data();
  for (uint32_t count = chunk.count; count > 1;) {
    const uint32_t half = count / 2;
    first += key_of(first[half - 1]) < key ? half : 0;
    count -= half;
  }
  // The last entry of the chunk is not below, so that is the place.
  return {index, static_cast<uint32_t>(first - chunk.entries.data())};
}

void FreeIndex::insert(const Entry& entry) {
  if (chunks_.empty()) {
    chunks_.push_back(std::make_unique<Chunk>());
    chunks_.front()->count = 1;
    chunks_.front()->entries[0] = entry;
    last_keys_.push_back(key_of(entry));
    size_ = 1;
    return;
  }
  Cursor at_cursor = lower_bound(entry.size, entry.address);
  if (at_cursor == end()) {
    at_cursor.chunk -= 1;
    at_cursor.slot = chunks_[at_cursor.chunk]->count;
  }
  if (chunks_[at_cursor.chunk]->count == kChunkEntries) {
    split_chunk(at_cursor.chunk);
    const uint32_t left = chunks_[at_cursor.chunk]->count;
    if (at_cursor.slot > left) {
      at_cursor.chunk += 1;
      at_cursor.slot -= left;
    }
  }
  Chunk& chunk = *chunks_[at_cursor.chunk];
  Entry* const slot = chunk.entries.data() + at_cursor.slot;
  std::move_backward(slot, chunk.entries.data() + chunk.count,
                     chunk.entries.data() + chunk.count + 1);
  *slot = entry;
  ++chunk.count;
  last_keys_[at_cursor.chunk] = key_of(chunk.last());
  ++size_;
}

void FreeIndex::split_chunk(uint32_t index) {
  Chunk& full = *chunks_[index];
  auto right = std::make_unique<Chunk>();
  const uint32_t keep = full.count / 2;
  right->count = full.count - keep;
  std::copy_n(full.entries.data() + keep, right->count, right->entries.data());
  full.count = keep;
  last_keys_.insert(last_keys_.begin() + index, key_of(full.last()));
  chunks_.insert(chunks_.begin() + index + 1, std::move(right));
}

void FreeIndex::erase(int64_t size, int64_t address) {
  const Cursor cursor = lower_bound(size, address);
  HEADROOM_CHECK(cursor != end() && at(cursor).size == size && at(cursor).address == address,
                 "a cached block is missing from its index");
  erase(cursor);
}

void FreeIndex::erase(Cursor cursor) {
  Chunk& chunk = *chunks_[cursor.chunk];
  Entry* const slot = chunk.entries.data() + cursor.slot;
  std::move(slot + 1, chunk.entries.data() + chunk.count, slot);
  --size_;
  if (--chunk.count > 0) {
    last_keys_[cursor.chunk] = key_of(chunk.last());
    return;
  }
  chunks_.erase(chunks_.begin() + cursor.chunk);
  last_keys_.erase(last_keys_.begin() + cursor.chunk);
}

FreeIndex::Cursor FreeIndex::next(Cursor cursor) const {
  if (cursor.slot + 1 < chunks_[cursor.chunk]->count) return {cursor.chunk, cursor.slot + 1};
  return {cursor.chunk + 1, 0};
}

FreeIndex::Cursor FreeIndex::previous(Cursor cursor) const {
  if (cursor.slot > 0) return {cursor.chunk, cursor.slot - 1};
  HEADROOM_CHECK(cursor.chunk > 0, "previous() of the first entry");
  return {cursor.chunk - 1, chunks_[cursor.chunk - 1]->count - 1};
}

}  // namespace headroom::memory
