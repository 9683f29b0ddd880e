// Planner: the thread that makes plans while the run goes on.
//
// It reads a RequestLog as it grows, looks for iterations in it, and once they are there, steady
// and confirmed by a second look, makes, checks and compiles a plan from the last of them. It runs
// at low priority, uses one core and makes no CUDA call; the threads that allocate give it 16 bytes
// an event and nothing else.
//
// When is a repetition an iteration? Layers repeat as well, while a forward pass fills memory up,
// and micro-batches do, while it is full. So the memory in use at the last boundaries must be the
// same, and the same period must be found again an iteration later. Marks (headroom_iteration())
// are a help, never a need: iterations without an optimizer's step in them are too short. Of how
// many there are in one nothing is thought, as every parameter may have an optimizer of its own.
//
// No thread that allocates waits for this one: what passes between them is single words
// (next_look_, the mailbox, the candidate) and a semaphore. What is large is freed here, too, as
// dispose() costs the same whatever it is given.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "memory/plan/memory_plan.h"
#include "runtime/planned_arena.h"
#include "runtime/prediction.h"
#include "runtime/request_log.h"

namespace headroom::runtime {

class Planner {
 public:
  struct Candidate {
    std::unique_ptr<PlannedArena> arena;  // null: best fit needs no more
    std::vector<uint32_t> streams;        // of the log, by track
    int64_t plan_bytes = 0;               // with what is persistent
    size_t iterations = 0;
    size_t kinds = 0;
    size_t requests = 0;  // of the log
    size_t marks = 0;     // of the log
    uint64_t generation = 0;
    double seconds = 0;
    Prediction prediction;
  };

  // `plan_out`: where each plan is written; may be empty. `always`: whatever is predicted.
  Planner(std::string plan_out, bool always);
  ~Planner();

  // From now on this log is read; null: none. REQUIRES: one thread at a time, no spin lock.
  void watch(std::shared_ptr<const RequestLog> log);
  // Has the log come to a size at which it is worth a look? Then call look().
  [[nodiscard]] bool is_due(size_t entries) const {
    return entries >= (next_look_.load(std::memory_order_relaxed) & kNoLook);
  }
  void look();
  // The optimizer's steps will be marked.
  void expect_marks() { expects_marks_ = true; }
  // No stream is made to wait by us.
  void forbid_joins() { allows_joins_ = false; }

  [[nodiscard]] bool has_candidate() const {
    return candidate_.load(std::memory_order_acquire) != nullptr;
  }
  // Null where there is none, or one of a log that is not watched any more.
  std::unique_ptr<Candidate> take();
  // Frees it in the planner's thread, some time.
  void dispose(std::shared_ptr<const void> what);

  // Lets a plan that is being made be finished until then, and stops; a thread that does not come
  // to its end soon after is left alone.
  void stop(std::chrono::steady_clock::time_point until);
  // Why there is no plan yet, or what became of the last look.
  [[nodiscard]] std::string state() const;
  // Why the last plan is not in its file; empty where it is, or none was asked for.
  [[nodiscard]] std::string not_kept() const;

 private:
  struct Mail {
    uint64_t generation = 0;
    std::shared_ptr<const RequestLog> log;
  };
  struct Trash {
    std::shared_ptr<const void> what;
    Trash* next = nullptr;
  };
  // next_look_: the generation of the log above, below it the size at which to look.
  static constexpr unsigned kSizeBits = 40;
  static constexpr uint64_t kNoLook = (uint64_t{1} << kSizeBits) - 1;

  void run();
  bool wait_for_wish();
  void look_once();
  void plan_next_look(const RequestLog& log);
  void empty_trash();
  std::unique_ptr<Candidate> try_to_plan(const RequestLog& log);
  bool is_confirmed(double period);
  void say(std::string state);
  void keep(const memory::MemoryPlan& plan);

  const std::string plan_out_;
  const bool always_;
  std::atomic<uint64_t> next_look_ = kNoLook;
  std::atomic<uint64_t> generation_ = 0;  // of the log that is watched
  std::atomic<Mail*> mailbox_ = nullptr;  // owned, as is what follows
  std::atomic<Candidate*> candidate_ = nullptr;
  std::atomic<Trash*> trash_ = nullptr;
  std::atomic<uint32_t> wishes_ = 0;  // looks that were asked for
  std::atomic<bool> expects_marks_ = false;
  std::atomic<bool> allows_joins_ = true;
  std::atomic<bool> is_stopped_ = false;
  std::atomic<bool> has_failed_ = false;  // no further looks
  sem_t wake_;

  // Of the thread.
  Mail watched_;
  double last_period_ = 0;
  double entries_per_request_ = 2;  // of the log: itself, its release, events and marks
  bool to_be_confirmed_ = false;

  // For those who ask how it is and those who end it; never taken by a request.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string state_ = "too few requests to find iterations in";
  std::string not_kept_;
  uint32_t looked_ = 0;    // wishes that were met
  bool is_over_ = false;   // the thread is at its end
  std::mutex stop_mutex_;  // taken before mutex_
  std::thread thread_;
};

// A plan from the iterations that a log shows, or why there is none.
struct PlanAttempt {
  memory::MemoryPlan plan;
  std::optional<memory::MemoryPlan> lending;  // the same with guests, where there are any
  size_t iterations = 0;
  size_t kinds = 0;
  double period = 0;  // requests of an iteration, on average
  PredictionTimes times;
  std::string refused;  // empty where there is a plan
};
struct PlanQuestion {
  // Marks will come: until the first one, only what repeats very often counts.
  bool expects_marks = false;
  // A plan may count on the borrower being made to wait for streams that are quiet.
  bool allows_joins = true;
  // Ends the search for a better plan.
  std::function<bool()> is_out_of_time;
  // What is found is handed to it; it may refuse before any planning is done.
  std::function<bool(double period)> confirm;
};
[[nodiscard]] PlanAttempt plan_from(const RequestLog::Understood& log,
                                    const PlanQuestion& question);

}  // namespace headroom::runtime
