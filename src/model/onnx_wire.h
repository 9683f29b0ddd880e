// The wire format of protocol buffers, as far as a reader needs it: a message as its fields, one
// after the other, over bytes that stay where they are.
//
// A length is held against what is left before it is believed. Groups, which nobody writes any
// more, are refused. Internal to the reading of ONNX files (onnx_file.cpp). Source: the encoding
// page of Google's documentation of protocol buffers. Pure; linear in the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headroom::model {

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
  bool read_varint(uint64_t& value);
  bool read_fixed(size_t size, uint64_t& value);
  bool fail();

  std::string_view bytes_;
  size_t base_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace headroom::model
