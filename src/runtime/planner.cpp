#include "runtime/planner.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/units.h"
#include "memory/plan/plan_checker.h"
#include "memory/plan/plan_file.h"
#include "memory/plan/plan_maker.h"
#include "memory/plan/servable_plan.h"
#include "runtime/signals_blocked.h"

namespace headroom::runtime {
namespace {

constexpr size_t kFirstLook = 512;            // entries of the log
constexpr std::chrono::seconds kStopTime{1};  // for a thread that was told to stop
constexpr size_t kLeastIterations = 3;
// Where there are marks, so many of the iterations hold one: there is evaluation as well.
constexpr double kMarkedShare = 0.6;
constexpr size_t kLeastMarks = 4;
// Where marks are expected and none came: as often must it have been repeated, in as many entries.
constexpr size_t kUnmarkedIterations = 32;
constexpr size_t kUnmarkedRequests = size_t{1} << 17;
constexpr size_t kReadIterations = 2;  // that a prediction is read from
// The first, four to plan from, and those to read.
constexpr size_t kEnoughToHoldOut = 5 + kReadIterations;
constexpr int64_t kLeastOfAKind = 2;
constexpr double kFewWithoutSlot = 0.05;
constexpr int64_t kPage = 2 * kMiB;     // what every driver so far has as granularity
constexpr size_t kMostPlannedFrom = 8;  // of each kind
constexpr double kGrowth = 1.15;        // of the log, from one look to the next
constexpr double kSamePeriod = 0.2;
constexpr double kSteady = 0.02;  // of the bytes in use at a boundary
constexpr double kMostSeconds = 60;
// A plan serves where it is predicted to need at most so many times what best fit does, by the
// share of the requests that found their slots. Where nearly all did it is faster, and a prediction
// about so exact; the more did not, the more it must save, as what fits into idle space now will
// not fit as well in iterations to come.
struct Demand {
  double slot_share = 0;  // at least
  double most = 0;        // of what best fit needs
};
constexpr std::array<Demand, 3> kDemands{{{0.995, 1.005}, {0.9, 0.98}, {0, 0.95}}};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes in use at the last boundaries: of kLeastIterations iterations, or of as many as there are.
bool is_steady(const RequestLog::Understood& log, const memory::Iterations& iterations) {
  std::vector<int64_t> boundaries;
  const auto& whole = iterations.whole;
  for (size_t i = whole.size() - std::min(whole.size(), kLeastIterations); i < whole.size(); ++i) {
    boundaries.push_back(whole[i].lower);
  }
  // A step that sleeps at its end is seen with nothing behind it but its last releases.
  const bool is_last = whole.back().end == log.requests.size();
  boundaries.push_back(is_last ? log.end : whole.back().upper);
  std::vector<int64_t> bytes(boundaries.size(), 0);
  for (const memory::RecordedRequest& request : log.requests) {
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

// What is read while the last iteration is nearly over takes it for a whole one; whoever waits for
// the device behind each optimizer step is always read there, with all gradients alive. Without
// marks what differs there says that these are micro-batches, perhaps, and no iterations.
void leave_out_unfinished(const RequestLog::Understood& log, memory::Iterations& iterations) {
  const bool can_be = !log.marks.empty() && iterations.whole.size() > kLeastIterations &&
                      iterations.whole.back().end == log.requests.size();
  if (can_be && !is_steady(log, iterations)) iterations.whole.pop_back();
}

// Written beside its place and moved there, so that nobody reads half a plan.
Result<void> write_plan(const memory::MemoryPlan& plan, const std::string& path) {
  HEADROOM_ASSIGN(const std::string bytes, memory::plan_file(plan));
  const std::string beside = path + "." + std::to_string(getpid());
  std::ofstream file(beside, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file && std::rename(beside.c_str(), path.c_str()) == 0) return {};
  const std::string reason = std::strerror(errno);
  std::remove(beside.c_str());
  return Error{ErrorCode::unavailable, "cannot write the plan: " + reason, path, {}};
}

bool are_marked(const memory::Iterations& iterations, std::span<const int64_t> marks) {
  const auto has_mark = [&](const memory::Iteration& iteration) {
    const auto mark = std::upper_bound(marks.begin(), marks.end(), iteration.lower);
    return mark != marks.end() && *mark <= iteration.upper;
  };
  const auto marked = std::count_if(iterations.whole.begin(), iterations.whole.end(), has_mark);
  return static_cast<double>(marked) >= kMarkedShare * static_cast<double>(iterations.whole.size());
}

// By the sequence; where that finds what is too short, between the marks.
memory::Iterations find(const RequestLog::Understood& log) {
  memory::Iterations iterations = memory::find_iterations(log.requests);
  if (log.marks.empty() || iterations.whole.empty() || are_marked(iterations, log.marks)) {
    return iterations;
  }
  return log.marks.size() < kLeastMarks ? memory::Iterations{}
                                        : memory::find_iterations(log.requests, log.marks);
}

template <typename Is>
bool has_slots(const memory::MemoryPlan& plan, Is&& is) {
  return std::any_of(plan.signatures.begin(), plan.signatures.end(), [&](const auto& signature) {
    return std::any_of(signature.slots.begin(), signature.slots.end(), is);
  });
}
bool has_guests(const memory::MemoryPlan& plan) {
  return has_slots(plan, [](const memory::PlannedSlot& slot) { return slot.is_guest; });
}
bool has_varying_slots(const memory::MemoryPlan& plan) {
  return has_slots(plan,
                   [](const memory::PlannedSlot& slot) { return slot.smallest != slot.largest; });
}

// Whether the last iterations can be left out: of each one's kind there are others to plan from.
bool can_hold_out(const memory::Iterations& iterations) {
  const std::vector<memory::Iteration>& whole = iterations.whole;
  if (whole.size() < kEnoughToHoldOut) return false;
  const auto last = whole.end() - kReadIterations;
  return std::all_of(last, whole.end(), [&](const memory::Iteration& read) {
    const auto is_like = [&](const memory::Iteration& one) { return one.kind == read.kind; };
    return std::count_if(whole.begin() + 1, last, is_like) >= kLeastOfAKind;
  });
}

// Whether iterations differ, so that a plan fits those that it is made from better than others.
bool is_dynamic(const memory::MemoryPlan& plan) {
  size_t slots = 0;
  size_t places = 0;
  for (const memory::SignaturePlan& signature : plan.signatures) {
    slots += signature.slots.size();
    places += signature.places.size();
  }
  return has_varying_slots(plan) ||
         static_cast<double>(places) > kFewWithoutSlot * static_cast<double>(slots);
}

bool is_near_enough(const Prediction& prediction) {
  const auto demand = std::ranges::find_if(
      kDemands, [&](const Demand& one) { return prediction.slot_share >= one.slot_share; });
  return static_cast<double>(prediction.planned_bytes) <=
         demand->most * static_cast<double>(prediction.best_fit_bytes);
}

struct Judged {
  const memory::MemoryPlan* plan = nullptr;
  std::shared_ptr<const CompiledPlan> compiled;
  Prediction prediction;
};

// With guests where that needs less. Where they have to see that the device is done, it may serve
// only by the same rule as any other plan, even where none of them ever comes into its place, as
// the device is too far behind; the program's own order is no matter of chance.
Judged judge(const PlanAttempt& attempt, const RequestLog::Understood& log, bool always) {
  const auto read = [&](const memory::MemoryPlan& plan) {
    Judged judged{&plan, std::make_shared<const CompiledPlan>(compile_plan(plan)), {}};
    judged.prediction = predict(judged.compiled, log, attempt.times, kPage);
    return judged;
  };
  Judged apart = read(attempt.plan);
  if (!attempt.lending) return apart;
  Judged lending = read(*attempt.lending);
  const int64_t now = is_near_enough(apart.prediction) ? apart.prediction.planned_bytes
                                                       : apart.prediction.best_fit_bytes;
  if (always) return lending;
  if (lending.prediction.planned_bytes >= now) return apart;
  Prediction worst = lending.prediction;
  if (!lending.compiled->lends_in_order) {
    worst = predict(lending.compiled, log, attempt.times, kPage, false);
    worst.slot_share = lending.prediction.slot_share;  // guests have slots, if others' place
  }
  return is_near_enough(worst) ? lending : apart;
}

}  // namespace

namespace {

// The same with guests: in the program's order, where it has one, or behind events; of both what
// needs less.
Result<void> add_lending(const memory::UnderstoodRecording& recording, memory::PlanOptions options,
                         PlanAttempt& attempt) {
  using memory::Lending;
  for (const Lending lending : {Lending::behind_order, Lending::behind_events}) {
    if (lending == Lending::behind_order && recording.order->is_empty()) continue;
    options.lending = lending;
    memory::MemoryPlan made = memory::make_plan(recording, options, true);
    HEADROOM_TRY(memory::check_plan(made));
    const int64_t least = attempt.lending ? attempt.lending->bytes : attempt.plan.bytes;
    if (has_guests(made) && made.bytes < least) attempt.lending = std::move(made);
  }
  return {};
}

}  // namespace

PlanAttempt plan_from(const RequestLog::Understood& log, const PlanQuestion& question) {
  PlanAttempt attempt;
  memory::Iterations iterations = find(log);
  leave_out_unfinished(log, iterations);
  attempt.iterations = iterations.whole.size();
  attempt.kinds = iterations.kinds;
  if (attempt.iterations < kLeastIterations) {
    attempt.refused = "no iterations found yet";
    return attempt;
  }
  if (question.expects_marks && log.marks.empty() &&
      (attempt.iterations < kUnmarkedIterations || log.requests.size() < kUnmarkedRequests)) {
    attempt.refused = "no optimizer's step yet";
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
  if (!is_steady(log, iterations)) {
    attempt.refused = "memory in use differs from one iteration to the next";
    return attempt;
  }
  if (!question.confirm(attempt.period)) {
    attempt.refused = "iterations found, to be confirmed";
    return attempt;
  }
  const memory::RequestClasses classes = memory::classify_requests(log.requests, iterations);
  const memory::SlotFinder finder(log.requests, iterations);
  memory::PlanOptions options;
  options.alignment = memory::kServedAlignment;
  options.most_iterations = kMostPlannedFrom;
  options.synthesis.depth = memory::SynthesisDepth::first_fit;
  options.synthesis.near_enough = 0.002;
  options.synthesis.threads = 1;
  options.synthesis.is_out_of_time = question.is_out_of_time;
  // Judged by iterations that it is not made from, where there are enough.
  const bool is_held_out = can_hold_out(iterations);
  if (is_held_out) options.held_out = kReadIterations;
  attempt.plan = memory::make_plan({log.requests, iterations, classes, finder}, options);
  if (!is_held_out && is_dynamic(attempt.plan)) {
    attempt.refused = "iterations differ: more of them are to be seen";
    return attempt;
  }
  Result<void> checked = memory::check_plan(attempt.plan);
  if (checked && attempt.plan.streams.size() > 1 && !has_varying_slots(attempt.plan)) {
    const memory::OrderHistory order(log.order, log.requests);
    options.joins = question.allows_joins;
    checked = add_lending({log.requests, iterations, classes, finder, &order}, options, attempt);
  }
  if (!checked) attempt.refused = "a plan that its checker refused: " + checked.error().to_string();
  return attempt;
}

Planner::Planner(std::string plan_out, bool always)
    : plan_out_(std::move(plan_out)), always_(always) {
  sem_init(&wake_, 0, 0);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Planner::~Planner() {
  stop(Clock::now());
  if (thread_.joinable()) thread_.join();
  empty_trash();
  delete mailbox_.load();
  delete candidate_.load();
  sem_destroy(&wake_);
}

void Planner::watch(std::shared_ptr<const RequestLog> log) {
  const uint64_t generation = generation_.load() + 1;
  const bool is_looked_at = log != nullptr && !has_failed_;
  dispose(std::shared_ptr<Candidate>(candidate_.exchange(nullptr)));
  dispose(std::shared_ptr<Mail>(mailbox_.exchange(new Mail{generation, std::move(log)})));
  generation_ = generation;
  next_look_ = generation << kSizeBits | (is_looked_at ? kFirstLook : kNoLook);
}

void Planner::look() {
  next_look_ |= kNoLook;  // until this look is over
  ++wishes_;
  sem_post(&wake_);
}

std::unique_ptr<Planner::Candidate> Planner::take() {
  std::unique_ptr<Candidate> taken(candidate_.exchange(nullptr));
  if (taken != nullptr && taken->generation != generation_) {
    dispose(std::shared_ptr<Candidate>(std::move(taken)));
  }
  return taken;
}

void Planner::dispose(std::shared_ptr<const void> what) {
  if (what == nullptr) return;
  auto* const trash = new Trash{std::move(what), trash_.load()};
  while (!trash_.compare_exchange_weak(trash->next, trash)) {
  }
  sem_post(&wake_);
}

void Planner::empty_trash() {
  for (Trash* trash = trash_.exchange(nullptr); trash != nullptr;) {
    delete std::exchange(trash, trash->next);
  }
}

std::string Planner::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::string Planner::not_kept() const {
  const std::lock_guard lock(mutex_);
  return not_kept_;
}

void Planner::say(std::string state) {
  const std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

void Planner::stop(Clock::time_point until) {
  const std::lock_guard one(stop_mutex_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [this] { return is_over_ || looked_ == wishes_; });
    is_stopped_ = true;
    sem_post(&wake_);
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

// False where it is time to end.
bool Planner::wait_for_wish() {
  for (;;) {
    while (sem_wait(&wake_) != 0) {
    }
    if (is_stopped_) return false;
    empty_trash();
    if (Mail* const mail = mailbox_.exchange(nullptr)) {
      watched_ = std::move(*mail);
      delete mail;
      last_period_ = 0;
    }
    if (wishes_ != looked_) return true;
  }
}

void Planner::run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
  while (wait_for_wish()) {
    const uint32_t wishes = wishes_;
    if (!has_failed_ && watched_.log != nullptr) look_once();
    const std::lock_guard lock(mutex_);
    looked_ = wishes;
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void Planner::look_once() {
  std::unique_ptr<Candidate> made;
  try {
    made = try_to_plan(*watched_.log);
  } catch (const std::exception&) {  // out of host memory, most likely: the run matters more
    has_failed_ = true;
    say("planner failed");  // short enough to need no memory
    watched_.log.reset();
    return;
  }
  if (made == nullptr) {
    plan_next_look(*watched_.log);
    return;
  }
  made->generation = watched_.generation;
  delete candidate_.exchange(made.release());
  watched_.log.reset();  // nobody writes it once the candidate is taken
}

// Nothing, where another log is watched by now.
void Planner::plan_next_look(const RequestLog& log) {
  // What waits to be confirmed is looked at again one iteration later.
  const auto seen = static_cast<double>(log.size());
  const double more =
      to_be_confirmed_ ? 1.1 * entries_per_request_ * last_period_ : seen * (kGrowth - 1);
  const auto next = static_cast<uint64_t>(seen + std::max<double>(more, kFirstLook));
  uint64_t none = watched_.generation << kSizeBits | kNoLook;
  next_look_.compare_exchange_strong(none, watched_.generation << kSizeBits | next);
  if (log.is_full() && wishes_ == looked_ + 1) watched_.log.reset();  // it was looked at whole
}

// It serves this run whether or not the next one will find it.
void Planner::keep(const memory::MemoryPlan& plan) {
  const Result<void> written = write_plan(plan, plan_out_);
  const std::lock_guard lock(mutex_);
  not_kept_ = written ? std::string() : written.error().to_string();
}

std::unique_ptr<Planner::Candidate> Planner::try_to_plan(const RequestLog& log) {
  const Clock::time_point start = Clock::now();
  to_be_confirmed_ = false;
  const size_t entries = log.size();
  const RequestLog::Understood understood = log.read(entries);
  entries_per_request_ = std::max(
      2.0, static_cast<double>(entries) / static_cast<double>(understood.requests.size() + 1));
  PlanQuestion question;
  question.expects_marks = expects_marks_;
  question.allows_joins = allows_joins_;
  question.is_out_of_time = [&] { return is_stopped_ || seconds_since(start) > kMostSeconds; };
  question.confirm = [this](double period) { return is_confirmed(period); };
  const PlanAttempt attempt = plan_from(understood, question);
  if (!attempt.refused.empty()) {
    say(attempt.refused);
    return nullptr;
  }
  auto candidate = std::make_unique<Candidate>();
  candidate->iterations = attempt.iterations;
  candidate->kinds = attempt.kinds;
  candidate->requests = understood.requests.size();
  candidate->marks = understood.marks.size();
  const Judged judged = judge(attempt, understood, always_);
  candidate->plan_bytes = judged.plan->bytes;
  candidate->prediction = judged.prediction;
  if (!always_ && !is_near_enough(judged.prediction)) {
    candidate->seconds = seconds_since(start);
    say("best fit needs no more than a plan would");
    return candidate;
  }
  if (!plan_out_.empty()) keep(*judged.plan);
  candidate->arena = std::make_unique<PlannedArena>(judged.compiled);
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
