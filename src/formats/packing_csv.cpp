#include "formats/packing_csv.h"

#include <limits>

#include "base/file.h"
#include "text/csv.h"

namespace headroom::formats {
namespace {

constexpr Bytes kMostBytes{8 * kGiB};
// Far from where differences of times would overflow.
constexpr int64_t kMostTime = std::numeric_limits<int64_t>::max() / 4;

}  // namespace

Result<PackingInstance> read_packing_csv(const std::string& path) {
  HEADROOM_ASSIGN(const std::string text, read_file(path, kMostBytes));
  return parse_packing_csv(text, path);
}

Result<PackingInstance> parse_packing_csv(std::string_view text, const std::string& file) {
  const text::CsvLimits limits{.rows = memory::kMaxPackingRequests};
  HEADROOM_ASSIGN(text::CsvReader reader, text::CsvReader::open(text, file, limits));
  HEADROOM_ASSIGN(const size_t id, reader.column("id"));
  HEADROOM_ASSIGN(const size_t lower, reader.column("lower"));
  HEADROOM_ASSIGN(const size_t upper, reader.column("upper"));
  HEADROOM_ASSIGN(const size_t size, reader.column("size"));
  PackingInstance instance;
  instance.is_open_ended = !text.empty() && text.back() != '\n';
  int64_t total = 0;
  for (;;) {
    HEADROOM_ASSIGN(const bool has_row, reader.next());
    if (!has_row) break;
    memory::PackingRequest request;
    HEADROOM_ASSIGN(request.lower, reader.get_int(lower, -kMostTime, kMostTime));
    HEADROOM_ASSIGN(request.upper, reader.get_int(upper, -kMostTime, kMostTime));
    HEADROOM_ASSIGN(request.size, reader.get_int(size, 0, memory::kMaxPackingBytes));
    if (request.lower > request.upper) {
      return reader.error_at(upper, "the request ends before it begins");
    }
    if (request.size > memory::kMaxPackingBytes - total) {
      return reader.error_at(size, "the sizes add up to more than 2^60 bytes");
    }
    total += request.size;
    instance.problem.requests.push_back(request);
    instance.ids.emplace_back(reader.field(id));
  }
  return instance;
}

std::string placements_csv(const PackingInstance& instance,
                           const memory::PackingSolution& solution) {
  text::CsvWriter writer({"id", "lower", "upper", "size", "offset"});
  for (size_t i = 0; i < instance.ids.size(); ++i) {
    const memory::PackingRequest& request = instance.problem.requests[i];
    writer.row({instance.ids[i], std::to_string(request.lower), std::to_string(request.upper),
                std::to_string(request.size), std::to_string(solution.offsets[i])});
  }
  return writer.text();
}

}  // namespace headroom::formats
