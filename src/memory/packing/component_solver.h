// One part of a packing problem, from the cheap heuristics to the exact search
// (plan_synthesizer.h).
//
// Tasks of a round run side by side. The round's outcome is that of the first task, by number, that
// meets the target; later ones may then be cut short, and what they found is not looked at.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory/packing/effort.h"
#include "memory/packing/exact_search.h"
#include "memory/packing/first_fit.h"
#include "memory/packing/plan_synthesizer.h"
#include "memory/packing/sections.h"

namespace headroom::memory {

class ComponentSolver {
 public:
  // Aims at `target`, which is at least the highest load. `sections` outlives the solver.
  ComponentSolver(const Sections& sections, int64_t target, const SynthesisOptions& options);

  void solve();

  [[nodiscard]] const Placement& placement() const { return best_; }
  [[nodiscard]] const std::string& method() const { return method_; }
  // No plan of this part is lower.
  [[nodiscard]] int64_t proven_bound() const { return proven_bound_; }

 private:
  // Returns whether `number` met the target. `is_cut_short` says when nobody will look any more.
  using Task = std::function<bool(size_t number, const std::function<bool()>& is_cut_short)>;

  [[nodiscard]] bool is_done() const;
  [[nodiscard]] bool is_out_of_time() const;
  void run_round(size_t tasks, const Task& task) const;
  void adopt(const Placement& placement, const std::string& method);

  void try_orders(size_t first, size_t last);
  void try_stretched();
  void promote(size_t first, size_t last);
  void choose_starts();
  void search();
  void repair_starts();
  [[nodiscard]] size_t task_count() const;
  void search_round(int round, size_t first, size_t last);
  [[nodiscard]] int64_t capacity_of(int round) const;
  void note_impossible(int64_t capacity);

  const Sections& sections_;
  int64_t target_;
  const SynthesisOptions& options_;
  int64_t unit_;   // divides every size, so every height
  bool is_exact_;  // small enough for exact search
  int64_t left_;   // placements
  Placement best_;
  std::vector<Placement> placements_;  // by order of the portfolio
  std::vector<Placement> starts_;      // the best of them, for local searches
  std::string method_;
  int64_t proven_bound_;
};

}  // namespace headroom::memory
