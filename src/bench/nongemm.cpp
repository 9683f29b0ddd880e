#include "bench/nongemm.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/file.h"
#include "base/process.h"
#include "base/python.h"
#include "text/json_parts.h"

namespace headroom::bench {
namespace {

using text::Json;
using text::JsonView;

constexpr std::string_view kOurs = "headroom: ";
constexpr std::string_view kMachine = "headroom: machine ";
constexpr std::string_view kMeasured = "headroom: measured ";
constexpr std::string_view kEnded = "headroom: ended ";
constexpr std::chrono::seconds kStartTime{300};  // imports, and making the model
constexpr std::chrono::seconds kSettingTime{
    900};  // a single run of a large model on a busy machine
constexpr double kRunsOfItsSeconds = 20;
constexpr int kNotHere = 4;  // EXIT_UNAVAILABLE of nongemm_probe.py
constexpr int64_t kKilled = 128 + 9, kMostExitCode = 255;
constexpr size_t kMostReason = 400;
const std::string kSilent = "the runner said nothing of it";

// What one model may take, before it counts as hung.
std::chrono::seconds patience_with(const NongemmPart& part, double seconds) {
  const auto runs =
      std::chrono::seconds(static_cast<int64_t>(std::ceil(kRunsOfItsSeconds * seconds)));
  return kStartTime + static_cast<int>(part.settings.size()) * (kSettingTime + runs);
}

Json part_json(const NongemmPart& part, double seconds) {
  const auto setting_json = [](const NongemmSetting& setting) {
    return nongemm_setting_json(setting).set("id", setting.id());
  };
  return Json::object()
      .set("model", part.model.recipe)
      .set("most_seconds", patience_with(part, seconds).count())
      .set("settings", text::json_array(part.settings, setting_json));
}

Json spec_of(const NongemmRun& run) {
  const auto part_of_run = [&run](const NongemmPart& part) { return part_json(part, run.seconds); };
  Json spec = Json::object();
  if (run.layers) spec.set("layers", *run.layers);
  return spec.set("schema", "headroom.nongemm_spec/2")
      .set("on", run.on)
      .set("seconds", run.seconds)
      .set("composed", run.is_composed)
      .set("threads", run.threads)
      .set("traces", run.folder)
      .set("parts", text::json_array(run.parts, part_of_run));
}

std::string reason_of(int64_t exit_code, std::string_view last_words) {
  if (exit_code == kKilled) {
    return "the system ended the runner, as it does where memory runs out";
  }
  return "the runner ended with exit code " + std::to_string(exit_code) +
         (last_words.empty() ? "" : ": " + std::string(last_words.substr(0, kMostReason)));
}

// Takes the runner's lines as they come.
class Listener {
 public:
  explicit Listener(const NongemmRun& run) : run_(run) {
    for (const NongemmPart& part : run.parts) {
      for (const NongemmSetting& setting : part.settings) by_id_.emplace(setting.id(), setting);
    }
  }

  // False where what comes is of no use any more.
  bool hear(std::string_view line) {
    if (line.starts_with(kMachine)) failure_ = take_machine(line.substr(kMachine.size()));
    if (line.starts_with(kMeasured)) failure_ = take_record(line.substr(kMeasured.size()));
    if (line.starts_with(kEnded)) failure_ = take_end(line.substr(kEnded.size()));
    last_words_ = line.starts_with(kOurs) ? "" : line;
    return failure_.has_value();
  }

  // What the runner left when it died, each with the reason.
  Result<void> give_up(const std::string& reason) {
    for (const NongemmPart& part : run_.parts) HEADROOM_TRY(give_up(part, reason));
    return {};
  }
  [[nodiscard]] const Result<void>& failure() const { return failure_; }
  [[nodiscard]] bool has_begun() const { return has_begun_; }

 private:
  Result<void> take_machine(std::string_view words) {
    has_begun_ = true;
    HEADROOM_ASSIGN(const Json json, text::parse_json(words, "what the runner said"));
    HEADROOM_ASSIGN(const timing::Machine machine,
                    timing::read_machine(JsonView(json, "what the runner said")));
    return run_.on_machine(machine);
  }

  // The process of one model, the parts being run in their order.
  Result<void> take_end(std::string_view words) {
    HEADROOM_ASSIGN(const Json json, text::parse_json(words, "what the runner said"));
    const JsonView view(json, "what the runner said");
    HEADROOM_ASSIGN(const int64_t exit_code, view.get_int("exit_code", 0, kMostExitCode));
    HEADROOM_ASSIGN(const int64_t part,
                    view.get_int("part", 0, static_cast<int64_t>(run_.parts.size()) - 1));
    HEADROOM_ASSIGN(const bool is_late, view.get_bool("is_late"));
    return give_up(run_.parts[static_cast<size_t>(part)], is_late ? "its time was up"
                                                          : exit_code == 0
                                                              ? kSilent
                                                              : reason_of(exit_code, last_words_));
  }

  Result<void> give_up(const NongemmPart& part, const std::string& reason) {
    for (const NongemmSetting& setting : part.settings) {
      if (!heard_.insert(setting.id()).second) continue;
      NongemmRecord record;
      record.setting = setting;
      record.status = NongemmStatus::failed;
      record.reason = reason;
      HEADROOM_TRY(run_.on_record(record));
    }
    return {};
  }

  Result<void> take_record(std::string_view words) {
    HEADROOM_ASSIGN(const Json json, text::parse_json(words, "what the runner said"));
    HEADROOM_ASSIGN(NongemmRecord record,
                    read_runner_record(JsonView(json, "what the runner said"), by_id_));
    if (record.status == NongemmStatus::measured) {
      // A decode step's reader takes off itself what other programs took of the quickest run.
      const bool is_typical = record.typical_trace && !record.setting.context;
      const std::string& trace = is_typical ? *record.typical_trace : record.trace;
      auto profile =
          run_.read_profile(in_folder(trace), in_folder(record.capture_trace.value_or("")),
                            in_folder(shorter_of(record)));
      if (profile) {
        record.profile = std::move(profile).value();
      } else {
        record.status = NongemmStatus::failed;
        record.reason = "its profile cannot be read: " + profile.error().to_string();
      }
    }
    if (record.layers && record.status == NongemmStatus::measured) {
      shorter_.emplace(record.setting.id(), record.typical_trace.value_or(record.trace));
    }
    // Of two depths the second one is the last word.
    const std::string id = record.setting.id();
    const bool is_first_depth = record.layers && !record.setting.context &&
                                record.status == NongemmStatus::measured &&
                                half_heard_.insert(id).second;
    if (!is_first_depth) heard_.insert(id);
    return run_.on_record(record);
  }

  // The trace of the first depth, where this is the second.
  [[nodiscard]] std::string shorter_of(const NongemmRecord& record) const {
    const auto found = shorter_.find(record.setting.id());
    const bool is_second = record.layers && !record.setting.context && found != shorter_.end();
    return is_second ? found->second : std::string();
  }

  [[nodiscard]] std::string in_folder(const std::string& name) const {
    return name.empty() ? name : run_.folder + "/" + name;
  }

  const NongemmRun& run_;
  std::map<std::string, NongemmSetting> by_id_;
  std::set<std::string> heard_, half_heard_;
  std::map<std::string, std::string> shorter_;  // the first depth's trace, by setting
  std::string last_words_;                      // that are not ours, right before the line
  Result<void> failure_;
  bool has_begun_ = false;
};

Error not_here(const NongemmRun& run, const ProcessResult& done) {
  const auto words = last_words(done.spoken);
  return Error{ErrorCode::unavailable,
               words.empty() ? "it cannot be measured here" : std::string(words.front()), run.on,
               "measuring needs a Python with a PyTorch for that device and transformers (pip "
               "install torch transformers); HEADROOM_PYTHON=/path/to/python names another"};
}

}  // namespace

Result<void> measure_nongemm(const NongemmRun& run) {
  HEADROOM_ASSIGN(const TemporaryFile spec, TemporaryFile::make());
  HEADROOM_TRY(spec.write(spec_of(run).dump(2) + "\n"));
  HEADROOM_ASSIGN(ProcessOptions process, python_module("nongemm_probe", {"--spec", spec.path()}));
  process.timeout = kStartTime;
  for (const NongemmPart& part : run.parts) process.timeout += patience_with(part, run.seconds);
  Listener listener(run);
  process.on_line = [&](std::string_view line) { return listener.hear(line); };
  const auto done = run_process(process);
  if (!listener.failure()) return listener.failure().error();
  if (!done && !listener.has_begun()) return done.error();   // there is no Python
  if (!done) return listener.give_up(done.error().message);  // its time was up
  if (done->exit_code == kNotHere || !listener.has_begun()) return not_here(run, *done);
  const auto words = last_words(done->spoken);
  if (done->exit_code != 0) {
    return listener.give_up(reason_of(done->exit_code, words.empty() ? "" : words.back()));
  }
  return listener.give_up(kSilent);
}

}  // namespace headroom::bench
