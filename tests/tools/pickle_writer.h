// Writes Python pickles of plain data, protocol 4 (tests only). Nested calls, written straight into
// one string: what is open is the caller's to close.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

class PickleWriter {
 public:
  PickleWriter() { out_ += "\x80\x04"; }

  // Items of a list, or keys and values in turn of a dict, come between begin and end.
  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }

  void text(std::string_view value) {
    out_ += 'X';  // BINUNICODE
    append(value.size(), 4);
    out_ += value;
  }
  void integer(int64_t value) {
    out_ += "\x8a\x08";  // LONG1, eight bytes
    append(static_cast<uint64_t>(value), 8);
  }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void pair(int64_t first, int64_t second) {
    integer(first);
    integer(second);
    out_ += '\x86';  // TUPLE2
  }

  // The whole pickle. REQUIRES: one value was written.
  [[nodiscard]] std::string finish() && {
    out_ += '.';
    return std::move(out_);
  }

 private:
  void append(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
  }
  std::string out_;
};

}  // namespace headroom
