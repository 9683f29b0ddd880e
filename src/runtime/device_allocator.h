// DeviceAllocator: all that the runtime knows about one device.
//
// States of an address range (docs/algorithms/runtime.md has the whole picture):
//
// clang-format off
//   reserved        address space; no memory behind it, nobody's
//   mapped idle     memory behind it, no block in it: free blocks, planned space between requests
//   planned-live    a request in its slot of the plan
//   dynamic-live    a request in planned space that is idle, or by best fit in the general arena
//   awaiting event  released, but another stream may still use it: to all others as live as before
//   captured        of a private pool: never unmapped, never another's, until the pool is released
//   moving          its pages are being mapped or unmapped by the holder of the driver lock
// clang-format on
//
// Invariants:
//  1. No byte is in two ranges that are live or awaiting events.
//  2. A page is unmapped only if no block that is live or awaiting lies in it, no private pool owns
//     it, and the device has done all work that was queued before (synchronised after the blocks in
//     it were released).
//  3. Memory that a block had goes to another stream only by way of 2, or in a plan's arena behind
//     events of all streams that used it, or where the program has that stream come after all of
//     them (planned_arena.h, 7 to 9).
//  4. What is handed out is mapped, readable and writable by the device and its peers.
//  5. Where there is no memory, everything that 2 allows has been given back to the driver before
//     anyone is told, and so has what was taken on the way.
//
// Locks, in the order in which they may be taken:
//   driver lock  a mutex: mapping, unmapping, waiting. Held for as long as the driver takes.
//   event lock   inside EventQueue.
//   lock         a spin lock around all bookkeeping: no driver call of ours under it, constant time
//                for planned requests, logarithmic for others. During a capture pool_for() asks
//                PyTorch's filter under it, which may ask the driver about a stream; record() opens
//                a recording's next mebibyte under it.
// A request that finds room takes the last one only.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "memory/recording/writer.h"
#include "runtime/address_table.h"
#include "runtime/configuration.h"
#include "runtime/device_pages.h"
#include "runtime/event_queue.h"
#include "runtime/general_arena.h"
#include "runtime/planned_arena.h"
#include "runtime/planner.h"
#include "runtime/request_log.h"
#include "runtime/spin_lock.h"
#include "runtime/statistics.h"

namespace headroom::runtime {

struct ShownSegment;  // device_snapshot.cpp

// A capture's pool, by PyTorch's pair of numbers.
struct PoolId {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const PoolId&) const = default;
};

// What a plan was made from; nothing is known of one of a file.
struct PlanOrigin {
  bool is_marked = false;  // iterations with marks
  int64_t iterations = 0;
  int64_t kinds = 0;
  double seconds = 0;  // that making it took
};

// What became of plans, for the report.
struct PlanFigures {
  int64_t switches = 0;
  int64_t switch_ns = 0;       // of the last switch, the wait for the device included
  int64_t switch_wait_ns = 0;  // that wait
  int64_t switches_without_memory = 0;
  int64_t outgrown = 0;    // plans that were given up, as they needed more than best fit did
  int64_t plan_bytes = 0;  // of the arena that serves
  int64_t passes = 0;      // iterations begun since the switch
  PlanOrigin origin;       // of the plan that serves
  int64_t trims = 0;
  int64_t next_trim = 1;        // pass
  int64_t gone_bytes = 0;       // in the first pass, of what the switch found alive
  bool was_lending = false;     // at the last pass
  int64_t unserved = 0;         // requests since the last pass began
  int64_t reserved_before = 0;  // highest before the first switch
  int64_t allocated_before = 0;
  int64_t reserved_floor = 0;  // the same until somebody resets the peaks
  int64_t allocated_floor = 0;
  int64_t allocated_peak = 0;  // since the first switch, up to the last reset of the peaks
  int64_t reserved_peak = 0;
  // Of the pass that runs: what general requests took beside what was there when it began.
  int64_t general_at_start = 0;
  int64_t general_peak = 0;
  std::array<int64_t, 4> general_needs{};  // of the last passes
  uint32_t poor_passes = 0;                // a bit each, the last one lowest
  // At the last mark that was judged: requests, and those in their slots.
  int64_t requests_at_mark = 0;
  int64_t planned_at_mark = 0;
  uint32_t poor_marks = 0;              // in a row
  int64_t replan_after = 8;             // passes
  int64_t predicted_planned_bytes = 0;  // of the last candidate
  int64_t predicted_best_fit_bytes = 0;
  // Without a plan, and nothing logged: what was reserved at the most when that was decided; 0
  // else. Where it grows, work has changed, and it is looked at again.
  int64_t reserved_without_plan = 0;
  bool is_from_file = false;     // the plan that served last
  bool began_from_file = false;  // and the first
  std::string refused;           // why a plan is not served
};

class DeviceAllocator {
 public:
  static Result<std::unique_ptr<DeviceAllocator>> open(const Driver& driver, int ordinal,
                                                       const Configuration& configuration);

  // What a plan serves in its slot while nothing else is to be done; null: allocate() is to be
  // asked. REQUIRES: size > 0.
  void* allocate_planned(int64_t size, CudaStream* stream) {
    if (!serves_.load(std::memory_order_relaxed) || !events_->is_empty() || is_capturing())
        [[unlikely]]
      return nullptr;
    PlannedArena::Served served;
    {
      const std::lock_guard lock(lock_);
      const bool is_plain = log_ == nullptr && candidate_ == nullptr && recording_ == nullptr;
      if (planned_ == nullptr || !is_plain || planned_->is_join_due()) [[unlikely]]
        return nullptr;
      served = planned_->allocate_expected(stream, size, RequestLog::kNoSerial);
      if (served.source == PlannedArena::Source::none) [[unlikely]]
        return nullptr;
      statistics_.begin_block(round_up(size, kAlignment), size);
      ++statistics_.planned_requests;
      is_pass_due_ = is_pass_due_ || served.begins_pass;
    }
    if (served.begins_pass) [[unlikely]]
      at_boundary();
    return reinterpret_cast<void*>(static_cast<uintptr_t>(served.address));
  }
  // The same for releases: the block's bytes, or 0 where free() is to be asked.
  int64_t free_planned(void* pointer) {
    if (!serves_.load(std::memory_order_relaxed)) return 0;
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
    const std::lock_guard lock(lock_);
    PlannedArena::Block was;
    if (planned_ == nullptr || recording_ != nullptr || !planned_->release_regular(address, was)) {
      return 0;
    }
    const int64_t bytes = round_up(was.requested, kAlignment);
    statistics_.end_block(bytes, was.requested);
    log_release(was.serial, RequestLog::Kind::release_done);
    return bytes;
  }
  // Null where there is no memory: then `out_of_memory` is the message. REQUIRES: size > 0.
  void* allocate(int64_t size, CudaStream* stream, std::string& out_of_memory);
  // The block's bytes; 0 where the pointer is not a live block of this device.
  int64_t free(void* pointer);
  [[nodiscard]] bool is_live(void* pointer);
  // False where the pointer is not a live block of this device. Of which device a stream is, nobody
  // says: one that is null may be the default stream of any that is open.
  bool record_stream(void* pointer, CudaStream* stream);
  // What the program has its streams wait for. An event is about to be recorded on the stream: its
  // ticket; 0 where nothing can be said of it.
  memory::StreamOrder::Ticket record_event(CudaStream* stream);
  // The stream waits for the event from now on.
  void wait_event(CudaStream* stream, memory::StreamOrder::Ticket event);
  // From now on no stream is made to wait by us.
  void forbid_joins();
  void empty_cache();
  void set_memory_fraction(double fraction);
  // The page, or piece of cuMemAlloc, that holds the address; nothing where that is in no arena.
  // Whether a block lives there is not asked.
  std::optional<GeneralArena::Piece> base_allocation(void* pointer);

  using Filter = std::function<bool(CudaStream*)>;
  void begin_pool(PoolId id, Filter filter);
  void end_pool(PoolId id);
  void release_pool(PoolId id);
  // A capture whose requests go to another allocator. From here on, as from begin_pool(), nothing
  // that a capture forbids is done: what another thread had begun of it is over.
  void begin_capture();
  void end_capture();  // one that was not begun is none

  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const DevicePages& pages() const { return *pages_; }
  void read(headroom_statistics& out);
  void reset_peaks();
  void reset_accumulated();
  DevicePages::Info memory_info();
  int64_t unknown_frees();
  void count_unknown_free();
  int64_t largest_free_block();
  std::string snapshot_json();
  void visit_segments(headroom_segment_visitor visit, void* context);
  std::string report_json();
  void iteration();
  // The optimizer's steps will be marked: iteration() will be called.
  void expect_iterations();
  // Closes the recording, and lets the planner finish what it does until then.
  void finish(std::chrono::steady_clock::time_point until);

  // Tests the invariants of the parts; for tests, and slow.
  Result<void> check();

 private:
  struct Request {
    int64_t size = 0;     // as asked for
    int64_t rounded = 0;  // to kAlignment
    CudaStream* stream = nullptr;
    uint32_t serial = RequestLog::kNoSerial;
    uint64_t log = 0;  // that the serial is of
  };
  struct Pool {
    PoolId id;
    uint32_t number = kGeneralPool;
    Filter filter;
    int uses = 0;  // graphs that share it: begun so often, and not released yet
    bool is_begun = false;
    bool is_released = false;  // its memory goes back as soon as nothing lies in it
  };

  DeviceAllocator(int ordinal, const Configuration& configuration)
      : ordinal_(ordinal), configuration_(configuration) {}

  void* allocate_slowly(const Request& request, bool is_last, std::string& out_of_memory);
  int64_t serve(const Request& request, bool& is_boundary);
  int64_t serve_planned(const Request& request, bool& is_boundary);
  int64_t serve_general(const Request& request);
  int64_t serve_behind_boundary(const Request& request);
  uint32_t try_general(const Request& request);
  // What one attempt to get memory from the driver came to.
  enum class Attempt : uint8_t { done, no_memory };
  Attempt grow(const Request& request, uint32_t& block);
  Attempt grow_by_pages(const Request& request, uint32_t range, uint32_t& block);
  std::optional<GeneralArena::Growth> place_growth(const Request& request, uint32_t range,
                                                   uint32_t but_not, uint32_t& block);
  Attempt grow_by_piece(const Request& request, uint32_t range, uint32_t& block);
  int64_t hand_out(uint32_t block, const Request& request);
  void release_planned(PlannedArena& arena, int64_t address);
  void await_users(PlannedArena& arena, int64_t address);

  // device_order.cpp: what the program has its streams wait for, and joins.
  void follow_order(PlannedArena& arena);
  void record_for_join();
  void join_streams(CudaStream* stream);
  std::vector<CudaEvent*> take_joins();
  PlannedArena* planned_at(int64_t address) const;
  void defer(int64_t address, int64_t bytes, std::vector<StreamUse>& streams);
  void complete_general(uint32_t block);
  void complete_pending(int64_t address);

  std::vector<ShownSegment> shown_segments();

  // device_pools.cpp: private pools of captures.
  uint32_t pool_for(CudaStream* stream) const;
  void add_pool(PoolId id, Filter filter);
  void give_back_pools();

  // What nobody's block lies in: collected under the lock, given back once the device is done.
  struct Collected {
    std::vector<GeneralArena::Piece> pages;   // of the general arena
    std::vector<GeneralArena::Piece> pieces;  // the same, of cuMemAlloc
    std::vector<GeneralArena::Piece> retired_pages;
    std::vector<GeneralArena::Piece> retired_pieces;
    std::vector<GeneralArena::Piece> spans;             // address space that is not needed any more
    std::vector<std::unique_ptr<PlannedArena>> arenas;  // the same; freed without the lock
    [[nodiscard]] bool is_empty() const {
      return pages.empty() && pieces.empty() && retired_pages.empty() && retired_pieces.empty();
    }
  };

  // device_plans.cpp: plans, from the log to the switch and beyond it.
  void load_plan();
  void begin_log();
  uint32_t number_of_stream(CudaStream* stream);
  void number_streams_of_plans();
  uint32_t log_request(int64_t size, CudaStream* stream);
  void give_up_log();
  void drop_log();
  void log_release(uint32_t serial, RequestLog::Kind kind) {
    if (log_ != nullptr) [[unlikely]]
      log_->add_release(serial, kind);
  }
  bool follow_candidate(const Request& request);
  void accept_candidate();
  void go_without_plan(std::string why);
  void look_again();
  void at_boundary();
  void switch_to(std::unique_ptr<PlannedArena> next, const PlanOrigin& origin);
  void start_serving(std::unique_ptr<PlannedArena> next, const PlanOrigin& origin,
                     int64_t waited_ns, int64_t began_ns);
  bool map_arena(PlannedArena& arena);
  void retire_plan(const std::string& why);
  bool is_plan_outgrown();
  void give_up_plan();
  void judge_pass();
  Collected collect_spare(int64_t keep_bytes);
  void give_back_spare(Collected collected);
  void trim_in_first_pass();
  void note_gone(int64_t bytes);
  void judge_mark();
  [[nodiscard]] bool is_worth_it(const CompiledPlan& plan) const;

  Collected collect(int64_t keep_bytes);
  void collect_retired(Collected& collected);
  // Waits for as long as it takes, as who needs memory does; or gives up where the device is at
  // work for long: a rank that waits here may be what another one's collective waits for.
  enum class Wait : uint8_t { for_ever, for_a_while };
  bool give_back(Collected collected, Wait wait);
  void poll_events();
  bool give_back_everything();
  void release_idle();
  void note_reserved();
  std::string out_of_memory_message(const Request& request);
  void record(memory::RecordKind kind, int64_t address, int64_t size, CudaStream* stream);
  [[nodiscard]] bool is_capturing() const { return captures_.load(std::memory_order_acquire) > 0; }
  void await_others();

  const int ordinal_;
  const Configuration configuration_;
  std::unique_ptr<DevicePages> pages_;  // driver lock
  std::unique_ptr<EventQueue> events_;
  std::unique_ptr<memory::RecordingWriter> recording_;
  std::string no_recording_;  // why there is none, where one was asked for
  int64_t start_ns_ = 0;
  std::atomic<int> captures_ = 0;            // pools that are begun, and captures elsewhere:
  std::atomic<int> captures_elsewhere_ = 0;  // of those, these
  std::atomic<bool> serves_ = false;         // a plan; a hint for who has not the lock
  std::atomic<bool> lends_ = false;          // it does, as the program's events have it; the same

  std::mutex driver_mutex_;
  SpinLock lock_;  // all below
  std::unique_ptr<GeneralArena> general_;
  AddressTable blocks_;  // live and pending ones of the general arena
  std::unordered_map<int64_t, std::vector<StreamUse>> uses_;  // by address
  std::vector<Pool> pools_;
  uint32_t pools_made_ = 0;
  bool is_pool_due_ = false;  // a released one may have nothing in it any more
  bool is_trim_due_ = false;  // what a switch found alive is gone, or much of it
  Statistics statistics_;
  memory::StreamOrder order_;
  // By lender of the plan that serves: events that were recorded for it, and their tickets.
  struct Join {
    std::vector<CudaEvent*> events;
    std::vector<memory::StreamOrder::Ticket> tickets;
  };
  std::unordered_map<uint32_t, Join> joins_;
  std::atomic<bool> allows_joins_ = true;

  // Plans. The planner has a lock of its own, the rest is under lock_.
  std::unique_ptr<Planner> planner_;
  std::shared_ptr<RequestLog> log_;          // null: nothing is logged
  uint64_t logs_ = 0;                        // begun so far
  std::vector<CudaStream*> streams_;         // in the order of their first use
  std::unique_ptr<PlannedArena> candidate_;  // follows, and serves once it is switched to
  PlanOrigin candidate_origin_;
  std::unique_ptr<PlannedArena> dropped_;  // freed at the next boundary, without the lock
  bool is_switch_due_ = false;             // somebody should come to the boundary,
  bool is_log_due_ = false;                // and begin a log where there is no candidate
  bool expects_iterations_ = false;        // also of a planner that is made later
  uint32_t followed_ = 0;                  // requests
  std::unique_ptr<PlannedArena> planned_;  // serves
  std::vector<std::unique_ptr<PlannedArena>> retired_;  // until their last block is gone
  // Driver lock: where the bytes of planned and retired arenas come from.
  struct ArenaMemory {
    const PlannedArena* arena = nullptr;
    std::vector<GeneralArena::Piece> mapped;  // pages, or pieces of cuMemAlloc; `range`: the track
    std::vector<GeneralArena::Piece> spans;   // address space
  };
  std::vector<ArenaMemory> arena_memory_;
  bool is_pass_due_ = false;
  int64_t general_bytes_ = 0;  // live and pending in the general arena
  PlanFigures plan_figures_;
};

}  // namespace headroom::runtime
