// Records of `bench nongemm` as JSON lines: reading and writing.
#include <algorithm>
#include <array>

#include "bench/nongemm.h"
#include "text/json_parts.h"

namespace headroom::bench {
namespace {

using text::Json;
using text::JsonView;

constexpr std::string_view kSchema = "headroom.nongemm/1";
constexpr size_t kMostRecords = 20'000;
constexpr size_t kMostGroups = 64;
constexpr size_t kMostNotes = 16;
constexpr size_t kMostWord = 400;
constexpr size_t kMostModelName = 1024;
constexpr int64_t kMostBatch = 65'536;
constexpr int64_t kMostContext = 16'777'216;
constexpr int64_t kMostLayers = 100'000;
constexpr int64_t kMostCacheBytes = int64_t{1} << 50;
constexpr double kMostRate = 1e18;
constexpr double kMostJoules = 1e12;
constexpr int64_t kMostParameters = int64_t{1} << 50;
constexpr double kMostSeconds = 1e6;
constexpr int64_t kMostProfiledRuns = 1000;
constexpr text::JsonLimits kLineLimits{.bytes = Bytes(256 * kKiB), .values = 4096};

constexpr std::array<std::string_view, 4> kEngines{"pytorch", "compiled", "graphed", "onnxruntime"};
constexpr std::array<std::string_view, 2> kPhases{"forward", "decode"};
constexpr std::array<std::string_view, 3> kDtypes{"fp32", "bf16", "fp16"};
constexpr std::array<std::string_view, 3> kQuantizations{"none", "int8", "int4"};
constexpr std::string_view kAllBut = "all-";
constexpr size_t kMostOptimizerName = 80;

template <size_t N>
Result<std::string> word_of(const JsonView& view, std::string_view key,
                            const std::array<std::string_view, N>& known) {
  HEADROOM_ASSIGN(std::string word, view.get_string(key));
  if (std::ranges::find(known, word) != known.end()) return word;
  std::string names;
  for (const std::string_view name : known)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return view.error_at(key, "'" + word.substr(0, 40) + "' is none of " + names);
}

Result<std::string> text_of(const JsonView& view, std::string_view key, size_t most = kMostWord) {
  HEADROOM_ASSIGN(std::string word, view.get_string(key));
  if (word.size() > most) return view.error_at(key, "is too long");
  return word;
}

Result<NongemmSetting> read_setting(const JsonView& view) {
  NongemmSetting setting;
  HEADROOM_ASSIGN(setting.model, text_of(view, "model", kMostModelName));
  HEADROOM_ASSIGN(setting.engine, word_of(view, "engine", kEngines));
  HEADROOM_ASSIGN(setting.phase, word_of(view, "phase", kPhases));
  HEADROOM_ASSIGN(setting.batch, view.get_int("batch", 1, kMostBatch));
  HEADROOM_ASSIGN(setting.dtype, word_of(view, "dtype", kDtypes));
  HEADROOM_ASSIGN(setting.quantize, word_of(view, "quantize", kQuantizations));
  HEADROOM_ASSIGN(setting.fusion, text_of(view, "fusion"));
  if (!is_nongemm_fusion(setting.fusion)) {
    return view.error_at("fusion", "'" + setting.fusion.substr(0, 40) +
                                       "' is none of none, basic, all, all-OPTIMIZER");
  }
  HEADROOM_ASSIGN(setting.context, view.optional_int("context", 2, kMostContext));
  return setting;
}

Result<NongemmStatus> read_status(const JsonView& view) {
  HEADROOM_ASSIGN(const std::string word, view.get_string("status"));
  for (const auto status :
       {NongemmStatus::measured, NongemmStatus::refused, NongemmStatus::failed}) {
    if (word == name_of(status)) return status;
  }
  return view.error_at("status", "expected measured, refused or failed");
}

Result<GroupMilliseconds> read_groups(const JsonView& view, std::string_view key) {
  HEADROOM_ASSIGN(const auto items, view.get_array(key, kMostGroups));
  GroupMilliseconds groups;
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(std::string name, text_of(item, "name"));
    HEADROOM_ASSIGN(const double ms, item.get_double("ms", 0, kMostSeconds * 1e3));
    groups.emplace_back(std::move(name), ms);
  }
  return groups;
}

Result<DecodeFacts> read_decode(const JsonView& view) {
  DecodeFacts facts;
  HEADROOM_ASSIGN(facts.quickest_seconds, view.get_double("quickest_seconds", 1e-9, kMostSeconds));
  HEADROOM_ASSIGN(const auto waited,
                  view.optional_double("profiled_waited_seconds", 0, kMostSeconds));
  facts.profiled_waited_seconds = waited.value_or(0);
  HEADROOM_ASSIGN(facts.cache.count, view.get_int("cache_bytes", 0, kMostCacheBytes));
  HEADROOM_ASSIGN(facts.peak_bytes_per_second,
                  view.get_double("peak_bytes_per_second", 1, kMostRate));
  HEADROOM_ASSIGN(facts.peak_flops_per_second,
                  view.get_double("peak_flops_per_second", 1, kMostRate));
  HEADROOM_ASSIGN(facts.joules, view.optional_double("joules", 0, kMostJoules));
  HEADROOM_ASSIGN(facts.undisturbed_seconds,
                  view.optional_double("undisturbed_seconds", 1e-9, kMostSeconds));
  return facts;
}

Result<void> read_account(const JsonView& view, TimeAccount& account) {
  HEADROOM_ASSIGN(account.wall_ms, view.get_double("wall_ms", 0, kMostSeconds * 1e3));
  HEADROOM_ASSIGN(account.idle_ms, view.get_double("idle_ms", 0, kMostSeconds * 1e3));
  HEADROOM_ASSIGN(account.groups, read_groups(view, "groups"));
  HEADROOM_ASSIGN(account.paper_groups, read_groups(view, "paper_groups"));
  return {};
}

Result<ProfiledRun> read_profile(const JsonView& view) {
  ProfiledRun run;
  HEADROOM_TRY(read_account(view, run));
  HEADROOM_ASSIGN(const auto added, view.optional_object("added_layers"));
  if (!added) return run;
  AddedLayers& layers = run.added.emplace();
  HEADROOM_TRY(read_account(*added, layers));
  HEADROOM_ASSIGN(layers.apart_ms, added->optional_double("apart_ms", 0, kMostSeconds * 1e3));
  return run;
}

// A file beside the records: the records may be anybody's.
Result<std::string> trace_of(const JsonView& view, std::string_view key) {
  HEADROOM_ASSIGN(std::string name, text_of(view, key));
  const bool is_plain = name.find('/') == std::string::npos && !name.empty() && name.front() != '.';
  if (!is_plain) return view.error_at(key, "expected a file's name, without a folder");
  return name;
}

// What both forms have: the runner's line, and the record that is kept.
Result<void> read_measurement(const JsonView& view, NongemmRecord& record) {
  HEADROOM_ASSIGN(record.status, read_status(view));
  HEADROOM_ASSIGN(record.layers, view.optional_int("layers", 1, kMostLayers));
  if (record.status != NongemmStatus::measured) {
    HEADROOM_ASSIGN(record.reason, text_of(view, "reason", 4096));
    return {};
  }
  HEADROOM_ASSIGN(record.layers_of_model, view.optional_int("layers_of_model", 1, kMostLayers));
  HEADROOM_ASSIGN(record.parameters, view.get_int("parameters", 0, kMostParameters));
  HEADROOM_ASSIGN(record.model_parameters,
                  view.optional_int("model_parameters", 0, kMostParameters));
  HEADROOM_ASSIGN(record.seconds, view.get_double("seconds", 1e-9, kMostSeconds));
  HEADROOM_ASSIGN(record.uncertainty, view.optional_double("uncertainty", 0, 1e6));
  HEADROOM_ASSIGN(record.samples, view.get_int("samples", 1, 1'000'000));
  HEADROOM_ASSIGN(record.trace, trace_of(view, "trace"));
  HEADROOM_ASSIGN(const auto typical, view.optional_string("typical_trace"));
  if (typical) {
    HEADROOM_ASSIGN(record.typical_trace, trace_of(view, "typical_trace"));
  }
  HEADROOM_ASSIGN(const auto capture, view.optional_string("capture_trace"));
  if (capture) {
    HEADROOM_ASSIGN(record.capture_trace, trace_of(view, "capture_trace"));
  }
  HEADROOM_ASSIGN(const auto runs, view.optional_int("profiled_runs", 1, kMostProfiledRuns));
  record.profiled_runs = runs.value_or(1);
  HEADROOM_ASSIGN(record.profiled_seconds, view.get_double("profiled_seconds", 1e-9, kMostSeconds));
  HEADROOM_ASSIGN(record.joules, view.optional_double("joules", 0, kMostJoules));
  HEADROOM_ASSIGN(const auto decode, view.optional_object("decode"));
  if (decode) {
    HEADROOM_ASSIGN(record.decode, read_decode(*decode));
  }
  HEADROOM_ASSIGN(const auto notes, view.get_array("notes", kMostNotes));
  for (const JsonView& note : notes) {
    HEADROOM_ASSIGN(std::string words, note.to_string());
    record.notes.push_back(words.substr(0, kMostWord));
  }
  return {};
}

Result<NongemmRecord> read_record(const JsonView& view) {
  NongemmRecord record;
  HEADROOM_ASSIGN(const JsonView setting, view.get_object("setting"));
  HEADROOM_ASSIGN(record.setting, read_setting(setting));
  HEADROOM_TRY(read_measurement(view, record));
  if (record.status == NongemmStatus::measured) {
    HEADROOM_ASSIGN(const JsonView profile, view.get_object("profile"));
    HEADROOM_ASSIGN(record.profile, read_profile(profile));
  }
  return record;
}

Result<timing::Machine> read_header(const JsonView& view) {
  HEADROOM_ASSIGN(const std::string schema, view.get_string("schema"));
  if (schema != kSchema) {
    return view.error_at("schema", "expected " + std::string(kSchema),
                         "a results.jsonl that `headroom bench nongemm` keeps");
  }
  HEADROOM_ASSIGN(const JsonView machine, view.get_object("machine"));
  return timing::read_machine(machine);
}

Json groups_json(const GroupMilliseconds& groups) {
  return text::json_array(groups, [](const auto& group) {
    return Json::object().set("name", group.first).set("ms", group.second);
  });
}

Json decode_facts_json(const DecodeFacts& facts) {
  Json json = Json::object();
  if (facts.joules) json.set("joules", *facts.joules);
  if (facts.undisturbed_seconds) json.set("undisturbed_seconds", *facts.undisturbed_seconds);
  return json.set("quickest_seconds", facts.quickest_seconds)
      .set("profiled_waited_seconds", facts.profiled_waited_seconds)
      .set("cache_bytes", facts.cache)
      .set("peak_bytes_per_second", facts.peak_bytes_per_second)
      .set("peak_flops_per_second", facts.peak_flops_per_second);
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json account_json(const TimeAccount& account) {
  return Json::object()
      .set("wall_ms", account.wall_ms)
      .set("idle_ms", account.idle_ms)
      .set("groups", groups_json(account.groups))
      .set("paper_groups", groups_json(account.paper_groups));
}

Json profile_json(const ProfiledRun& run) {
  Json json = account_json(run);
  if (!run.added) return json;
  return json.set("added_layers",
                  account_json(*run.added).set("apart_ms", or_null(run.added->apart_ms)));
}

}  // namespace

std::string_view name_of(NongemmStatus status) {
  switch (status) {
    case NongemmStatus::measured:
      return "measured";
    case NongemmStatus::refused:
      return "refused";
    case NongemmStatus::failed:
      return "failed";
  }
  return "unknown";
}

bool is_nongemm_fusion(std::string_view word) {
  if (word == "none" || word == "basic" || word == "all") return true;
  if (!word.starts_with(kAllBut)) return false;
  const std::string_view name = word.substr(kAllBut.size());
  return !name.empty() && name.size() <= kMostOptimizerName &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

std::string NongemmSetting::id() const {
  return model + "/" + engine + "/" + phase + "/b" + std::to_string(batch) + "/" + dtype + "/" +
         quantize + "/" + fusion + (context ? "/c" + std::to_string(*context) : "");
}

Result<NongemmRecord> read_runner_record(const JsonView& view,
                                         const std::map<std::string, NongemmSetting>& by_id) {
  HEADROOM_ASSIGN(const std::string id, view.get_string("id"));
  const auto found = by_id.find(id);
  if (found == by_id.end()) return view.error_at("id", "is none that was asked for");
  NongemmRecord record;
  record.setting = found->second;
  HEADROOM_TRY(read_measurement(view, record));
  return record;
}

Result<NongemmRecords> parse_nongemm_records(std::string_view text, const std::string& file) {
  NongemmRecords all;
  std::map<std::pair<std::string, int64_t>, size_t> places;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    const std::string place = file + ":" + std::to_string(line);
    HEADROOM_ASSIGN(const Json json, text::parse_json(words, place, kLineLimits));
    const JsonView view(json, place);
    if (!all.machine) {
      HEADROOM_ASSIGN(all.machine, read_header(view));
      continue;
    }
    HEADROOM_ASSIGN(NongemmRecord record, read_record(view));
    const auto [known, is_new] =
        places.try_emplace({record.setting.id(), record.layers.value_or(0)}, all.records.size());
    if (is_new) {
      if (all.records.size() == kMostRecords) return view.error("more than 20000 records");
      all.records.push_back(std::move(record));
    } else {
      all.records[known->second] = std::move(record);
    }
  }
  return all;
}

Json nongemm_header(const timing::Machine& machine) {
  return Json::object().set("schema", kSchema).set("machine", timing::machine_json(machine));
}

Json nongemm_setting_json(const NongemmSetting& setting) {
  Json json = Json::object()
                  .set("model", setting.model)
                  .set("engine", setting.engine)
                  .set("phase", setting.phase)
                  .set("batch", setting.batch)
                  .set("dtype", setting.dtype)
                  .set("quantize", setting.quantize)
                  .set("fusion", setting.fusion);
  if (setting.context) json.set("context", *setting.context);
  return json;
}

Json nongemm_record_json(const NongemmRecord& record) {
  Json json = Json::object()
                  .set("setting", nongemm_setting_json(record.setting))
                  .set("status", name_of(record.status))
                  .set("layers", or_null(record.layers));
  if (record.status != NongemmStatus::measured) return json.set("reason", record.reason);
  if (record.decode) json.set("decode", decode_facts_json(*record.decode));
  if (record.joules) json.set("joules", *record.joules);
  if (record.capture_trace) json.set("capture_trace", *record.capture_trace);
  return json.set("layers_of_model", or_null(record.layers_of_model))
      .set("parameters", record.parameters)
      .set("model_parameters", or_null(record.model_parameters))
      .set("seconds", record.seconds)
      .set("uncertainty", or_null(record.uncertainty))
      .set("samples", record.samples)
      .set("trace", record.trace)
      .set("typical_trace", or_null(record.typical_trace))
      .set("profiled_runs", record.profiled_runs)
      .set("profiled_seconds", record.profiled_seconds)
      .set("notes", text::json_array(record.notes))
      .set("profile", profile_json(record.profile));
}

}  // namespace headroom::bench
