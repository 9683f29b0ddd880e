#include "cli/bench_nongemm.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/version.h"
#include "bench/nongemm.h"
#include "cli/bench_device.h"
#include "cli/bench_store.h"
#include "cli/deliver.h"
#include "report/bench/nongemm.h"
#include "report/bench/nongemm_html.h"
#include "report/bench/nongemm_merged.h"
#include "text/progress.h"

namespace headroom::cli {

namespace {

using bench::NongemmModel;
using bench::NongemmRecord;
using bench::NongemmRecords;
using bench::NongemmSetting;

constexpr double kSettingSeconds = 20;
constexpr double kQuickSettingSeconds = 2;
constexpr int64_t kTokens = 512;  // of a model of the user's
constexpr std::string_view kFolder = "headroom-nongemm";
const std::vector<std::string> kNothing;

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

Error no_records(const std::string& file) {
  return Error{ErrorCode::bad_input, "holds no records", file,
               "a results.jsonl that `headroom bench nongemm` keeps"};
}

std::vector<std::string> words_between_commas(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) words.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return words;
}

// The words of a flag, each one of `known`; `otherwise` without the flag.
Result<std::vector<std::string>> choices(const Words& words, const std::string& flag,
                                         const std::vector<std::string>& known,
                                         std::vector<std::string> otherwise) {
  if (!words.has(flag)) return otherwise;
  std::vector<std::string> chosen = words_between_commas(words.value(flag));
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  for (const std::string& word : chosen) {
    if (std::ranges::find(known, word) != known.end()) continue;
    return usage("'" + word.substr(0, 80) + "' is nothing that --" + flag + " takes", names);
  }
  if (chosen.empty()) return usage("--" + flag + " names nothing", names);
  return chosen;
}

// Levels, and the last one without an optimizer: "all-GeluFusion".
Result<std::vector<std::string>> fusions_of(const Words& words) {
  if (!words.has("fuse")) {
    return words.has("quick") ? std::vector<std::string>{"none", "all"}
                              : std::vector<std::string>{"none", "basic", "all"};
  }
  std::vector<std::string> chosen = words_between_commas(words.value("fuse"));
  constexpr std::string_view kKnown = "none, basic, all, all-OPTIMIZER such as all-GeluFusion";
  for (const std::string& word : chosen) {
    if (bench::is_nongemm_fusion(word)) continue;
    return usage("'" + word.substr(0, 80) + "' is nothing that --fuse takes", std::string(kKnown));
  }
  if (chosen.empty()) return usage("--fuse names nothing", std::string(kKnown));
  return chosen;
}

Result<std::vector<NongemmModel>> models_of(const Words& words) {
  std::vector<std::string> names(words.operands.begin() + 1, words.operands.end());
  for (std::string& name : words_between_commas(words.value("models"))) {
    names.push_back(std::move(name));
  }
  if (names.empty()) names.emplace_back("paper");
  std::vector<NongemmModel> models;
  for (const std::string& name : names) {
    const bool is_set = name == "paper" || name == "today" || name == "all";
    for (const NongemmModel& model : bench::nongemm_models()) {
      if (is_set && (name == "all" || model.set == name)) models.push_back(model);
    }
    if (is_set) continue;
    HEADROOM_ASSIGN(NongemmModel model, bench::find_nongemm_model(name, kTokens));
    models.push_back(std::move(model));
  }
  std::vector<NongemmModel> once;
  for (NongemmModel& model : models) {
    if (std::ranges::find(once, model.name, &NongemmModel::name) == once.end()) {
      once.push_back(std::move(model));
    }
  }
  return once;
}

// What is measured of each model, in the order of the table.
Result<std::vector<NongemmSetting>> settings_of(const Words& words, const std::string& on) {
  const bool is_quick = words.has("quick");
  const bool is_cpu = on == "cpu";
  std::vector<int64_t> batches =
      is_quick ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2, 4, 8};
  if (words.has("batches")) {
    HEADROOM_ASSIGN(batches, batches_of(words.value("batches")));
  }
  HEADROOM_ASSIGN(const auto quantizations,
                  choices(words, "quantize", {"none", "int8", "int4"},
                          is_cpu ? std::vector<std::string>{"none", "int8"}
                                 : std::vector<std::string>{"none"}));
  HEADROOM_ASSIGN(const auto engines,
                  choices(words, "engine", {"pytorch", "compiled", "graphed", "onnxruntime"},
                          {"pytorch", "onnxruntime"}));
  HEADROOM_ASSIGN(const auto fusions, fusions_of(words));
  NongemmSetting setting;
  const std::string dtype = words.value("dtype");
  setting.dtype = dtype.empty() ? (is_cpu ? "fp32" : "fp16")
                                : (dtype == "float32"    ? "fp32"
                                   : dtype == "bfloat16" ? "bf16"
                                   : dtype == "float16"  ? "fp16"
                                                         : "");
  if (setting.dtype.empty()) {
    return usage("'" + dtype.substr(0, 80) + "' is not a type that --dtype takes",
                 "bfloat16, float16 or float32");
  }
  std::vector<std::string> phases{"forward"};
  if (words.has("decode")) phases.emplace_back("decode");
  std::vector<NongemmSetting> settings;
  const auto has = [&](std::string_view engine) {
    return std::ranges::find(engines, engine) != engines.end();
  };
  // Outermost what costs most to change: of PyTorch the weights, of ONNX Runtime the graph, which
  // has the shapes of one batch.
  setting.engine = "pytorch";
  setting.fusion = "none";
  for (const std::string& quantize : has("pytorch") ? quantizations : kNothing) {
    for (const std::string& phase : phases) {
      for (const int64_t batch : batches) {
        setting.quantize = quantize;
        setting.phase = phase;
        setting.batch = batch;
        settings.push_back(setting);
      }
    }
  }
  setting.engine = "compiled";
  setting.quantize = "none";
  setting.fusion = "all";
  for (const std::string& phase : has("compiled") ? phases : kNothing) {
    for (const int64_t batch : batches) {
      setting.phase = phase;
      setting.batch = batch;
      settings.push_back(setting);
    }
  }
  setting.engine = "graphed";
  setting.fusion = "none";
  setting.phase = "forward";
  for (const int64_t batch : has("graphed") ? batches : std::vector<int64_t>{}) {
    setting.batch = batch;
    settings.push_back(setting);
  }
  setting.engine = "onnxruntime";
  for (const int64_t batch : has("onnxruntime") ? batches : std::vector<int64_t>{}) {
    for (const std::string& quantize : quantizations) {
      for (const std::string& fusion : fusions) {
        setting.batch = batch;
        setting.quantize = quantize;
        setting.fusion = fusion;
        settings.push_back(setting);
      }
    }
  }
  return settings;
}

// Of one model: where no engine was asked for, a file of ONNX has its own alone.
std::vector<NongemmSetting> settings_for(const NongemmModel& model,
                                         const std::vector<NongemmSetting>& settings,
                                         bool is_engine_given) {
  std::vector<NongemmSetting> chosen;
  for (NongemmSetting setting : settings) {
    if (model.is_file && !is_engine_given && setting.engine != "onnxruntime") continue;
    setting.model = model.name;
    chosen.push_back(std::move(setting));
  }
  return chosen;
}

// How far a measurement is, by settings, and how long it may go on: by what large models take
// beside small ones, which is roughly as their weights, and not more than a few layers of them.
class Advance {
 public:
  Advance(int64_t settings, const Console& console)
      : start_(std::chrono::steady_clock::now()),
        bar_("measuring", settings, console.err, console.quiet, text::sink_for(STDERR_FILENO)) {}

  void expect(const NongemmModel& model, size_t settings) {
    weights_.emplace(model.name, weight_of(model));
    left_ += weight_of(model) * static_cast<double>(settings);
  }
  void skip() { bar_.update(++done_); }
  // A whole that is composed has two records, of which the second one is the last.
  void take(const NongemmRecord& record) {
    const bool is_half = record.layers && !record.setting.context &&
                         record.status == bench::NongemmStatus::measured &&
                         half_.insert(record.setting.id()).second;
    if (is_half) return;
    const double weight = weights_.at(record.setting.model);
    left_ -= weight;
    measured_ += weight;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    bar_.set_note(text::time_left(spent.count() * left_ / measured_));
    bar_.update(++done_);
  }

 private:
  static double weight_of(const NongemmModel& model) {
    constexpr double kSmall = 2e8;
    constexpr double kMost = 4e9;
    const auto parameters = static_cast<double>(model.parameters.value_or(0));
    return 1 + std::min(parameters, kMost) / kSmall;
  }

  std::chrono::steady_clock::time_point start_;
  text::Progress bar_;
  std::map<std::string, double> weights_;  // by the model's name
  std::set<std::string> half_;
  double left_ = 0, measured_ = 0;
  int64_t done_ = 0;
};

Result<void> measure(const Words& words, const Console& console, BenchStore& store) {
  std::string on = "cpu";
  if (words.has("on")) {
    HEADROOM_ASSIGN(on, device_of_torch(words.value("on")));
  }
  HEADROOM_ASSIGN(const auto models, models_of(words));
  HEADROOM_ASSIGN(const auto settings, settings_of(words, on));
  double seconds = words.has("quick") ? kQuickSettingSeconds : kSettingSeconds;
  if (words.has("seconds")) {
    HEADROOM_ASSIGN(seconds, number_of<double>(words.value("seconds"), "seconds", 0.01, 3600));
  }
  int64_t threads = 0;
  if (words.has("threads")) {
    HEADROOM_ASSIGN(threads, number_of<int64_t>(words.value("threads"), "threads", 1, 4096));
  }
  HEADROOM_TRY(store.open());
  std::vector<std::vector<NongemmSetting>> settings_of_models;
  size_t total = 0;
  for (const NongemmModel& model : models) {
    settings_of_models.push_back(settings_for(model, settings, words.has("engine")));
    total += settings_of_models.back().size();
  }
  Advance advance(static_cast<int64_t>(total), console);
  bench::NongemmRun run;
  run.on = on;
  run.seconds = seconds;
  run.threads = threads;
  run.is_composed = words.has("composed");
  run.folder = store.folder();
  run.read_profile = read_bench_profile;
  run.on_machine = [&](const timing::Machine& machine) { return store.set_machine(machine); };
  run.on_record = [&](const NongemmRecord& record) {
    advance.take(record);
    return store.add(record);
  };
  for (size_t i = 0; i < models.size(); ++i) {
    bench::NongemmPart part{models[i], {}};
    for (const NongemmSetting& setting : settings_of_models[i]) {
      if (store.has(setting)) {
        advance.skip();
      } else {
        part.settings.push_back(setting);
      }
    }
    advance.expect(part.model, part.settings.size());
    if (!part.settings.empty()) run.parts.push_back(std::move(part));
  }
  if (run.parts.empty()) return {};
  return bench::measure_nongemm(run);
}

// Of what was asked for: a folder may hold more.
NongemmRecords asked_for(const NongemmRecords& all, const Words& words) {
  if (words.has("results")) return all;
  NongemmRecords chosen;
  chosen.machine = all.machine;
  const auto models = models_of(words);
  for (const NongemmRecord& record : all.records) {
    const bool is_asked = models && std::ranges::find(*models, record.setting.model,
                                                      &NongemmModel::name) != models->end();
    if (is_asked) chosen.records.push_back(record);
  }
  return chosen;
}

}  // namespace

Result<int> run_bench_nongemm(const Words& words, const Console& console) {
  HEADROOM_TRY(check_places(words));
  NongemmRecords records;
  std::string folder;
  if (words.has("results")) {
    const std::string file = words.value("results");
    if (words.operands.size() > 1) {
      return usage("--results shows what was measured before, all of it", "without MODEL");
    }
    HEADROOM_ASSIGN(records, read_bench_records(file));
  } else {
    BenchStore store(words.has("keep") ? words.value("keep") : std::string(kFolder));
    HEADROOM_TRY(measure(words, console, store));
    records = asked_for(store.records(), words);
    folder = store.folder();
  }
  if (!records.machine) return no_records(words.value("results"));
  const bench::NongemmAnswer answer = bench::answer_nongemm(records);
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::nongemm_text(answer, folder, terminal);
  };
  forms.json = [&] { return report::nongemm_json(answer, folder); };
  forms.page = [&] {
    return report::Page{"Non-GEMM work of " + answer.machine.product, "bench",
                        std::string(version()), command_line("bench", words),
                        report::nongemm_sections(answer)};
  };
  HEADROOM_TRY(deliver(forms, words, console));
  if (answer.rows.empty()) return exit_code_of(ErrorCode::unavailable);
  return answer.refused.empty() ? kExitYes : exit_code_of(ErrorCode::partial);
}

Result<int> run_bench_merge(const Words& words, const Console& console) {
  constexpr size_t kMostMachines = 8;
  const size_t count = words.operands.size() - 1;
  if (count < 2 || count > kMostMachines) {
    return usage(
        "bench merge takes the records of two to eight machines",
        "headroom bench merge a/results.jsonl b/results.jsonl, as `bench nongemm` keeps them");
  }
  HEADROOM_TRY(check_places(words));
  std::vector<bench::NamedRecords> files;
  for (size_t i = 1; i < words.operands.size(); ++i) {
    const std::string& file = words.operands[i];
    HEADROOM_ASSIGN(NongemmRecords records, read_bench_records(file));
    if (!records.machine) return no_records(file);
    files.push_back({file, std::move(records)});
  }
  const bench::NongemmMerged merged = bench::merge_nongemm(files);
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::nongemm_merged_text(merged, terminal);
  };
  forms.json = [&] { return report::nongemm_merged_json(merged); };
  forms.page = [&] {
    return report::Page{"Non-GEMM work by machine", "bench", std::string(version()),
                        command_line("bench", words), report::nongemm_merged_sections(merged)};
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return kExitYes;
}

}  // namespace headroom::cli
