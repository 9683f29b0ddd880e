// ByteSource: bytes in order, from a file or from memory, with the place for error messages.
//
// For readers of files that may be larger than memory. A reader works on a window of what comes
// next, says how much of it is done with, and asks for more. Buffered, forward only, not
// thread-safe; a file that shrinks while it is read just ends early.
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

  // What is read and not yet taken, good until the next fill().
  [[nodiscard]] std::string_view window() const { return window_; }
  // Takes the first `count` bytes. REQUIRES: count <= window().size().
  void skip(size_t count);
  // Brings at least `least` bytes into the window, or all that is left of the input. Behind a
  // window that holds the end, kPadding zero bytes can be read. REQUIRES: least <= kMostAhead.
  void fill(size_t least);
  // The window holds the end of the input.
  [[nodiscard]] bool is_last() const { return is_last_; }
  // The next bytes without taking them; fewer where the input ends. REQUIRES: count <= kMostAhead.
  std::string_view peek(size_t count);

  // Of the window's first byte.
  [[nodiscard]] int64_t offset() const { return offset_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // An error of bad input at a byte offset, "NAME: byte N".
  [[nodiscard]] Error error_at(int64_t offset, std::string message) const;

  static constexpr size_t kMostAhead = size_t{1} << 16;
  static constexpr size_t kPadding = 512;

 private:
  struct Closer {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  void move_to_buffer();

  std::string name_;
  std::unique_ptr<std::FILE, Closer> file_;  // null for memory
  std::unique_ptr<char[]> buffer_;
  size_t buffer_bytes_ = 0;
  std::string_view window_;
  int64_t offset_ = 0;
  bool is_last_ = false;
};

}  // namespace headroom::formats
