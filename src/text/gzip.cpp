#include "text/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "base/file.h"

namespace headroom::text {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, gzip framing
constexpr size_t kStep = size_t{256} << 10;

// zlib's inflate state, released on every path.
class Inflater {
 public:
  Inflater() { ready_ = inflateInit2(&stream, kGzipWindow) == Z_OK; }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (ready_) inflateEnd(&stream);
  }
  [[nodiscard]] bool ready() const { return ready_; }
  z_stream stream{};

 private:
  bool ready_ = false;
};

// zlib counts in 32 bits; larger input is handed over piece by piece.
uInt piece(size_t bytes) {
  return static_cast<uInt>(std::min<size_t>(bytes, std::numeric_limits<uInt>::max() / 2));
}

Error gzip_error(const std::string& file, size_t at, std::string message) {
  return Error{ErrorCode::bad_input, std::move(message), file + ": byte " + std::to_string(at), {}};
}

}  // namespace

bool is_gzip(std::string_view data) {
  return data.size() >= 2 && data[0] == '\x1F' && data[1] == '\x8B';
}

Result<std::string> gunzip(std::string_view data, const std::string& file, Bytes limit) {
  Inflater inflater;
  HEADROOM_CHECK(inflater.ready(), "zlib cannot start");
  z_stream& stream = inflater.stream;
  const size_t hard_limit = static_cast<size_t>(std::max<int64_t>(limit.count, 0));
  std::string out;
  size_t used = 0;
  for (;;) {
    const size_t before = out.size();
    out.resize(std::min(before + std::max(kStep, before / 2), hard_limit + 1));
    // zlib's interface predates const; it does not write to its input.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data() + used));
    stream.avail_in = piece(data.size() - used);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = piece(out.size() - before);
    const uInt offered_in = stream.avail_in;
    const uInt offered_out = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    used += offered_in - stream.avail_in;
    out.resize(before + (offered_out - stream.avail_out));
    if (out.size() > hard_limit) {
      return Error{ErrorCode::bad_input, "unpacks to more than the limit of " + format_bytes(limit),
                   file, "is this the right file?"};
    }
    if (status == Z_STREAM_END) {
      if (!is_gzip(data.substr(used))) return out;  // zeros may pad the last member
      if (inflateReset(&stream) != Z_OK) return gzip_error(file, used, "cannot go on unpacking");
    } else if (status == Z_BUF_ERROR ||
               (status == Z_OK && used == data.size() && stream.avail_out > 0)) {
      return gzip_error(file, used, "ends in the middle of its gzip data; the file is truncated");
    } else if (status != Z_OK) {
      return gzip_error(
          file, used,
          std::string("is corrupt gzip data: ") + (stream.msg != nullptr ? stream.msg : "unknown"));
    }
  }
}

std::string gzip(std::string_view data) {
  z_stream stream{};
  HEADROOM_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                              Z_DEFAULT_STRATEGY) == Z_OK,
                 "zlib cannot start");
  std::string out;
  size_t used = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    const size_t before = out.size();
    out.resize(before + kStep);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data() + used));
    stream.avail_in = piece(data.size() - used);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<uInt>(kStep);
    const uInt offered = stream.avail_in;
    status = deflate(&stream, used + offered == data.size() ? Z_FINISH : Z_NO_FLUSH);
    used += offered - stream.avail_in;
    out.resize(before + (kStep - stream.avail_out));
  }
  deflateEnd(&stream);
  return out;
}

Result<std::string> read_input(const std::string& path, Bytes limit) {
  // Packed data is read under the same limit: it is smaller than what it holds, but for overhead.
  Result<std::string> content = read_file(path, limit);
  if (!content || !is_gzip(*content)) return content;
  return gunzip(*content, path == "-" ? "standard input" : path, limit);
}

}  // namespace headroom::text
