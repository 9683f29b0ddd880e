// DeviceAllocator's snapshot: segments and blocks as torch.cuda.memory_snapshot() has them.
//
// A segment is a stretch of mapped memory without a gap, as PyTorch shows expandable segments; its
// blocks tile it. Of a plan's arena, what lies in it is shown, and the rest of it as inactive.
// Copied under the locks, written without.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "runtime/device_allocator.h"

namespace headroom::runtime {

struct ShownSegment {
  CudaStream* stream = nullptr;
  bool is_small = false;
  bool is_paged = false;
  uint64_t pool_first = 0;
  uint64_t pool_second = 0;
  std::vector<headroom_block> blocks;  // by address, without a gap
};

namespace {

int64_t state_of(BlockState state) {
  if (state == BlockState::live) return HEADROOM_BLOCK_LIVE;
  return state == BlockState::pending ? HEADROOM_BLOCK_PENDING : HEADROOM_BLOCK_FREE;
}

std::string key(const char* name, int64_t value) {
  return '"' + std::string(name) + "\": " + std::to_string(value);
}

const char* state_name(int64_t state) {
  if (state == HEADROOM_BLOCK_LIVE) return "active_allocated";
  return state == HEADROOM_BLOCK_PENDING ? "active_pending_free" : "inactive";
}

int64_t bytes_of(const ShownSegment& segment) {
  const headroom_block& last = segment.blocks.back();
  return last.address + last.bytes - segment.blocks.front().address;
}

std::string json_of(const ShownSegment& segment, int device) {
  std::string blocks;
  int64_t allocated = 0;
  int64_t active = 0;
  int64_t requested = 0;
  for (const headroom_block& block : segment.blocks) {
    if (block.state == HEADROOM_BLOCK_LIVE) allocated += block.bytes;
    if (block.state != HEADROOM_BLOCK_FREE) active += block.bytes;
    requested += block.requested_bytes;
    if (!blocks.empty()) blocks += ", ";
    blocks += "{" + key("address", block.address) + ", " + key("size", block.bytes) + ", " +
              key("requested_size", block.requested_bytes) + ", \"state\": \"" +
              state_name(block.state) + "\", \"frames\": []}";
  }
  return "{" + key("device", device) + ", " + key("address", segment.blocks.front().address) +
         ", " + key("total_size", bytes_of(segment)) + ", " + key("allocated_size", allocated) +
         ", " + key("active_size", active) + ", " + key("requested_size", requested) + ", " +
         key("stream", handle_of(segment.stream)) + ", \"segment_type\": \"" +
         (segment.is_small ? "small" : "large") + "\", \"segment_pool_id\": [" +
         std::to_string(segment.pool_first) + ", " + std::to_string(segment.pool_second) +
         "], \"is_expandable\": " + (segment.is_paged ? "true" : "false") +
         ", \"frames\": [], \"blocks\": [" + blocks + "]}";
}

// One stretch of an arena: its blocks, and what lies between them. `shown` are by address.
ShownSegment stretch_of(const GeneralArena::Piece& piece,
                        const std::vector<PlannedArena::Shown>& shown) {
  ShownSegment segment;
  segment.is_paged = true;
  int64_t at = piece.address;
  const int64_t end = piece.address + piece.bytes;
  auto block = std::lower_bound(
      shown.begin(), shown.end(), at,
      [](const PlannedArena::Shown& known, int64_t address) { return known.address < address; });
  for (; block != shown.end() && block->address < end; ++block) {
    if (block->address > at) {
      segment.blocks.push_back({at, block->address - at, 0, HEADROOM_BLOCK_FREE});
    }
    segment.blocks.push_back(
        {block->address, block->room, block->block.requested,
         block->block.is_pending ? HEADROOM_BLOCK_PENDING : HEADROOM_BLOCK_LIVE});
    at = block->address + block->room;
  }
  if (at < end) segment.blocks.push_back({at, end - at, 0, HEADROOM_BLOCK_FREE});
  return segment;
}

// Of one track: two of them never share a segment.
void join_neighbours(std::vector<GeneralArena::Piece>& pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const bool is_next = pieces[last].address + pieces[last].bytes == pieces[i].address;
    if (is_next && pieces[last].range == pieces[i].range) {
      pieces[last].bytes += pieces[i].bytes;
    } else {
      pieces[++last] = pieces[i];
    }
  }
  if (!pieces.empty()) pieces.resize(last + 1);
}

// The blocks of a segment, cut where no memory is.
void show_general(const GeneralArena& arena, const GeneralArena::Segment& segment,
                  const ShownSegment& like, std::vector<ShownSegment>& shown) {
  bool is_open = false;
  for (uint32_t i = segment.first; i != kNoNumber; i = arena.block(i).next) {
    const GeneralArena::Block& block = arena.block(i);
    if (block.state == BlockState::unmapped || block.state == BlockState::moving) {
      is_open = false;
      continue;
    }
    if (!std::exchange(is_open, true)) shown.push_back(like);
    shown.back().blocks.push_back(
        {block.address, block.size, block.requested, state_of(block.state)});
  }
}

}  // namespace

// By value, so that whoever writes or visits them holds no lock.
std::vector<ShownSegment> DeviceAllocator::shown_segments() {
  std::vector<ShownSegment> shown;
  {
    const std::lock_guard driver_lock(driver_mutex_);
    const std::lock_guard lock(lock_);
    for (const GeneralArena::Segment& segment : general_->segments()) {
      if (!segment.is_in_use) continue;
      const GeneralArena::Range& range = *general_->ranges()[segment.range];
      ShownSegment like;
      like.stream = range.stream;
      like.is_small = range.is_small;
      like.is_paged = segment.is_paged;
      for (const Pool& pool : pools_) {
        if (pool.number != range.pool) continue;
        like.pool_first = pool.id.first;
        like.pool_second = pool.id.second;
      }
      show_general(*general_, segment, like, shown);
    }
    for (const ArenaMemory& memory : arena_memory_) {
      std::vector<PlannedArena::Shown> blocks;
      if (memory.arena != nullptr) blocks = memory.arena->blocks();
      std::vector<GeneralArena::Piece> pieces = memory.mapped;
      join_neighbours(pieces);
      for (const GeneralArena::Piece& piece : pieces) {
        ShownSegment segment = stretch_of(piece, blocks);
        segment.is_paged = pages_->is_virtual();
        if (memory.arena != nullptr) segment.stream = memory.arena->stream_of(piece.range);
        shown.push_back(std::move(segment));
      }
    }
  }
  return shown;
}

std::string DeviceAllocator::snapshot_json() {
  std::string json = "[";
  for (const ShownSegment& segment : shown_segments()) {
    if (json.size() > 1) json += ", ";
    json += json_of(segment, ordinal_);
  }
  return json + "]";
}

void DeviceAllocator::visit_segments(headroom_segment_visitor visit, void* context) {
  for (const ShownSegment& shown : shown_segments()) {
    headroom_segment segment{};
    segment.struct_bytes = sizeof segment;
    segment.device = ordinal_;
    segment.address = shown.blocks.front().address;
    segment.bytes = bytes_of(shown);
    segment.stream = shown.stream;
    segment.pool_first = shown.pool_first;
    segment.pool_second = shown.pool_second;
    segment.is_small = shown.is_small ? 1 : 0;
    segment.is_paged = shown.is_paged ? 1 : 0;
    segment.block_count = static_cast<int64_t>(shown.blocks.size());
    segment.blocks = shown.blocks.data();
    visit(&segment, context);
  }
}

}  // namespace headroom::runtime
