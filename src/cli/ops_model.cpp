#include "cli/ops_model.h"

#include <algorithm>

#include "base/version.h"
#include "cli/deliver.h"
#include "cli/machine.h"
#include "device/catalogue.h"
#include "model/builtin.h"
#include "model/onnx_file.h"
#include "ops/calibration_notes.h"
#include "ops/onnx_step.h"
#include "ops/predicted.h"
#include "ops/predicted_step.h"
#include "ops/step_source.h"
#include "report/ops/predicted.h"
#include "report/ops/predicted_html.h"

namespace headroom::cli {
namespace {

// What decides what lies in memory.
ops::PredictedQuestion question_of(const ops::StepSetting& setting, ops::Quantize quantize,
                                   const device::Device& device) {
  ops::PredictedQuestion question;
  question.quantize = quantize;
  question.device = device;
  question.batch = setting.batch.value_or(question.batch);
  question.seq = setting.seq.value_or(question.seq);
  question.weights = setting.dtype.value_or(question.weights);
  return question;
}

Result<ops::PredictedRun> predict_decode(const Words& words, const ops::StepSetting& setting,
                                         ops::Quantize quantize, const device::Device& device,
                                         const timing::TimingModel& laws) {
  ops::PredictedQuestion question = question_of(setting, quantize, device);
  HEADROOM_ASSIGN(const model::ResolvedModel model, model::resolve_model(words.value("model")));
  question.model = model.name;
  return ops::predict_decode(model.view(), question, laws);
}

Result<ops::Quantize> quantize_of(const Words& words) {
  if (!words.has("quantize")) return ops::Quantize::none;
  const std::string name = words.value("quantize");
  if (const std::optional<ops::Quantize> quantize = ops::parse_quantize(name)) return *quantize;
  return Error{ErrorCode::usage, "'" + name.substr(0, 80) + "' is no way to quantize", "--quantize",
               "int8, fp8 or w4a16"};
}

// "height=224,width=224".
Result<void> add_dimensions(const Words& words, ops::StepSetting& setting) {
  constexpr int64_t kMostSize = int64_t{1} << 40;
  std::string rest = words.value("dim");
  while (!rest.empty()) {
    const std::string word = rest.substr(0, rest.find(','));
    rest.erase(0, word.size() + 1);
    const size_t equals = word.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      return Error{ErrorCode::usage, "'" + word.substr(0, 80) + "' is not NAME=N", "--dim",
                   "height=224, or height=224,width=224"};
    }
    HEADROOM_ASSIGN(setting.dimensions[word.substr(0, equals)],
                    number_of<int64_t>(word.substr(equals + 1), "dim", 0, kMostSize));
  }
  return {};
}

// What the prediction of a decode step leaves out.
Result<void> check_decode(const Words& words) {
  if (words.has("fuse")) {
    return Error{ErrorCode::unavailable,
                 "a decode step is predicted as an engine makes it, which fuses already", "--fuse",
                 "leave it out, or --phase prefill"};
  }
  return {};
}

// One run of the file's graph, as a prefill is one of a model's.
Result<ops::PredictedRun> predict_onnx(const Words& words, const ops::StepSetting& setting,
                                       ops::StepQuestion question,
                                       const timing::TimingModel& laws) {
  const std::string name = words.value("model");
  if (question.phase != "prefill") {
    return Error{ErrorCode::unavailable, "an ONNX file holds one forward run, no " + question.phase,
                 name, "leave --phase out"};
  }
  if (setting.dtype) {
    return Error{ErrorCode::usage, "an ONNX file has types of its own", "--dtype", "leave it out"};
  }
  HEADROOM_ASSIGN(const ops::OperatorRules rules, ops::OperatorRules::load(""));
  HEADROOM_ASSIGN(ops::OnnxStep step, ops::step_of_onnx(name, setting, rules));
  question.model = name;
  question.phase = "run";
  question.batch = step.batch;
  question.shape = step.shape;
  question.notes = std::move(step.notes);
  return ops::predict_step(step.calls, question, laws);
}

// Nothing where no engine is known to serve the model so.
std::optional<Bytes> memory_of_prefill(const text::JsonView& config,
                                       const ops::StepSetting& setting, ops::Quantize quantize,
                                       const device::Device& device,
                                       const timing::TimingModel& laws) {
  ops::PredictedQuestion question = question_of(setting, quantize, device);
  question.seq = std::max<int64_t>(question.seq, 2);  // a decode step has one behind another
  const auto bytes = ops::memory_of_serving(config, question, laws);
  return bytes ? std::optional(*bytes) : std::nullopt;
}

// Gradients, states and what is saved for backward are not counted here.
std::string note_of_fit(const Words& words, std::optional<op::DType> dtype,
                        const ops::PredictedRun& run) {
  Words fit;
  fit.operands = {words.value("model")};
  for (const char* const flag : {"device", "calibration"}) {
    if (words.has(flag)) fit.flags.emplace_back(flag, words.value(flag));
  }
  if (run.batch > 0) fit.flags.emplace_back("batch", std::to_string(run.batch));
  if (run.seq > 0) fit.flags.emplace_back("seq", std::to_string(run.seq));
  if (dtype) fit.flags.emplace_back("dtype", device::name_of(timing::rate_of(*dtype)));
  return "this is its time alone; whether the training step fits, and what would make it fit, says "
         "`" +
         command_line("fit", fit) + "`";
}

Result<ops::PredictedRun> predict_step(const Words& words, const std::string& phase,
                                       const ops::StepSetting& setting, ops::Quantize quantize,
                                       const device::Device& device,
                                       const ops::FreshMemory& fresh_memory,
                                       const timing::TimingModel& laws) {
  ops::StepQuestion question;
  question.device = device;
  question.phase = phase;
  question.fuse = words.has("fuse");
  question.quantize = quantize;
  if (setting.is_training && question.quantize != ops::Quantize::none &&
      question.quantize != ops::Quantize::fp8) {
    return Error{ErrorCode::usage, "is not how a model is trained", "--quantize",
                 "fp8, or --phase prefill"};
  }
  const std::string name = words.value("model");
  if (model::is_onnx_name(name)) return predict_onnx(words, setting, std::move(question), laws);
  question.fresh_memory = fresh_memory;  // ONNX Runtime keeps what it has had
  ops::StepSource source;
  std::optional<Bytes> serving;
  if (model::is_python_function(name)) {
    question.model = name;
    HEADROOM_ASSIGN(source, ops::step_of_module(name, setting));
  } else {
    HEADROOM_ASSIGN(const model::ResolvedModel model, model::resolve_model(name));
    question.model = model.name;
    HEADROOM_ASSIGN(source, ops::step_of_config(model.view(), setting));
    if (!setting.is_training)
      serving = memory_of_prefill(model.view(), setting, quantize, device, laws);
  }
  question.batch = source.batch;
  question.shape = source.shape;
  HEADROOM_ASSIGN(ops::PredictedRun run,
                  ops::predict_step(ops::calls_of(source.trace), question, laws));
  // Weights of a model that is trained stay as they are; others' are smaller, by what no engine
  // says.
  const bool has_weights = setting.is_training || quantize == ops::Quantize::none;
  if (serving || has_weights) ops::judge_memory(device, source.weights, serving, run);
  if (setting.is_training) run.notes.push_back(note_of_fit(words, setting.dtype, run));
  return run;
}

Result<ops::StepSetting> setting_of(const Words& words, const std::string& phase) {
  ops::StepSetting setting;
  setting.is_training = phase == "train";
  if (words.has("batch")) {
    HEADROOM_ASSIGN(setting.batch,
                    number_of<int64_t>(words.value("batch"), "batch", 1, timing::kMostBatch));
  }
  if (words.has("seq")) {
    // The token that a decode step makes is one of them.
    const int64_t least = phase == "decode" ? 2 : 1;
    HEADROOM_ASSIGN(setting.seq,
                    number_of<int64_t>(words.value("seq"), "seq", least, timing::kMostContext));
  }
  if (words.has("dtype")) {
    HEADROOM_ASSIGN(setting.dtype, dtype_of(words, op::DType::bf16));
  }
  HEADROOM_TRY(add_dimensions(words, setting));
  return setting;
}

Result<std::string> phase_of(const Words& words, bool is_onnx) {
  if (!words.has("phase")) return std::string(is_onnx ? "prefill" : "decode");
  const std::string phase = words.value("phase");
  if (phase == "decode" || phase == "prefill" || phase == "train") return phase;
  return Error{ErrorCode::usage, "'" + phase.substr(0, 80) + "' is not a phase", "--phase",
               "decode, prefill or train"};
}

Result<int> deliver_predicted(const ops::PredictedRun& run, const Words& words,
                              const Console& console) {
  Forms forms;
  forms.text = [&](const text::Terminal& terminal) {
    return report::ops_predicted_text(run, terminal);
  };
  forms.json = [&] { return report::ops_predicted_json(run); };
  forms.page = [&] {
    return report::Page{"Time of " + run.model, "ops", std::string(version()),
                        command_line("ops", words), report::ops_predicted_sections(run)};
  };
  HEADROOM_TRY(deliver(forms, words, console));
  return run.fits ? kExitYes : kExitNotPlainYes;
}

}  // namespace

Result<int> run_ops_model(const Words& words, const Console& console) {
  if (!words.operands.empty()) {
    return Error{ErrorCode::usage, "--model predicts a step without a trace", "",
                 "leave the trace or --model out"};
  }
  const bool is_onnx = model::is_onnx_name(words.value("model"));
  if (words.has("dim") && !is_onnx) {
    return Error{ErrorCode::usage, "--dim is for an ONNX file, which names its dimensions", "",
                 "--batch and --seq"};
  }
  HEADROOM_ASSIGN(const std::string phase, phase_of(words, is_onnx));
  const bool is_decode = phase == "decode" && !is_onnx;
  HEADROOM_ASSIGN(const ops::Quantize quantize, quantize_of(words));
  if (is_decode) HEADROOM_TRY(check_decode(words));
  HEADROOM_ASSIGN(const ops::StepSetting setting, setting_of(words, phase));
  HEADROOM_TRY(check_places(words));
  HEADROOM_ASSIGN(const Machines machines, load_machines(words, console, OtherMachine::answer));
  HEADROOM_ASSIGN(const device::Device device, machines.catalogue.find(machines.device_for(words)));
  const timing::TimingModel& laws = machines.timing;
  const bool is_measured = machines.calibration && machines.calibration->device == device.name;
  const ops::FreshMemory fresh =
      is_measured ? ops::fresh_memory_of(*machines.calibration) : ops::FreshMemory{};
  HEADROOM_ASSIGN(ops::PredictedRun run,
                  is_decode ? predict_decode(words, setting, quantize, device, laws)
                            : predict_step(words, phase, setting, quantize, device, fresh, laws));
  if (is_measured) {
    for (std::string& note : ops::notes_of_prediction(*machines.calibration, is_onnx)) {
      run.notes.push_back(std::move(note));
    }
  }
  return deliver_predicted(run, words, console);
}

std::vector<Flag> ops_model_flags() {
  return {
      {"model", "MODEL", "no trace: predict a step of this model on --device"},
      {"phase", "PHASE",
       "of --model: decode (without it), prefill or train; of an ONNX file one run of its graph"},
      {"batch", "N", "of --model: sequences; 1"},
      {"seq", "TOKENS", "of --model: of each sequence, in decode those in its cache; 512"},
      {"dim", "NAME=N,..",
       "of --model FILE.onnx: sizes of dimensions that it leaves open, by their names"},
      {"dtype", "TYPE", "of --model: weights and cache: bfloat16 (without it), float16 or float32"},
      {"quantize", "TYPE",
       "of --model: linear layers in int8, fp8 or w4a16, with the work that it adds, in decode as "
       "engines have it; in training fp8"},
      {"fuse", "", "of --model's prefill or training: elementwise chains and quantizing fused"},
      {kCalibrationFlag.name, kCalibrationFlag.value,
       "what `headroom bench device` measured: of --model the device, and times by it; of a CPU's "
       "trace what int8 would give"}};
}

}  // namespace headroom::cli
