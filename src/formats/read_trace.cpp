#include "formats/read_trace.h"

#include "formats/chakra.h"
#include "formats/kineto.h"
#include "formats/nsight_systems.h"
#include "formats/ort_profile.h"
#include "formats/rocpd.h"
#include "formats/rocprof.h"

namespace headroom::formats {
namespace {

constexpr size_t kBeginning = 1024;  // as much as tells the formats apart

Result<Trace> read_database(const std::string& path, const TraceLimits& limits) {
  HEADROOM_ASSIGN(const SqliteFile file, SqliteFile::open(path));
  return read_database_trace(file, limits);
}

// What a file is wrapped in, by its first bytes, and how to get at it.
struct Wrapped {
  std::string_view bytes;
  size_t at = 0;
  const char* message = "";
  const char* hint = "";
};
using namespace std::string_view_literals;
constexpr Wrapped kWrapped[] = {
    {"\x28\xB5\x2F\xFD"sv, 0, "is compressed by zstd", "zstd -dc FILE | headroom ops -"},
    {"\xFD\x37zXZ\0"sv, 0, "is compressed by xz", "xz -dc FILE | headroom ops -"},
    {"BZh"sv, 0, "is compressed by bzip2", "bzip2 -dc FILE | headroom ops -"},
    {"PK\x03\x04"sv, 0, "is a ZIP archive", "unpack it: unzip FILE"},
    {"ustar"sv, 257, "is a tar archive", "unpack it: tar xf FILE"},
    {"\xFF\xFE"sv, 0, "is text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | headroom ops -"},
    {"\xFE\xFF"sv, 0, "is text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | headroom ops -"},
};

// What people hand over in its place.
Result<void> check_is_trace(std::string_view beginning, const std::string& path) {
  const size_t first = beginning.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  const bool is_json =
      first != std::string_view::npos && (beginning[first] == '{' || beginning[first] == '[');
  if (is_json && beginning.find("\"schema\"") != std::string_view::npos &&
      beginning.find("\"nodes\"") != std::string_view::npos) {
    return Error{ErrorCode::bad_input, "is an execution trace, which has no times", path,
                 "headroom ops TRACE --execution-trace FILE takes shapes from it"};
  }
  if (is_json || beginning.empty()) return {};
  for (const Wrapped& one : kWrapped) {
    if (beginning.size() < one.at || !beginning.substr(one.at).starts_with(one.bytes)) continue;
    return Error{ErrorCode::bad_input, one.message, path, one.hint};
  }
  if (beginning.starts_with('\x80')) {
    return Error{ErrorCode::bad_input, "is a pickle, not a profiler's trace", path,
                 "headroom pack FILE reads snapshots of memory"};
  }
  return Error{ErrorCode::bad_input, "is of no profiler that is known", path,
               "the JSON of PyTorch's profiler, ONNX Runtime or rocprofv3, rocpd, `nsys export "
               "--type sqlite`, or Chakra's .et; ncu's CSV goes with --counters"};
}

}  // namespace

Result<Trace> read_database_trace(const SqliteFile& file, const TraceLimits& limits) {
  if (is_nsight_systems(file)) return read_nsight_systems(file, limits);
  if (is_rocpd(file)) return read_rocpd(file, limits);
  return Error{ErrorCode::bad_input, "is a database, but of no profiler that is known", file.name(),
               "`nsys export --type sqlite`, or rocprofv3's rocpd"};
}

Result<Trace> read_trace(const std::string& path, const TraceLimits& limits) {
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(path));
  HEADROOM_ASSIGN(const std::string_view peeked, feed.peek(kBeginning));
  const std::string beginning(peeked);  // the feed is handed on
  if (is_sqlite(beginning)) {
    if (path != "-") return read_database(path, limits);
    return Error{ErrorCode::bad_input, "is a database, which is read from a file alone",
                 feed.name(), "headroom ops FILE"};
  }
  if (is_chakra(beginning)) return read_chakra(std::move(feed), limits);
  HEADROOM_TRY(check_is_trace(beginning, feed.name()));
  if (is_ort_profile(beginning)) return read_ort_profile(std::move(feed), limits);
  if (is_rocprof(beginning)) return read_rocprof(std::move(feed), limits);
  return read_kineto(std::move(feed), limits);
}

}  // namespace headroom::formats
