#include "memory/plan/plan_checker.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "memory/packing/problem.h"

namespace headroom::memory {
namespace {

Error wrong(const std::string& what) {
  return Error{ErrorCode::bad_input, "the plan is wrong: " + what, "", ""};
}

std::string numbered(const char* what, size_t number) {
  return std::string(what) + " " + std::to_string(number);
}

bool is_inside(AddressRange inner, AddressRange outer) {
  return inner.size >= 0 && inner.offset >= outer.offset && inner.size <= outer.size &&
         inner.offset - outer.offset <= outer.size - inner.size;
}

// Bytes are ranges here until the end of this file: [low, high) of a slot or block.
struct Bytes64 {
  int64_t low = 0;
  int64_t high = 0;
  size_t owner = 0;
};

class Checker {
 public:
  explicit Checker(const MemoryPlan& plan) : plan_(plan) {}

  Result<void> run() {
    HEADROOM_TRY(check_streams());
    HEADROOM_TRY(check_persistent());
    for (size_t i = 0; i < plan_.signatures.size(); ++i) {
      const auto checked = check_signature(plan_.signatures[i]);
      if (checked) continue;
      Error error = checked.error();
      error.message += ", in " + numbered("signature", i);
      return error;
    }
    return check_stays();
  }

 private:
  Result<void> check_streams() const {
    if (plan_.alignment < 1 || plan_.alignment > kMaxPackingAlignment) return wrong("alignment");
    if (plan_.bytes < 0 || plan_.bytes > kMaxPackingBytes) return wrong("length");
    if (plan_.streams.size() > kMostStreams) return wrong("too many streams");
    if (plan_.signatures.size() > kMostSignatures) return wrong("too many signatures");
    int64_t next = 0;
    for (size_t i = 0; i < plan_.streams.size(); ++i) {
      const PlannedStream& stream = plan_.streams[i];
      if (stream.range.offset != next || !is_inside(stream.range, {0, plan_.bytes}) ||
          stream.range.size % plan_.alignment != 0 ||
          stream.persistent_bytes % plan_.alignment != 0 ||
          stream.carried_bytes % plan_.alignment != 0 || stream.persistent_bytes < 0 ||
          stream.carried_bytes < 0 || stream.persistent_bytes > stream.range.size ||
          stream.carried_bytes > stream.range.size - stream.persistent_bytes) {
        return wrong("the parts of " + numbered("stream", i));
      }
      next += stream.range.size;
    }
    return next == plan_.bytes ? Result<void>() : wrong("streams do not fill the range");
  }

  // The room that something of `size` takes at `offset`, where it may lie in `part`.
  Result<Bytes64> room(AddressRange part, int64_t offset, int64_t size, size_t owner) const {
    if (size < 0 || size > kMaxPackingBytes) return wrong("a size");
    const int64_t step = plan_.alignment;
    const int64_t rounded = size / step * step + (size % step == 0 ? 0 : step);
    if (!is_inside({offset, rounded}, part)) return wrong("outside of its part of the range");
    if (offset % step != 0) return wrong("not aligned");
    return Bytes64{offset, offset + rounded, owner};
  }
  [[nodiscard]] AddressRange part_of(uint32_t stream, int64_t from, int64_t size) const {
    return {plan_.streams[stream].range.offset + from, size};
  }
  [[nodiscard]] AddressRange arena_of(uint32_t stream) const {
    const PlannedStream& part = plan_.streams[stream];
    const int64_t below = part.persistent_bytes + part.carried_bytes;
    return part_of(stream, below, part.range.size - below);
  }

  Result<void> check_persistent() {
    for (size_t i = 0; i < plan_.persistent.size(); ++i) {
      const PersistentBlock& block = plan_.persistent[i];
      if (block.stream >= plan_.streams.size()) return wrong("a stream that is not there");
      const AddressRange part =
          part_of(block.stream, 0, plan_.streams[block.stream].persistent_bytes);
      auto taken = room(part, block.offset, block.size, i);
      if (!taken) return wrong(numbered("persistent block", i) + ": " + taken.error().message);
      stays_.push_back(*taken);
    }
    return {};
  }

  Result<void> check_signature(const SignaturePlan& signature) {
    HEADROOM_TRY(check_slots(signature));
    return check_spaces(signature);
  }

  Result<void> check_slots(const SignaturePlan& signature) {
    const size_t count = signature.slots.size();
    std::map<int64_t, Bytes64> living;                    // by their first byte
    std::set<std::pair<uint32_t, int64_t>> ends_to_come;  // when, which
    for (size_t i = 0; i < count; ++i) {
      const PlannedSlot& slot = signature.slots[i];
      if (slot.stream >= plan_.streams.size()) return wrong("a stream that is not there");
      if (slot.ends <= i || slot.ends > count || slot.smallest < 0 ||
          slot.smallest > slot.largest) {
        return wrong(numbered("slot", i));
      }
      if (slot.is_elsewhere) {
        const bool is_sound = !slot.is_carried && !slot.is_guest && !slot.is_in_order &&
                              slot.offset == 0 && slot.ends == i + 1 &&
                              slot.largest <= kMaxPackingBytes;
        if (!is_sound) return wrong(numbered("slot elsewhere", i));
        continue;
      }
      const PlannedStream& stream = plan_.streams[slot.stream];
      const int64_t below = stream.persistent_bytes + (slot.is_carried ? 0 : stream.carried_bytes);
      AddressRange part = part_of(
          slot.stream, below, slot.is_carried ? stream.carried_bytes : stream.range.size - below);
      if (slot.is_in_order && !slot.is_guest) return wrong(numbered("slot in order", i));
      if (slot.is_guest) {
        if (slot.is_carried || slot.offset < 0 || slot.largest == 0 ||
            host_of(plan_, slot) == slot.stream) {
          return wrong(numbered("guest", i));
        }
        if (borrower_ && *borrower_ != slot.stream) return wrong(numbered("guest", i));
        borrower_ = slot.stream;
        part = arena_of(host_of(plan_, slot));
      }
      auto taken = room(part, slot.offset, slot.largest, i);
      if (!taken) return wrong(numbered("slot", i) + ": " + taken.error().message);
      if (slot.is_carried) {
        if (slot.ends != count) return wrong(numbered("carried slot", i));
        stays_.push_back(*taken);
        continue;
      }
      if (taken->low == taken->high) continue;
      while (!ends_to_come.empty() && ends_to_come.begin()->first <= i) {
        living.erase(ends_to_come.begin()->second);
        ends_to_come.erase(ends_to_come.begin());
      }
      const auto above = living.lower_bound(taken->low);
      if (above != living.end() && above->second.low < taken->high) {
        return wrong(numbered("slot", i) + " overlaps " + numbered("slot", above->second.owner));
      }
      if (above != living.begin() && std::prev(above)->second.high > taken->low) {
        return wrong(numbered("slot", i) + " overlaps " +
                     numbered("slot", std::prev(above)->second.owner));
      }
      living.emplace(taken->low, *taken);
      ends_to_come.emplace(slot.ends, taken->low);
    }
    return {};
  }

  Result<void> check_spaces(const SignaturePlan& signature) {
    const size_t count = signature.slots.size();
    // All signatures share one allowance.
    for (size_t i = 0; i < signature.spaces.size(); ++i) {
      if (count > tests_left_) return wrong("too many spaces for so many slots");
      tests_left_ -= count;
      const DynamicReusableSpace& space = signature.spaces[i];
      if (space.stream >= plan_.streams.size() || space.begins > space.ends || space.ends > count) {
        return wrong(numbered("space", i));
      }
      const AddressRange arena = arena_of(space.stream);
      int64_t end = arena.offset;
      for (const AddressRange& idle : space.idle) {
        if (idle.size <= 0 || idle.offset % plan_.alignment != 0 || idle.offset < end ||
            !is_inside(idle, arena)) {
          return wrong("the ranges of " + numbered("space", i));
        }
        end = idle.offset + idle.size;
      }
      for (size_t s = 0; s < space.ends; ++s) {
        const PlannedSlot& slot = signature.slots[s];
        const bool lives = slot.ends > space.begins && !slot.is_elsewhere;
        if (!lives || host_of(plan_, slot) != space.stream || slot.largest == 0) continue;
        const auto after = std::partition_point(
            space.idle.begin(), space.idle.end(),
            [&](const AddressRange& idle) { return idle.offset + idle.size <= slot.offset; });
        if (after != space.idle.end() && after->offset < slot.offset + slot.largest) {
          return wrong(numbered("slot", s) + " lives in " + numbered("space", i));
        }
      }
    }
    return check_places(signature);
  }

  static Result<void> check_places(const SignaturePlan& signature) {
    for (size_t i = 0; i < signature.places.size(); ++i) {
      const DynamicPlace& place = signature.places[i];
      const auto key = [](const DynamicPlace& p) { return std::tuple(p.stream, p.before, p.rank); };
      if (place.space >= signature.spaces.size() || place.before > signature.slots.size() ||
          place.stream != signature.spaces[place.space].stream ||
          (i > 0 && key(signature.places[i - 1]) >= key(place))) {
        return wrong(numbered("place", i));
      }
    }
    return {};
  }

  // Persistent and carried bytes belong to one owner each, for all signatures.
  Result<void> check_stays() {
    std::erase_if(stays_, [](const Bytes64& bytes) { return bytes.low == bytes.high; });
    std::sort(stays_.begin(), stays_.end(),
              [](const Bytes64& a, const Bytes64& b) { return a.low < b.low; });
    for (size_t i = 1; i < stays_.size(); ++i) {
      if (stays_[i - 1].high > stays_[i].low) return wrong("what stays overlaps");
    }
    return {};
  }

  const MemoryPlan& plan_;
  std::vector<Bytes64> stays_;
  std::optional<uint32_t> borrower_;  // the stream that all guests are of
  uint64_t tests_left_ = kMostSpaceTests;
};

}  // namespace

Result<void> check_plan(const MemoryPlan& plan) { return Checker(plan).run(); }

}  // namespace headroom::memory
