#include "runtime/planner.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "memory/plan/plan_checker.h"
#include "memory/plan/plan_file.h"
#include "memory/plan/plan_maker.h"

namespace headroom::runtime {
namespace {

constexpr size_t kFirstLook = 512;  // entries of the log
constexpr size_t kNoLook = static_cast<size_t>(-1);
constexpr std::chrono::seconds kStopTime{1};  // for a thread that was told to stop
constexpr size_t kLeastIterations = 3;
constexpr size_t kReadIterations = 2;   // that a prediction is read from
constexpr int64_t kPage = 2 * kMiB;     // what every driver so far has as granularity
constexpr size_t kMostPlannedFrom = 8;  // of each kind
constexpr double kGrowth = 1.15;        // of the log, from one look to the next
constexpr double kSamePeriod = 0.2;
constexpr double kSteady = 0.02;  // of the bytes in use at a boundary
constexpr double kMostSeconds = 60;
// A plan serves where it is predicted to need at most so many times what best fit does: it is
// faster, and a prediction from few iterations is about so exact.
constexpr double kNearEnough = 1.005;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes in use at the last boundaries: of kLeastIterations iterations, or of as many as there are.
bool is_steady(std::span<const memory::RecordedRequest> requests,
               const memory::Iterations& iterations) {
  std::vector<int64_t> boundaries;
  const auto& whole = iterations.whole;
  for (size_t i = whole.size() - std::min(whole.size(), kLeastIterations); i < whole.size(); ++i) {
    boundaries.push_back(whole[i].lower);
  }
  boundaries.push_back(whole.back().upper);
  std::vector<int64_t> bytes(boundaries.size(), 0);
  for (const memory::RecordedRequest& request : requests) {
    for (size_t i = 0; i < boundaries.size(); ++i) {
      if (request.lower < boundaries[i] && request.upper >= boundaries[i]) {
        bytes[i] += request.size;
      }
    }
  }
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  return static_cast<double>(*most - *least) <=
         std::max(kSteady * static_cast<double>(*most), static_cast<double>(kMiB));
}

// Written beside its place and moved there, so that nobody reads half a plan.
void write_plan(const memory::MemoryPlan& plan, const std::string& path) {
  const auto bytes = memory::plan_file(plan);
  if (!bytes) return;
  const std::string beside = path + "." + std::to_string(getpid());
  std::ofstream file(beside, std::ios::binary);
  file.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
  file.close();
  if (!file || std::rename(beside.c_str(), path.c_str()) != 0) std::remove(beside.c_str());
}

}  // namespace

PlanAttempt plan_from(const RequestLog::Understood& log,
                      const std::function<bool()>& is_out_of_time,
                      const std::function<bool(double)>& confirm) {
  PlanAttempt attempt;
  const memory::Iterations iterations = memory::find_iterations(log.requests);
  attempt.iterations = iterations.whole.size();
  attempt.kinds = iterations.kinds;
  if (attempt.iterations < kLeastIterations) {
    attempt.refused = "no iterations found yet";
    return attempt;
  }
  const memory::Iteration& first = iterations.whole.front();
  const memory::Iteration& last = iterations.whole.back();
  attempt.period =
      static_cast<double>(last.end - first.begin) / static_cast<double>(attempt.iterations);
  attempt.times.follows_from = iterations.whole[attempt.iterations - kReadIterations - 1].lower;
  attempt.times.serves_from = iterations.whole[attempt.iterations - kReadIterations].lower;
  if (static_cast<double>(log.requests.size() - last.end) > 2 * attempt.period + 64) {
    attempt.refused = "what was repeated is over";
    return attempt;
  }
  if (!is_steady(log.requests, iterations)) {
    attempt.refused = "memory in use differs from one iteration to the next";
    return attempt;
  }
  if (!confirm(attempt.period)) {
    attempt.refused = "iterations found, to be confirmed";
    return attempt;
  }
  const memory::RequestClasses classes = memory::classify_requests(log.requests, iterations);
  const memory::SlotFinder finder(log.requests, iterations);
  memory::PlanOptions options;
  options.alignment = 512;
  options.most_iterations = kMostPlannedFrom;
  options.synthesis.depth = memory::SynthesisDepth::first_fit;
  options.synthesis.near_enough = 0.002;
  options.synthesis.threads = 1;
  options.synthesis.is_out_of_time = is_out_of_time;
  attempt.plan = memory::make_plan({log.requests, iterations, classes, finder}, options);
  const Result<void> checked = memory::check_plan(attempt.plan);
  if (!checked) attempt.refused = "a plan that its checker refused: " + checked.error().to_string();
  return attempt;
}

Planner::Planner(std::string plan_out, bool always)
    : plan_out_(std::move(plan_out)), always_(always), next_look_(kFirstLook) {
  // Signals are the program's, not ours.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Planner::~Planner() {
  stop(Clock::now());
  if (thread_.joinable()) thread_.join();
}

void Planner::watch(std::shared_ptr<const RequestLog> log) {
  const std::lock_guard lock(mutex_);
  log_ = std::move(log);
  candidate_.reset();
  has_candidate_ = false;
  last_period_ = 0;
  next_look_ = has_failed_ ? kNoLook : kFirstLook;
}

void Planner::look() {
  next_look_ = kNoLook;  // until this look is over
  const std::lock_guard lock(mutex_);
  wants_look_ = true;
  changed_.notify_all();
}

std::unique_ptr<Planner::Candidate> Planner::take() {
  const std::lock_guard lock(mutex_);
  has_candidate_ = false;
  return std::move(candidate_);
}

std::string Planner::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Planner::say(std::string state) {
  const std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

void Planner::stop(Clock::time_point until) {
  const std::lock_guard one(stop_mutex_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [this] { return is_over_ || (!is_looking_ && !wants_look_); });
    is_stopped_ = true;
    changed_.notify_all();
    const auto latest = std::max(until, Clock::now()) + kStopTime;
    if (!changed_.wait_until(lock, latest, [this] { return is_over_; })) return;
  }
  if (thread_.joinable()) thread_.join();
}

bool Planner::is_confirmed(double period) {
  const double before = std::exchange(last_period_, period);
  to_be_confirmed_ = std::abs(period - before) > kSamePeriod * period;
  return !to_be_confirmed_;
}

void Planner::run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return wants_look_ || is_stopped_; });
    if (is_stopped_) break;
    wants_look_ = false;
    if (has_failed_) continue;
    is_looking_ = true;
    const std::shared_ptr<const RequestLog> log = log_;
    lock.unlock();
    std::unique_ptr<Candidate> made;
    bool has_failed = false;
    try {
      if (log != nullptr) made = try_to_plan(log);
    } catch (const std::exception&) {  // out of host memory, most likely: the run matters more
      has_failed = true;
    }
    lock.lock();
    is_looking_ = false;
    if (has_failed) {
      has_failed_ = true;
      state_ = "planner failed";  // short enough to need no memory
      next_look_ = kNoLook;
      log_.reset();
      changed_.notify_all();
      continue;
    }
    if (log != nullptr && log == log_ && made == nullptr) {
      // What waits to be confirmed is looked at again one iteration later: an entry for each
      // request and for its release.
      const auto seen = static_cast<double>(log->size());
      const double more = to_be_confirmed_ ? 2.2 * last_period_ : seen * (kGrowth - 1);
      next_look_ = static_cast<size_t>(seen + std::max<double>(more, kFirstLook));
      if (log->is_full() && !wants_look_) log_.reset();  // it was looked at whole
    }
    if (made != nullptr && log == log_) {
      candidate_ = std::move(made);
      has_candidate_ = true;
    }
    changed_.notify_all();
  }
  is_over_ = true;
  changed_.notify_all();
}

std::unique_ptr<Planner::Candidate> Planner::try_to_plan(
    const std::shared_ptr<const RequestLog>& log) {
  const Clock::time_point start = Clock::now();
  to_be_confirmed_ = false;
  const RequestLog::Understood understood = log->read(log->size());
  const PlanAttempt attempt = plan_from(
      understood, [&] { return is_stopped_.load() || seconds_since(start) > kMostSeconds; },
      [this](double period) { return is_confirmed(period); });
  if (!attempt.refused.empty()) {
    say(attempt.refused);
    return nullptr;
  }
  auto candidate = std::make_unique<Candidate>();
  candidate->plan_bytes = attempt.plan.bytes;
  candidate->iterations = attempt.iterations;
  candidate->kinds = attempt.kinds;
  candidate->requests = understood.requests.size();
  const auto compiled = std::make_shared<const CompiledPlan>(compile_plan(attempt.plan));
  candidate->prediction = predict(compiled, understood, attempt.times, kPage);
  if (!always_ && static_cast<double>(candidate->prediction.planned_bytes) >
                      kNearEnough * static_cast<double>(candidate->prediction.best_fit_bytes)) {
    candidate->seconds = seconds_since(start);
    say("best fit needs no more than a plan would");
    return candidate;
  }
  if (!plan_out_.empty()) write_plan(attempt.plan, plan_out_);
  candidate->arena = std::make_unique<PlannedArena>(compiled);
  // The plan numbers the streams of its requests in order.
  for (const memory::RecordedRequest& request : understood.requests) {
    candidate->streams.push_back(static_cast<uint32_t>(request.stream));
  }
  std::sort(candidate->streams.begin(), candidate->streams.end());
  candidate->streams.erase(std::unique(candidate->streams.begin(), candidate->streams.end()),
                           candidate->streams.end());
  candidate->seconds = seconds_since(start);
  say("planned");
  return candidate;
}

}  // namespace headroom::runtime
