#include "cli/bench_decode.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/version.h"
#include "bench/measured_decode.h"
#include "cli/bench_device.h"
#include "cli/bench_nongemm.h"
#include "cli/bench_store.h"
#include "cli/deliver.h"
#include "cli/machine.h"
#include "formats/ncu_csv.h"
#include "model/builtin.h"
#include "ops/rules.h"
#include "report/bench/decode_html.h"
#include "report/bench/json.h"
#include "report/bench/text.h"
#include "text/csv.h"
#include "text/gzip.h"
#include "text/progress.h"

namespace headroom::cli {
namespace {

using bench::NongemmRecord;
using bench::NongemmRecords;

constexpr double kBatchSeconds = 10;
constexpr double kQuickBatchSeconds = 2;
constexpr int64_t kMostLayers = 100'000;
constexpr std::string_view kFolder = "headroom-decode";

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

// A CSV file with the columns batch and itl_ms, and, where it has one, running_mean: what was
// really in flight.
Result<std::vector<bench::MeasuredStep>> points_of(const std::string& path) {
  constexpr Bytes kMostBytes{kMiB};
  HEADROOM_ASSIGN(const std::string content, text::read_input(path, kMostBytes));
  HEADROOM_ASSIGN(text::CsvReader reader, text::CsvReader::open(content, path));
  HEADROOM_ASSIGN(const size_t batch, reader.column("batch"));
  HEADROOM_ASSIGN(const size_t itl, reader.column("itl_ms"));
  const std::optional<size_t> running = reader.find_column("running_mean");
  std::vector<bench::MeasuredStep> points;
  while (true) {
    HEADROOM_ASSIGN(const bool has_row, reader.next());
    if (!has_row) return points;
    bench::MeasuredStep point;
    HEADROOM_ASSIGN(point.batch, reader.get_int(batch, 1, bench::kMostBatch));
    if (running && !reader.field(*running).empty()) {
      HEADROOM_ASSIGN(const double mean, reader.get_double(*running, 0.5, 65536));
      point.batch = std::llround(mean);
    }
    HEADROOM_ASSIGN(const double milliseconds, reader.get_double(itl, 1e-6, 1e9));
    point.seconds = milliseconds * 1e-3;
    points.push_back(point);
    if (points.size() > bench::kMostBatches) return reader.error("more than 64 points");
  }
}

Result<int64_t> context_of(const Words& words, int64_t otherwise) {
  if (!words.has("context")) return otherwise;
  return number_of<int64_t>(words.value("context"), "context", 1);
}

// By the names of kernels, as `headroom ops` groups them.
bench::KernelClass class_by_name(const ops::OperatorRules& rules, std::string_view kernel) {
  std::optional<ops::GroupIndex> group = rules.always(kernel);
  if (!group) group = rules.of_kernel(kernel);
  if (!group) return bench::KernelClass::other;
  if (*group == rules.group("attention")) return bench::KernelClass::attention;
  return *group == rules.group("gemm") ? bench::KernelClass::matmul : bench::KernelClass::other;
}

struct CountedBatch {
  int64_t batch = 1;
  std::string file;
};

// "64=ncu.csv,1=ncu-1.csv"
Result<std::vector<CountedBatch>> counted_batches(std::string_view words) {
  std::vector<CountedBatch> counted;
  while (!words.empty()) {
    const std::string_view one = words.substr(0, words.find(','));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos || equals + 1 == one.size()) {
      return usage("'" + std::string(one.substr(0, 80)) + "' is not what --counters takes",
                   "the batch that ncu saw, and its file: --counters 64=ncu.csv");
    }
    HEADROOM_ASSIGN(const int64_t batch,
                    number_of<int64_t>(one.substr(0, equals), "counters", 1, bench::kMostBatch));
    if (std::ranges::find(counted, batch, &CountedBatch::batch) != counted.end()) {
      return usage("--counters has batch " + std::to_string(batch) + " twice", "one file a batch");
    }
    counted.push_back({batch, std::string(one.substr(equals + 1))});
    words.remove_prefix(std::min(one.size() + 1, words.size()));
    if (counted.size() > bench::kMostBatches) return usage("--counters takes 64 files at most");
  }
  return counted;
}

// Read before anything is measured: a bad file is better said now.
Result<std::vector<bench::DecodeCounters>> counters_of(const Words& words) {
  std::vector<bench::DecodeCounters> counters;
  if (!words.has("counters")) return counters;
  HEADROOM_ASSIGN(const auto counted, counted_batches(words.value("counters")));
  HEADROOM_ASSIGN(const ops::OperatorRules rules, ops::OperatorRules::load({}));
  for (const CountedBatch& one : counted) {
    HEADROOM_ASSIGN(const formats::NcuProfile profile, formats::read_ncu_csv(one.file));
    HEADROOM_ASSIGN(
        bench::DecodeCounters found,
        bench::decode_counters(profile, one.batch, one.file, [&](std::string_view kernel) {
          return class_by_name(rules, kernel);
        }));
    counters.push_back(std::move(found));
  }
  std::ranges::sort(counters, {}, &bench::DecodeCounters::batch);
  return counters;
}

Result<void> hand_over(const bench::DecodeAnswer& answer, const std::string& folder,
                       const Words& words, const Console& console) {
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::decode_text(answer, folder, terminal);
  };
  forms.json = [&] { return report::decode_json(answer, folder); };
  forms.page = [&] {
    return report::Page{"Decode steps of " + answer.model, "bench", std::string(version()),
                        command_line("bench", words), report::decode_sections(answer)};
  };
  return deliver(forms, words, console);
}

// ---- predicted ----

Result<bench::DecodeQuestion> predicted_question(const Words& words, const Machines& machines) {
  bench::DecodeQuestion question;
  HEADROOM_ASSIGN(question.device, machines.catalogue.find(machines.device_for(words)));
  HEADROOM_ASSIGN(question.context, context_of(words, question.context));
  if (words.has("batches")) {
    HEADROOM_ASSIGN(question.batches, batches_of(words.value("batches")));
  }
  if (words.has("points")) {
    HEADROOM_ASSIGN(question.points, points_of(words.value("points")));
  }
  HEADROOM_ASSIGN(question.weights, dtype_of(words, question.weights));
  if (words.has("engine")) {
    HEADROOM_ASSIGN(const AskedEngine asked, read_engine(words.value("engine"), machines.timing));
    question.engine_law = asked.law;
  }
  return question;
}

Result<int> predict(const model::ResolvedModel& model, const Words& words, const Console& console) {
  HEADROOM_TRY(check_places(words));
  HEADROOM_ASSIGN(const Machines machines, load_machines(words, console));
  HEADROOM_ASSIGN(bench::DecodeQuestion question, predicted_question(words, machines));
  question.model = model.name;
  HEADROOM_ASSIGN(auto counters, counters_of(words));
  HEADROOM_ASSIGN(bench::DecodeAnswer answer,
                  bench::predict_decode(model.view(), question, machines.timing));
  answer.counters = std::move(counters);
  HEADROOM_TRY(hand_over(answer, {}, words, console));
  return answer.largest_batch > 0 ? kExitYes : kExitNotPlainYes;
}

// ---- measured ----

// A usage Error where the configuration says that it has fewer.
Result<void> check_layers(const model::ResolvedModel& model, int64_t layers) {
  const auto all = bench::layers_of(model.view().json());
  if (!all || layers <= *all) return {};
  return usage(
      model.name + " has " + std::to_string(*all) + " layers, not " + std::to_string(layers),
      "--layers takes some of them");
}

Result<bench::MeasuredDecodeQuestion> measured_question(const model::ResolvedModel& model,
                                                        const Words& words, bool is_cpu) {
  bench::MeasuredDecodeQuestion question;
  question.model = model.name;
  HEADROOM_ASSIGN(question.context, context_of(words, question.context));
  if (words.has("batches")) {
    HEADROOM_ASSIGN(question.batches, batches_of(words.value("batches")));
  } else if (words.has("quick")) {
    question.batches = {1, 4, 16, 64};
  }
  HEADROOM_TRY(bench::check_context_and_batches(question.context, question.batches));
  HEADROOM_ASSIGN(question.weights, dtype_of(words, is_cpu ? op::DType::f32 : op::DType::bf16));
  if (words.has("layers")) {
    HEADROOM_ASSIGN(question.layers,
                    number_of<int64_t>(words.value("layers"), "layers", 1, kMostLayers));
    HEADROOM_TRY(check_layers(model, *question.layers));
  }
  return question;
}

Result<bench::NongemmRun> run_of(const Words& words, const std::string& on) {
  bench::NongemmRun run;
  run.on = on;
  run.seconds = words.has("quick") ? kQuickBatchSeconds : kBatchSeconds;
  if (words.has("seconds")) {
    HEADROOM_ASSIGN(run.seconds, number_of<double>(words.value("seconds"), "seconds", 0.01, 3600));
  }
  if (words.has("threads")) {
    HEADROOM_ASSIGN(run.threads, number_of<int64_t>(words.value("threads"), "threads", 1, 4096));
  }
  return run;
}

// Measures what the store does not have.
Result<void> measure(const model::ResolvedModel& model, const Words& words,
                     const bench::MeasuredDecodeQuestion& question, const std::string& on,
                     const std::optional<timing::Calibration>& calibration, const Console& console,
                     BenchStore& store) {
  HEADROOM_ASSIGN(bench::NongemmRun run, run_of(words, on));
  HEADROOM_TRY(store.open());
  const std::vector<bench::NongemmSetting> settings = bench::decode_settings(question);
  text::Progress bar("measuring", static_cast<int64_t>(settings.size()), console.err, console.quiet,
                     text::sink_for(STDERR_FILENO));
  int64_t done = 0;
  bench::NongemmPart part{bench::decode_model(model), {}};
  run.layers = question.layers;
  run.folder = store.folder();
  run.read_profile = read_bench_profile;
  run.on_machine = [&](const timing::Machine& machine) -> Result<void> {
    if (calibration) {
      HEADROOM_TRY(timing::check_same_machine(calibration->machine, machine,
                                              words.value(kCalibrationFlag.name)));
    }
    return store.set_machine(machine);
  };
  run.on_record = [&](const NongemmRecord& record) {
    bar.update(++done);
    return store.add(record);
  };
  for (const bench::NongemmSetting& setting : settings) {
    if (store.has(setting, question.layers)) {
      bar.update(++done);
    } else {
      part.settings.push_back(setting);
    }
  }
  if (part.settings.empty()) return {};
  run.parts.push_back(std::move(part));
  return bench::measure_nongemm(run);
}

// Without words to the contrary, what the records of that model are of.
Result<void> adopt_setting(const NongemmRecords& records, const Words& words,
                           bench::MeasuredDecodeQuestion& question) {
  const auto last = std::find_if(records.records.rbegin(), records.records.rend(),
                                 [&](const NongemmRecord& record) {
                                   return record.decode && record.setting.model == question.model;
                                 });
  if (last == records.records.rend()) {
    return Error{ErrorCode::bad_input, "holds no decode steps of " + question.model,
                 words.value("results"), "a results.jsonl that `headroom bench decode` keeps"};
  }
  if (!words.has("context")) question.context = *last->setting.context;
  if (!words.has("dtype")) {
    question.weights = last->setting.dtype == "fp32"   ? op::DType::f32
                       : last->setting.dtype == "fp16" ? op::DType::f16
                                                       : op::DType::bf16;
  }
  return {};
}

// 5 where a batch failed, or one that was asked for did not run.
int exit_code(const bench::DecodeAnswer& answer, const Words& words) {
  const auto& rest = answer.measured->not_run;
  const bool is_partial = std::ranges::any_of(
      rest, [&](const bench::DecodeNotRun& one) { return one.is_failure || words.has("batches"); });
  return is_partial ? exit_code_of(ErrorCode::partial) : kExitYes;
}

// What the calibration of this machine says of the same steps.
Result<void> predict_beside(const model::ResolvedModel& model, const Machines& machines,
                            const Words& words, bench::DecodeAnswer& answer) {
  const timing::Calibration& calibration = *machines.calibration;
  const std::string file = words.value(kCalibrationFlag.name);
  HEADROOM_TRY(timing::check_same_machine(calibration.machine, answer.measured->machine, file));
  HEADROOM_ASSIGN(const device::Device device, machines.catalogue.find(calibration.device));
  return bench::add_predicted(model.view(), device, machines.timing, file, answer);
}

Result<int> measured(const model::ResolvedModel& model, const Words& words,
                     const Console& console) {
  HEADROOM_TRY(check_places(words));
  std::string on = "cpu";
  if (words.has("on")) {
    HEADROOM_ASSIGN(on, device_of_torch(words.value("on")));
  }
  HEADROOM_ASSIGN(bench::MeasuredDecodeQuestion question,
                  measured_question(model, words, on == "cpu"));
  // Before anything is measured: a bad file of the user's is better said now.
  HEADROOM_ASSIGN(const Machines machines, load_machines(words, console));
  HEADROOM_ASSIGN(auto counters, counters_of(words));
  NongemmRecords records;
  std::string folder;
  if (words.has("results")) {
    HEADROOM_ASSIGN(records, read_bench_records(words.value("results")));
    HEADROOM_TRY(adopt_setting(records, words, question));
  } else {
    BenchStore store(words.has("keep") ? words.value("keep") : std::string(kFolder));
    HEADROOM_TRY(measure(model, words, question, on, machines.calibration, console, store));
    records = store.records();
    folder = store.folder();
  }
  HEADROOM_ASSIGN(bench::DecodeAnswer answer,
                  bench::answer_decode(model.view(), question, records));
  answer.counters = std::move(counters);
  // The measured steps are an answer, whatever the calibration has to say of them.
  const Result<void> beside =
      machines.calibration ? predict_beside(model, machines, words, answer) : Result<void>();
  if (!beside) console.complain(beside.error());
  HEADROOM_TRY(hand_over(answer, folder, words, console));
  return beside ? exit_code(answer, words) : exit_code_of(ErrorCode::partial);
}

}  // namespace

Result<int> run_bench_decode(const Words& words, const Console& console) {
  if (words.operands.size() < 2) return usage("of which model?", "`headroom models` lists some");
  if (words.operands.size() > 2) return one_word_too_many(words.operands[2]);
  if (model::is_python_function(words.operands[1])) {
    return usage("decode steps are of a configuration, not of a module",
                 "a name that `headroom models` lists, or a config.json");
  }
  HEADROOM_ASSIGN(const model::ResolvedModel model, model::resolve_model(words.operands[1]));
  return words.has("predict") ? predict(model, words, console) : measured(model, words, console);
}

}  // namespace headroom::cli
