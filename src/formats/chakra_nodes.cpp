#include "formats/chakra_nodes.h"

#include <algorithm>
#include <bit>

#include "text/wire_message.h"

namespace headroom::formats {
namespace {

using text::WireField;
using text::WireMessage;
using Kind = WireField::Kind;

// Numbers of fields.
enum Metadata : uint32_t { kVersion = 1, kMetadataAttribute = 2 };
enum Node : uint32_t {
  kId = 1,
  kName = 2,
  kType = 3,
  kControl = 4,
  kData = 5,
  kStart = 6,
  kDuration = 7,
  kInputs = 8,
  kOutputs = 9,
  kAttribute = 10,
  kStorage = 11
};
enum Input : uint32_t { kShapes = 2, kTypes = 3 };
enum Attribute : uint32_t {
  kAttributeName = 1,
  kInt32 = 7,
  kInt64 = 9,
  kUint32 = 11,
  kUint64 = 13,
  kSint32 = 15,
  kSint64 = 17,
  kFixed32 = 19,
  kFixed64 = 21,
  kSfixed32 = 23,
  kSfixed64 = 25,
  kBool = 27,
  kString = 29
};

constexpr size_t kMostLengthBytes = 5;  // of kMostMessage and what is above it

struct Value {
  std::string_view name, text;
  int64_t number = 0;
};

int64_t unzigzag(uint64_t value) {
  return std::bit_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

// Of whichever type of integer the writer chose.
void take_value(const WireField& field, Value& value) {
  switch (field.number) {
    case kAttributeName:
      if (field.kind == Kind::bytes) value.name = field.bytes;
      return;
    case kString:
      if (field.kind == Kind::bytes) value.text = field.bytes;
      return;
    case kInt32:
    case kInt64:
    case kUint32:
    case kUint64:
    case kBool:
      if (field.kind == Kind::integer) value.number = std::bit_cast<int64_t>(field.value);
      return;
    case kSint32:
    case kSint64:
      if (field.kind == Kind::integer) value.number = unzigzag(field.value);
      return;
    case kFixed64:
    case kSfixed64:
      if (field.kind == Kind::fixed64) value.number = std::bit_cast<int64_t>(field.value);
      return;
    case kFixed32:
      if (field.kind == Kind::fixed32) value.number = static_cast<int64_t>(field.value);
      return;
    case kSfixed32:
      if (field.kind == Kind::fixed32) {
        value.number = std::bit_cast<int32_t>(static_cast<uint32_t>(field.value));
      }
      return;
    default:
      return;
  }
}

bool read_value(std::string_view bytes, Value& value) {
  WireMessage message(bytes);
  WireField field;
  while (message.next(field)) take_value(field, value);
  return !message.failed();
}

bool take_attribute(std::string_view bytes, ChakraNode& node) {
  Value value;
  if (!read_value(bytes, value)) return false;
  if (value.name == "rf_id") node.record_id = value.number;
  if (value.name == "scope") node.scope = value.number;
  if (value.name == "tid") node.thread = value.number;
  if (value.name == "is_cpu_op") node.is_on_host = value.number != 0;
  if (value.name == "op_schema") node.operator_schema = value.text;
  if (value.name == "pg_name") node.process_group = value.text;
  if (value.name == "comm_size") node.collective_bytes = value.number;
  if (value.name == "stream") {
    node.stream = value.number;
    node.has_stream = true;
  }
  if (value.name == "comm_type") {
    node.collective = value.number;
    node.is_collective_known = true;
  }
  return true;
}

bool take_inputs(std::string_view bytes, ChakraNode& node) {
  WireMessage message(bytes);
  WireField field;
  while (message.next(field)) {
    if (field.kind != Kind::bytes) continue;
    if (field.number == kShapes) node.shapes = field.bytes;
    if (field.number == kTypes) node.types = field.bytes;
  }
  return !message.failed();
}

// The first of a list, packed or not; false where it is none.
bool take_first(const WireField& field, uint64_t& first, bool& has_first) {
  if (has_first) return true;
  if (field.kind == Kind::integer) {
    first = field.value;
    has_first = true;
    return true;
  }
  WireMessage packed(field.bytes);
  has_first = packed.next_integer(first);
  return has_first || (field.kind == Kind::bytes && field.bytes.empty());
}

ChakraType type_of(uint64_t number) {
  return static_cast<ChakraType>(std::min(number, static_cast<uint64_t>(ChakraType::other)));
}

bool take_field(const WireField& field, ChakraNode& node) {
  const bool is_number = field.kind == Kind::integer;
  const bool is_bytes = field.kind == Kind::bytes;
  switch (field.number) {
    case kId:
      if (is_number) node.id = field.value;
      return is_number;
    case kName:
      if (is_bytes) node.name = field.bytes;
      return is_bytes;
    case kType:
      if (is_number) node.type = type_of(field.value);
      return is_number;
    case kControl:
      return take_first(field, node.called_by, node.has_caller);
    case kData:
      return take_first(field, node.waits_for, node.has_wait);
    case kStart:  // chakra.h says why it is passed over
      return is_number;
    case kDuration:
      if (is_number) node.duration_us = field.value;
      return is_number;
    case kInputs:
      return is_bytes && take_inputs(field.bytes, node);
    case kAttribute:
      return is_bytes && take_attribute(field.bytes, node);
    default:
      return true;
  }
}

// Schemas 0.0.1 to 0.0.3 (2023): texts where now times are.
bool is_of_old_schema(const WireField& field) {
  return (field.number == kStart || field.number == kDuration) && field.kind == Kind::bytes;
}

// The shape of a message's fields, as far as it can be seen: what tells these files from others.
bool looks_like_metadata(std::string_view bytes) {
  WireMessage message(bytes);
  WireField field;
  while (message.next(field)) {
    // Where there was no version yet, attributes had its number.
    const bool is_known = field.number == kVersion || field.number == kMetadataAttribute;
    if (!is_known || field.kind != Kind::bytes) return false;
    Value value;
    const bool is_attribute = read_value(field.bytes, value) && !value.name.empty();
    const bool is_version =
        field.number == kVersion &&
        std::all_of(field.bytes.begin(), field.bytes.end(), [](char c) { return c > ' '; });
    if (!is_attribute && !is_version) return false;
  }
  return !message.failed();
}

struct Look {
  bool is_node = false;
  bool has_name = false;
};
// `is_whole`: it is there to its end.
Look look_at_node(std::string_view bytes, bool is_whole) {
  WireMessage message(bytes);
  WireField field;
  Look look;
  while (message.next(field)) {
    ChakraNode node;
    if (field.number > kStorage) return {};
    if (is_of_old_schema(field)) return {true, true};
    if (!take_field(field, node)) return {};
    look.has_name = look.has_name || !node.name.empty();
  }
  look.is_node = !message.failed() || !is_whole;
  return look;
}

// A length in front of a message; false where there is none, whole.
bool split_message(std::string_view& bytes, uint64_t& length) {
  length = 0;
  for (size_t i = 0; i < std::min(bytes.size(), kMostLengthBytes); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    length |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if ((byte & 0x80) != 0) continue;
    bytes.remove_prefix(i + 1);
    return length <= ChakraNodes::kMostMessage;
  }
  return false;
}

}  // namespace

bool is_chakra(std::string_view begin) {
  uint64_t length = 0;
  if (!split_message(begin, length) || length > begin.size()) return false;
  if (!looks_like_metadata(begin.substr(0, length))) return false;
  bool is_sure = length > 0;
  begin.remove_prefix(length);
  while (!begin.empty()) {
    if (!split_message(begin, length)) return is_sure && begin.size() < kMostLengthBytes;
    const bool is_whole = length <= begin.size();
    const std::string_view message = begin.substr(0, length);
    begin.remove_prefix(message.size());
    const Look look = look_at_node(message, is_whole);
    if (!look.is_node) return false;
    is_sure = is_sure || look.has_name;
  }
  return is_sure;
}

bool ChakraNodes::break_off(std::string why) {
  fault_ = std::move(why);
  return false;
}

bool ChakraNodes::read_length(uint64_t& length) {
  length = 0;
  for (size_t i = 0; i < kMostLengthBytes; ++i) {
    char byte = 0;
    const Result<size_t> count = feed_.read(&byte, 1);
    if (!count) return break_off(count.error().message);
    if (*count == 0) return i != 0 && break_off("the file ends within a length");
    ++at_;
    length |= static_cast<uint64_t>(static_cast<uint8_t>(byte) & 0x7F) << (7 * i);
    if ((static_cast<uint8_t>(byte) & 0x80) == 0) return true;
  }
  return break_off("a length of more than five bytes");
}

// In pieces, so that a length is paid for by bytes that are there.
bool ChakraNodes::fill(uint64_t length) {
  constexpr uint64_t kPiece = uint64_t{1} << 16;
  message_.clear();
  while (message_.size() < length) {
    const size_t have = message_.size();
    message_.resize(have + std::min(kPiece, length - have));
    const Result<size_t> count = feed_.read(message_.data() + have, message_.size() - have);
    message_.resize(have + (count ? *count : 0));
    if (!count) return break_off(count.error().message);
    if (*count == 0) return break_off("the file ends within a message");
    at_ += static_cast<int64_t>(*count);
  }
  return true;
}

bool ChakraNodes::next_message() {
  if (!fault_.empty()) return false;
  message_at_ = at_;
  uint64_t length = 0;
  if (!read_length(length)) return false;
  if (length > kMostMessage) {
    return break_off("a message of " + std::to_string(length) + " bytes, where at most " +
                     std::to_string(kMostMessage) + " are read");
  }
  message_at_ = at_;
  return fill(length);
}

void ChakraNodes::read_metadata() {
  WireMessage message(message_);
  WireField field;
  while (message.next(field)) {
    Value value;
    if (field.kind != Kind::bytes || !read_value(field.bytes, value)) continue;
    if (value.name == "schema") schema_ = value.text;
  }
}

Result<bool> ChakraNodes::next(ChakraNode& node) {
  if (!has_metadata_) {
    if (!next_message()) return false;
    has_metadata_ = true;
    read_metadata();
  }
  if (!next_message()) return false;
  node = {};
  WireMessage message(message_, static_cast<size_t>(message_at_));
  WireField field;
  while (message.next(field)) {
    if (is_of_old_schema(field)) {
      return Error{ErrorCode::bad_input,
                   "is of a schema of Chakra before 0.0.4, which has no durations",
                   name() + ": byte " + std::to_string(field.at),
                   "convert the trace anew, with chakra_converter of mlcommons/chakra"};
    }
    node.is_readable = node.is_readable && take_field(field, node);
  }
  node.is_readable = node.is_readable && !message.failed();
  return true;
}

}  // namespace headroom::formats
