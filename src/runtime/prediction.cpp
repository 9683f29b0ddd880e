#include "runtime/prediction.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "runtime/general_arena.h"
#include "runtime/planned_arena.h"

namespace headroom::runtime {
namespace {

constexpr int64_t kSegment = int64_t{1} << 40;  // of address space that is not there

// The general arena over pages that are only counted.
class CountedPages {
 public:
  explicit CountedPages(int64_t page_bytes) : arena_(page_bytes) {}

  uint32_t allocate(int64_t bytes, CudaStream* stream) {
    const int64_t size = round_up(std::max<int64_t>(bytes, 1), kAlignment);
    const uint32_t range = arena_.range_of(kGeneralPool, stream, size);
    const uint32_t found = arena_.take(range, size);
    if (found != kNoNumber) return found;
    auto growth = arena_.begin_growth(range, size);
    if (!growth) {
      arena_.add_segment(range, next_, std::max(kSegment, 2 * size / kSegment * kSegment), true);
      next_ += std::max(kSegment, 2 * size / kSegment * kSegment);
      growth = arena_.begin_growth(range, size);
    }
    held_ += growth->bytes;
    return arena_.commit_growth(*growth, size);
  }
  void free(uint32_t block) { arena_.give(block); }
  void give_back() {
    for (const GeneralArena::Piece& piece : arena_.collect_pages()) held_ -= piece.bytes;
  }
  [[nodiscard]] int64_t held_bytes() const { return held_; }

 private:
  GeneralArena arena_;
  int64_t next_ = kSegment;
  int64_t held_ = 0;
};

struct Moment {
  int64_t time = 0;
  uint32_t request = 0;
  bool is_release = false;
};

// Releases before requests of the same moment; what is never released stays.
std::vector<Moment> moments_of(const RequestLog::Understood& log) {
  std::vector<Moment> moments;
  moments.reserve(2 * log.requests.size());
  for (uint32_t i = 0; i < log.requests.size(); ++i) {
    moments.push_back({log.requests[i].lower, i, false});
    moments.push_back({log.requests[i].upper, i, true});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.is_release && !b.is_release;
  });
  return moments;
}

// Best fit, perhaps with a plan before it; the most that it held from `from` on.
class Player {
 public:
  Player(const RequestLog::Understood& log, PlannedArena* planned, const PredictionTimes& times,
         int64_t page_bytes, bool keeps_up)
      : log_(log),
        planned_(planned),
        times_(times),
        keeps_up_(keeps_up),
        places_(log.requests.size()),
        pages_(page_bytes) {}

  int64_t play(const std::vector<Moment>& moments) {
    bool is_serving = false;
    if (planned_ != nullptr) planned_->set_order(&order_.order());
    for (const Moment& moment : moments) {
      if (planned_ != nullptr && keeps_up_) put_in_order(moment.time);
      if (!is_serving && moment.time >= times_.serves_from) {
        is_serving = true;
        if (planned_ != nullptr) pages_.give_back();
      }
      if (moment.is_release) {
        release(moment.request);
      } else {
        request(moment, is_serving);
      }
      if (is_serving) peak_ = std::max(peak_, pages_.held_bytes());
    }
    return peak_;
  }
  [[nodiscard]] double slot_share() const {
    return asked_ == 0 ? 1 : static_cast<double>(in_slots_) / static_cast<double>(asked_);
  }

 private:
  struct Place {
    int64_t address = 0;  // in the plan's arena; 0: elsewhere
    uint32_t block = kNoNumber;
  };

  // What the program's streams were told to wait for until then.
  void put_in_order(int64_t time) {
    for (; next_ < log_.order.size() && log_.order[next_].time < time; ++next_) {
      order_.play(log_.order[next_]);
      if (log_.order[next_].is_wait) planned_->note_wait();
    }
  }
  // As the allocator does it (device_order.cpp).
  void join(CudaStream* stream) {
    memory::StreamOrder& order = order_.order();
    while (planned_->is_join_due()) {
      const auto wanted = planned_->wanted_events();
      if (!wanted) break;
      joins_[wanted->lender].clear();
      for (CudaStream* const one : wanted->streams) {
        joins_[wanted->lender].push_back(order.record_ours(handle_of(one)));
      }
      planned_->have_recorded(wanted->lender);
    }
    const auto lender = planned_->wanted_join(stream);
    if (!lender) return;
    for (const auto ticket : joins_[*lender]) order.wait(handle_of(planned_->borrower()), ticket);
    planned_->have_joined(*lender);
  }

  void request(const Moment& moment, bool is_serving) {
    const memory::RecordedRequest& request = log_.requests[moment.request];
    Place& place = places_[moment.request];
    if (planned_ != nullptr && !is_serving && moment.time >= times_.follows_from) {
      planned_->follow(stream_with_handle(request.stream), request.size);
    }
    if (planned_ != nullptr && is_serving) {
      if (keeps_up_ && planned_->plan().lends_in_order) join(stream_with_handle(request.stream));
      const PlannedArena::Served served = planned_->allocate(stream_with_handle(request.stream),
                                                             request.size, RequestLog::kNoSerial);
      place.address = served.address;
      ++asked_;
      in_slots_ += served.source == PlannedArena::Source::planned || served.is_elsewhere ? 1 : 0;
      if (place.address != 0) return;
    }
    place.block = pages_.allocate(request.size, stream_with_handle(request.stream));
  }
  void release(uint32_t number) {
    Place& place = places_[number];
    if (place.address != 0) {
      if (keeps_up_) planned_->hand_over(place.address);
      planned_->release(place.address);
    }
    if (place.block != kNoNumber) pages_.free(place.block);
    place = {};
  }

  const RequestLog::Understood& log_;
  PlannedArena* planned_;
  PredictionTimes times_;
  bool keeps_up_;
  std::vector<Place> places_;
  CountedPages pages_;
  memory::RecordedOrder order_;
  std::unordered_map<uint32_t, std::vector<memory::StreamOrder::Ticket>> joins_;  // by lender
  size_t next_ = 0;                                                               // event
  int64_t peak_ = 0;
  int64_t asked_ = 0, in_slots_ = 0;
};

}  // namespace

Prediction predict(const std::shared_ptr<const CompiledPlan>& plan,
                   const RequestLog::Understood& log, const PredictionTimes& times,
                   int64_t page_bytes, bool keeps_up) {
  const std::vector<Moment> moments = moments_of(log);
  std::vector<int64_t> streams;
  for (const memory::RecordedRequest& request : log.requests) streams.push_back(request.stream);
  std::sort(streams.begin(), streams.end());
  streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
  PlannedArena arena(plan);
  int64_t base = int64_t{1} << 40;  // of nothing: no byte is touched
  for (uint32_t track = 0; track < plan->tracks.size(); ++track) {
    arena.set_stream(track, stream_with_handle(streams[track]));
    arena.place(track, base);
    base += plan->tracks[track].bytes;
  }
  Prediction prediction;
  Player with_plan(log, &arena, times, page_bytes, keeps_up);
  prediction.planned_bytes = plan->bytes + with_plan.play(moments);
  prediction.slot_share = with_plan.slot_share();
  prediction.best_fit_bytes = Player(log, nullptr, times, page_bytes, true).play(moments);
  return prediction;
}

}  // namespace headroom::runtime
