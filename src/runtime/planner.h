// Planner: the thread that makes plans while the run goes on.
//
// It reads a RequestLog as it grows, looks for iterations in it, and once they are there, steady
// and confirmed by a second look, makes, checks and compiles a plan from the last of them. It runs
// at low priority, uses one core and makes no CUDA call; the threads that allocate give it 16 bytes
// an event and nothing else.
//
// When is a repetition an iteration? Layers repeat as well, while a forward pass fills memory up.
// So the memory in use at the last boundaries must be the same, and the same period must be found
// again an iteration later. (headroom_iteration() is no help here: where every parameter has an
// optimizer of its own, one step makes hundreds of marks. Recordings keep them.)
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
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
    double seconds = 0;
    Prediction prediction;
  };

  // `plan_out`: where each plan is written; may be empty. `always`: whatever is predicted.
  Planner(std::string plan_out, bool always);
  ~Planner();

  // From now on this log is read; null: none. Not under a spin lock.
  void watch(std::shared_ptr<const RequestLog> log);
  // Has the log come to a size at which it is worth a look? Then call look().
  [[nodiscard]] bool is_due(size_t entries) const {
    return entries >= next_look_.load(std::memory_order_relaxed);
  }
  void look();

  [[nodiscard]] bool has_candidate() const {
    return has_candidate_.load(std::memory_order_acquire);
  }
  std::unique_ptr<Candidate> take();

  // Lets a plan that is being made be finished until then, and stops; a thread that does not come
  // to its end soon after is left alone.
  void stop(std::chrono::steady_clock::time_point until);
  // Why there is no plan yet, or what became of the last look.
  [[nodiscard]] std::string state() const;

 private:
  void run();
  std::unique_ptr<Candidate> try_to_plan(const std::shared_ptr<const RequestLog>& log);
  bool is_confirmed(double period);
  void say(std::string state);

  const std::string plan_out_;
  const bool always_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const RequestLog> log_;
  std::unique_ptr<Candidate> candidate_;
  std::string state_ = "recording";
  double last_period_ = 0;        // of the thread
  bool to_be_confirmed_ = false;  // of the thread
  bool wants_look_ = false;
  bool is_looking_ = false;
  bool is_over_ = false;     // the thread is at its end
  bool has_failed_ = false;  // no further looks
  std::mutex stop_mutex_;    // taken before mutex_
  std::atomic<bool> is_stopped_ = false;
  std::atomic<bool> has_candidate_ = false;
  std::atomic<size_t> next_look_;
  std::thread thread_;
};

// A plan from the iterations that a log shows, or why there is none.
struct PlanAttempt {
  memory::MemoryPlan plan;
  size_t iterations = 0;
  size_t kinds = 0;
  double period = 0;  // requests of an iteration, on average
  PredictionTimes times;
  std::string refused;  // empty where there is a plan
};
// What is found is handed to `confirm`, which may refuse before any planning is done.
// `is_out_of_time` ends the search for a better plan.
[[nodiscard]] PlanAttempt plan_from(const RequestLog::Understood& log,
                                    const std::function<bool()>& is_out_of_time,
                                    const std::function<bool(double period)>& confirm);

}  // namespace headroom::runtime
