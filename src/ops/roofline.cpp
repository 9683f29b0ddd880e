#include "ops/roofline.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "device/overrides.h"
#include "ops/operator_work.h"

namespace headroom::ops {
namespace {

using device::Rate;
using formats::kNone;
using formats::TraceEvent;

struct RowTime {
  double ns = 0;
  int64_t count = 0;
  std::map<GroupIndex, double> group_ns;  // a convolution turns its images over first
  Rate rate = Rate::fp32;
  OperatorWork work;
};

class Rows {
 public:
  Rows(const RecordedRun& run, const OperatorRules& rules, const device::Device& device)
      : run_(run),
        rules_(rules),
        device_(device),
        counts_(run.trace),
        count_(run.trace, run.links) {}

  std::optional<OperatorRoofline> build() {
    for (const Work& piece : run_.work) add(piece);
    if (rows_.empty()) return std::nullopt;
    OperatorRoofline roofline;
    roofline.device = device_.name;
    roofline.provenance = device_.bandwidth.provenance;
    roofline.source = device_.bandwidth.source;
    roofline.bytes_per_second = device_.bandwidth.value.value;
    add_limit("bandwidth", device_.bandwidth.provenance, device_.bandwidth.source, roofline);
    for (const Rate rate : device::kRates) {
      if (!device_.rate(rate).known()) continue;
      add_limit(device::name_of(rate), device_.rate(rate).provenance, device_.rate(rate).source,
                roofline);
      roofline.flops_per_second.emplace_back(std::string(device::name_of(rate)),
                                             device_.rate(rate).value.value);
      if (device_.rate(rate).provenance == Provenance::extrapolated) {
        roofline.provenance = Provenance::extrapolated;
      }
    }
    for (const auto& [key, time] : rows_) add_row(key, time, roofline);
    std::stable_sort(roofline.rows.begin(), roofline.rows.end(),
                     [](const auto& a, const auto& b) { return a.above_ms > b.above_ms; });
    roofline.covered_pct = all_ns_ > 0 ? 100 * counted_ns_ / all_ns_ : 0;
    if (roofline.rows.empty()) return std::nullopt;
    roofline.compute_bound_pct =
        roofline.kernel_ms > 0 ? 100 * compute_ms_ / roofline.kernel_ms : 0;
    return roofline;
  }

 private:
  static void add_limit(std::string_view name, Provenance provenance, std::string_view source,
                        OperatorRoofline& roofline) {
    if (source == device::kGivenByUser) {
      roofline.given.emplace_back(name);
    } else if (!roofline.not_given || provenance == Provenance::extrapolated) {
      roofline.not_given = provenance;
    }
  }

  using Key = std::pair<uint32_t, uint32_t>;  // ids of the name and of the shapes

  void add(const Work& piece) {
    if (piece.step == kOutside) return;
    const auto ns = static_cast<double>(piece.duration_ns());
    all_ns_ += ns;
    const uint32_t own = piece.own_operation();
    if (own == kNone) return;
    // Copies to and from the host are the link's, not the device memory's.
    const std::string_view kernel = run_.trace.name_of(run_.trace.events[piece.event]);
    if (kernel.starts_with("Memcpy HtoD") || kernel.starts_with("Memcpy DtoH")) return;
    const TraceEvent& operation = run_.trace.events[own];
    if (operation.detail == kNone) return;
    const Key key{operation.name, operation.detail};
    const std::optional<OperatorWork>& work = counts_.of(own);
    if (!work) return;
    RowTime& row = rows_[key];
    row.work = *work;
    row.ns += ns;
    row.count += count_.add(piece, own);
    row.group_ns[piece.group] += ns;
    if (rate_of_work(*work, kernel) == Rate::tf32 || row.count == 1) {
      row.rate = rate_of_work(*work, kernel);
    }
  }

  void add_row(const Key& key, const RowTime& time, OperatorRoofline& roofline) {
    const Rate rate = time.rate;
    double compute = 0;  // seconds; the arithmetic of what is no product is never the limit
    if (time.work.is_product) {
      if (!device_.rate(rate).known() || device_.rate(rate).value.value <= 0) return;
      compute = time.work.flops / device_.rate(rate).value.value;
    }
    const double traffic = time.work.bytes / device_.bandwidth.value.value;
    const double share = 1 / static_cast<double>(run_.links.steps.size());
    const auto count = static_cast<double>(time.count);
    const double seconds = time.ns / 1e9;
    RooflineRow row;
    row.name = run_.trace.names.at(key.first);
    const std::string_view detail = run_.trace.names.at(key.second);
    row.shapes = detail.substr(0, detail.find(' '));
    const auto longest =
        std::ranges::max_element(time.group_ns, {}, [](const auto& group) { return group.second; });
    row.group = rules_.groups()[longest->first].name;
    row.rate = time.work.is_product ? device::name_of(rate) : std::string_view();
    row.count = count * share;
    row.flops = time.work.flops;
    row.bytes = time.work.bytes;
    row.is_compute_bound = compute > traffic;
    row.kernel_ms = time.ns / 1e6 * share;
    row.floor_ms = std::max(compute, traffic) * count * 1e3 * share;
    row.above_ms = std::max(row.kernel_ms - row.floor_ms, 0.0);
    row.achieved_pct = row.kernel_ms > 0 ? 100 * row.floor_ms / row.kernel_ms : 0;
    row.flops_per_second = seconds > 0 ? time.work.flops * count / seconds : 0;
    row.bytes_per_second = seconds > 0 ? time.work.bytes * count / seconds : 0;
    roofline.kernel_ms += row.kernel_ms;
    roofline.floor_ms += std::min(row.floor_ms, row.kernel_ms);
    roofline.above_ms += row.above_ms;
    compute_ms_ += row.is_compute_bound ? row.kernel_ms : 0;
    counted_ns_ += time.ns;
    roofline.rows.push_back(std::move(row));
  }

  const RecordedRun& run_;
  const OperatorRules& rules_;
  const device::Device& device_;
  std::map<Key, RowTime> rows_;
  OperatorCounts counts_;
  OperatorCount count_;  // an operator belongs to one row
  double all_ns_ = 0;
  double counted_ns_ = 0;
  double compute_ms_ = 0;  // in operators whose floor is of the arithmetic
};

}  // namespace

std::optional<OperatorRoofline> roofline(const RecordedRun& run, const OperatorRules& rules,
                                         const device::Device& device) {
  const bool is_processor = device.vendor == device::Vendor::cpu && !run.lacks_kernels();
  if (!run.links.has_device && !is_processor) return std::nullopt;
  if (!device.bandwidth.known() || device.bandwidth.value.value <= 0) return std::nullopt;
  return Rows(run, rules, device).build();
}

}  // namespace headroom::ops
