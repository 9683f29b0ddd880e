#include "formats/ncu_csv.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "base/units.h"
#include "text/csv.h"
#include "text/gzip.h"

namespace headroom::formats {
namespace {

constexpr Bytes kLongestFile{kGiB};
constexpr size_t kMostMetrics = 4096;
constexpr size_t kMostLaunches = 1'000'000;
constexpr size_t kMostValues = 20'000'000;

// Columns that say which launch it was.
constexpr std::string_view kIdentity[] = {
    "ID",     "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
    "Stream", "Block Size", "Grid Size",    "Device",    "CC",          "Invocations"};

// The table within what ncu printed; nothing where there is none.
std::optional<std::string_view> table_of(std::string_view text) {
  constexpr std::string_view kHeader = "\"ID\",";
  size_t begin = 0;
  while (!text.substr(begin).starts_with(kHeader)) {
    begin = text.find('\n', begin);
    if (begin == std::string_view::npos) return std::nullopt;
    ++begin;
  }
  return text.substr(begin, std::min(text.find("\n==", begin), text.size() - 1) + 1 - begin);
}

struct Scaled {
  double factor = 1;
  std::string unit;
};

// "Mbyte/second" is 10^6 "byte/second". Units that are not known stay as they are.
Scaled scaled_unit(std::string_view unit) {
  struct Known {
    std::string_view word;
    double factor;
    std::string_view base;
  };
  constexpr Known kKnown[] = {
      {"nsecond", 1e-9, "second"}, {"usecond", 1e-6, "second"},  {"msecond", 1e-3, "second"},
      {"ns", 1e-9, "second"},      {"us", 1e-6, "second"},       {"ms", 1e-3, "second"},
      {"s", 1, "second"},          {"cycle/nsecond", 1e9, "hz"}, {"cycle/usecond", 1e6, "hz"},
      {"cycle/second", 1, "hz"},   {"KHz", 1e3, "hz"},           {"MHz", 1e6, "hz"},
      {"GHz", 1e9, "hz"},          {"Mhz", 1e6, "hz"},           {"Ghz", 1e9, "hz"},
      {"Khz", 1e3, "hz"}};
  for (const Known& known : kKnown) {
    if (known.word == unit) return {known.factor, std::string(known.base)};
  }
  const size_t prefix = std::string_view("KMGT").find(unit.empty() ? ' ' : unit.front());
  const std::string_view rest = unit.substr(std::min<size_t>(1, unit.size()));
  if (prefix != std::string_view::npos && rest.starts_with("byte")) {
    double factor = 1;
    for (size_t i = 0; i <= prefix; ++i) factor *= 1e3;
    std::string base(rest);
    if (base == "byte/s") base = "byte/second";
    return {factor, base};
  }
  return {1, unit == "byte/s" ? "byte/second" : std::string(unit)};
}

enum class Reading { value, text, foreign };

// "1,234.5": commas stand before groups of three digits, or the number is of another locale.
Reading read_value(std::string_view field, double& value) {
  std::string digits;
  size_t group = 0;  // digits since the last comma
  bool has_comma = false;
  bool has_point = false;
  for (const char c : field) {
    if (c == ',') {
      const bool fits = !has_point && (has_comma ? group == 3 : group >= 1 && group <= 3);
      if (!fits) return digits.empty() ? Reading::text : Reading::foreign;
      has_comma = true;
      group = 0;
      continue;
    }
    if (c == '.') {
      if (has_point || (has_comma && group != 3)) return Reading::foreign;
      has_point = true;
    }
    if (c >= '0' && c <= '9' && !has_point) ++group;
    digits += c;
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return Reading::text;
  if (!(value > -1e200 && value < 1e200)) return Reading::text;  // infinite, or no number
  return has_comma && !has_point && group != 3 ? Reading::foreign : Reading::value;
}

class Parser {
 public:
  Parser(text::CsvReader rows, std::string file) : rows_(std::move(rows)), file_(std::move(file)) {}

  Result<NcuProfile> parse() {
    HEADROOM_ASSIGN(kernel_, rows_.column("Kernel Name"));
    HEADROOM_ASSIGN(id_, rows_.column("ID"));
    if (rows_.find_column("Metric Name")) {
      HEADROOM_TRY(parse_details());
    } else {
      HEADROOM_TRY(parse_raw());
    }
    if (profile_.launches.empty()) return error("has no kernel");
    return std::move(profile_);
  }

 private:
  [[nodiscard]] Error error(std::string message) const {
    return Error{ErrorCode::bad_input, std::move(message),
                 file_ + ": line " + std::to_string(rows_.line()),
                 "ncu --csv --page raw, with LC_ALL=C"};
  }

  // A row a metric. A launch's rows stand together.
  Result<void> parse_details() {
    HEADROOM_ASSIGN(const size_t name, rows_.column("Metric Name"));
    HEADROOM_ASSIGN(const size_t unit, rows_.column("Metric Unit"));
    HEADROOM_ASSIGN(const size_t value, rows_.column("Metric Value"));
    std::string id;
    for (;;) {
      HEADROOM_ASSIGN(const bool is_row, rows_.next());
      if (!is_row) return {};
      if (profile_.launches.empty() || rows_.field(id_) != id) {
        id = rows_.field(id_);
        HEADROOM_TRY(begin_launch());
      }
      if (rows_.field(name).empty()) continue;  // advice of ncu's rules
      const Scaled scaled = scaled_unit(rows_.field(unit));
      HEADROOM_ASSIGN(const uint32_t metric, metric_of(rows_.field(name), scaled.unit));
      HEADROOM_TRY(add(metric, rows_.field(value), scaled.factor));
    }
  }

  // A column a metric, units in the first row.
  Result<void> parse_raw() {
    struct Column {
      size_t index;
      uint32_t metric;
      double factor;
    };
    std::vector<Column> columns;
    HEADROOM_ASSIGN(const bool has_units, rows_.next());
    if (!has_units) return error("has no row of units");
    if (!rows_.field(id_).empty()) return error("expected a row of units");
    for (size_t i = 0; i < rows_.header().size(); ++i) {
      const std::string& name = rows_.header()[i];
      if (std::find(std::begin(kIdentity), std::end(kIdentity), name) != std::end(kIdentity)) {
        continue;
      }
      const Scaled scaled = scaled_unit(rows_.field(i));
      HEADROOM_ASSIGN(const uint32_t metric, metric_of(name, scaled.unit));
      columns.push_back({i, metric, scaled.factor});
    }
    for (;;) {
      HEADROOM_ASSIGN(const bool is_row, rows_.next());
      if (!is_row) return {};
      HEADROOM_TRY(begin_launch());
      for (const Column& column : columns) {
        HEADROOM_TRY(add(column.metric, rows_.field(column.index), column.factor));
      }
    }
  }

  Result<void> begin_launch() {
    if (profile_.launches.size() == kMostLaunches)
      return error("has more kernels than can be read");
    profile_.launches.push_back({std::string(rows_.field(kernel_)), {}});
    return {};
  }

  Result<uint32_t> metric_of(std::string_view name, const std::string& unit) {
    const std::string key = std::string(name) + "\n" + unit;
    const auto found = metrics_.find(key);
    if (found != metrics_.end()) return found->second;
    if (profile_.metrics.size() == kMostMetrics) return error("has more metrics than can be read");
    const auto index = static_cast<uint32_t>(profile_.metrics.size());
    profile_.metrics.push_back({std::string(name), unit});
    metrics_.emplace(key, index);
    return index;
  }

  Result<void> add(uint32_t metric, std::string_view field, double factor) {
    double value = 0;
    const Reading reading = read_value(field, value);
    if (reading == Reading::foreign) {
      return error("'" + std::string(field.substr(0, 40)) + "' is a number of another locale");
    }
    if (reading == Reading::text) return {};
    if (++values_ > kMostValues) return error("has more values than can be read");
    profile_.launches.back().values.emplace_back(metric, value * factor);
    return {};
  }

  text::CsvReader rows_;
  std::string file_;
  size_t kernel_ = 0;
  size_t id_ = 0;
  size_t values_ = 0;
  NcuProfile profile_;
  std::unordered_map<std::string, uint32_t> metrics_;
};

}  // namespace

Result<NcuProfile> parse_ncu_csv(std::string_view text, const std::string& file) {
  const std::optional<std::string_view> table = table_of(text);
  if (!table) {
    return Error{ErrorCode::bad_input, "holds no table of Nsight Compute (a header with \"ID\")",
                 file + ": line 1", "ncu --csv --page raw ... > counters.csv"};
  }
  HEADROOM_ASSIGN(text::CsvReader rows, text::CsvReader::open(*table, file));
  return Parser(std::move(rows), file).parse();
}

Result<NcuProfile> read_ncu_csv(const std::string& path) {
  HEADROOM_ASSIGN(const std::string text, text::read_input(path, kLongestFile));
  return parse_ncu_csv(text, path);
}

}  // namespace headroom::formats
