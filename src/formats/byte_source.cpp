#include "formats/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace headroom::formats {

ByteSource::ByteSource(std::string_view data, std::string name)
    : name_(std::move(name)), ready_(data) {}

Result<ByteSource> ByteSource::open(const std::string& path) {
  ByteSource source({}, path == "-" ? "standard input" : path);
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return Error{ErrorCode::bad_input, std::string("cannot be read: ") + std::strerror(errno), path,
                 ""};
  }
  source.file_.reset(file);
  source.buffer_.resize(4 * kMaxPiece);
  return source;
}

std::string_view ByteSource::peek(size_t count) {
  HEADROOM_CHECK(count <= kMaxPiece, "peek of too many bytes");
  if (ready_.size() < count && file_ != nullptr) {
    std::memmove(buffer_.data(), ready_.data(), ready_.size());
    const size_t more =
        std::fread(buffer_.data() + ready_.size(), 1, buffer_.size() - ready_.size(), file_.get());
    ready_ = {buffer_.data(), ready_.size() + more};
  }
  return ready_.substr(0, count);
}

std::string_view ByteSource::take(size_t count) {
  const std::string_view piece = peek(count);
  ready_.remove_prefix(piece.size());
  offset_ += static_cast<int64_t>(piece.size());
  return piece;
}

Error ByteSource::error_at(int64_t offset, std::string message) const {
  return Error{ErrorCode::bad_input, std::move(message), name_ + ": byte " + std::to_string(offset),
               ""};
}

}  // namespace headroom::formats
