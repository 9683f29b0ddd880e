#include "formats/serving_points.h"

#include "base/file.h"
#include "text/csv.h"
#include "text/number.h"

namespace headroom::formats {
namespace {

constexpr Bytes kMostBytes{kMiB};
constexpr double kMostRunning = static_cast<double>(kMostServingBatch);

// An empty field, or a missing column, is nothing.
Result<std::optional<double>> optional_number(const text::CsvReader& reader,
                                              std::optional<size_t> column, double least,
                                              double most) {
  if (!column || reader.field(*column).empty()) return std::optional<double>();
  HEADROOM_ASSIGN(const double value, reader.get_double(*column, least, most));
  return std::optional<double>(value);
}

}  // namespace

Result<std::vector<ServingPoint>> read_serving_points(const std::string& path) {
  HEADROOM_ASSIGN(const std::string text, read_file(path, kMostBytes));
  return parse_serving_points(text, path);
}

Result<std::vector<ServingPoint>> parse_serving_points(std::string_view text,
                                                       const std::string& file) {
  HEADROOM_ASSIGN(text::CsvReader reader, text::CsvReader::open(text, file));
  HEADROOM_ASSIGN(const size_t batch, reader.column("batch"));
  HEADROOM_ASSIGN(const size_t throughput, reader.column("throughput_tokens_per_second"));
  HEADROOM_ASSIGN(const size_t itl, reader.column("itl_ms"));
  const std::optional<size_t> running = reader.find_column("running_mean");
  const std::optional<size_t> kv = reader.find_column("kv_pct");
  const std::optional<size_t> throughput_error = reader.find_column("throughput_error_pct");
  const std::optional<size_t> itl_error = reader.find_column("itl_error_pct");
  std::vector<ServingPoint> points;
  for (;;) {
    HEADROOM_ASSIGN(const bool has_row, reader.next());
    if (!has_row) break;
    ServingPoint point;
    HEADROOM_ASSIGN(point.batch, reader.get_int(batch, 1, kMostServingBatch));
    HEADROOM_ASSIGN(point.throughput_tokens_per_second, reader.get_double(throughput, 1e-6, 1e12));
    HEADROOM_ASSIGN(const double milliseconds, reader.get_double(itl, 1e-6, 1e9));
    point.itl_seconds = milliseconds * 1e-3;
    HEADROOM_ASSIGN(point.running_mean, optional_number(reader, running, 1e-3, kMostRunning));
    HEADROOM_ASSIGN(point.kv_share, optional_number(reader, kv, 0, 100));
    HEADROOM_ASSIGN(point.throughput_error, optional_number(reader, throughput_error, 0, 1000));
    HEADROOM_ASSIGN(point.itl_error, optional_number(reader, itl_error, 0, 1000));
    for (auto* share : {&point.kv_share, &point.throughput_error, &point.itl_error}) {
      if (*share) **share /= 100;
    }
    if (points.size() == kMostServingPoints) return reader.error("more than 1,000 points");
    points.push_back(point);
  }
  if (points.empty()) return reader.error("no point: a line for each batch that was measured");
  return points;
}

std::string serving_points_csv(const std::vector<ServingPoint>& points) {
  std::string csv =
      "batch,throughput_tokens_per_second,itl_ms,running_mean,kv_pct,throughput_error_pct,"
      "itl_error_pct\n";
  const auto add = [&](const std::optional<double>& value, double scale) {
    csv += ',';
    if (value) csv += text::formatted("%.9g", *value * scale);
  };
  for (const ServingPoint& point : points) {
    csv += std::to_string(point.batch);
    add(point.throughput_tokens_per_second, 1);
    add(point.itl_seconds, 1e3);
    add(point.running_mean, 1);
    add(point.kv_share, 100);
    add(point.throughput_error, 100);
    add(point.itl_error, 100);
    csv += '\n';
  }
  return csv;
}

}  // namespace headroom::formats
