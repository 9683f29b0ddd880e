// An answer from files: the trace, and what may stand beside it (a capture, an execution trace,
// counters), held against the device that it names.
#include "device/catalogue.h"
#include "formats/execution_trace.h"
#include "formats/ncu_csv.h"
#include "formats/read_trace.h"
#include "ops/calibration_notes.h"
#include "ops/capture.h"
#include "ops/counters.h"
#include "ops/ops.h"
#include "timing/calibration.h"

namespace headroom::ops {

using formats::Trace;

namespace {

// With the operators of the graph's capture.
Result<void> add_capture(const std::string& file, Trace& trace, std::vector<std::string>& notes) {
  HEADROOM_ASSIGN(const Trace capture, formats::read_trace(file));
  if (!capture.has_starts) {
    return Error{ErrorCode::bad_input, "does not say in what order it launched its kernels", file,
                 "record the capture with torch.profiler"};
  }
  const CaptureJoin joined = join_capture(trace, capture);
  if (joined.graph_kernels == 0) {
    return Error{ErrorCode::usage, "launches no graph, so that a capture says nothing of it",
                 trace.file, "leave --capture out"};
  }
  if (joined.joined == 0) {
    return Error{ErrorCode::bad_input,
                 "is not the capture of a graph of this trace: it captures " +
                     std::to_string(joined.captured) + " kernels, the graphs have " +
                     std::to_string(joined.graph_kernels) +
                     (joined.has_names ? ", of other names" : ""),
                 file, "record the capture of the same graph with torch.profiler"};
  }
  notes.push_back("the capture names the operators of " + std::to_string(joined.joined) + " of " +
                  std::to_string(joined.graph_kernels) + " kernels in graphs, " +
                  (joined.has_names ? "by name and order" : "by their order alone"));
  if (joined.has_unsure_shapes) {
    notes.emplace_back(
        "several captures have these kernels, with operators of other shapes: which of them ran is "
        "not known, so that shapes are left out");
  }
  return {};
}

// The trace with the shapes that an execution trace of the same run has.
Result<Trace> read_joined(const OpsQuestion& question, std::vector<std::string>& notes) {
  HEADROOM_ASSIGN(Trace trace, formats::read_trace(question.file));
  if (!question.capture.empty()) HEADROOM_TRY(add_capture(question.capture, trace, notes));
  if (question.execution_trace.empty()) return trace;
  HEADROOM_ASSIGN(const formats::ExecutionTrace execution,
                  formats::read_execution_trace(question.execution_trace));
  const formats::Joined joined = formats::join(trace, execution);
  if (!formats::is_same_run(joined)) {
    return Error{ErrorCode::bad_input, "is of another run: its ids are of other operators",
                 execution.file, "record both at once (profile(execution_trace_observer=...))"};
  }
  notes.push_back("the execution trace knows " + std::to_string(joined.joined) + " of " +
                  std::to_string(joined.operators) + " operators, and gave " +
                  std::to_string(joined.shaped) + " of them their shapes");
  if (execution.is_cut || execution.fault_count > 0) {
    notes.push_back("not all of the execution trace could be read: " + execution.first_fault);
  }
  return trace;
}

// The machine that `bench device` measured, and the times of its operators.
struct Calibrated {
  std::optional<device::Device> device;  // nothing without a calibration
  timing::TimingModel laws;
  std::optional<timing::Int8Quotient> int8;
  timing::Machine machine;
};

Result<Calibrated> calibrated_by(const OpsQuestion& question, device::DeviceCatalogue& catalogue) {
  Calibrated made;
  if (question.calibration.empty()) return made;
  HEADROOM_ASSIGN(const timing::Calibration calibration,
                  timing::load_calibration(question.calibration));
  HEADROOM_TRY(timing::adopt(calibration, catalogue, made.laws));
  HEADROOM_ASSIGN(made.device, catalogue.find(calibration.device));
  made.int8 = timing::Int8Quotient::fit(*made.device, calibration.points);
  made.machine = calibration.machine;
  return made;
}

// Why the calibration says nothing of the run; empty where it does. `device`: that the run is held
// against, where that is named. Of a run without a device the processor is all that is known.
std::string why_not(const Calibrated& calibrated, const RecordedRun& run,
                    const std::optional<device::Device>& device) {
  const bool is_processor = calibrated.device->vendor == device::Vendor::cpu;
  const bool is_it =
      device ? device->name == calibrated.device->name : is_processor && !run.links.has_device;
  if (!is_it) {
    const std::string named = device ? device->name : run.device();
    return "the calibration is of " + calibrated.device->name + ", this run is of " +
           (named.empty() ? "a device that the file does not name" : named) +
           ": it says nothing of it";
  }
  const std::string& engine = calibrated.machine.engine;
  if (!is_processor || run.is_of_onnx_runtime() == engine.starts_with("onnxruntime")) return {};
  return "the calibration's times are " + (engine.empty() ? "PyTorch" : engine) +
         "'s, this run is another engine's: it says nothing of it";
}

// Why operators are not held against the device that was asked for.
std::string why_no_roofline(const RecordedRun& run, const device::Device& device) {
  const std::string limits = device.name + "'s limits (--device)";
  if (run.lacks_kernels()) {
    return "no kernel was recorded that could be held against " + limits;
  }
  if (!run.links.has_device && device.vendor != device::Vendor::cpu) {
    return "operators are not held against " + limits +
           ", as they ran on a CPU: --device cpu,fp32=400GFLOPS,bandwidth=40GB/s, with the "
           "processor's own figures, or --calibration FILE does that";
  }
  if (!device.bandwidth.known()) {
    return "operators are not held against " + limits +
           ", as its bandwidth is not known: --device " + device.name +
           ",fp32=400GFLOPS,bandwidth=40GB/s, with its own figures, gives it";
  }
  return "no operator could be held against " + limits +
         ": the trace has no shapes of one that can be counted (record_shapes=True), or the device "
         "no rate of their types";
}

Result<void> add_counters(const std::string& file, OpsAnswer& answer) {
  HEADROOM_ASSIGN(const formats::NcuProfile profile, formats::read_ncu_csv(file));
  answer.counters = counters_of(profile, answer.kernels);
  if (!answer.counters->rows.empty()) return {};
  return Error{ErrorCode::bad_input, "counts no kernel of this trace", file,
               "profile the same program with ncu --csv --page raw"};
}

}  // namespace

Result<AnsweredRun> answer_run(const OpsQuestion& question) {
  HEADROOM_ASSIGN(const OperatorRules rules, OperatorRules::load(question.rules));
  HEADROOM_ASSIGN(device::DeviceCatalogue catalogue, device::DeviceCatalogue::load());
  HEADROOM_ASSIGN(const Calibrated calibrated, calibrated_by(question, catalogue));
  std::optional<device::Device> device;
  if (!question.device.empty()) {
    HEADROOM_ASSIGN(device, catalogue.find(question.device));
  }
  std::optional<device::Device> other;
  if (!question.other_device.empty()) {
    HEADROOM_ASSIGN(other, catalogue.find(question.other_device));
  }
  HEADROOM_ASSIGN(const std::vector<FasterGroup> faster, faster_groups(question.faster, rules));
  std::vector<std::string> notes;
  HEADROOM_ASSIGN(Trace trace, read_joined(question, notes));
  HEADROOM_ASSIGN(RecordedRun run, run_of(std::move(trace), rules));
  std::string assumption;
  if (!device && run.links.has_device && !run.device().empty()) {
    if (const auto found = catalogue.find_for_measurement(run.device())) {
      device = found->device;
      assumption = found->assumption;
    }
  }
  const std::string unused = calibrated.device ? why_not(calibrated, run, device) : "";
  const bool is_calibrated = calibrated.device && unused.empty();
  if (is_calibrated) {
    device = calibrated.device;
    if (device->vendor == device::Vendor::cpu) notes.push_back(note_of_trace(calibrated.machine));
  }
  if (!unused.empty()) notes.push_back(unused);
  const Against against{device ? &*device : nullptr, other ? &*other : nullptr,
                        is_calibrated ? &calibrated.laws : nullptr,
                        is_calibrated && calibrated.int8 ? &*calibrated.int8 : nullptr};
  OpsAnswer answered = answer(run, rules, against, faster);
  answered.notes.insert(answered.notes.end(), notes.begin(), notes.end());
  if (!question.counters.empty()) HEADROOM_TRY(add_counters(question.counters, answered));
  if (!assumption.empty()) answered.notes.push_back(assumption);
  if (!question.device.empty() && device && !answered.roofline) {
    answered.notes.push_back(why_no_roofline(run, *device));
  }
  if (run.links.has_device && !device) {
    answered.notes.emplace_back(
        "the limits of this device are not known, so operators are not held against them: --device "
        "NAME names one");
  }
  if (other && !device) {
    answered.notes.push_back("what the run would take on " + other->name +
                             " is not known, as the limits of the device that it ran on are not");
  }
  return AnsweredRun{std::move(answered), std::move(run)};
}

Result<OpsAnswer> answer(const OpsQuestion& question) {
  HEADROOM_ASSIGN(AnsweredRun answered, answer_run(question));
  return std::move(answered.answer);
}

}  // namespace headroom::ops
