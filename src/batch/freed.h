// What the memory that B_opt sets free could be: longer contexts, a cache of prefixes, a second
// model beside the first, a smaller card.
//
// Predictions for a model on a device whose B_opt is known. Pure; thread-safe; some ten
// milliseconds for each card and model, with percentiles half a second.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "batch/baseline.h"

namespace headroom::batch {

// With the whole cache at B_opt.
struct LongerContext {
  double tokens = 0;                 // of a sequence in flight, on average
  double factor = 1;                 // of what it is now
  Interval itl_seconds{};            // nothing where percentiles are the target
  std::optional<bool> meets_target;  // as expected; nothing where there is no target
  std::optional<LoadBest> load;      // where percentiles are
};

struct PrefixCache {
  double tokens = 0;           // of prompts that would stay
  double prompts = 0;          // of the mean length
  Interval speedup_at_most{};  // of throughput, were every prompt found
};

// One that keeps the targets, at the bad end of the law, too.
struct SmallerDevice {
  std::string name;
  Bytes memory;
  Advice advice{};
  Interval throughput_tokens_per_second{};
  Interval itl_seconds{};
  std::optional<LoadBest> load =
      std::nullopt;  // where percentiles are the target: instead of these three
  // Of the throughput at B_opt, or of the highest rate; nothing where that is 0.
  std::optional<double> share = std::nullopt;
};

// A second model's server on the same GPU under MPS: two classes of one customer each in a closed
// network of the GPU and each one's own host. By mean-value analysis a step of either takes
// 1 + (1 - gap) (1 - other's gap) times as long: 1 + 0.75 x 0.6 = 1.45. The second one's batch is
// the largest that meets its target when it is so slowed; whether the first one still meets its own
// is told. Both together do the work of 2 / slowdown GPUs with one of them each.
struct Colocated {
  std::string model;
  bool fits = false;
  double weights_bytes = 0;
  Advice advice;  // of the second one in what is left of the memory
  double kv_bytes = 0;
  double kv_tokens = 0;                            // that these hold
  double slowdown = 1;                             // of steps, of both
  std::optional<bool> first_meets_target;          // as expected; nothing where there is no target
  Interval throughput_tokens_per_second{};         // of the first, beside it
  Interval throughput_tokens_per_second_second{};  // of the second
  double itl_seconds = 0;
  double itl_seconds_second = 0;
};

struct FreedUses {
  std::optional<LongerContext> longer_context;
  std::optional<PrefixCache> prefix_cache;
  std::vector<SmallerDevice> smaller_devices;  // the smallest first
  std::optional<Colocated> colocated;
};

struct Companion {
  std::string name;
  text::JsonView config;
};

struct FreedQuestion {
  Baseline base;
  BatchPoint chosen;  // B_opt's
  double host_gap = 0;
  Bytes needed;  // of the cache, at B_opt
};

// Whether a second model can be put beside the question's: one GPU of NVIDIA's.
Result<void> check_colocation(const BatchQuestion& question);

// `companion` or null.
Result<FreedUses> uses_of_freed(const FreedQuestion& freed, const Predicted& predicted,
                                const Companion* companion, const timing::TimingModel& model);

}  // namespace headroom::batch
