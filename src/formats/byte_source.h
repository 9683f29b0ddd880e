// ByteSource: bytes in order, from a file or from memory, with the place for error messages.
//
// For readers of files that may be larger than memory. Buffered, forward only, not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::formats {

class ByteSource {
 public:
  // `data` must outlive the source.
  ByteSource(std::string_view data, std::string name);
  // Opens a file; "-" is standard input.
  static Result<ByteSource> open(const std::string& path);

  // The next `count` bytes in one piece, good until the next call; fewer where the input ends.
  // REQUIRES: count <= kMaxPiece.
  std::string_view take(size_t count);
  // The next bytes without taking them; fewer where the input ends. REQUIRES: count <= kMaxPiece.
  std::string_view peek(size_t count);

  [[nodiscard]] int64_t offset() const { return offset_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // An error of bad input at a byte offset, "NAME: byte N".
  [[nodiscard]] Error error_at(int64_t offset, std::string message) const;

  static constexpr size_t kMaxPiece = 1 << 16;

 private:
  struct Closer {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };

  std::string name_;
  std::unique_ptr<std::FILE, Closer> file_;  // null for memory
  std::vector<char> buffer_;
  std::string_view ready_;  // what is read and not yet taken
  int64_t offset_ = 0;
};

}  // namespace headroom::formats
