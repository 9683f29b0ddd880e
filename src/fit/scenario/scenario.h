// Scenario: a FitQuestion made definite. Every name is resolved (device, model, versions), every
// "automatic" decided, and what remains is what the step model takes.
//
// Resolving reads files and costs about a millisecond (a model that has to be traced: seconds); the
// variations that a search tries share the catalogue and the model's config, so each costs only its
// step. Not changed once made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/catalogue.h"
#include "device/device.h"
#include "fit/device/device_used.h"
#include "fit/measured/calibration.h"
#include "fit/question.h"
#include "memory/allocator_settings.h"
#include "model/builtin.h"
#include "model/load.h"
#include "model/options.h"
#include "model/tracer.h"
#include "step/train_step.h"
#include "text/json.h"

namespace headroom::fit {

class SharedSteps;

// A module without a family, as its trace has it.
struct TracedModel {
  model::TraceRequest request;
  model::TracedGraph trace;
};

struct Scenario {
  FitQuestion question;
  std::shared_ptr<const model::ResolvedModel> model;
  std::shared_ptr<const TracedModel> traced;  // null: the model's family builds the graph
  std::shared_ptr<const device::Device> device;
  std::shared_ptr<SharedSteps> steps;              // what its predictions and its variations' share
  std::shared_ptr<const Calibration> calibration;  // null: predictions stay as they are
  model::BuildOptions build;
  Loss loss = Loss::hf;  // never automatic
  step::TrainOptions train;
  memory::AllocatorSettings allocator;
  bool planned = false;                  // blocks lie where a plan of this step puts them
  Bytes offered;                         // what processes can use of the device
  std::vector<std::string> assumptions;  // each makes figures extrapolated
  std::string beyond_positions;          // what a sequence longer than the model's positions means
  model::Task task = model::Task::causal_lm;
  std::vector<std::string> warnings;  // what the answer takes otherwise than it was given
  std::string_view assumes;           // what the family takes for granted about how it is run
  bool leaves_parameters_idle = false;
  std::vector<Setting> derived;  // settings that follow from others, for the answer
};

[[nodiscard]] op::DType dtype_of(Dtype dtype);
// The family by which libraries choose what to do: the config's, or the one it is assumed to be.
[[nodiscard]] Result<std::string> model_type_of(const Scenario& scenario);

// Those that each of the question's processes is in.
[[nodiscard]] Communicators communicators_of(const FitQuestion& question);
// Megatron-LM's of so many ranks in all.
[[nodiscard]] Communicators communicators_of(int64_t ranks, const MegatronSetting& setting);
// Of the devices that the step is divided among.
[[nodiscard]] DeviceMemory memory_of_device(const Scenario& scenario);
// What is left of what they offer.
[[nodiscard]] Interval room_within(const Scenario& scenario, const Interval& device_used);
// Whether the question's sequence length decides anything: an image's config says how long it is.
[[nodiscard]] bool reads_seq(const Scenario& scenario);

// The devices that are known, with the one that only a calibration knows; its file is empty: none.
Result<device::DeviceCatalogue> catalogue_with(const std::string& calibration);

Result<Scenario> resolve(const FitQuestion& question);
// On a device that was found already, whatever the question names.
Result<Scenario> resolve(const FitQuestion& question, device::Device device);

// Micro-batches that a step is simulated with at the most: the first, the last and two between. The
// others do what those between did, and the allocator has what they need by then.
inline constexpr int64_t kSimulatedMicroBatches = 4;

// `--allocator planned`: no settings of PyTorch's, but a plan made from the step itself.
inline constexpr std::string_view kPlannedAllocator = "planned";

// The same model and device asked another question. Errors as resolve(). A traced model is traced
// again where the question changes what was traced.
Result<Scenario> vary(const Scenario& scenario, const FitQuestion& question);

}  // namespace headroom::fit
