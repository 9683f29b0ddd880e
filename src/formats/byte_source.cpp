#include "formats/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace headroom::formats {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 17;  // within a core's second-level cache

}  // namespace

ByteSource::ByteSource(std::string_view data, std::string name)
    : name_(std::move(name)), window_(data) {}

Result<ByteSource> ByteSource::open(const std::string& path) {
  ByteSource source({}, path == "-" ? "standard input" : path);
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return Error{ErrorCode::bad_input, std::string("cannot be read: ") + std::strerror(errno), path,
                 ""};
  }
  std::setvbuf(file, nullptr, _IONBF, 0);  // the buffer here is enough
  source.file_.reset(file);
  return source;
}

void ByteSource::skip(size_t count) {
  HEADROOM_CHECK(count <= window_.size(), "more is taken than was read");
  window_.remove_prefix(count);
  offset_ += static_cast<int64_t>(count);
}

void ByteSource::move_to_buffer() {
  const size_t room = file_ != nullptr ? kBufferBytes : window_.size();
  if (buffer_ == nullptr) {
    auto buffer = std::make_unique_for_overwrite<char[]>(room + kPadding);
    std::copy(window_.begin(), window_.end(), buffer.get());
    buffer_ = std::move(buffer);
    buffer_bytes_ = room;
  } else {
    std::copy(window_.begin(), window_.end(), buffer_.get());  // to the left, so order suits
  }
  window_ = {buffer_.get(), window_.size()};
}

void ByteSource::fill(size_t least) {
  HEADROOM_CHECK(least <= kMostAhead, "a reader looks too far ahead");
  if (window_.size() >= least || is_last_) return;
  move_to_buffer();
  size_t have = window_.size();
  while (have < least) {
    const size_t more =
        file_ == nullptr ? 0
                         : std::fread(buffer_.get() + have, 1, buffer_bytes_ - have, file_.get());
    if (more == 0) {
      is_last_ = true;
      std::fill_n(buffer_.get() + have, kPadding, '\0');
      break;
    }
    have += more;
  }
  window_ = {buffer_.get(), have};
}

std::string_view ByteSource::peek(size_t count) {
  fill(count);
  return window_.substr(0, count);
}

Error ByteSource::error_at(int64_t offset, std::string message) const {
  return Error{ErrorCode::bad_input, std::move(message), name_ + ": byte " + std::to_string(offset),
               ""};
}

}  // namespace headroom::formats
