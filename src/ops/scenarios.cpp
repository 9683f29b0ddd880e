#include "ops/scenarios.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/operator_work.h"
#include "ops/roofline.h"

namespace headroom::ops {
namespace {

using device::Device;
using device::Rate;
using formats::kNone;
using timing::CallKind;
using timing::ReplayCall;
using timing::ReplayChange;
using timing::ReplayKernel;

// What elementwise kernels reach of the bandwidth, as measured on seven GPUs (NeuSight's tables,
// 0.75 to 0.8): the time of quantizing and dequantizing, which no kernel of the trace shows.
constexpr double kElementwiseShare = 0.75;

double rate_of(const Device& device, Rate rate) {
  return device.rate(rate).known() ? device.rate(rate).value.value : 0;
}

// Seconds; 0 where the device does not say enough.
double floor_of(const OperatorWork& work, Rate rate, const Device& device) {
  const double bandwidth = device.bandwidth.known() ? device.bandwidth.value.value : 0;
  if (bandwidth <= 0) return 0;
  const double traffic = work.bytes / bandwidth;
  if (!work.is_product) return traffic;
  const double flops = rate_of(device, rate);
  return flops > 0 ? std::max(work.flops / flops, traffic) : 0;
}

Result<void> require_rate(Rate rate, const Device& device, const Device& other) {
  for (const Device* one : {&device, &other}) {
    if (rate_of(*one, rate) > 0) continue;
    return Error{ErrorCode::unavailable,
                 one->name + " has no " + std::string(device::name_of(rate)) + " rate", "", ""};
  }
  return {};
}

class Builder {
 public:
  Builder(const Recording& recording, const RecordedRun& run, const OperatorRules& rules)
      : recording_(recording), run_(run), rules_(rules), counts_(run.trace) {
    for (const Work& piece : run.work) pieces_[piece.event] = &piece;
  }

  void add_fusion(std::vector<Scenario>& scenarios);
  void add_int8(const Device& device, std::vector<Scenario>& scenarios);
  void add_device(const Device& device, const Device& other, Scenarios& scenarios);

 private:
  [[nodiscard]] const timing::Program& program() const { return recording_.program; }
  [[nodiscard]] const Work* piece_of(size_t kernel) const {
    const auto found = pieces_.find(recording_.events[kernel]);
    return found == pieces_.end() ? nullptr : found->second;
  }
  // Of the operator that launched it, of a graph when that was captured; nothing where it is not
  // known or cannot be counted.
  const OperatorWork* work_of(size_t kernel) {
    const Work* piece = piece_of(kernel);
    if (piece == nullptr || piece->own_operation() == kNone) return nullptr;
    const auto& work = counts_.of(piece->own_operation());
    return work ? &*work : nullptr;
  }
  [[nodiscard]] double kernel_ms(size_t kernel) const {
    return static_cast<double>(program().kernels[kernel].duration_ns) / 1e6;
  }
  [[nodiscard]] bool is_host_copy(size_t kernel) const {
    const auto name = run_.trace.name_of(run_.trace.events[recording_.events[kernel]]);
    return name.starts_with("Memcpy HtoD") || name.starts_with("Memcpy DtoH");
  }
  // What the host takes from one launch to the next, in the middle of them.
  [[nodiscard]] double launch_ns() const {
    std::vector<int64_t> times;
    for (const ReplayCall& call : program().calls) {
      if (call.kind == CallKind::launch) times.push_back(call.gap_ns + call.cost_ns);
    }
    if (times.empty()) return 0;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return static_cast<double>(*middle);
  }
  Rate rate_of_kernel(const OperatorWork& work, size_t kernel) const {
    return rate_of_work(work, run_.trace.name_of(run_.trace.events[recording_.events[kernel]]));
  }
  Result<double> device_factor(size_t kernel, const Device& device, const Device& other);

  const Recording& recording_;
  const RecordedRun& run_;
  const OperatorRules& rules_;
  OperatorCounts counts_;
  std::unordered_map<uint32_t, const Work*> pieces_;
};

// Neighbours on a stream that go element by element over equally many results, launched one by one
// without the host waiting for the device between: what one writes for the next stays in registers,
// and only the first is launched.
void Builder::add_fusion(std::vector<Scenario>& scenarios) {
  Scenario fused{"fuse_elementwise", "elementwise chains fused", {}, {}, 0};
  fused.made.kernel_factors.assign(program().kernels.size(), 1.0);
  fused.made.is_call_removed.assign(program().calls.size(), false);
  const GroupIndex groups[] = {rules_.group("elementwise"), rules_.group("activation")};
  struct Last {
    double written = 0;  // 0: no chain goes on
    size_t kernel = 0;
    size_t waits = 0;  // of the host, before it was launched
  };
  std::vector<Last> last(program().streams);
  size_t joined = 0;
  size_t waits = 0;
  for (size_t at = 0; at < program().calls.size(); ++at) {
    const ReplayCall& call = program().calls[at];
    waits += call.kind == CallKind::wait || call.kind == CallKind::copy_and_wait ? 1 : 0;
    for (uint32_t i = 0; i < call.kernel_count; ++i) {
      const size_t kernel = call.first_kernel + i;
      const ReplayKernel& one = program().kernels[kernel];
      const OperatorWork* work = work_of(kernel);
      const bool can_join =
          call.kind == CallKind::launch && work != nullptr && work->bytes > 0 &&
          one.waits_for == timing::kNoKernel &&
          std::find(std::begin(groups), std::end(groups), one.group) != std::end(groups);
      Last& before = last[one.stream];
      if (!can_join) {
        before.written = 0;
        continue;
      }
      if (before.written == work->written_bytes && before.waits == waits) {
        // Its own read of what the other wrote, and that write, go.
        const auto keep = [&](size_t which, double bytes) {
          double& factor = fused.made.kernel_factors[which];
          factor = std::max(factor - work->written_bytes / bytes, 0.0);
        };
        keep(kernel, work->bytes);
        keep(before.kernel, work_of(before.kernel)->bytes);
        fused.made.is_call_removed[at] = true;
        ++joined;
      }
      before = {work->written_bytes, kernel, waits};
    }
  }
  if (joined == 0) return;
  for (size_t i = program().earlier_count; i < program().kernels.size(); ++i) {
    fused.saved_ms += kernel_ms(i) * (1 - fused.made.kernel_factors[i]);
  }
  fused.spanned.emplace_back().kernel_factors = fused.made.kernel_factors;  // the host as before
  scenarios.push_back(std::move(fused));
}

// Linear layers with weights and inputs of one byte. Quantizing the input and dequantizing the
// result are kernels of their own, or part of their neighbours.
void Builder::add_int8(const Device& device, std::vector<Scenario>& scenarios) {
  const double bandwidth = device.bandwidth.known() ? device.bandwidth.value.value : 0;
  if (rate_of(device, Rate::int8) <= 0 || bandwidth <= 0) return;
  Scenario apart{"gemm_int8", "linear layers in int8, quantized apart", {}, {}, 0};
  Scenario within{"gemm_int8_fused", "linear layers in int8, quantized within", {}, {}, 0};
  for (Scenario* scenario : {&apart, &within}) {
    scenario->made.kernel_factors.assign(program().kernels.size(), 1.0);
  }
  apart.made.call_added_ns.assign(program().calls.size(), 0.0);
  const double host_ns = launch_ns();
  std::unordered_set<uint32_t> quantized_apart;  // operators: one may launch several kernels
  for (size_t at = 0; at < program().calls.size(); ++at) {
    const ReplayCall& call = program().calls[at];
    if (call.kind != CallKind::launch || call.kernel_count != 1) continue;
    const size_t kernel = call.first_kernel;
    const OperatorWork* work = work_of(kernel);
    const formats::TraceEventKind kind = run_.trace.events[recording_.events[kernel]].kind;
    const bool is_fill = formats::is_device(kind) && kind != formats::TraceEventKind::kernel;
    if (work == nullptr || !work->linear || is_fill || kernel_ms(kernel) <= 0) continue;
    const double element = static_cast<double>(op::element_size(work->dtype));
    OperatorWork quantized = *work;
    quantized.bytes = (work->bytes - work->written_bytes) / element + work->written_bytes;
    const double before = floor_of(*work, rate_of_kernel(*work, kernel), device);
    const double after = floor_of(quantized, Rate::int8, device);
    if (before <= 0 || after <= 0) continue;
    const double factor = std::min(after / before, 1.0);
    within.made.kernel_factors[kernel] = apart.made.kernel_factors[kernel] = factor;
    within.saved_ms += kernel_ms(kernel) * (1 - factor);
    apart.saved_ms += kernel_ms(kernel) * (1 - factor);
    if (!quantized_apart.insert(piece_of(kernel)->own_operation()).second) continue;
    const double quantize = work->first_elements * (element + 1);
    const double dequantize = work->written_bytes / element * (4 + element);
    const double added_ms = (quantize + dequantize) / (kElementwiseShare * bandwidth) * 1e3;
    apart.made.kernel_factors[kernel] += added_ms / kernel_ms(kernel);
    apart.made.call_added_ns[at] = 2 * host_ns;
    apart.saved_ms -= added_ms;
  }
  if (quantized_apart.empty()) return;
  scenarios.push_back(std::move(apart));
  scenarios.push_back(std::move(within));
}

// The Error says which rate is not known: a product scaled by the bandwidth would be a guess.
Result<double> Builder::device_factor(size_t kernel, const Device& device, const Device& other) {
  if (is_host_copy(kernel) || program().kernels[kernel].is_communication) return 1.0;
  if (const OperatorWork* work = work_of(kernel)) {
    const Rate rate = rate_of_kernel(*work, kernel);
    if (work->is_product) HEADROOM_TRY(require_rate(rate, device, other));
    const double here = floor_of(*work, rate, device);
    const double there = floor_of(*work, rate, other);
    if (here > 0 && there > 0) return there / here;
  }
  const size_t group = program().kernels[kernel].group;
  const bool is_product = group == rules_.group("gemm") || group == rules_.group("attention");
  if (is_product) {  // whose type was not recorded: in a half precision that both devices have
    const bool have_bf16 = rate_of(device, Rate::bf16) > 0 && rate_of(other, Rate::bf16) > 0;
    const Rate rate = have_bf16 ? Rate::bf16 : Rate::fp16;
    HEADROOM_TRY(require_rate(rate, device, other));
    return rate_of(device, rate) / rate_of(other, rate);
  }
  return device.bandwidth.value.value / other.bandwidth.value.value;
}

void Builder::add_device(const Device& device, const Device& other, Scenarios& scenarios) {
  for (const Device* one : {&device, &other}) {
    if (!one->bandwidth.known() || one->bandwidth.value.value <= 0) {
      scenarios.notes.push_back(one->name + " has no known bandwidth: what the run would take on " +
                                other.name + " is not known");
      return;
    }
  }
  Scenario moved{"device_" + other.name, "on " + other.name + ", by roofline", {}, {}, 0};
  moved.made.kernel_factors.assign(program().kernels.size(), 1.0);
  for (size_t i = 0; i < program().kernels.size(); ++i) {
    const Result<double> factor = device_factor(i, device, other);
    if (!factor) {
      scenarios.notes.push_back(factor.error().message + ": what the run would take on " +
                                other.name + " is not known");
      return;
    }
    moved.made.kernel_factors[i] = *factor;
    if (i < program().earlier_count) continue;  // not in the kernel time
    moved.saved_ms += kernel_ms(i) * (1 - moved.made.kernel_factors[i]);
  }
  scenarios.all.push_back(std::move(moved));
}

}  // namespace

Scenarios scenarios(const Recording& recording, const RecordedRun& run, const OperatorRules& rules,
                    const Device* device, const Device* other) {
  Scenarios found;
  Builder builder(recording, run, rules);
  builder.add_fusion(found.all);
  if (device != nullptr) builder.add_int8(*device, found.all);
  if (device != nullptr && other != nullptr) builder.add_device(*device, *other, found);
  return found;
}

std::optional<Scenario> host_int8_by_rates(const Recording& recording, const RecordedRun& run,
                                           const OperatorRules& rules,
                                           const device::Device& device) {
  std::vector<Scenario> found;
  Builder(recording, run, rules).add_int8(device, found);
  // An engine that runs int8 on a CPU quantizes within its products; kernels of its own are a
  // GPU's.
  for (Scenario& one : found) {
    if (one.change == "gemm_int8_fused") return std::move(one);
  }
  return std::nullopt;
}

}  // namespace headroom::ops
