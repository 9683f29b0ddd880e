#include "run/process_report.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string_view>
#include <tuple>

#include "base/file.h"
#include "text/json.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;
using text::JsonView;

constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr int64_t kMostCount = int64_t{1} << 60;
constexpr size_t kMostDevices = 256;
constexpr size_t kMostNotes = 64;
constexpr size_t kMostColumns = 256;
constexpr size_t kMostReports = 65'536;
constexpr Bytes kMostReport{kMiB};
constexpr std::string_view kSchema = "headroom.run.process/1";

constexpr std::array<std::pair<std::string_view, Outcome>, 5> kOutcomes{{
    {"served", Outcome::served},
    {"recorded", Outcome::recorded},
    {"off", Outcome::off},
    {"nothing", Outcome::nothing},
    {"refused", Outcome::refused},
}};

Result<void> read_bytes(const JsonView& view, std::string_view key, std::optional<Bytes>& into) {
  HEADROOM_ASSIGN(const std::optional<int64_t> count, view.optional_int(key, 0, kMostBytes));
  if (count) into = Bytes(*count);
  return {};
}

Result<void> read_count(const JsonView& view, std::string_view key, int64_t& into) {
  HEADROOM_ASSIGN(const std::optional<int64_t> count, view.optional_int(key, 0, kMostCount));
  into = count.value_or(0);
  return {};
}

Result<void> read_text(const JsonView& view, std::string_view key, std::string& into) {
  HEADROOM_ASSIGN(const std::optional<std::string> text, view.optional_string(key));
  into = text.value_or("");
  return {};
}

Result<void> read_texts(const JsonView& view, std::string_view key,
                        std::vector<std::string>& into) {
  HEADROOM_ASSIGN(const auto items, view.optional_array(key, kMostNotes));
  if (!items) return {};
  for (const JsonView& item : *items) {
    HEADROOM_ASSIGN(std::string text, item.to_string());
    into.push_back(std::move(text));
  }
  return {};
}

Result<DeviceFigures> read_device(const JsonView& view) {
  DeviceFigures figures;
  HEADROOM_ASSIGN(const int64_t device, view.get_int("device", 0, 1 << 16));
  figures.device = static_cast<int>(device);
  HEADROOM_TRY(read_text(view, "name", figures.name));
  HEADROOM_TRY(read_text(view, "plan_source", figures.plan_source));
  HEADROOM_TRY(read_text(view, "plan_reason", figures.plan_reason));
  HEADROOM_TRY(read_bytes(view, "memory_bytes", figures.memory));
  HEADROOM_TRY(read_bytes(view, "peak_allocated_bytes", figures.peak_allocated));
  HEADROOM_TRY(read_bytes(view, "peak_reserved_bytes", figures.peak_reserved));
  HEADROOM_TRY(read_bytes(view, "reserved_before_bytes", figures.reserved_before));
  HEADROOM_TRY(read_bytes(view, "reserved_after_bytes", figures.reserved_after));
  HEADROOM_TRY(read_bytes(view, "outside_bytes", figures.outside));
  HEADROOM_TRY(read_count(view, "requests", figures.requests));
  HEADROOM_TRY(read_count(view, "planned", figures.planned));
  HEADROOM_TRY(read_count(view, "reused", figures.reused));
  HEADROOM_TRY(read_count(view, "fallen_back", figures.fallen_back));
  HEADROOM_TRY(read_count(view, "iterations", figures.iterations));
  return figures;
}

Result<void> read_setting(const JsonView& view, ProcessReport& report) {
  HEADROOM_ASSIGN(const std::optional<JsonView> setting, view.optional_object("setting"));
  if (!setting) return {};
  HEADROOM_ASSIGN(const auto members, setting->get_members());
  if (members.size() > kMostColumns) return setting->error("more columns than a setting has");
  for (const auto& [name, value] : members) {
    HEADROOM_ASSIGN(std::string words, value.to_string());
    report.setting.emplace_back(name, std::move(words));
  }
  return {};
}

Result<void> read_outcome(const JsonView& view, ProcessReport& report) {
  HEADROOM_ASSIGN(const std::string word, view.get_string("outcome"));
  const auto* const known = std::ranges::find(kOutcomes, std::string_view(word),
                                              [](const auto& outcome) { return outcome.first; });
  if (known == kOutcomes.end()) {
    return view.error_at("outcome", "'" + word.substr(0, 80) + "' is no outcome of a run");
  }
  report.outcome = known->second;
  return {};
}

auto order_of(const ProcessReport& report) {
  return std::tuple(report.rank.value_or(std::numeric_limits<int64_t>::max()), report.host,
                    report.pid);
}

}  // namespace

Result<ProcessReport> parse_report(const std::string& text, const std::string& file) {
  HEADROOM_ASSIGN(const text::Json json, text::parse_json(text, file, {kMostReport, 100'000}));
  const JsonView view(json, file);
  HEADROOM_ASSIGN(const std::string schema, view.get_string("schema"));
  if (schema != kSchema) {
    return view.error_at("schema", "is not " + std::string(kSchema),
                         "the program and its Python package are of different versions");
  }
  ProcessReport report;
  HEADROOM_TRY(read_outcome(view, report));
  HEADROOM_TRY(read_text(view, "reason", report.reason));
  HEADROOM_TRY(read_text(view, "host", report.host));
  HEADROOM_TRY(read_text(view, "torch", report.torch_version));
  HEADROOM_ASSIGN(report.ended, view.get_bool("ended"));
  HEADROOM_ASSIGN(report.pid, view.get_int("pid", 0, std::numeric_limits<int32_t>::max()));
  HEADROOM_ASSIGN(report.rank, view.optional_int("rank", 0, 1 << 30));
  HEADROOM_ASSIGN(const auto world, view.optional_int("world_size", 1, 1 << 30));
  report.world_size = world.value_or(1);
  HEADROOM_TRY(read_texts(view, "recordings", report.recordings));
  HEADROOM_TRY(read_texts(view, "notes", report.notes));
  HEADROOM_TRY(read_setting(view, report));
  HEADROOM_ASSIGN(const auto devices, view.optional_array("devices", kMostDevices));
  if (!devices) return report;
  for (const JsonView& device : *devices) {
    HEADROOM_ASSIGN(DeviceFigures figures, read_device(device));
    report.devices.push_back(std::move(figures));
  }
  return report;
}

std::vector<ProcessReport> read_reports(const std::string& folder,
                                        std::vector<std::string>& notes) {
  std::vector<ProcessReport> reports;
  std::error_code ignored;
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".json") continue;
    if (++files > kMostReports) break;
    const std::string path = entry.path().string();
    const Result<std::string> content = read_file(path, kMostReport);
    Result<ProcessReport> report = content
                                       ? parse_report(*content, entry.path().filename().string())
                                       : Result<ProcessReport>(content.error());
    if (report) {
      reports.push_back(std::move(*report));
    } else {
      notes.push_back("a report could not be read: " + report.error().to_string());
    }
  }
  std::ranges::sort(reports, {}, order_of);
  std::ranges::sort(notes);
  return reports;
}

}  // namespace headroom::run
