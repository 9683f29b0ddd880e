#include "memory/plan/request_class.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "memory/plan/iteration_slots.h"

namespace headroom::memory {
namespace {

// Memory turns from rising to falling where it falls by this share of an iteration's range: less
// is a layer's temporaries.
constexpr double kTurningShare = 0.1;

struct Window {
  uint32_t iteration = kNoIteration;
  int64_t lower = 0;
  int64_t upper = 0;
};

// What is allocated after each moment at which that changes.
struct LoadPoint {
  int64_t time = 0;
  double bytes = 0;
};

class Classifier {
 public:
  Classifier(std::span<const RecordedRequest> requests, const Iterations& iterations)
      : requests_(requests), iterations_(iterations) {
    result_.by_request.resize(requests.size());
    for (const RecordedRequest& request : requests) {
      end_of_time_ = std::max(end_of_time_, request.upper);
    }
  }

  RequestClasses run() {
    for (size_t i = 0; i < iterations_.whole.size(); ++i) {
      const Iteration& iteration = iterations_.whole[i];
      for (size_t r = iteration.begin; r < iteration.end; ++r) {
        result_.by_request[r].iteration = static_cast<uint32_t>(i);
      }
    }
    find_persistent();
    find_phases();
    find_lifespans();
    find_recurrence();
    return std::move(result_);
  }

 private:
  void find_persistent() {
    const std::vector<bool> is_persistent = persistent_requests(requests_, iterations_);
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (is_persistent[i]) result_.by_request[i].lifespan = Lifespan::persistent;
    }
  }

  [[nodiscard]] std::vector<LoadPoint> passing_load() const {
    std::vector<std::pair<int64_t, double>> changes;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (result_.by_request[i].lifespan == Lifespan::persistent) continue;
      changes.emplace_back(requests_[i].lower, static_cast<double>(requests_[i].size));
      changes.emplace_back(requests_[i].upper, -static_cast<double>(requests_[i].size));
    }
    std::sort(changes.begin(), changes.end());
    std::vector<LoadPoint> load;
    double bytes = 0;
    for (const auto& [time, change] : changes) {
      bytes += change;
      if (!load.empty() && load.back().time == time) {
        load.back().bytes = bytes;
      } else {
        load.push_back({time, bytes});
      }
    }
    return load;
  }

  void find_phases() {
    std::vector<Window> windows;
    for (size_t i = 0; i < iterations_.whole.size(); ++i) {
      const Iteration& iteration = iterations_.whole[i];
      windows.push_back({static_cast<uint32_t>(i), iteration.lower, iteration.upper});
    }
    if (windows.empty()) windows.push_back({kNoIteration, 0, end_of_time_});
    const std::vector<LoadPoint> load = passing_load();
    auto begin = load.begin();
    for (const Window& window : windows) {
      while (begin != load.end() && begin->time < window.lower) ++begin;
      auto end = begin;
      while (end != load.end() && end->time < window.upper) ++end;
      cut_into_phases(window, {begin, end});
      begin = end;
    }
  }

  // Turning points of the load, those of small swings left out.
  void cut_into_phases(const Window& window, std::span<const LoadPoint> load) {
    const auto by_bytes = [](const LoadPoint& a, const LoadPoint& b) { return a.bytes < b.bytes; };
    if (load.empty()) {
      result_.phases.push_back({window.iteration, window.lower, window.upper, true});
      return;
    }
    const auto [least, most] = std::minmax_element(load.begin(), load.end(), by_bytes);
    const double swing = kTurningShare * (most->bytes - least->bytes);
    int64_t begin = window.lower;
    bool is_filling = true;
    LoadPoint extreme = load.front();
    for (const LoadPoint& point : load) {
      const double beyond = is_filling ? point.bytes - extreme.bytes : extreme.bytes - point.bytes;
      if (beyond >= 0) {
        extreme = point;
      } else if (-beyond > swing) {
        // After its highest moment, that is, where the first block of it goes.
        if (extreme.time + 1 > begin) {
          result_.phases.push_back({window.iteration, begin, extreme.time + 1, is_filling});
          begin = extreme.time + 1;
        }
        is_filling = !is_filling;
        extreme = point;
      }
    }
    if (begin < window.upper) {
      result_.phases.push_back({window.iteration, begin, window.upper, is_filling});
    }
  }

  void find_lifespans() {
    auto phase = result_.phases.begin();
    uint32_t number = 0;  // in its iteration
    for (size_t i = 0; i < requests_.size(); ++i) {
      RequestClass& request = result_.by_request[i];
      while (phase != result_.phases.end() && phase->upper <= requests_[i].lower) {
        const uint32_t iteration = phase->iteration;
        ++phase;
        const bool is_next = phase != result_.phases.end() && phase->iteration != iteration;
        number = is_next ? 0 : number + 1;
      }
      if (phase == result_.phases.end() || requests_[i].lower < phase->lower) continue;
      request.phase = number;
      if (request.lifespan == Lifespan::persistent) continue;
      if (requests_[i].upper <= phase->upper) request.lifespan = Lifespan::transient;
    }
  }

  void find_recurrence() {
    std::vector<std::vector<uint32_t>> members(iterations_.kinds);
    for (size_t i = 0; i < iterations_.whole.size(); ++i) {
      members[iterations_.whole[i].kind].push_back(static_cast<uint32_t>(i));
    }
    if (members.empty()) return;
    const SlotFinder finder(requests_, iterations_);
    for (std::vector<uint32_t>& kind : members) {
      if (kind.size() < 2) continue;
      for (const uint32_t i : kind) {
        const Iteration& iteration = iterations_.whole[i];
        for (size_t r = iteration.begin; r < iteration.end; ++r) {
          RequestClass& request = result_.by_request[r];
          if (request.lifespan == Lifespan::persistent) continue;  // made once, to stay
          request.recurrence = Recurrence::dynamic;
        }
      }
      const IterationSlots slots = finder.find(iterations_, std::move(kind));
      for (size_t slot = 0; slot < slots.slots.size(); ++slot) {
        if (!slots.is_same_in_all(slot)) continue;
        for (size_t i = 0; i < slots.iterations.size(); ++i) {
          result_.by_request[slots.request(slot, i)].recurrence = Recurrence::fixed;
        }
      }
    }
  }

  std::span<const RecordedRequest> requests_;
  const Iterations& iterations_;
  RequestClasses result_;
  int64_t end_of_time_ = 0;
};

}  // namespace

std::string_view lifespan_name(Lifespan lifespan) {
  constexpr std::string_view kNames[] = {"persistent", "scoped", "transient"};
  return kNames[static_cast<size_t>(lifespan)];
}

std::string_view recurrence_name(Recurrence recurrence) {
  constexpr std::string_view kNames[] = {"static", "dynamic", "once"};
  return kNames[static_cast<size_t>(recurrence)];
}

RequestClasses classify_requests(std::span<const RecordedRequest> requests,
                                 const Iterations& iterations) {
  return Classifier(requests, iterations).run();
}

}  // namespace headroom::memory
