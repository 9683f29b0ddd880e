#include "report/pack/map.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "memory/plan/request_class.h"
#include "report/fit/words.h"
#include "report/page/charts.h"

namespace headroom::report {
namespace {

constexpr size_t kMostCurvePoints = 12'000;
constexpr size_t kMostReservedPoints = 4'000;
constexpr size_t kSecondsMarks = 65;

// All addresses that were ever held, or where a block lay, without the holes between them.
class PackedAddresses {
 public:
  void add(int64_t address, int64_t size) { ranges_.push_back({address, address + size, 0}); }

  void close() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> joined;
    for (const Range& range : ranges_) {
      if (!joined.empty() && range.begin <= joined.back().end) {
        joined.back().end = std::max(joined.back().end, range.end);
      } else {
        joined.push_back(range);
      }
    }
    int64_t offset = 0;
    for (Range& range : joined) {
      range.offset = offset;
      offset += range.end - range.begin;
    }
    ranges_ = std::move(joined);
  }

  // REQUIRES: close(), and the address lies in what was added.
  [[nodiscard]] int64_t offset_of(int64_t address) const {
    auto at =
        std::upper_bound(ranges_.begin(), ranges_.end(), address,
                         [](int64_t value, const Range& range) { return value < range.begin; });
    --at;
    return at->offset + (address - at->begin);
  }
  [[nodiscard]] int64_t bytes() const {
    return ranges_.empty() ? 0 : ranges_.back().offset + ranges_.back().end - ranges_.back().begin;
  }

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t offset = 0;
  };
  std::vector<Range> ranges_;
};

// Times as they are in a recording; their ranks in an instance, whose times may be anything.
class Moments {
 public:
  explicit Moments(const pack::PackAnswer& answer) {
    if (answer.recording) {
      count_ = answer.recording->end;
      return;
    }
    for (const pack::PlannedRequest& planned : answer.requests) {
      times_.push_back(planned.request.lower);
      times_.push_back(planned.request.upper);
    }
    std::sort(times_.begin(), times_.end());
    times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
    count_ = std::max<int64_t>(1, static_cast<int64_t>(times_.size()) - 1);
  }
  [[nodiscard]] int64_t of(int64_t time) const {
    if (times_.empty()) return time;
    return std::lower_bound(times_.begin(), times_.end(), time) - times_.begin();
  }
  [[nodiscard]] int64_t count() const { return count_; }

 private:
  std::vector<int64_t> times_;
  int64_t count_ = 1;
};

class MapMaker {
 public:
  explicit MapMaker(const pack::PackAnswer& answer) : answer_(answer), moments_(answer) {}

  AddressMap make() {
    map_.has_recording = answer_.recording.has_value() && !answer_.recording->held.empty();
    map_.is_simulated = answer_.recording && answer_.recording->is_simulated;
    map_.moments = moments_.count();
    map_.planned_bytes = answer_.plan.size.count;
    map_.unit = unit();
    if (map_.has_recording) add_held();
    map_.stacks.push_back({"", {}});
    classify();
    for (size_t i = 0; i < answer_.requests.size(); ++i) add_block(i);
    std::stable_sort(map_.blocks.begin(), map_.blocks.end(),
                     [](const MapBlock& a, const MapBlock& b) { return a.start < b.start; });
    add_kinds();
    add_curve();
    add_seconds();
    describe();
    return std::move(map_);
  }

 private:
  // What every offset is a multiple of: the plan's alignment, or the allocator's where it is finer.
  [[nodiscard]] int64_t unit() const {
    const int64_t alignment = answer_.alignment;
    if (!answer_.recording) return alignment;
    return alignment % memory::kMinBlockSize == 0 ? memory::kMinBlockSize : 1;
  }

  void add_held() {
    const pack::Recording& recording = *answer_.recording;
    for (const memory::HeldRange& range : recording.held) addresses_.add(range.address, range.size);
    for (const pack::RecordedBlock& block : recording.blocks) {
      if (is_drawn(block)) addresses_.add(block.address, block.size);
    }
    addresses_.close();
    map_.recorded_bytes = addresses_.bytes();
    for (const memory::HeldRange& range : recording.held) {
      map_.held.push_back(
          {range.lower, range.upper, addresses_.offset_of(range.address), range.size});
    }
  }

  // Addresses that a hostile file makes up are left out of the picture.
  static bool is_drawn(const pack::RecordedBlock& block) {
    constexpr int64_t kMost = int64_t{1} << 58;
    return block.size > 0 && block.address >= 0 && block.address <= kMost;
  }

  void add_block(size_t index) {
    const pack::PlannedRequest& planned = answer_.requests[index];
    if (planned.request.lower >= planned.request.upper || planned.request.size == 0) return;
    MapBlock block;
    block.start = moments_.of(planned.request.lower);
    block.end = moments_.of(planned.request.upper);
    block.asked = planned.request.size;
    block.size = round_up(planned.request.size, map_.unit);
    block.planned = planned.offset;
    block.kind = kinds_[index];
    if (answer_.recording && index < answer_.recording->blocks.size()) {
      const pack::RecordedBlock& recorded = answer_.recording->blocks[index];
      if (map_.has_recording && is_drawn(recorded)) {
        block.recorded = addresses_.offset_of(recorded.address);
      }
      block.stack = stack_of(recorded.stack);
    }
    map_.blocks.push_back(block);
  }

  // Lifespans as memory/plan tells them apart; what differs between iterations is a class of its
  // own, however long it lives.
  void classify() {
    kinds_.resize(answer_.requests.size());
    std::vector<size_t> order(kinds_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (answer_.understanding) {
      return take_classes(answer_.understanding->iterations, answer_.understanding->classes, order);
    }
    // An instance's requests may stand in any order.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return answer_.requests[a].request.lower < answer_.requests[b].request.lower;
    });
    std::vector<memory::RecordedRequest> requests;
    for (const size_t i : order) {
      const pack::PlannedRequest& planned = answer_.requests[i];
      memory::RecordedRequest request;
      request.lower = planned.request.lower;
      request.upper = request.released = planned.request.upper;
      request.size = planned.request.size;
      request.stream = planned.stream;
      requests.push_back(request);
    }
    const memory::Iterations iterations = memory::find_iterations(requests);
    take_classes(iterations, memory::classify_requests(requests, iterations), order);
  }

  // `order`: the answer's requests in the order of the classes.
  void take_classes(const memory::Iterations& iterations, const memory::RequestClasses& classes,
                    const std::vector<size_t>& order) {
    for (size_t i = 0; i < order.size() && i < classes.by_request.size(); ++i) {
      const memory::RequestClass& found = classes.by_request[i];
      const bool is_dynamic = found.recurrence == memory::Recurrence::dynamic;
      kinds_[order[i]] = is_dynamic ? kDynamic : static_cast<uint8_t>(found.lifespan);
    }
    for (const memory::Iteration& iteration : iterations.whole) {
      map_.iterations.push_back(moments_.of(iteration.lower));
    }
  }

  // In the order of memory::Lifespan.
  void add_kinds() {
    map_.kinds = {{"persistent", "persistent: a whole iteration or longer"},
                  {"scoped", "scoped: from one phase into another"},
                  {"transient", "transient: within one phase"},
                  {"dynamic", "dynamic: differs from iteration to iteration"}};
  }
  static constexpr uint8_t kDynamic = 3;

  // Stacks that somebody uses, numbered in the order of their first block.
  uint32_t stack_of(uint32_t stack) {
    const pack::SiteNames& sites = answer_.recording->sites;
    const auto [at, is_new] = stacks_.try_emplace(stack, static_cast<uint32_t>(map_.stacks.size()));
    if (is_new) {
      MapStack made;
      made.site = sites.site(sites.site_of(stack)).words();
      for (const pack::CallSite& frame : sites.python_frames(stack, kMostFrames)) {
        made.frames.push_back(frame.words());
      }
      map_.stacks.push_back(std::move(made));
    }
    return at->second;
  }

  void add_curve() {
    const pack::MemoryOverTime over_time = memory_over_time();
    std::vector<Bytes> allocated;
    std::vector<Bytes> changes;
    std::vector<size_t> change_moments;
    for (size_t t = 0; t < over_time.allocated.size(); ++t) {
      allocated.emplace_back(over_time.allocated[t]);
      if (t > 0 && over_time.reserved[t] == over_time.reserved[t - 1]) continue;
      changes.emplace_back(over_time.reserved[t]);
      change_moments.push_back(t);
    }
    const auto peak = std::max_element(allocated.begin(), allocated.end());
    map_.peak = answer_.loss ? answer_.loss->moment : peak - allocated.begin();
    std::vector<size_t> kept =
        thin_out(allocated, static_cast<size_t>(peak - allocated.begin()), kMostCurvePoints);
    const auto most = std::max_element(changes.begin(), changes.end());
    for (const size_t i :
         thin_out(changes, static_cast<size_t>(most - changes.begin()), kMostReservedPoints)) {
      kept.push_back(change_moments[i]);
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const size_t t : kept) {
      map_.curve.push_back(
          {static_cast<int64_t>(t), over_time.allocated[t], over_time.reserved[t]});
    }
  }

  [[nodiscard]] pack::MemoryOverTime memory_over_time() const {
    if (answer_.recording) return pack::memory_over_time(answer_.requests, *answer_.recording);
    pack::MemoryOverTime over_time;
    std::vector<int64_t> changes(static_cast<size_t>(moments_.count()) + 1);
    for (const MapBlock& block : map_.blocks) {
      changes[static_cast<size_t>(block.start)] += block.size;
      changes[static_cast<size_t>(block.end)] -= block.size;
    }
    changes.pop_back();
    int64_t sum = 0;
    for (const int64_t change : changes) over_time.allocated.push_back(sum += change);
    over_time.reserved.resize(changes.size());
    return over_time;
  }

  void add_seconds() {
    if (!answer_.recording || answer_.recording->entry_us.empty()) return;
    const std::vector<int64_t>& times = answer_.recording->entry_us;
    for (size_t i = 0; i < kSecondsMarks; ++i) {
      const size_t moment = i * (times.size() - 1) / (kSecondsMarks - 1);
      map_.seconds.push_back(static_cast<double>(times[moment]) * 1e-6);
    }
  }

  void describe() {
    map_.description =
        "Memory addresses over time: " + with_commas(static_cast<int64_t>(map_.blocks.size())) +
        " blocks ";
    if (map_.has_recording) {
      map_.description += "as PyTorch placed them, in " + format_bytes(Bytes(map_.recorded_bytes)) +
                          " of addresses, beside a plan that needs ";
    } else {
      map_.description += "in a plan of ";
    }
    map_.description += format_bytes(answer_.plan.size) + ".";
  }

  static constexpr size_t kMostFrames = 24;

  const pack::PackAnswer& answer_;
  Moments moments_;
  PackedAddresses addresses_;
  std::map<uint32_t, uint32_t> stacks_;
  std::vector<uint8_t> kinds_;  // by request
  AddressMap map_;
};

}  // namespace

AddressMap address_map_of(const pack::PackAnswer& answer) { return MapMaker(answer).make(); }

}  // namespace headroom::report
