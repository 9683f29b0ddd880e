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

constexpr std::string_view kMachine = "headroom: machine ";
constexpr std::string_view kMeasured = "headroom: measured ";
constexpr std::chrono::seconds kStartTime{300};  // imports, and making the model
constexpr std::chrono::seconds kSettingTime{
    900};  // a single run of a large model on a busy machine
constexpr double kRunsOfItsSeconds = 20;
constexpr int kNotHere = 4;  // EXIT_UNAVAILABLE of nongemm_probe.py
constexpr int kKilled = 128 + 9;
constexpr size_t kMostReason = 400;

Json spec_of(const NongemmRun& run) {
  const auto setting_json = [](const NongemmSetting& setting) {
    return nongemm_setting_json(setting).set("id", setting.id());
  };
  Json spec = Json::object();
  if (run.layers) spec.set("layers", *run.layers);
  return spec.set("schema", "headroom.nongemm_spec/1")
      .set("model", run.model.recipe)
      .set("on", run.on)
      .set("seconds", run.seconds)
      .set("composed", run.is_composed)
      .set("threads", run.threads)
      .set("traces", run.folder)
      .set("settings", text::json_array(run.settings, setting_json));
}

// Takes the runner's lines as they come.
class Listener {
 public:
  explicit Listener(const NongemmRun& run) : run_(run) {
    for (const NongemmSetting& setting : run.settings) by_id_.emplace(setting.id(), setting);
  }

  // False where what comes is of no use any more.
  bool hear(std::string_view line) {
    if (line.starts_with(kMachine)) failure_ = take_machine(line.substr(kMachine.size()));
    if (line.starts_with(kMeasured)) failure_ = take_record(line.substr(kMeasured.size()));
    return failure_.has_value();
  }

  // What the runner left when it died, each with the reason.
  Result<void> give_up(const std::string& reason) {
    for (const NongemmSetting& setting : run_.settings) {
      if (heard_.contains(setting.id())) continue;
      NongemmRecord record;
      record.setting = setting;
      record.status = NongemmStatus::failed;
      record.reason = reason;
      HEADROOM_TRY(run_.on_record(record));
    }
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

  Result<void> take_record(std::string_view words) {
    HEADROOM_ASSIGN(const Json json, text::parse_json(words, "what the runner said"));
    HEADROOM_ASSIGN(NongemmRecord record,
                    read_runner_record(JsonView(json, "what the runner said"), by_id_));
    if (record.status == NongemmStatus::measured) {
      // A decode step's reader takes off itself what other programs took of the quickest run.
      const bool is_typical = record.typical_trace && !record.setting.context;
      const std::string& trace = is_typical ? *record.typical_trace : record.trace;
      auto profile = run_.read_profile(run_.folder + "/" + trace);
      if (profile) {
        record.profile = std::move(profile).value();
      } else {
        record.status = NongemmStatus::failed;
        record.reason = "its profile cannot be read: " + profile.error().to_string();
      }
    }
    // Of two depths the second one is the last word.
    const std::string id = record.setting.id();
    const bool is_first_depth = record.layers && !record.setting.context &&
                                record.status == NongemmStatus::measured &&
                                half_heard_.insert(id).second;
    if (!is_first_depth) heard_.insert(id);
    return run_.on_record(record);
  }

  const NongemmRun& run_;
  std::map<std::string, NongemmSetting> by_id_;
  std::set<std::string> heard_, half_heard_;
  Result<void> failure_;
  bool has_begun_ = false;
};

std::string reason_of(const ProcessResult& done) {
  if (done.exit_code == kKilled) {
    return "the system ended the runner, as it does where memory runs out";
  }
  const auto words = last_words(done.spoken);
  std::string last = words.empty() ? "" : std::string(words.back().substr(0, kMostReason));
  return "the runner ended with exit code " + std::to_string(done.exit_code) +
         (last.empty() ? "" : ": " + last);
}

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
  const auto runs =
      std::chrono::seconds(static_cast<int64_t>(std::ceil(kRunsOfItsSeconds * run.seconds)));
  process.timeout = kStartTime + static_cast<int>(run.settings.size()) * (kSettingTime + runs);
  Listener listener(run);
  process.on_line = [&](std::string_view line) { return listener.hear(line); };
  const auto done = run_process(process);
  if (!listener.failure()) return listener.failure().error();
  if (!done && !listener.has_begun()) return done.error();   // there is no Python
  if (!done) return listener.give_up(done.error().message);  // its time was up
  if (done->exit_code == kNotHere || !listener.has_begun()) return not_here(run, *done);
  if (done->exit_code != 0) return listener.give_up(reason_of(*done));
  return listener.give_up("the runner said nothing of it");
}

}  // namespace headroom::bench
