#include "model/onnx_wire.h"

namespace headroom::model {
namespace {

constexpr size_t kVarintBytes = 10;
constexpr uint64_t kMostNumber = (uint64_t{1} << 29) - 1;  // of a field

}  // namespace

bool WireMessage::fail() {
  failed_ = true;
  return false;
}

bool WireMessage::read_varint(uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < kVarintBytes; ++i) {
    if (at_ == bytes_.size()) return fail();
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if ((byte & 0x80) == 0) return true;
  }
  return fail();
}

bool WireMessage::read_fixed(size_t size, uint64_t& value) {
  if (bytes_.size() - at_ < size) return fail();
  value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + i])) << (8 * i);
  }
  at_ += size;
  return true;
}

bool WireMessage::next_integer(uint64_t& value) {
  return !failed_ && !at_end() && read_varint(value);
}

bool WireMessage::next(WireField& field) {
  using Kind = WireField::Kind;
  if (failed_ || at_end()) return false;
  uint64_t tag = 0;
  if (!read_varint(tag)) return false;
  if (tag >> 3 == 0 || tag >> 3 > kMostNumber) return fail();
  field = {};
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      field.at = place();
      return read_varint(field.value);
    case 1:
      field.kind = Kind::fixed64;
      field.at = place();
      return read_fixed(8, field.value);
    case 5:
      field.kind = Kind::fixed32;
      field.at = place();
      return read_fixed(4, field.value);
    case 2: {
      field.kind = Kind::bytes;
      uint64_t length = 0;
      if (!read_varint(length)) return false;
      if (length > bytes_.size() - at_) return fail();
      field.at = place();
      field.bytes = bytes_.substr(at_, length);
      at_ += length;
      return true;
    }
    default:
      return fail();
  }
}

}  // namespace headroom::model
