#include "run/measured_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/file.h"
#include "text/csv.h"

namespace headroom::run {
namespace {

constexpr Bytes kMostFile{256 * int64_t{1024 * 1024}};
constexpr std::array<std::string_view, 24> kColumns{
    "id",         "source",        "quality",         "scope",     "model",         "n_params",
    "method",     "weights_dtype", "mixed_precision", "optimizer", "micro_batch",   "seq_len",
    "grad_accum", "act_ckpt",      "attention",       "loss_impl", "framework",     "gpu",
    "n_gpus",     "metric",        "value_bytes",     "notes",     "torch_version", "allocator"};

text::CsvWriter empty_table() {
  const std::vector<std::string> header(kColumns.begin(), kColumns.end());
  return text::CsvWriter(header);
}

bool is_there(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

std::string allocator_word(Outcome outcome) {
  switch (outcome) {
    case Outcome::served:
      return "headroom";
    case Outcome::recorded:
      return "headroom, recording";
    default:
      return "torch";
  }
}

struct Metric {
  std::string_view name;
  std::string_view suffix;  // of the id
  std::optional<Bytes> value;
};

std::string cell(const ProcessReport& process, const DeviceFigures& device, const Metric& metric,
                 std::string_view column) {
  if (column == "id") {
    return std::to_string(process.pid) + "." + std::to_string(device.device) +
           std::string(metric.suffix);
  }
  if (column == "source") return "headroom run";
  if (column == "scope") return "train_step";
  if (column == "gpu") return device.name;
  if (column == "n_gpus") return std::to_string(process.world_size);
  if (column == "metric") return std::string(metric.name);
  if (column == "value_bytes") return std::to_string(metric.value->count);
  if (column == "torch_version") return process.torch_version;
  if (column == "allocator") return allocator_word(process.outcome);
  const auto known = std::ranges::find(
      process.setting, column, [](const auto& entry) -> const auto& { return entry.first; });
  return known == process.setting.end() ? "" : known->second;
}

// The rows of one process. What is reserved is a matter of the allocator, and fit predicts
// PyTorch's.
size_t write_rows(const ProcessReport& process, text::CsvWriter& writer) {
  size_t rows = 0;
  for (const DeviceFigures& device : process.devices) {
    for (const Metric& metric : {Metric{"torch max_memory_allocated", "", device.peak_allocated},
                                 Metric{"torch max_memory_reserved", "r", device.peak_reserved}}) {
      if (!metric.value || metric.value->count == 0) continue;
      if (!metric.suffix.empty() && process.outcome != Outcome::off) continue;
      std::vector<std::string> cells;
      for (const std::string_view column : kColumns) {
        cells.push_back(cell(process, device, metric, column));
      }
      writer.row(cells);
      ++rows;
    }
  }
  return rows;
}

}  // namespace

Result<void> check_measured_file(const std::string& path) {
  HEADROOM_TRY(check_writable(path));
  if (!is_there(path)) return {};
  HEADROOM_ASSIGN(const std::string content, read_file(path, kMostFile));
  if (content.empty() || content.starts_with(empty_table().text())) return {};
  return Error{ErrorCode::bad_input, "has other columns than `headroom run --measure` writes", path,
               "name another file (docs/formats/measurements.md has the columns)"};
}

Measured with_rows_of(const std::vector<ProcessReport>& processes, const std::string& existing) {
  text::CsvWriter writer = empty_table();
  const size_t header = writer.text().size();
  Measured measured;
  for (const ProcessReport& process : processes) measured.rows += write_rows(process, writer);
  if (existing.empty()) {
    measured.content = writer.text();
    return measured;
  }
  measured.content = existing;
  if (existing.back() != '\n') measured.content += '\n';
  measured.content += writer.text().substr(header);
  return measured;
}

Result<size_t> add_rows(const std::vector<ProcessReport>& processes, const std::string& path) {
  std::string existing;
  if (is_there(path)) {
    HEADROOM_ASSIGN(existing, read_file(path, kMostFile));
  }
  const Measured measured = with_rows_of(processes, existing);
  HEADROOM_TRY(write_file_atomic(path, measured.content));
  return measured.rows;
}

}  // namespace headroom::run
