// A shadow allocator over libheadroom_torch.so: every call of several threads is seen, and held
// against what must never happen. The library is driven through its C ABI over the fake driver.
//
//   headroom_runtime_stress [--operations 1e6] [--threads 4] [--streams 3] [--seed 1]
//                           [--memory-mib 4096] [--perturbed 0.05] [--turns-seconds 60] [--oom]
//                           [--plain] [--no-host] [--capture] [--lends] [--ordered]
//                           [--delay 20]
//
// Each thread runs iterations of a program of its own, drawn from the seed: first in turns, the
// same again and again, until a plan serves, and then all of them at once, until each has done its
// share of the operations. Where no plan serves in all the time for turns, or none once all run at
// once, too little is tested, and the run fails, whatever the setting: nothing is perturbed or
// refused while they take turns, and memory of cuMemAlloc (--plain) is planned as well. With
// --lends the second stream is used in the middle of each iteration alone, and has to lend where
// there is one thread (with several it is chance how far behind the log finds the device, and so
// whether a plan lends). With --ordered it does so, too, and what makes the device done is no event
// of ours but the program's own: the second stream waits for the first before it begins, and the
// first for the second behind it; every block is at work on its stream when it begins and ends. A
// third stream, where there is one, is at work on the second one's blocks beyond their release, and
// nobody says so but by its wait before and the second one's behind it, before its next request.
// --delay: so many ticks is the device behind, at most. A share of a thread's requests is
// perturbed, blocks are handed to other threads to be released, other streams use them, memory is
// taken away and given back, caches are emptied, graphs are captured. Threads die with blocks of
// theirs alive, which their successors have then; the last thing that a thread does is to allocate
// and release from a destructor of its own. Checked at each call: no two live blocks overlap; a
// block lies in mapped memory (it is written to, and its words are there when it is released); no
// work on another stream still touches what is handed out. At the end: nothing is live, the figures
// say so, everything can be given back, and the driver saw no rule broken. A watchdog ends a run
// that stands still.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/abi.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/live_ranges.h"

namespace {

using headroom::runtime::fake::guests;
using headroom::runtime::fake::report;
using headroom::runtime::fake::statistics;

struct Setting {
  double operations = 1e6;
  int threads = 4;
  int streams = 3;
  uint64_t seed = 1;
  int64_t memory_mib = 4096;
  double perturbed = 0.05;
  double turns_seconds = 60;
  bool injects_oom = false;
  bool is_plain = false;
  bool has_host = true;
  bool captures = false;
  bool lends = false;
  bool is_ordered = false;
  int64_t delay = 20;  // ticks
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "stress: %s\n", what.c_str());
  std::_Exit(1);
}

struct Block {
  int64_t size = 0;
  void* stream = nullptr;
  uint64_t mark = 0;
};

// All live blocks.
class Shadow {
 public:
  void add(void* pointer, const Block& block) {
    const std::lock_guard lock(mutex_);
    if (!live_.add(pointer, block.size, block)) fail("two blocks that share a byte");
  }
  Block remove(void* pointer) {
    const std::lock_guard lock(mutex_);
    const std::optional<Block> block = live_.remove(pointer);
    if (!block) fail("a block that the shadow does not know");
    return *block;
  }
  Block find(void* pointer) {
    const std::lock_guard lock(mutex_);
    return live_.at(pointer);
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return live_.count();
  }

 private:
  std::mutex mutex_;
  headroom::runtime::fake::LiveRanges<Block> live_;
};

// Whose turn it is, while the threads run one after the other. Who waits sleeps: the planner's
// thread is of low priority and comes to nothing beside many that ask again and again.
class Turns {
 public:
  void begin(double seconds) {
    until_ = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
  }
  // False where nobody is to take a turn any more: a plan serves, or none came in all this time.
  bool wait_for(int64_t turn) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until_, [&] { return is_planned_ || turn_ == turn; });
    return !is_planned_ && turn_ == turn && Clock::now() < until_;
  }
  void pass_on(bool is_planned) {
    const std::lock_guard lock(mutex_);
    ++turn_;
    is_planned_ = is_planned;
    changed_.notify_all();
  }
  bool is_planned() {
    const std::lock_guard lock(mutex_);
    return is_planned_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point until_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t turn_ = 0;
  bool is_planned_ = false;
};

Setting setting;
Shadow shadow;
std::atomic<int64_t> operations = 0;
std::atomic<int64_t> refused = 0;
std::atomic<bool> is_over = false;
std::atomic<int64_t> in_turns = 0;          // of the operations
std::atomic<int64_t> planned_in_turns = 0;  // of the planned requests
Turns turns;

void* stream_handle(int stream) {
  return stream == 0 ? nullptr
                     : reinterpret_cast<void*>(uintptr_t{0x1000} * static_cast<uintptr_t>(stream));
}

// What was handed to other threads to be released.
class Handover {
 public:
  void put(void* pointer) {
    const std::lock_guard lock(mutex_);
    pointers_.push_back(pointer);
  }
  void* take() {
    const std::lock_guard lock(mutex_);
    if (pointers_.empty()) return nullptr;
    void* const pointer = pointers_.back();
    pointers_.pop_back();
    return pointer;
  }

 private:
  std::mutex mutex_;
  std::vector<void*> pointers_;
};
Handover handover;

class Worker {
 public:
  explicit Worker(int number)
      : number_(number), random_(setting.seed * 1000 + static_cast<uint64_t>(number)) {
    make_program();
  }

  void begin() {
    take_turns();
    if (!turns.is_planned()) fail("no plan served while the threads took turns");
    perturbed_ = setting.perturbed;
    in_turns += std::exchange(done_, 0);
  }
  // False where its thread dies; another one is to go on.
  bool go_on() {
    const auto mine = static_cast<int64_t>(setting.operations / setting.threads);
    while (done_ < mine) {
      run_pass();
      if (draw(64) == 0) return false;
      if (draw(64) == 0) headroom_reset();
      if (setting.injects_oom && draw(16) == 0) {
        headroom_fake_fail("cuMemCreate", static_cast<int64_t>(draw(8)),
                           static_cast<int64_t>(draw(4)), 2);
        headroom_fake_fail("cuMemAlloc_v2", static_cast<int64_t>(draw(8)),
                           static_cast<int64_t>(draw(4)), 2);
      }
      if (draw(8) == 0) headroom_iteration(0);
    }
    for (Slot& slot : slots_) release(slot.pointer);
    for (void*& pointer : strangers_) release(pointer);
    return true;
  }
  // Of a thread that is no more but for its destructors.
  void last_will() {
    void* block = nullptr;
    allocate(block, 4096, number_ % setting.streams, false);
    if (block != nullptr) release(block);
  }

 private:
  struct Step {
    bool is_alloc = true;
    uint32_t slot = 0;
    int64_t size = 0;
    int stream = 0;
    bool is_shared = false;  // another stream uses it
    // Not a request but an event: it is recorded on the stream, or the stream waits for it.
    std::optional<size_t> event = std::nullopt;
    bool waits = false;
    bool uses = false;  // not a request: the stream is at work on the slot's block
  };
  struct Event {
    uint64_t ticket = 0;
    int64_t happens = 0;
  };
  struct Slot {
    void* pointer = nullptr;
  };

  uint64_t draw(uint64_t below) { return random_() % below; }
  int64_t draw_size() {
    const uint64_t kind = draw(10);
    if (kind < 4) return 1 + static_cast<int64_t>(draw(4096));
    if (kind < 8) return 1 + static_cast<int64_t>(draw(256 << 10));
    return 1 + static_cast<int64_t>(draw(static_cast<uint64_t>(6) << 20));
  }

  // An iteration: requests with lifetimes that nest and cross, the same every time.
  void make_program() {
    const auto count = static_cast<uint32_t>(50 + draw(400));
    std::vector<uint32_t> live;
    std::vector<uint32_t> of_side;
    uint32_t before = 0;  // the third of the iteration
    for (uint32_t i = 0; i < count; ++i) {
      if (setting.lends) {
        const uint32_t third = 3 * i / count;
        if (setting.is_ordered && third != before) {
          const int done = third == 1 ? 0 : 1;
          const bool has_third = setting.streams > 2 && setting.threads == 1;
          if (has_third && third == 1) wait_for(1, 2, 3);  // for what it did in the last iteration
          if (has_third && third == 2) wait_for(2, 1, 2);
          for (; third == 2 && !of_side.empty(); of_side.pop_back()) {
            if (has_third) {
              program_.push_back({false, of_side.back(), 0, 2, false, std::nullopt, false, true});
            }
            program_.push_back({false, of_side.back(), 0, 0, false});
          }
          wait_for(1 - done, done, third - 1);
        }
        before = third;
        const bool is_side = third == 1 && draw(2) == 0;
        for (; third == 2 && !of_side.empty(); of_side.pop_back()) {
          program_.push_back({false, of_side.back(), 0, 0, false});
        }
        const int64_t size = (third == 2 ? 2 : 1) * draw_size();
        const bool is_shared = (is_side && !setting.is_ordered) || draw(20) == 0;
        program_.push_back({true, i, size, is_side ? 1 : 0, is_shared});
        (is_side ? of_side : live).push_back(i);
      } else {
        // Mostly one stream; each stream has its share.
        const int stream = draw(4) == 0
                               ? static_cast<int>(draw(static_cast<uint64_t>(setting.streams)))
                               : number_ % setting.streams;
        program_.push_back({true, i, draw_size(), stream, draw(20) == 0});
        live.push_back(i);
      }
      while (!live.empty() && draw(100) < 45 + live.size() / 4) {
        const size_t at = draw(3) == 0 ? draw(live.size()) : live.size() - 1;
        program_.push_back({false, live[at], 0, 0, false});
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    while (!live.empty()) {
      if (draw(20) != 0) program_.push_back({false, live.back(), 0, 0, false});
      live.pop_back();
    }
    slots_.resize(count);
  }

  // A stream waits for another, in the program.
  void wait_for(int waits, int other, size_t event) {
    program_.push_back({false, 0, 0, other, false, event, false});
    program_.push_back({false, 0, 0, waits, false, event, true});
  }

  // One thread after the other, the same again and again, so that a plan is made of it.
  void take_turns() {
    for (int64_t pass = 0; turns.wait_for(pass * setting.threads + number_); ++pass) {
      if (number_ == 0) {
        if (setting.seed % 2 == 0) headroom_iteration(0);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      run_pass();
      const headroom_statistics s = statistics();
      planned_in_turns = s.planned_requests;
      turns.pass_on(number_ == 0 && s.is_planned != 0);
    }
  }

  void run_pass() {
    const bool captures = setting.captures && perturbed_ > 0 && draw(32) == 0;
    if (captures) begin_capture();
    for (size_t i = 0; i < program_.size(); ++i) {
      const Step& step = program_[i];
      const bool is_perturbed = static_cast<double>(draw(1000)) < perturbed_ * 1000;
      if (step.event) {
        const bool is_of_third = *step.event >= 2;  // without those the program would be wrong
        if (!is_perturbed || is_of_third) put_in_order(step);
        continue;
      }
      if (step.uses) {
        use(slots_[step.slot].pointer, stream_handle(step.stream));
        continue;
      }
      if (!step.is_alloc) {
        if (is_perturbed && draw(2) == 0) continue;  // released late: when its slot comes again
        release(slots_[step.slot].pointer);
        continue;
      }
      if (is_perturbed) {
        const uint64_t how = draw(4);
        if (how == 0) continue;  // missing
        if (how == 1) {
          strangers_.push_back(nullptr);
          allocate(strangers_.back(), draw_size(), step.stream, false);
        }
        if (how == 2) {
          release(slots_[step.slot].pointer);
          allocate(slots_[step.slot].pointer, draw_size(), step.stream, step.is_shared);
          continue;
        }
        while (!strangers_.empty() && (how == 3 || strangers_.size() > 16)) {
          release(strangers_.back());
          strangers_.pop_back();
        }
      }
      release(slots_[step.slot].pointer);
      allocate(slots_[step.slot].pointer, step.size, step.stream, step.is_shared);
      if (perturbed_ > 0 && draw(50) == 0) pass_on(slots_[step.slot].pointer);
    }
    if (captures) end_capture();
  }

  // Where the stream has come behind the block's request, as it may not without.
  static void use(void* pointer, void* stream) {
    if (pointer == nullptr) return;
    const Block block = shadow.find(pointer);
    headroom_fake_work(stream, reinterpret_cast<uint64_t>(pointer), block.size);
  }

  // As a program does it, and tells of it.
  void put_in_order(const Step& step) {
    void* const stream = stream_handle(step.stream);
    Event& event = events_[*step.event];
    if (step.waits) {
      headroom_fake_wait(stream, event.happens);
      headroom_event_waited(0, stream, event.ticket);
    } else {
      event.ticket = headroom_event_recorded(0, stream);
      event.happens = headroom_fake_record(stream);
    }
  }

  // One capture at a time: the fake driver counts what it forbids.
  void begin_capture() {
    pool_ = static_cast<uint64_t>(number_) * 1'000'000 + static_cast<uint64_t>(done_);
    headroom_pool_begin(0, pool_, 7, nullptr, nullptr);
  }
  void end_capture() {
    headroom_pool_end(0, pool_, 7);
    headroom_pool_release(0, pool_, 7);
  }

  void allocate(void*& place, int64_t size, int stream, bool is_shared) {
    ++done_;
    operations.fetch_add(1, std::memory_order_relaxed);
    void* const handle = stream_handle(stream);
    void* const pointer = headroom_malloc(size, 0, handle);
    if (pointer == nullptr) {
      refused.fetch_add(1);
      return;
    }
    if (reinterpret_cast<uint64_t>(pointer) % 512 != 0) fail("a block that is not aligned");
    const Block block{size, handle, random_()};
    shadow.add(pointer, block);
    if (is_shared || setting.is_ordered || draw(64) == 0) {
      if (headroom_fake_is_touched(handle, reinterpret_cast<uint64_t>(pointer), size) != 0) {
        fail("a block that work on another stream still touches");
      }
    }
    if (setting.has_host) write(pointer, block);
    if (setting.is_ordered || draw(16) == 0) {
      headroom_fake_work(handle, reinterpret_cast<uint64_t>(pointer), size);
    }
    if (is_shared && setting.streams > 1) {
      void* const other = stream_handle((stream + 1) % setting.streams);
      headroom_fake_work(other, reinterpret_cast<uint64_t>(pointer), size);
      headroom_record_stream(pointer, other);
    }
    place = pointer;
  }

  static void write(void* pointer, const Block& block) {
    if (block.size < 16) return;
    char* const bytes = static_cast<char*>(pointer);
    std::memcpy(bytes, &block.mark, 8);
    std::memcpy(bytes + block.size - 8, &block.mark, 8);
  }
  static void check(void* pointer, const Block& block) {
    if (!setting.has_host || block.size < 16) return;
    const char* const bytes = static_cast<const char*>(pointer);
    if (std::memcmp(bytes, &block.mark, 8) != 0 ||
        std::memcmp(bytes + block.size - 8, &block.mark, 8) != 0) {
      fail("a block whose content is another");
    }
  }

  void release(void*& pointer) {
    if (pointer == nullptr) {
      void* other = draw(8) == 0 ? handover.take() : nullptr;
      if (other != nullptr) release(other);
      return;
    }
    const Block block = shadow.remove(pointer);
    check(pointer, block);
    if (setting.is_ordered) {
      headroom_fake_work(block.stream, reinterpret_cast<uint64_t>(pointer), block.size);
      headroom_fake_advance(1);
    }
    headroom_free(pointer, block.size, 0, block.stream);
    ++done_;
    operations.fetch_add(1, std::memory_order_relaxed);
    pointer = nullptr;
  }
  void pass_on(void*& pointer) {
    if (pointer == nullptr) return;
    handover.put(pointer);
    pointer = nullptr;
  }

  int number_;
  std::mt19937_64 random_;
  std::vector<Step> program_;
  std::vector<Slot> slots_;
  std::array<Event, 4> events_;
  std::vector<void*> strangers_;
  uint64_t pool_ = 0;
  double perturbed_ = 0;
  int64_t done_ = 0;
};

struct LastWill {
  Worker* worker = nullptr;
  ~LastWill() {
    if (worker != nullptr) worker->last_will();
  }
};
thread_local LastWill last_will;

// A worker's threads, one after the other.
void live(int number) {
  Worker worker(number);
  worker.begin();
  for (bool is_done = false; !is_done;) {
    std::thread([&] {
      last_will.worker = &worker;
      is_done = worker.go_on();
    }).join();
  }
}

void watch() {
  int64_t before = -1;
  int quiet = 0;
  while (!is_over) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const int64_t now = operations.load();
    quiet = now == before ? quiet + 1 : 0;
    before = now;
    if (quiet > 120) fail("nothing moves: a deadlock");
  }
}

void read_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::atof(argv[++i]) : 0; };
    if (name == "--operations")
      setting.operations = value();
    else if (name == "--threads")
      setting.threads = static_cast<int>(value());
    else if (name == "--streams")
      setting.streams = static_cast<int>(value());
    else if (name == "--seed")
      setting.seed = static_cast<uint64_t>(value());
    else if (name == "--memory-mib")
      setting.memory_mib = static_cast<int64_t>(value());
    else if (name == "--perturbed")
      setting.perturbed = value();
    else if (name == "--turns-seconds")
      setting.turns_seconds = value();
    else if (name == "--oom")
      setting.injects_oom = true;
    else if (name == "--plain")
      setting.is_plain = true;
    else if (name == "--no-host")
      setting.has_host = false;
    else if (name == "--capture")
      setting.captures = true;
    else if (name == "--lends")
      setting.lends = true;
    else if (name == "--ordered")
      setting.lends = setting.is_ordered = true;
    else if (name == "--delay")
      setting.delay = static_cast<int64_t>(value());
    else
      fail("unknown argument " + name);
  }
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
// The planner's thread may be in the middle of a look when the process ends: it is waited for
// some seconds, and then left (Planner::stop()). One that ended after that was not joined.
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }
#endif

int main(int argc, char** argv) {
  read_arguments(argc, argv);
  const headroom_fake_setting fake{
      1, setting.memory_mib << 20, int64_t{2} << 20, setting.delay, setting.has_host ? 1 : 0, 0, 1,
      0};
  headroom_fake_set_up(&fake);
  headroom_configuration configuration{};
  configuration.struct_bytes = sizeof configuration;
  configuration.driver_path = std::getenv("HEADROOM_CUDA_DRIVER");
  if (configuration.driver_path == nullptr) configuration.driver_path = FAKE_CUDA_PATH;
  configuration.flags = HEADROOM_FLAG_ALWAYS_PLAN;
  if (setting.is_plain) configuration.flags |= HEADROOM_FLAG_NO_VIRTUAL_MEMORY;
  if (headroom_configure(&configuration) != 0) fail(headroom_error());
  std::thread watchdog(watch);
  const auto start = std::chrono::steady_clock::now();
  turns.begin(setting.turns_seconds);
  std::vector<std::thread> threads;
  for (int i = 0; i < setting.threads; ++i) {
    threads.emplace_back(live, i);
  }
  for (std::thread& thread : threads) thread.join();
  while (void* pointer = handover.take()) {
    const Block block = shadow.remove(pointer);
    headroom_free(pointer, block.size, 0, block.stream);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  is_over = true;
  watchdog.join();
  if (statistics().planned_requests == planned_in_turns) fail("no plan served all at once");
  if (setting.lends && setting.threads == 1 && guests() == 0) {
    fail("no stream lent anything to another");
  }
  headroom_reset();
  headroom_finish();
  headroom_reset();
  const headroom_statistics s = statistics();
  if (shadow.count() != 0) fail("blocks that nobody released");
  if (s.allocation.current != 0 || s.allocated_bytes.current != 0 || s.active.current != 0 ||
      s.requested_bytes.current != 0) {
    fail("figures that are not zero after everything was released");
  }
  if (headroom_fake_violations() != 0) fail(headroom_fake_first_violation());
  std::printf(
      "%lld operations (%lld in turns) in %.1f s, %lld refused; planned %lld (%lld in turns), "
      "reused %lld, general %lld, since the plan %lld, guests %lld; left reserved %lld of which "
      "the driver says "
      "%lld\n",
      static_cast<long long>(operations.load()), static_cast<long long>(in_turns.load()), seconds,
      static_cast<long long>(refused.load()), static_cast<long long>(s.planned_requests),
      static_cast<long long>(planned_in_turns.load()), static_cast<long long>(s.reused_requests),
      static_cast<long long>(s.general_requests), static_cast<long long>(s.fallback_requests),
      static_cast<long long>(guests()), static_cast<long long>(s.reserved_bytes.current),
      static_cast<long long>(headroom_fake_used_bytes(0)));
  if (std::getenv("HEADROOM_REPORT") != nullptr) std::printf("%s\n", report().c_str());
  if (s.reserved_bytes.current != headroom_fake_used_bytes(0)) {
    fail("reserved bytes are not what the driver gave");
  }
  return 0;
}
