#include "serving/engine_simulator.h"

#include <algorithm>
#include <deque>

#include "base/check.h"
#include "serving/kv_blocks.h"

namespace headroom::serving {
namespace {

// Of the blocks, kept free when prompts are admitted whole (vLLM 0.6.3's watermark).
constexpr double kWatermark = 0.01;

struct Sequence {
  int64_t total = 0;      // tokens that are known: the prompt and what was written
  int64_t computed = 0;   // of them, in the cache
  int64_t scheduled = 0;  // to be computed in this iteration
  int64_t written = 0;
  int64_t asked = 0;         // to be written
  int64_t blocks = 0;        // its own
  int64_t capacity = 0;      // tokens that its blocks and groups hold
  int64_t shared_until = 0;  // hashes that were offered to others
  double last_token = 0;
  std::vector<uint64_t> groups;  // blocks that it uses together with others

  [[nodiscard]] bool decodes() const { return written > 0 && total - computed == 1; }
};

class Engine {
 public:
  Engine(const Arrivals& arrivals, const IterationLaw& law, const EngineLimits& limits,
         const SimulationOptions& options)
      : arrivals_(arrivals),
        law_(law),
        limits_(limits),
        options_(options),
        blocks_(limits.kv_blocks, arrivals.hash_tokens / limits.block_tokens),
        sequences_(arrivals.requests.size()) {
    HEADROOM_CHECK(arrivals.hash_tokens % limits.block_tokens == 0, "hashes of whole blocks");
    HEADROOM_CHECK(limits.max_num_seqs >= 1 && limits.max_num_batched_tokens >= 1, "limits");
    run_.requests.resize(arrivals.requests.size());
    to_ = std::min(options.to, arrivals.requests.size());
    wanted_ = static_cast<int64_t>(to_ - std::min(options.from, to_));
  }

  SimulatedRun run() {
    while (wanted_ > 0) {
      take_arrivals();
      if (waiting_.empty() && running_.empty()) {
        if (next_ == arrivals_.requests.size()) break;
        go_to(arrival_of(next_));
        continue;
      }
      schedule();
      compute();
    }
    flush_gaps();
    run_.seconds = now_;
    run_.blocks_at_end = blocks_.in_use();
    return std::move(run_);
  }

 private:
  [[nodiscard]] double arrival_of(size_t request) const {
    if (options_.closed_loop > 0) return now_;
    return arrivals_.requests[request].seconds * options_.stretch;
  }
  [[nodiscard]] bool is_wanted(size_t request) const {
    return request >= options_.from && request < to_;
  }
  [[nodiscard]] int64_t blocks_for(int64_t tokens) const {
    return (tokens + limits_.block_tokens - 1) / limits_.block_tokens;
  }
  void go_to(double seconds) {
    run_.in_system_seconds += static_cast<double>(in_system_) * (seconds - now_);
    now_ = seconds;
  }

  void take_arrivals();
  void schedule();
  void schedule_running(int64_t& budget);
  void admit(int64_t budget);
  bool grow(Sequence& sequence, int64_t tokens);
  void preempt_last();
  void compute();
  void give_tokens(size_t request, int64_t tokens);
  [[nodiscard]] int64_t drafts_of(const Sequence& sequence) const;
  void decode(size_t request);
  void share_prompt(size_t request);
  void add_gap(double gap);
  void flush_gaps();

  const Arrivals& arrivals_;
  const IterationLaw& law_;
  const EngineLimits& limits_;
  const SimulationOptions& options_;
  KvBlocks blocks_;
  std::vector<Sequence> sequences_;  // of each request
  std::deque<size_t> waiting_;
  std::vector<size_t> running_;  // in order of admission
  SimulatedRun run_;
  size_t next_ = 0;  // to come
  size_t to_ = 0;
  int64_t wanted_ = 0;  // that have not ended
  int64_t in_system_ = 0;
  double now_ = 0;
  bool has_preempted_ = false;  // in this iteration
  double gap_ = 0;              // the same for most sequences of an iteration
  int64_t gaps_ = 0;            // so many of it
};

// Up to now, each at its own time for the integral.
void Engine::take_arrivals() {
  const double until = now_;
  for (; next_ < arrivals_.requests.size(); ++next_) {
    if (options_.closed_loop > 0 ? in_system_ >= options_.closed_loop : arrival_of(next_) > until) {
      break;
    }
    const ArrivingRequest& request = arrivals_.requests[next_];
    RequestOutcome& outcome = run_.requests[next_];
    outcome.arrived = arrival_of(next_);
    outcome.output_tokens = request.output_tokens;
    if (blocks_for(request.input_tokens + request.output_tokens) > blocks_.all()) {
      outcome.is_refused = true;
      if (is_wanted(next_)) --wanted_;
      continue;
    }
    run_.in_system_seconds += until - outcome.arrived;
    ++in_system_;
    sequences_[next_].total = request.input_tokens;
    sequences_[next_].asked = request.output_tokens;
    waiting_.push_back(next_);
  }
}

void Engine::schedule() {
  has_preempted_ = false;
  int64_t budget = limits_.max_num_batched_tokens;
  if (limits_.has_chunked_prefill) {
    schedule_running(budget);
    if (!has_preempted_) admit(budget);
    return;
  }
  for (const size_t request : running_) sequences_[request].scheduled = 0;
  const size_t before = running_.size();
  admit(budget);
  if (running_.size() > before) return;
  budget = static_cast<int64_t>(running_.size()) * (1 + limits_.speculation.draft_tokens);
  schedule_running(budget);
}

// No more than it has still to write.
int64_t Engine::drafts_of(const Sequence& sequence) const {
  if (!sequence.decodes()) return 0;
  return std::clamp<int64_t>(sequence.asked - sequence.written - 1, 0,
                             limits_.speculation.draft_tokens);
}

// Preempts from the end, where nobody has been scheduled yet.
void Engine::schedule_running(int64_t& budget) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = sequences_[running_[i]];
    sequence.scheduled = 0;
    const int64_t tokens =
        std::min(sequence.total - sequence.computed + drafts_of(sequence), budget);
    if (tokens == 0) continue;
    while (i < running_.size() && !grow(sequence, sequence.computed + tokens)) preempt_last();
    if (i == running_.size()) return;
    sequence.scheduled = tokens;
    budget -= tokens;
  }
}

void Engine::admit(int64_t budget) {
  const int64_t watermark =
      limits_.has_chunked_prefill || running_.empty()
          ? 0
          : static_cast<int64_t>(kWatermark * static_cast<double>(blocks_.all()));
  bool is_first = true;
  while (!waiting_.empty() && budget > 0 &&
         static_cast<int64_t>(running_.size()) < limits_.max_num_seqs) {
    const size_t request = waiting_.front();
    Sequence& sequence = sequences_[request];
    auto hashes = arrivals_.hashes_of(request);
    hashes = hashes.first(static_cast<size_t>(blocks_.hits(hashes)));
    const int64_t hit = static_cast<int64_t>(hashes.size()) * arrivals_.hash_tokens;
    const int64_t cached = std::min(hit, sequence.total - 1);
    int64_t tokens = sequence.total - cached;
    if (tokens > budget) {
      if (limits_.has_chunked_prefill) {
        tokens = budget;
      } else if (!is_first) {
        return;
      }
    }
    const int64_t own = blocks_for(cached + tokens) - blocks_for(hit);
    if (!blocks_.take(hashes, own, watermark)) return;
    waiting_.pop_front();
    running_.push_back(request);
    sequence.groups.assign(hashes.begin(), hashes.end());
    sequence.shared_until = static_cast<int64_t>(hashes.size());
    sequence.blocks = own;
    sequence.capacity = hit + own * limits_.block_tokens;
    sequence.computed = cached;
    sequence.scheduled = tokens;
    run_.prompt_tokens_cached += cached;
    budget -= tokens;
    is_first = false;
  }
}

bool Engine::grow(Sequence& sequence, int64_t tokens) {
  if (tokens <= sequence.capacity) return true;
  const int64_t missing = blocks_for(tokens - sequence.capacity);
  if (!blocks_.take({}, missing)) return false;
  sequence.blocks += missing;
  sequence.capacity += missing * limits_.block_tokens;
  return true;
}

void Engine::preempt_last() {
  const size_t request = running_.back();
  running_.pop_back();
  waiting_.push_front(request);
  Sequence& sequence = sequences_[request];
  blocks_.release(sequence.groups, sequence.blocks);
  sequence.groups.clear();
  sequence.blocks = sequence.capacity = sequence.computed = sequence.scheduled = 0;
  ++run_.preemptions;
  has_preempted_ = true;
}

// One iteration of what is scheduled: its time, and the tokens that are there at its end.
void Engine::compute() {
  IterationWork work{0, 0, 0};
  double attention = 0;  // of prompts
  int64_t more = 0;      // rows of theirs
  for (const size_t request : running_) {
    const Sequence& sequence = sequences_[request];
    if (sequence.scheduled == 0) continue;
    ++work.sequences;
    if (sequence.decodes()) {
      work.cached += sequence.total;
      work.rows += sequence.scheduled;
    } else {
      ++work.rows;
      more += sequence.scheduled - 1;
      attention += law_.prompts().attention_seconds(
          static_cast<double>(sequence.computed),
          static_cast<double>(sequence.computed + sequence.scheduled));
      run_.prompt_tokens_computed += sequence.scheduled;
    }
  }
  HEADROOM_CHECK(work.sequences > 0, "an iteration computes a token");
  const double prompts = law_.prompts().rows_seconds(work.rows, static_cast<double>(more));
  const double seconds = decode_seconds(law_, limits_.speculation, work) + prompts + attention;
  run_.most_blocks = std::max(run_.most_blocks, blocks_.in_use());
  run_.in_batch_seconds += static_cast<double>(work.sequences) * seconds;
  ++run_.iterations;
  go_to(now_ + seconds);
  take_arrivals();
  const int64_t before = in_system_;
  for (const size_t request : running_) {
    Sequence& sequence = sequences_[request];
    if (sequence.scheduled == 0) continue;
    if (sequence.decodes()) {
      decode(request);
      continue;
    }
    sequence.computed += sequence.scheduled;
    if (sequence.written == 0) share_prompt(request);
    if (sequence.computed == sequence.total) give_tokens(request, 1);
  }
  if (in_system_ == before) return;
  std::erase_if(running_, [&](size_t request) { return run_.requests[request].is_ended; });
}

// The model's own token, and what was drafted before it and accepted.
void Engine::decode(size_t request) {
  Sequence& sequence = sequences_[request];
  const int64_t tokens =
      1 + limits_.speculation.accepted(request, sequence.written, sequence.scheduled - 1);
  ++run_.decodes;
  run_.decoded_tokens += tokens;
  sequence.computed += tokens;
  give_tokens(request, tokens);
}

void Engine::give_tokens(size_t request, int64_t tokens) {
  Sequence& sequence = sequences_[request];
  if (sequence.written == 0) {
    run_.requests[request].first_token = now_;
  } else if (is_wanted(request)) {
    const double gap = now_ - sequence.last_token;
    ++run_.requests[request].gaps;
    if (gap > options_.late_gap_seconds) ++run_.requests[request].late_gaps;
    add_gap(gap);
  }
  sequence.last_token = now_;
  sequence.written += tokens;
  sequence.total += tokens;
  if (sequence.written < sequence.asked) return;
  RequestOutcome& outcome = run_.requests[request];
  outcome.ended = now_;
  outcome.is_ended = true;
  --in_system_;
  if (is_wanted(request)) --wanted_;
  blocks_.release(sequence.groups, sequence.blocks);
  sequence.groups = {};
}

// Whole hashes of the prompt that are computed by now, to others that begin alike.
void Engine::share_prompt(size_t request) {
  const auto hashes = arrivals_.hashes_of(request);
  Sequence& sequence = sequences_[request];
  const int64_t whole =
      std::min(sequence.computed / arrivals_.hash_tokens, static_cast<int64_t>(hashes.size()));
  for (; sequence.shared_until < whole; ++sequence.shared_until) {
    const uint64_t hash = hashes[static_cast<size_t>(sequence.shared_until)];
    if (!blocks_.share(hash)) continue;
    sequence.groups.push_back(hash);
    sequence.blocks -= arrivals_.hash_tokens / limits_.block_tokens;
  }
}

void Engine::add_gap(double gap) {
  if (gap != gap_) flush_gaps();
  gap_ = gap;
  ++gaps_;
}

void Engine::flush_gaps() {
  if (gaps_ > 0) run_.gaps.add(gap_, gaps_);
  gaps_ = 0;
}

}  // namespace

std::span<const uint64_t> Arrivals::hashes_of(size_t request) const {
  if (first_hash.empty()) return {};
  const size_t begin = first_hash[request];
  // A hash that stands for less than its tokens is no other's.
  const auto whole = static_cast<size_t>(requests[request].input_tokens / hash_tokens);
  return {hashes.data() + begin, std::min(first_hash[request + 1] - begin, whole)};
}

SimulatedRun simulate(const Arrivals& arrivals, const IterationLaw& law, const EngineLimits& limits,
                      const SimulationOptions& options) {
  return Engine(arrivals, law, limits, options).run();
}

}  // namespace headroom::serving
