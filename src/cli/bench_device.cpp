#include "cli/bench_device.h"

#include <unistd.h>

#include <optional>

#include "base/file.h"
#include "bench/device.h"
#include "cli/deliver.h"
#include "report/bench/device.h"
#include "text/progress.h"

namespace headroom::cli {

namespace {

constexpr double kQuickSeconds = 30;
constexpr double kLeastSeconds = 1;
constexpr double kMostSeconds = 3600;
constexpr int64_t kMostSeed = 1'000'000'000;

// cpu, cuda or cuda:N
bool is_device_of_torch(std::string_view name) {
  if (name == "cpu" || name == "cuda") return true;
  if (!name.starts_with("cuda:")) return false;
  const auto number = text::parse_number<int64_t>(name.substr(5));
  return number && *number >= 0;
}

// Whose operators: PyTorch's, or the products of ONNX Runtime on a processor in its two types.
Result<bool> is_of_onnx_runtime(const Words& words) {
  const std::string engine = words.value("engine");
  if (engine.empty() || engine == "pytorch") return false;
  if (engine != "onnxruntime") {
    return Error{ErrorCode::usage,
                 "'" + engine.substr(0, 80) + "' is not an engine that bench device measures",
                 {},
                 "--engine pytorch or onnxruntime"};
  }
  for (const char* const flag : {"on", "dtype"}) {
    if (!words.has(flag) || words.value(flag) == "cpu") continue;
    return Error{
        ErrorCode::usage,
        "--" + std::string(flag) + " does not go with --engine onnxruntime",
        {},
        "of ONNX Runtime the products of this processor are measured, in float32 and int8"};
  }
  return true;
}

Result<bench::DeviceQuestion> question_of(const Words& words) {
  bench::DeviceQuestion question;
  HEADROOM_ASSIGN(question.of_onnx_runtime, is_of_onnx_runtime(words));
  if (words.has("on")) {
    HEADROOM_ASSIGN(question.on, device_of_torch(words.value("on")));
  }
  if (words.has("quick")) question.seconds = kQuickSeconds;
  if (words.has("seconds")) {
    HEADROOM_ASSIGN(question.seconds, number_of<double>(words.value("seconds"), "seconds",
                                                        kLeastSeconds, kMostSeconds));
  }
  if (words.has("threads")) {
    HEADROOM_ASSIGN(question.threads,
                    number_of<int64_t>(words.value("threads"), "threads", 1, 4096));
  }
  if (words.has("seed")) {
    HEADROOM_ASSIGN(question.seed, number_of<int64_t>(words.value("seed"), "seed", 0, kMostSeed));
  }
  if (words.has("dtype")) {
    const std::string name = words.value("dtype");
    const bool is_known = name == "float32" || name == "bfloat16" || name == "float16";
    if (!is_known) {
      return Error{ErrorCode::usage,
                   "'" + name.substr(0, 80) + "' is not a type that --dtype takes",
                   {},
                   "bfloat16, float16 or float32"};
    }
    question.dtype = name == "float32" ? "fp32" : name == "bfloat16" ? "bf16" : "fp16";
  }
  return question;
}

// Shows how far the runner is; the number of points is known with the first of them.
std::function<void(int64_t, int64_t)> progress_on(const Console& console,
                                                  std::optional<text::Progress>& bar) {
  return [&](int64_t done, int64_t of) {
    if (!bar)
      bar.emplace("measuring", of, console.err, console.quiet, text::sink_for(STDERR_FILENO));
    bar->update(done);
  };
}

Result<bench::DeviceAnswer> measured(const Words& words, const device::DeviceCatalogue& catalogue,
                                     const std::optional<timing::Calibration>& earlier,
                                     const Console& console) {
  HEADROOM_ASSIGN(bench::DeviceQuestion question, question_of(words));
  if (earlier) {
    question.on_machine = [&](const timing::Machine& machine) {
      return timing::check_same_machine(earlier->machine, machine, words.value("calibration"));
    };
  }
  std::optional<text::Progress> bar;
  question.on_progress = progress_on(console, bar);
  auto probe = bench::probe_device(question);
  bar.reset();
  if (!probe) return std::move(probe).error();
  return bench::calibrate(*probe, catalogue);
}

// What an earlier run kept.
Result<bench::DeviceAnswer> shown(const Words& words, const device::DeviceCatalogue& catalogue) {
  HEADROOM_ASSIGN(timing::Calibration kept, timing::load_calibration(words.value("results")));
  return bench::describe(std::move(kept), catalogue);
}

}  // namespace

Result<std::string> device_of_torch(std::string name) {
  if (is_device_of_torch(name)) return name;
  return Error{ErrorCode::usage,
               "'" + name.substr(0, 80) + "' is not a device that --on takes",
               {},
               "cpu, cuda or cuda:N"};
}

Result<int> run_bench_device(const Words& words, const Console& console) {
  if (words.operands.size() > 1) {
    return Error{ErrorCode::usage, "bench device takes no model", words.operands[1],
                 "--on cuda:0 measures a GPU of this machine"};
  }
  HEADROOM_TRY(check_places(words, {"save-calibration"}));
  std::optional<timing::Calibration> earlier;
  if (words.has("calibration")) {
    HEADROOM_ASSIGN(earlier, timing::load_calibration(words.value("calibration")));
  }
  HEADROOM_ASSIGN(const device::DeviceCatalogue catalogue, device::DeviceCatalogue::load());
  std::string file;
  bench::DeviceAnswer answer;
  if (words.has("results")) {
    HEADROOM_ASSIGN(answer, shown(words, catalogue));
  } else {
    HEADROOM_ASSIGN(answer, measured(words, catalogue, earlier, console));
    file = words.has("save-calibration") ? words.value("save-calibration")
                                         : answer.calibration.device + ".calibration.json";
    HEADROOM_TRY(
        write_file_atomic(file, timing::calibration_json(answer.calibration).dump(2) + "\n"));
  }
  std::optional<bench::Agreement> agreement;
  if (earlier) {
    // What was measured, or asked for, is answered whatever there is to compare.
    auto compared = bench::agreement(*earlier, answer.calibration, catalogue);
    if (compared) {
      agreement = *std::move(compared);
    } else {
      Error error = std::move(compared).error();
      error.where = words.value("calibration");
      console.complain(error);
    }
  }
  const bench::Agreement* const beside = agreement ? &*agreement : nullptr;
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::device_bench_text(answer, file, beside, terminal);
  };
  forms.json = [&] { return report::device_bench_json(answer, file, beside); };
  HEADROOM_TRY(deliver(forms, words, console));
  if (earlier && !agreement) return exit_code_of(ErrorCode::partial);
  return beside == nullptr || bench::agrees(*beside).value_or(true) ? kExitYes : kExitNotPlainYes;
}

}  // namespace headroom::cli
