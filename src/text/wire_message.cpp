#include "text/wire_message.h"

#include <array>

namespace headroom::text {
namespace {

constexpr size_t kVarintBytes = 10;
constexpr uint64_t kMostNumber = (uint64_t{1} << 29) - 1;  // of a field
constexpr size_t kDeepestGroup = 100;                      // of groups within groups

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

bool WireMessage::read_bytes(WireField& field) {
  uint64_t length = 0;
  if (!read_varint(length)) return false;
  if (length > bytes_.size() - at_) return fail();
  field.at = place();
  field.bytes = bytes_.substr(at_, length);
  at_ += length;
  return true;
}

// A field, or where a group begins or ends: of those the number alone is set.
bool WireMessage::read_tagged(WireField& field, Tag& tag) {
  using Kind = WireField::Kind;
  uint64_t word = 0;
  if (!read_varint(word)) return false;
  if (word >> 3 == 0 || word >> 3 > kMostNumber) return fail();
  field = {};
  field.number = static_cast<uint32_t>(word >> 3);
  field.at = place();
  tag = Tag::field;
  switch (word & 7) {
    case 0:
      return read_varint(field.value);
    case 1:
      field.kind = Kind::fixed64;
      return read_fixed(8, field.value);
    case 2:
      field.kind = Kind::bytes;
      return read_bytes(field);
    case 3:
      tag = Tag::group_begin;
      return true;
    case 4:
      tag = Tag::group_end;
      return true;
    case 5:
      field.kind = Kind::fixed32;
      return read_fixed(4, field.value);
    default:
      return fail();
  }
}

// To the end of the group of that number, with those inside it.
bool WireMessage::skip_group(uint32_t number) {
  std::array<uint32_t, kDeepestGroup> open{number};
  size_t depth = 1;
  WireField field;
  Tag tag = Tag::field;
  while (depth > 0) {
    if (at_end() || !read_tagged(field, tag)) return fail();
    if (tag == Tag::group_begin) {
      if (depth == kDeepestGroup) return fail();
      open[depth++] = field.number;
    } else if (tag == Tag::group_end && open[--depth] != field.number) {
      return fail();
    }
  }
  return true;
}

bool WireMessage::next(WireField& field) {
  Tag tag = Tag::field;
  while (!failed_ && !at_end()) {
    if (!read_tagged(field, tag)) return false;
    if (tag == Tag::field) return true;
    if (tag == Tag::group_end || !skip_group(field.number)) return fail();
  }
  return false;
}

}  // namespace headroom::text
