// Made-up recordings of several iterations (tests and benchmarks only): training with layers,
// micro-batches and an optimizer, or a loop that generates tokens; with what varies from one
// iteration to the next put in on purpose, and the truth kept. The same seed gives the same run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "memory/packing/recorded_requests.h"

namespace headroom::memory {

struct RunShape {
  enum class Work : uint8_t { training, decoding };
  Work work = Work::training;
  size_t iterations = 6;
  size_t layers = 8;
  size_t operators = 12;  // a layer and direction
  size_t micro_batches = 1;
  double injected_share = 0;     // requests that random routing adds, per static one
  size_t lengths = 1;            // sequence lengths that iterations choose from; 0: each its own
  bool steps_parameters = true;  // an optimizer that works on one parameter after the other
  bool frees_gradients_late = false;  // at the beginning of the next iteration
  bool keeps_gradients = false;       // from step to step: zeroed, not freed
  size_t evaluations = 0;   // after one in so many iterations, at random, a forward pass; 0: none
  size_t prompt_every = 0;  // decoding: every so many tokens a prompt of another length
  double starts_at = 0;     // share of the first iteration that the recording missed
  double ends_at = 1;       // share of the last iteration that it saw
};

inline constexpr int64_t kNowhere = -1;
// The lines of an evaluation are from here on.
inline constexpr int64_t kEvaluationLine = 2'000'000'000;

struct GeneratedRun {
  std::vector<RecordedRequest> requests;  // by lower, as recorded_requests() gives them
  std::vector<int64_t> places;            // the line of the program; kNowhere: put in at random
  std::vector<size_t> iterations;         // in which each begins; the number of iterations: warm-up
};

class RunGenerator {
 public:
  RunGenerator(uint64_t seed, const RunShape& shape) : random_(seed), shape_(shape) {
    for (size_t i = 0; i < shape.operators; ++i) {
      operators_.push_back({512 * between(1, 4000), chance(0.4), chance(0.8), between(0, 3)});
    }
    for (size_t i = 0; i < 5; ++i) parameters_.push_back(512 * between(1, 9000));
    for (size_t i = 0; i < std::max<size_t>(shape.lengths, 1); ++i) {
      lengths_.push_back(between(4, 64));
    }
  }

  GeneratedRun run() {
    iteration_ = shape_.iterations;
    for (size_t layer = 0; layer < shape_.layers; ++layer) {
      for (const int64_t size : parameters_) weights_.push_back(allocate(size, kNowhere));
    }
    if (shape_.work == RunShape::Work::decoding) {
      for (size_t i = 0; i < 2 * shape_.layers; ++i) cache_.push_back(allocate(512, kNowhere));
    }
    for (iteration_ = 0; iteration_ < shape_.iterations; ++iteration_) {
      starts_.push_back(time_ + 1);
      length_ = shape_.lengths == 0 ? between(4, 64)
                                    : lengths_[static_cast<size_t>(random_() % lengths_.size())];
      line_ = 0;
      if (shape_.work == RunShape::Work::training) {
        train();
      } else {
        decode();
      }
      if (shape_.evaluations > 0 && chance(1.0 / static_cast<double>(shape_.evaluations))) {
        evaluate();
      }
    }
    starts_.push_back(time_ + 1);
    return finish();
  }

 private:
  struct Operator {
    int64_t size;
    bool is_saved;
    bool grows;  // with the length
    int64_t temporaries;
  };
  struct Live {
    RecordedRequest request;
    int64_t place;
    size_t iteration;
  };

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(double share) { return static_cast<double>(random_() % 1'000'000) < share * 1e6; }

  size_t allocate(int64_t size, int64_t place) {
    all_.push_back(
        {{++time_, 0, size, 0, static_cast<int64_t>(all_.size()) * 4096, 0}, place, iteration_});
    return all_.size() - 1;
  }
  size_t allocate(int64_t size) { return allocate(size, line_++); }
  void release(size_t index) { all_[index].request.upper = all_[index].request.released = ++time_; }
  [[nodiscard]] int64_t size_of(const Operator& op) const {
    return op.grows ? op.size / 16 * length_ : op.size;
  }

  // Tokens go to whichever expert: as many requests, and as large, as chance will have it.
  void route(std::vector<size_t>& saved) {
    const double mean = shape_.injected_share * static_cast<double>(shape_.operators);
    auto count = static_cast<int64_t>(mean);
    if (chance(mean - static_cast<double>(count))) ++count;
    if (mean > 0) count = between(0, 2 * count);
    for (int64_t i = 0; i < count; ++i) {
      const size_t request = allocate(between(1, 3'000'000), kNowhere);
      if (i % 2 == 0) {
        saved.push_back(request);
      } else {
        release(request);
      }
    }
  }

  void forward(bool is_training, std::vector<std::vector<size_t>>& saved) {
    for (size_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<size_t> kept;
      std::vector<size_t> dropped;
      for (size_t i = 0; i < operators_.size(); ++i) {
        const Operator& op = operators_[i];
        std::vector<size_t> temporaries;
        for (int64_t t = 0; t < op.temporaries; ++t) {
          temporaries.push_back(allocate(size_of(op) / (2 + t)));
        }
        const size_t out = allocate(size_of(op));
        for (const size_t t : temporaries) release(t);
        (op.is_saved && is_training ? kept : dropped).push_back(out);
        if (dropped.size() > 1) {
          release(dropped.front());
          dropped.erase(dropped.begin());
        }
        if (i == operators_.size() / 2) route(is_training ? kept : dropped);
      }
      for (const size_t request : dropped) release(request);
      saved.push_back(std::move(kept));
    }
  }

  void backward(std::vector<std::vector<size_t>>& saved) {
    for (size_t layer = shape_.layers; layer-- > 0;) {
      for (size_t i = operators_.size(); i-- > 0;) {
        const size_t gradient = allocate(size_of(operators_[i]));
        const size_t temporary = allocate(size_of(operators_[i]) / 3 + 1);
        release(gradient);
        release(temporary);
      }
      for (const size_t request : saved[layer]) release(request);
      if (gradients_.size() < weights_.size()) {
        for (const int64_t size : parameters_) gradients_.push_back(allocate(size));
      } else {
        for (const int64_t size : parameters_) release(allocate(size));
      }
    }
    saved.clear();
  }

  void train() {
    const size_t input = allocate(512 * length_);
    if (shape_.frees_gradients_late) drop_gradients();
    const int64_t first_line = line_;
    std::vector<std::vector<size_t>> saved;
    for (size_t micro = 0; micro < shape_.micro_batches; ++micro) {
      line_ = first_line + static_cast<int64_t>(micro) * 1'000'000;
      forward(true, saved);
      const size_t logits = allocate(40'000 * length_);
      const size_t loss = allocate(40'000 * length_ + 4);
      release(logits);
      backward(saved);
      release(loss);
    }
    line_ = first_line + 900'000'000;
    optimize();
    release(input);
    if (!shape_.frees_gradients_late && !shape_.keeps_gradients) drop_gradients();
  }

  void optimize() {
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (states_.size() < 2 * weights_.size()) {
        for (int s = 0; s < 2; ++s) {
          states_.push_back(allocate(parameters_[i % parameters_.size()], kNowhere));
        }
      }
      if (!shape_.steps_parameters) continue;
      for (int t = 0; t < 3; ++t) release(allocate(parameters_[i % parameters_.size()]));
    }
  }
  void drop_gradients() {
    for (const size_t gradient : gradients_) release(gradient);
    gradients_.clear();
  }

  void evaluate() {
    const size_t iteration = std::exchange(iteration_, shape_.iterations);
    std::vector<std::vector<size_t>> saved;
    line_ = kEvaluationLine;
    forward(false, saved);
    release(allocate(40'000 * length_ + 8));
    iteration_ = iteration;
  }

  // A token: the cache grows by being copied; a prompt makes it anew.
  void decode() {
    const bool is_prompt = shape_.prompt_every > 0 && iteration_ % shape_.prompt_every == 0;
    cached_ = is_prompt ? between(10, 500) : cached_ + 1;
    length_ = is_prompt ? cached_ : 1;
    const size_t embedded = allocate(4096 * length_);
    for (size_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<size_t> dropped;
      for (const Operator& op : operators_) {
        const size_t temporary = allocate(size_of(op) / 4 + 1);
        dropped.push_back(allocate(size_of(op)));
        release(temporary);
      }
      for (size_t half = 0; half < 2; ++half) {
        const size_t old = std::exchange(cache_[2 * layer + half], allocate(2048 * cached_));
        release(old);
      }
      const size_t scores = allocate(64 * cached_);
      route(dropped);
      release(scores);
      for (const size_t request : dropped) release(request);
    }
    const size_t logits = allocate(128'256);
    release(allocate(128'257));
    release(embedded);
    release(allocate(8));
    release(logits);
  }

  // Takes the recording out of the run: what was released before it began was never seen.
  GeneratedRun finish() {
    const auto share = [](int64_t a, int64_t b, double t) {
      return a + static_cast<int64_t>(t * static_cast<double>(b - a));
    };
    const size_t last = shape_.iterations;
    const int64_t begin =
        shape_.starts_at > 0 ? share(starts_[0], starts_[1], shape_.starts_at) : 1;
    const int64_t end =
        shape_.ends_at < 1 ? share(starts_[last - 1], starts_[last], shape_.ends_at) : time_ + 1;
    std::vector<Live> seen;
    for (Live live : all_) {
      RecordedRequest& request = live.request;
      if (request.upper == 0 || request.upper > end) request.upper = request.released = end;
      if (request.upper <= begin || request.lower >= end) continue;
      request.lower = std::max<int64_t>(request.lower - begin + 1, 0);
      request.upper -= begin - 1;
      request.released -= begin - 1;
      seen.push_back(live);
    }
    std::stable_sort(seen.begin(), seen.end(), [](const Live& a, const Live& b) {
      return a.request.lower < b.request.lower;
    });
    GeneratedRun run;
    for (const Live& live : seen) {
      run.requests.push_back(live.request);
      run.places.push_back(live.place);
      run.iterations.push_back(live.iteration);
    }
    return run;
  }

  std::mt19937_64 random_;
  RunShape shape_;
  std::vector<Operator> operators_;
  std::vector<int64_t> parameters_;
  std::vector<int64_t> lengths_;
  std::vector<Live> all_;
  std::vector<int64_t> starts_;
  std::vector<size_t> weights_, gradients_, states_, cache_;
  int64_t time_ = 0;
  int64_t line_ = 0;
  int64_t length_ = 1;
  int64_t cached_ = 1;
  size_t iteration_ = 0;
};

inline GeneratedRun generate_run(uint64_t seed, const RunShape& shape) {
  return RunGenerator(seed, shape).run();
}

}  // namespace headroom::memory
