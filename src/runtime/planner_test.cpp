// When the planner takes a repetition for an iteration: by the sequence, and with the help of
// marks.
#include "runtime/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "memory/generated/training_run.h"

namespace headroom::runtime {
namespace {

using memory::generated::TrainingRun;
using memory::generated::TrainingShape;

// Micro-batches that repeat, with memory that is full: like iterations, until the real ones come.
TrainingShape interleaved_pipeline() {
  TrainingShape shape;
  shape.iterations = 8;
  shape.layers = 4;
  shape.stages = 4;
  shape.micro_batches = 16;
  shape.model_chunks = 2;
  shape.recomputes = true;
  return shape;
}

// What is logged while a run goes on, and what a look now and then comes to.
class LoggedRun {
 public:
  LoggedRun(const TrainingRun& run, size_t marks_in_iteration, bool expects_marks)
      : run_(run), marks_(marks_in_iteration), serials_(run.trace.buffers.size()) {
    question_.expects_marks = expects_marks;
    question_.is_out_of_time = [] { return false; };
    question_.confirm = [](double) { return true; };
  }

  // The first plan; nothing where there is none in the whole run.
  std::optional<PlanAttempt> first_plan() {
    size_t next_look = 512;
    size_t iteration = 0;
    for (size_t i = 0; i < run_.trace.events.size(); ++i) {
      if (iteration < run_.iterations.size() && run_.iterations[iteration] == i) ++iteration;
      mark(i, iteration);
      const memory::MemoryEvent& event = run_.trace.events[i];
      if (event.kind == memory::EventKind::alloc) {
        const memory::BufferInfo& info = run_.trace.buffers[event.buffer];
        serials_[event.buffer] = log_.add_request(info.requested_bytes, info.stream);
      } else {
        log_.add_release(serials_[event.buffer], RequestLog::Kind::release_done);
      }
      if (log_.size() < next_look) continue;
      next_look = next_look * 115 / 100;
      PlanAttempt attempt = plan_from(log_.read(log_.size()), question_);
      if (!attempt.refused.empty()) continue;
      found_in = iteration;
      return attempt;
    }
    return std::nullopt;
  }

  size_t found_in = 0;  // the iteration, from 1

 private:
  // One mark at the end of each iteration, or that many in its last hundredth.
  void mark(size_t event, size_t iteration) {
    if (iteration == 0 || marks_ == 0) return;
    const size_t begin = run_.iterations[iteration - 1];
    const size_t end =
        iteration < run_.iterations.size() ? run_.iterations[iteration] : run_.trace.events.size();
    const size_t distance = std::max<size_t>((end - begin) / 100 / marks_, 1);
    const size_t left = end - 1 - event;
    if (left % distance == 0 && left / distance < marks_) log_.add_mark();
  }

  const TrainingRun& run_;
  size_t marks_;
  PlanQuestion question_;
  RequestLog log_;
  std::vector<uint32_t> serials_;
};

double requests_of_iteration(const TrainingRun& run) {
  const double last = static_cast<double>(run.iterations[7] - run.iterations[1]) / 6;
  return last / 2;  // each is asked for and released
}

TEST(Planner, WhatRepeatsWithinAnIterationIsNoneWhereMarksTell) {
  const TrainingRun run = memory::generated::generate_training_run(interleaved_pipeline());
  for (const size_t marks : {size_t{1}, size_t{40}}) {  // one optimizer, or one a parameter
    LoggedRun marked(run, marks, true);
    const auto plan = marked.first_plan();
    ASSERT_TRUE(plan) << marks;
    EXPECT_GT(marked.found_in, 1U) << marks;
    EXPECT_NEAR(plan->period, requests_of_iteration(run), 0.2 * requests_of_iteration(run))
        << marks;
  }
}

// The help is one: without it the sequence is believed, as there is nothing else.
TEST(Planner, MarksAreNoNeed) {
  TrainingShape shape = interleaved_pipeline();
  shape.micro_batches = 1;
  shape.stages = shape.model_chunks = 1;
  const TrainingRun run = memory::generated::generate_training_run(shape);
  LoggedRun unmarked(run, 0, false);
  const auto plan = unmarked.first_plan();
  ASSERT_TRUE(plan);
  EXPECT_NEAR(plan->period, requests_of_iteration(run), 0.2 * requests_of_iteration(run));
  // Where marks are promised and do not come, a few repetitions are not enough.
  EXPECT_FALSE(LoggedRun(run, 0, true).first_plan());
}

}  // namespace
}  // namespace headroom::runtime
