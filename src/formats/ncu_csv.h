// Counters of NVIDIA Nsight Compute: `ncu --csv`, of both pages that it prints.
//
// The raw page has a column for each metric and their units in the second row; the details page
// (and --metrics without --page raw) a row for each metric. Lines of ncu's own around the table
// ("==PROF== ...") are passed over. Values come in base units: bytes, seconds, hertz; percent stay
// percent. Texts ("N/A") are no values. Layouts by NVIDIA's Nsight Compute CLI guide and published
// outputs; no recorded file was at hand. Blocking, any thread; the file is in memory, up to 1 GiB.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headroom::formats {

struct NcuMetric {
  std::string name;  // "dram__bytes_read.sum", or "DRAM Throughput"
  std::string unit;  // "byte", "%", "second"; "" where it has none
};

struct NcuLaunch {
  std::string kernel;
  std::vector<std::pair<uint32_t, double>> values;  // metric and value
};

struct NcuProfile {
  std::vector<NcuMetric> metrics;
  std::vector<NcuLaunch> launches;  // in their order
};

Result<NcuProfile> parse_ncu_csv(std::string_view text, const std::string& file);
Result<NcuProfile> read_ncu_csv(const std::string& path);  // .csv or .csv.gz

}  // namespace headroom::formats
