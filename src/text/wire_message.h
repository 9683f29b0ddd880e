// The wire format of protocol buffers, as far as a reader needs it: a message as its fields, one
// after the other, over bytes that stay where they are.
//
// A length is held against what is left before it is believed. Groups, which nobody writes any
// more, are passed over with all that they hold. For readers of ONNX files (model/onnx_file.h) and
// of Chakra's execution traces (formats/chakra_nodes.h). Source: the encoding page of Google's
// documentation of protocol buffers. Pure; linear in the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headroom::text {

struct WireField {
  enum class Kind : uint8_t { integer, fixed64, bytes, fixed32 };
  uint32_t number = 0;
  Kind kind = Kind::integer;
  uint64_t value = 0;      // of an integer, or the bits of what is fixed
  std::string_view bytes;  // of bytes
  size_t at = 0;           // where in the file the field's content begins
};

class WireMessage {
 public:
  // `at`: where in the file `bytes` begin.
  explicit WireMessage(std::string_view bytes, size_t at = 0) : bytes_(bytes), base_(at) {}

  // The next field; false at the end, and where the bytes are no message.
  bool next(WireField& field);
  // A bare integer, as packed lists hold them.
  bool next_integer(uint64_t& value);
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  [[nodiscard]] size_t place() const { return base_ + at_; }

 private:
  enum class Tag : uint8_t { field, group_begin, group_end };
  bool read_tagged(WireField& field, Tag& tag);
  bool read_bytes(WireField& field);
  bool skip_group(uint32_t number);
  bool read_varint(uint64_t& value);
  bool read_fixed(size_t size, uint64_t& value);
  bool fail();

  std::string_view bytes_;
  size_t base_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace headroom::text
