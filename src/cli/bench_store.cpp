#include "cli/bench_store.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "ops/added_part.h"
#include "ops/ops.h"

namespace headroom::cli {

namespace {

constexpr Bytes kMostRecordBytes{64 * kMiB};

Error usage(std::string message) { return Error{ErrorCode::usage, std::move(message), {}, {}}; }

// Of one of its steps, the mean.
void take_account(const ops::OpsAnswer& answer, bench::TimeAccount& account) {
  const auto runs = static_cast<double>(std::max<size_t>(1, answer.steps.size()));
  account.wall_ms = answer.wall_time.total_ms / runs;
  account.idle_ms = answer.idle.ms / runs;
  for (const ops::GroupShare& group : answer.kernel_time.groups) {
    account.groups.emplace_back(group.name, group.ms / runs);
  }
  for (const ops::GroupShare& group : answer.nongemm_bench_paper.groups) {
    account.paper_groups.emplace_back(group.name, group.ms / runs);
  }
}

// What a run has beyond the one in `shorter`; nothing where that cannot be told, for any reason:
// the difference of the two is there, too.
std::optional<bench::AddedLayers> added_layers(const ops::RecordedRun& run,
                                               const std::string& shorter) {
  const auto rules = ops::OperatorRules::load("");
  const auto less = rules ? ops::read_run(shorter, *rules) : rules.error();
  if (!less) return {};
  const auto part = ops::added_part(*less, run);
  if (!part) return {};
  const auto steps = ops::with_steps(run, part->spans_ns, *rules);
  if (!steps) return {};
  bench::AddedLayers layers;
  take_account(ops::answer(*steps, *rules), layers);
  if (part->spans_ns.size() == 2) {
    const auto length = [&](size_t i) { return part->spans_ns[i][1] - part->spans_ns[i][0]; };
    layers.apart_ms = std::abs(static_cast<double>(length(0) - length(1))) / 1e6;
  }
  return layers;
}

}  // namespace

Result<bench::NongemmRecords> read_bench_records(const std::string& file) {
  HEADROOM_ASSIGN(const std::string text, read_file(file, kMostRecordBytes));
  return bench::parse_nongemm_records(text, file);
}

Result<bench::ProfiledRun> read_bench_profile(const std::string& file, const std::string& capture,
                                              const std::string& shorter) {
  ops::OpsQuestion question;
  question.file = file;
  question.capture = capture;
  HEADROOM_ASSIGN(const ops::AnsweredRun answered, ops::answer_run(question));
  bench::ProfiledRun run;
  take_account(answered.answer, run);
  if (!shorter.empty()) run.added = added_layers(answered.run, shorter);
  return run;
}

Result<void> BenchStore::open() {
  namespace fs = std::filesystem;
  std::error_code failure;
  // Whatever the first that is there has room for, the folder or one above it.
  fs::path place = fs::absolute(fs::path(folder_) / "results.jsonl", failure);
  while (place.has_relative_path() && !fs::exists(place.parent_path(), failure)) {
    place = place.parent_path();
  }
  HEADROOM_TRY(check_writable(place.string()));
  if (!fs::exists(file(), failure)) return {};
  HEADROOM_ASSIGN(records_, read_bench_records(file()));
  return {};
}

bool BenchStore::has(const bench::NongemmSetting& setting, std::optional<int64_t> layers) const {
  int64_t depths = 0;
  for (const bench::NongemmRecord& record : records_.records) {
    if (record.status != bench::NongemmStatus::measured || !(record.setting == setting)) continue;
    if (setting.context && (!layers || record.layers == layers)) return true;
    if (setting.context) continue;
    if (!record.layers) return true;
    ++depths;
  }
  return depths >= 2;
}

Result<void> BenchStore::set_machine(const timing::Machine& machine) {
  if (records_.machine) {
    const timing::Machine& before = *records_.machine;
    if (timing::is_same_machine(before, machine) && before.torch == machine.torch) return {};
    return Error{ErrorCode::usage,
                 "was measured on another machine, or with another PyTorch or another number of "
                 "threads: " +
                     before.product + ", " + before.torch,
                 file(), "--keep another folder"};
  }
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  if (failure) return usage("'" + folder_ + "' cannot be made: " + failure.message());
  records_.machine = machine;
  return write();
}

Result<void> BenchStore::add(const bench::NongemmRecord& record) {
  std::erase_if(records_.records, [&](const bench::NongemmRecord& known) {
    return known.setting == record.setting && known.layers == record.layers;
  });
  records_.records.push_back(record);
  return write();
}

// Whole, each time: a reader never finds half a record, and it stays small.
Result<void> BenchStore::write() {
  std::string text = bench::nongemm_header(*records_.machine).dump() + "\n";
  for (const bench::NongemmRecord& record : records_.records) {
    text += bench::nongemm_record_json(record).dump() + "\n";
  }
  return write_file_atomic(file(), text);
}

}  // namespace headroom::cli
