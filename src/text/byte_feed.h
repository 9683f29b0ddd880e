// ByteFeed: the bytes of a file or of memory in order, unpacked where they are gzip.
//
// For readers of files that are larger than memory; what is small goes through read_input
// (text/gzip.h). One piece of packed input is held, whatever the file claims to unpack to: who
// reads bounds what it keeps. Forward only, blocking, not thread-safe; 500 MB/s to 1 GB/s
// unpacked from gzip, as fast as the disk otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom::text {

class ByteFeed {
 public:
  // Opens a file; "-" is standard input.
  static Result<ByteFeed> open(const std::string& path);
  // `data` must outlive the feed.
  ByteFeed(std::string_view data, std::string name);

  ByteFeed(ByteFeed&&) noexcept;
  ByteFeed& operator=(ByteFeed&&) noexcept;
  ByteFeed(const ByteFeed&) = delete;
  ByteFeed& operator=(const ByteFeed&) = delete;
  ~ByteFeed();

  // Writes at most `capacity` of the next bytes to `out` and says how many; 0 at the end. Truncated
  // or corrupt gzip data is an Error once what could be unpacked has been handed out.
  // REQUIRES: capacity > 0.
  Result<size_t> read(char* out, size_t capacity);

  // The next `count` bytes, fewer at the end or before a fault; read gives them once more. Valid
  // until the next call. An Error where there is a fault and nothing before it.
  Result<std::string_view> peek(size_t count);

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  Result<size_t> read_on(char* out, size_t capacity);

  struct State;
  std::string name_;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::text
