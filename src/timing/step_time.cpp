#include "timing/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "timing/flash_ceiling.h"

namespace headroom::timing {

namespace {

using step::OperatorCall;
using step::Phase;

// What decides what a launch takes.
struct Alike {
  op::OpKind kind{};
  uint8_t element_bytes = 0;
  bool before_hopper = false;
  step::Peers peers{};
  double flops = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t rows = 0;
  int64_t keys = 0;
  op::Permuted permuted{};
  step::RankGroup group{};
  bool operator==(const Alike&) const = default;
};

struct AlikeHash {
  size_t operator()(const Alike& alike) const {
    uint64_t flops = 0;
    std::memcpy(&flops, &alike.flops, sizeof flops);
    uint64_t hash = static_cast<uint64_t>(alike.kind) << 16 |
                    static_cast<uint64_t>(alike.peers) << 8 | alike.element_bytes;
    for (const uint64_t part :
         {flops, static_cast<uint64_t>(alike.bytes_read),
          static_cast<uint64_t>(alike.bytes_written), static_cast<uint64_t>(alike.rows)}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

struct Group {
  int64_t members = 1;
  int64_t per_node = 1;  // of them
  int64_t beside = 1;    // groups that send out of a node at a time
  [[nodiscard]] bool is_beyond_node() const { return members > per_node; }
};

// Its members, each `apart` devices from the next.
Group group_in(const Cluster& cluster, int64_t members, int64_t apart) {
  HEADROOM_CHECK(members >= 1 && apart >= 1, "ranks of a group");
  const int64_t node = std::max<int64_t>(1, cluster.devices_per_node);
  const int64_t per_node = std::clamp<int64_t>(node / apart, 1, members);
  return {members, per_node, std::max<int64_t>(1, node / per_node)};
}

// How many take part in a collective, and how far apart they are.
struct Members {
  int64_t count = 1;
  int64_t apart = 1;
};

// What is gathered or scattered tells by its sizes among how many.
int64_t tensor_members(const OperatorCall& call, const Division& division) {
  const auto [part, whole] = std::minmax(call.bytes_read, call.bytes_written);
  return part > 0 && whole > part ? whole / part : division.tensor_ranks;
}

Members members_of(const OperatorCall& call, const Division& division) {
  if (call.group.count > 0) return {call.group.count, call.group.apart};
  if (call.peers == step::Peers::tensor) return {tensor_members(call, division), 1};
  if (call.peers == step::Peers::context) return {division.context_ranks, division.tensor_ranks};
  if (call.peers == step::Peers::pipeline) return {2, division.stages_apart};
  if (call.peers == step::Peers::expert) return {division.expert_ranks, division.tensor_ranks};
  const bool is_among_replicas = call.kind == op::OpKind::all_reduce && division.replicas > 1;
  if (!is_among_replicas) return {division.ranks, division.tensor_ranks};
  return {division.replicas, division.tensor_ranks * division.ranks};
}

Group group_of(const OperatorCall& call, const StepTimeQuestion& question) {
  const Members members = members_of(call, question.division);
  return group_in(question.cluster, members.count, members.apart);
}

double bytes_of_message(const OperatorCall& call) {
  return static_cast<double>(std::max(call.bytes_read, call.bytes_written));
}

// Around a ring: each device passes on all but its own part, once to reduce or to gather, twice to
// do both.
double sent_of(const OperatorCall& call, int64_t members) {
  if (call.kind == op::OpKind::send_receive) return bytes_of_message(call);
  const auto n = static_cast<double>(members);
  const double passes = call.kind == op::OpKind::all_reduce ? 2 : 1;
  return passes * (n - 1) / n * bytes_of_message(call);
}

void stretch(PredictedTime& time, double ratio) {
  time.seconds *= ratio;
  time.seconds_low *= ratio;
  time.seconds_high *= ratio;
}

class Pricer {
 public:
  // Unpacking weights takes `dequantize_ratio` times as long as another pass over as many bytes.
  Pricer(const StepTimeQuestion& question, const TimingModel& model, double dequantize_ratio)
      : question_(question), model_(model), dequantize_ratio_(dequantize_ratio) {}

  // By call, in seconds; what computes and what sends.
  Result<std::vector<double>> price(std::span<const OperatorCall> calls,
                                    const RepeatedCalls& repeated) {
    std::vector<double> seconds;
    seconds.reserve(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      const OperatorCall& call = calls[i];
      const Alike alike{call.kind,  call.element_bytes, call.before_hopper, call.peers,
                        call.flops, call.bytes_read,    call.bytes_written, call.rows,
                        call.keys,  call.permuted,      call.group};
      const auto [at, is_new] = known_.try_emplace(alike, prices_.size());
      if (is_new) {
        HEADROOM_ASSIGN(const Price price, price_of(call));
        prices_.push_back(price);
      }
      prices_[at->second].times += repeated.has(i) ? repeated.times : 1;
      seconds.push_back(prices_[at->second].time.seconds);
    }
    return seconds;
  }

  void add_up(StepTime& whole) {
    for (const Price& price : prices_) {
      sums_[price.law].add(price.time, price.times);
      if (price.is_sent) {
        whole.collectives += price.times;
      } else if (price.time.seconds > 0) {
        whole.launches += price.times;
        whole.roofline_seconds += static_cast<double>(price.times) * price.time.roofline_seconds;
      }
    }
  }
  [[nodiscard]] const std::array<TimeSum, kOperatorClasses>& sums() const { return sums_; }

 private:
  struct Price {
    PredictedTime time;
    size_t law = 0;  // the class by whose law it is timed
    int64_t times = 0;
    bool is_sent = false;
  };

  Result<Price> price_of(const OperatorCall& call) {
    if (call.kind == op::OpKind::send_receive) return price_of_sending(call);
    if (is_collective(call)) return price_of_collective(call);
    Price price;
    const OperatorWork work = work_of(call);
    if (work.bytes_read + work.bytes_written <= 0) return price;  // a view
    Call made = call_of(work, question_.shape);
    // A device whose rate of int8 nobody states is taken to have none that is faster.
    if (made.rate == device::Rate::int8 && !question_.device.rate(device::Rate::int8).known()) {
      made.rate = rate_of(question_.shape.type);
    }
    price.law = static_cast<size_t>(model_.timed_as(made.kind, question_.device.name));
    HEADROOM_ASSIGN(price.time, model_.predict(made, question_.device));
    if (call.kind == op::OpKind::dequantize) stretch(price.time, dequantize_ratio_);
    if (call.before_hopper) hold_to_flash_ceiling(question_.device, call.flops, price.time);
    return price;
  }

  Result<Price> price_of_collective(const OperatorCall& call) {
    Price price;
    price.is_sent = true;
    price.law = static_cast<size_t>(OperatorClass::all_reduce);
    const Group group = group_of(call, question_);
    const double message = bytes_of_message(call);
    if (group.members < 2 || message <= 0) return price;
    const Call made =
        all_reduce_call(OperatorClass::all_reduce,
                        {.group = group.members, .message = static_cast<int64_t>(message)});
    HEADROOM_ASSIGN(price.time, model_.predict(made, own_path(group)));
    if (goes_over_network(group)) {
      HEADROOM_ASSIGN(const PredictedTime outside, outside_node(call, made, group));
      if (outside.seconds > price.time.seconds) price.time = outside;
    }
    if (call.kind == op::OpKind::all_reduce) return price;
    constexpr double kOfAllReduce = 0.5;
    stretch(price.time, kOfAllReduce);
    return price;
  }

  // What the node's network gives, which its groups share; where all send to all, each device sends
  // by its own way, and what stays in the node does not go over it.
  Result<PredictedTime> outside_node(const OperatorCall& call, const Call& made,
                                     const Group& group) {
    const auto node = static_cast<double>(question_.cluster.devices_per_node);
    const double shared = node / static_cast<double>(group.beside);
    const bool is_to_all = call.kind == op::OpKind::all_to_all;
    const BytesPerSecond rate{question_.cluster.network.value * (is_to_all ? 1 : shared)};
    HEADROOM_ASSIGN(PredictedTime outside, model_.predict(made, network_path(group, rate)));
    if (is_to_all) {
      stretch(outside, static_cast<double>(group.members - group.per_node) /
                           static_cast<double>(group.members - 1));
    }
    return outside;
  }

  // To a neighbour, by a device's own way out of the node where the ring leaves that: all pass on
  // at a time, and wait for the one that is furthest. As two ranks that reduce a message exchange
  // as much as it is.
  Result<Price> price_of_sending(const OperatorCall& call) {
    Price price;
    price.is_sent = true;
    price.law = static_cast<size_t>(OperatorClass::all_reduce);
    const Group ring = group_of(call, question_);
    const double message = bytes_of_message(call);
    if (ring.members < 2 || message <= 0) return price;
    const Call made = all_reduce_call(OperatorClass::all_reduce,
                                      {.group = 2, .message = static_cast<int64_t>(message)});
    const device::Device path =
        goes_over_network(ring) ? network_path(ring, question_.cluster.network) : own_path(ring);
    HEADROOM_ASSIGN(price.time, model_.predict(made, path));
    return price;
  }

  // The device with what it sends over within a node as its link: its own, or the host's bus where
  // it has none, or one that joins two.
  [[nodiscard]] device::Device own_path(const Group& group) const {
    device::Device path = question_.device;
    const bool is_bridge = path.link_kind.ends_with("bridge") && group.per_node > 2;
    if (!path.link.known() || (path.link.value.value > 0 && !is_bridge)) return path;
    path.link = path.pcie;
    path.name += " over PCIe";
    return path;
  }

  [[nodiscard]] bool goes_over_network(const Group& group) const {
    return group.is_beyond_node() && question_.cluster.network.value > 0;
  }

  // With what one has of a network as its link. A device of another name is asked the general law.
  [[nodiscard]] device::Device network_path(const Group& group, BytesPerSecond of_one) const {
    device::Device path = own_path(group);
    path.link.value = of_one;
    path.name += " over a network";
    return path;
  }

  const StepTimeQuestion& question_;
  const TimingModel& model_;
  double dequantize_ratio_;
  std::unordered_map<Alike, size_t, AlikeHash> known_;  // into prices_
  std::vector<Price> prices_;
  std::array<TimeSum, kOperatorClasses> sums_;
};

// What the kernels of a step take beyond what the laws say of them alone.
struct Sustained {
  double ratio = 1;
  double dequantize_ratio = 1;
  double half_width_log = 0;
  HostCosts host{};
  bool is_of_whole_steps = false;  // the half width
};

Sustained sustained_on(const StepTimeQuestion& question, const TimingModel& model) {
  const InStep* learned = model.in_step(question.residual);
  if (learned == nullptr) return {};
  // The clock of a GPU at its power limit says nothing of a processor; that nobody looked does.
  if (question.device.vendor == device::Vendor::cpu) {
    return {1, 1, learned->half_width_log_elsewhere};
  }
  return {learned->ratio_on(question.device.name),
          learned->dequantize_ratio,
          learned->half_width_on(question.device.name),
          {learned->host_launch_seconds, learned->host_unit_seconds},
          learned->whole_steps.has_value()};
}

// By so much a host may be faster or slower than those of the runs that taught its times: chosen.
constexpr double kHostsDiffer = 2;

// Where whole steps taught it, and under FSDP1, whose units are let go of (OperatorCall::let_go):
// elsewhere no run has shown what the host adds (docs/measurements/2026-11-24-fit-time).
HostCosts host_of(std::span<const OperatorCall> calls, const Sustained& sustained) {
  const auto lets_go = [](const OperatorCall& call) { return call.let_go > 0; };
  const bool shows = sustained.is_of_whole_steps || std::ranges::any_of(calls, lets_go);
  return shows ? sustained.host : HostCosts{};
}

}  // namespace

double sent_bytes(const step::StepTrace& trace, const Division& division,
                  const RepeatedCalls& repeated) {
  const std::span<const OperatorCall> calls = last_step(trace);
  double bytes = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!is_collective(calls[i])) continue;
    const double sent = sent_of(calls[i], members_of(calls[i], division).count);
    bytes += repeated.has(i) ? static_cast<double>(repeated.times) * sent : sent;
  }
  return bytes;
}

namespace {

// A step of priced calls, replayed.
struct PricedStep {
  std::span<const OperatorCall> calls;
  std::span<const double> seconds;
  const RepeatedCalls& repeated;
  Pace pace;

  // With collectives and a host that take so many times as long.
  [[nodiscard]] double at_pace(double collectives, double of_host) const {
    const HostCosts host{of_host * pace.host.launch, of_host * pace.host.unit};
    return replay(calls, seconds, {pace.kernels, collectives, host}, repeated).seconds;
  }
};

// By whose law most of the step is timed.
std::string basis_of(std::span<const TimeSum> sums) {
  const TimeSum& longest = *std::ranges::max_element(sums, {}, &TimeSum::middle);
  return longest.middle > 0 ? longest.basis : "";
}

// Laws err apart from each other: half widths add up as independent errors do. Collectives count
// as far as they hold computing up.
void set_ends_by_parts(const PricedStep& step, std::span<const TimeSum> sums, double half_width_log,
                       StepTime& whole) {
  double below = std::pow(whole.compute_seconds * (1 - std::exp(-half_width_log)), 2);
  double above = std::pow(whole.compute_seconds * (std::exp(half_width_log) - 1), 2);
  for (size_t i = 0; i < sums.size(); ++i) {
    const TimeSum& sum = sums[i];
    if (sum.middle <= 0) continue;
    double down = step.pace.kernels * (sum.middle - sum.low);
    double up = step.pace.kernels * (sum.high - sum.middle);
    if (i == static_cast<size_t>(OperatorClass::all_reduce)) {
      down = whole.seconds - step.at_pace(sum.low / sum.middle, 1);
      up = step.at_pace(sum.high / sum.middle, 1) - whole.seconds;
    }
    below += down * down;
    above += up * up;
  }
  if (step.pace.host.launch > 0) {
    below += std::pow(whole.seconds - step.at_pace(1, 1 / kHostsDiffer), 2);
    above += std::pow(step.at_pace(1, kHostsDiffer) - whole.seconds, 2);
  }
  whole.seconds_low = std::max(0.0, whole.seconds - std::sqrt(below));
  whole.seconds_high = whole.seconds + std::sqrt(above);
}

// Of steps that the host does not hold up another host changes nothing.
void set_ends_of_whole(const PricedStep& step, double half_width_log, StepTime& whole) {
  whole.seconds_low = step.at_pace(1, 1 / kHostsDiffer) * std::exp(-half_width_log);
  whole.seconds_high = step.at_pace(1, kHostsDiffer) * std::exp(half_width_log);
}

}  // namespace

Result<StepTime> time_of(const step::StepTrace& trace, const StepTimeQuestion& question,
                         const TimingModel& model, const RepeatedCalls& repeated) {
  const std::span<const OperatorCall> calls = last_step(trace);
  const Sustained sustained = sustained_on(question, model);
  Pricer pricer(question, model, sustained.dequantize_ratio);
  HEADROOM_ASSIGN(const std::vector<double> seconds, pricer.price(calls, repeated));
  StepTime whole;
  pricer.add_up(whole);
  const HostCosts host = host_of(calls, sustained);
  const Pace pace{sustained.ratio, 1, host};
  const Replayed expected = replay(calls, seconds, pace, repeated);
  const Replayed device =
      host.launch > 0 ? replay(calls, seconds, {sustained.ratio, 1}, repeated) : expected;
  if (repeated.count > 0) whole.repeat_seconds = steady_seconds(calls, seconds, pace, repeated);
  whole.seconds = expected.seconds;
  whole.compute_seconds = expected.compute;
  whole.communication_seconds = expected.communication;
  whole.exposed_seconds = device.exposed;
  whole.host_seconds = std::max(0.0, expected.seconds - device.seconds);
  whole.launching_seconds = static_cast<double>(whole.launches) * host.launch;
  whole.blocking_seconds = expected.blocking;
  whole.sent_bytes = sent_bytes(trace, question.division, repeated);
  if (whole.seconds <= 0) {
    return Error{ErrorCode::unavailable, "the step has no operator that could be timed", {}, {}};
  }
  whole.basis = basis_of(pricer.sums());
  const PricedStep step{calls, seconds, repeated, pace};
  if (sustained.is_of_whole_steps) {
    set_ends_of_whole(step, sustained.half_width_log, whole);
  } else {
    set_ends_by_parts(step, pricer.sums(), sustained.half_width_log, whole);
  }
  return whole;
}

}  // namespace headroom::timing
