#include "memory/plan/plan_file.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "memory/plan/plan_checker.h"

namespace headroom::memory {
namespace {

constexpr std::string_view kMagic = "HDRMPLAN";
constexpr uint32_t kVersion = 3;
constexpr Bytes kMostBytes{kGiB};
constexpr size_t kChecksumBytes = 8;
constexpr uint32_t kCarried = 1;  // a slot's flags
constexpr uint32_t kGuest = 2;
constexpr uint32_t kElsewhere = 4;
constexpr uint32_t kInOrder = 8;

// CRC-64/XZ (ECMA-182, reflected): any error of up to 64 bits in a row is found.
constexpr std::array<uint64_t, 256> crc_table() {
  std::array<uint64_t, 256> table{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xc96c5795d7870f42 : 0);
    }
    table[byte] = crc;
  }
  return table;
}
uint64_t checksum(std::string_view bytes) {
  static constexpr std::array<uint64_t, 256> kTable = crc_table();
  uint64_t crc = ~uint64_t{0};
  for (const char c : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

class Writer {
 public:
  void u32(uint64_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void i64(int64_t value) { number(static_cast<uint64_t>(value), 8); }
  void raw(std::string_view text) { bytes_ += text; }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  void number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  std::string bytes_;
};

void write_signature(const SignaturePlan& signature, Writer& out) {
  out.u32(signature.iterations);
  out.u32(signature.slots.size());
  for (const PlannedSlot& slot : signature.slots) {
    out.u32(slot.stream);
    out.u32(slot.ends);
    out.u32((slot.is_carried ? kCarried : 0) | (slot.is_guest ? kGuest : 0) |
            (slot.is_elsewhere ? kElsewhere : 0) | (slot.is_in_order ? kInOrder : 0));
    out.i64(slot.smallest);
    out.i64(slot.largest);
    out.i64(slot.offset);
  }
  out.u32(signature.spaces.size());
  for (const DynamicReusableSpace& space : signature.spaces) {
    out.u32(space.stream);
    out.u32(space.begins);
    out.u32(space.ends);
    out.u32(space.idle.size());
    for (const AddressRange& idle : space.idle) {
      out.i64(idle.offset);
      out.i64(idle.size);
    }
  }
  out.u32(signature.places.size());
  for (const DynamicPlace& place : signature.places) {
    out.u32(place.stream);
    out.u32(place.before);
    out.u32(place.rank);
    out.u32(place.space);
  }
}

// Reads numbers, and remembers that there were too few bytes instead of failing one by one.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  int64_t i64() { return static_cast<int64_t>(number(8)); }
  // How many records of `size` bytes follow; none where they cannot.
  size_t count(size_t size) {
    const uint32_t records = u32();
    if (records <= (bytes_.size() - at_) / size) return records;
    is_short_ = true;
    return 0;
  }
  [[nodiscard]] bool is_short() const { return is_short_; }
  [[nodiscard]] size_t at() const { return at_; }
  [[nodiscard]] bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  uint64_t number(size_t size) {
    if (bytes_.size() - at_ < size) {
      is_short_ = true;
      at_ = bytes_.size();
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes_[at_ + i])) << (8 * i);
    }
    at_ += size;
    return value;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  bool is_short_ = false;
};

constexpr size_t kStreamBytes = 32;
constexpr size_t kPersistentBytes = 20;
constexpr size_t kLeastSignatureBytes = 16;
constexpr size_t kSlotBytes = 36;
constexpr size_t kLeastSpaceBytes = 16;
constexpr size_t kRangeBytes = 16;
constexpr size_t kPlaceBytes = 16;

// False for flags that this version does not know.
bool read_signature(Reader& in, SignaturePlan& signature) {
  signature.iterations = in.u32();
  signature.slots.resize(in.count(kSlotBytes));
  for (PlannedSlot& slot : signature.slots) {
    slot.stream = in.u32();
    slot.ends = in.u32();
    const uint32_t flags = in.u32();
    if (flags > (kCarried | kGuest | kElsewhere | kInOrder)) return false;
    slot.is_carried = (flags & kCarried) != 0;
    slot.is_guest = (flags & kGuest) != 0;
    slot.is_elsewhere = (flags & kElsewhere) != 0;
    slot.is_in_order = (flags & kInOrder) != 0;
    slot.smallest = in.i64();
    slot.largest = in.i64();
    slot.offset = in.i64();
  }
  signature.spaces.resize(in.count(kLeastSpaceBytes));
  for (DynamicReusableSpace& space : signature.spaces) {
    space.stream = in.u32();
    space.begins = in.u32();
    space.ends = in.u32();
    space.idle.resize(in.count(kRangeBytes));
    for (AddressRange& idle : space.idle) {
      idle.offset = in.i64();
      idle.size = in.i64();
    }
  }
  signature.places.resize(in.count(kPlaceBytes));
  for (DynamicPlace& place : signature.places) {
    place.stream = in.u32();
    place.before = in.u32();
    place.rank = in.u32();
    place.space = in.u32();
  }
  return true;
}

Error bad(std::string message, const std::string& name, size_t at) {
  return Error{ErrorCode::bad_input, std::move(message), name + ", byte " + std::to_string(at),
               "make it again with headroom pack RECORDING --plan FILE"};
}

Result<MemoryPlan> read_payload(std::string_view payload, const std::string& name, size_t base) {
  Reader in(payload);
  const auto wrong = [&](const char* what) { return bad(what, name, base + in.at()); };
  MemoryPlan plan;
  plan.alignment = in.i64();
  plan.bytes = in.i64();
  plan.streams.resize(in.count(kStreamBytes));
  for (PlannedStream& stream : plan.streams) {
    stream.range.offset = in.i64();
    stream.range.size = in.i64();
    stream.persistent_bytes = in.i64();
    stream.carried_bytes = in.i64();
  }
  plan.persistent.resize(in.count(kPersistentBytes));
  for (PersistentBlock& block : plan.persistent) {
    block.stream = in.u32();
    block.size = in.i64();
    block.offset = in.i64();
  }
  plan.signatures.resize(in.count(kLeastSignatureBytes));
  for (SignaturePlan& signature : plan.signatures) {
    if (!read_signature(in, signature)) return wrong("a slot with flags that are not known");
    if (in.is_short()) break;
  }
  if (in.is_short()) return wrong("the plan says that more follows than is there");
  if (!in.is_at_end()) return wrong("more follows than the plan says");
  return plan;
}

Result<MemoryPlan> checked_payload(std::string_view payload, const std::string& name, size_t base) {
  HEADROOM_ASSIGN(MemoryPlan plan, read_payload(payload, name, base));
  if (const auto checked = check_plan(plan); !checked) {
    return bad(checked.error().message, name, base);
  }
  return plan;
}

}  // namespace

Result<std::string> plan_file(const MemoryPlan& plan) {
  HEADROOM_TRY(check_plan(plan));
  Writer payload;
  payload.i64(plan.alignment);
  payload.i64(plan.bytes);
  payload.u32(plan.streams.size());
  for (const PlannedStream& stream : plan.streams) {
    payload.i64(stream.range.offset);
    payload.i64(stream.range.size);
    payload.i64(stream.persistent_bytes);
    payload.i64(stream.carried_bytes);
  }
  payload.u32(plan.persistent.size());
  for (const PersistentBlock& block : plan.persistent) {
    payload.u32(block.stream);
    payload.i64(block.size);
    payload.i64(block.offset);
  }
  payload.u32(plan.signatures.size());
  for (const SignaturePlan& signature : plan.signatures) write_signature(signature, payload);
  if (payload.bytes().size() > static_cast<size_t>(kMostBytes.count) / 2) {
    return Error{ErrorCode::bad_input, "the plan would be larger than 512 MiB", "", ""};
  }
  Writer file;
  file.raw(kMagic);
  file.u32(kVersion);
  file.u64(payload.bytes().size());
  file.raw(payload.bytes());
  file.u64(checksum(file.bytes()));
  return file.take();
}

Result<MemoryPlan> parse_plan_file(std::string_view bytes, const std::string& name) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return bad("not a plan: it does not begin with HDRMPLAN", name, 0);
  }
  Reader header(bytes.substr(kMagic.size()));
  const uint32_t version = header.u32();
  const uint64_t length = header.u64();
  if (header.is_short()) return bad("the plan ends in its heading", name, bytes.size());
  if (version != kVersion) {
    return bad("a plan of version " + std::to_string(version) + "; this program reads version " +
                   std::to_string(kVersion),
               name, kMagic.size());
  }
  const size_t begin = kMagic.size() + header.at();
  if (bytes.size() - begin < kChecksumBytes || length != bytes.size() - begin - kChecksumBytes) {
    return bad("the plan says that it has " + std::to_string(length) + " bytes between heading " +
                   "and checksum; the file has " + std::to_string(bytes.size()) + " in all",
               name, begin);
  }
  const size_t end = bytes.size() - kChecksumBytes;
  if (Reader(bytes.substr(end)).u64() != checksum(bytes.substr(0, end))) {
    return bad("the checksum does not fit: the file was changed or damaged", name, end);
  }
  return checked_payload(bytes.substr(begin, length), name, begin);
}

Result<MemoryPlan> parse_plan_payload(std::string_view payload, const std::string& name) {
  return checked_payload(payload, name, 0);
}

Result<MemoryPlan> read_plan_file(const std::string& path) {
  HEADROOM_ASSIGN(const std::string bytes, read_file(path, kMostBytes));
  return parse_plan_file(bytes, path);
}

}  // namespace headroom::memory
