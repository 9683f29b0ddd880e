// PlanSynthesizer: offsets for a packing problem, as near to its lower bound as the effort allows.
//
// Time is reduced to sections, the problem is cut into parts that do not concern each other
// (components.h), and each part goes through what is cheap first, until it is at the bound:
//  1. first fit in a few orders, of the part as it is and with its longest lifetimes stretched so
//     that it falls into its repetitions (stretched.h);
//  2. first fit in the rest of the portfolio (orders.h), and again with what was too high put
//     first;
//  3. exact search (exact_search.h), with node limits that grow, and local search on the chain that
//     supports the peak (local_search.h), in turns, until the effort is spent.
// The plan is the best so far whenever it stops. It is not checked here: that is validator.h's,
// which shares no code with this.
//
// Uses all cores, and gives the same plan on any number of them: which task wins is decided by
// their order, never by the clock. Only a deadline can change what comes out. Thread-safe.
//
// Source of the term: STAlloc (arXiv 2507.16274), section 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "memory/packing/problem.h"

namespace headroom::memory {

// How much is tried where the bound is not met.
enum class SynthesisDepth : uint8_t {
  quick,      // a few orders
  first_fit,  // the whole portfolio
  search,     // local and exact search, too
};

struct SynthesisOptions {
  int64_t target_bytes = 0;  // good enough; at least the lower bound is aimed at in any case
  double near_enough = 0;    // share of the lower bound above it that is good enough, too
  SynthesisDepth depth = SynthesisDepth::search;
  int64_t placements = 3'000'000;  // effort, about a microsecond each; and four for each request
  uint64_t seed = 0;
  size_t threads = 0;                      // 0: as many as there are cores
  std::function<bool()> is_out_of_time{};  // a deadline; asked from several threads; may be empty
};

struct Synthesis {
  PackingSolution solution;
  int64_t lower_bound_bytes = 0;   // the highest load
  int64_t proven_bound_bytes = 0;  // no plan is shorter; above the load where a search proved it
  std::string method;              // what made the highest part of the plan

  [[nodiscard]] bool is_optimal() const { return solution.bytes <= proven_bound_bytes; }
};

class PlanSynthesizer {
 public:
  explicit PlanSynthesizer(SynthesisOptions options) : options_(std::move(options)) {}
  // REQUIRES: check_problem(problem).
  [[nodiscard]] Synthesis synthesize(const PackingProblem& problem) const;

 private:
  SynthesisOptions options_;
};

}  // namespace headroom::memory
