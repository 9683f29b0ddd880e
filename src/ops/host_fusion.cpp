#include "ops/host_fusion.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/operator_work.h"

namespace headroom::ops {
namespace {

using formats::kNone;

// An operator as a loop over elements.
struct Loop {
  size_t kernel = 0;
  double elements = 0;  // of its largest operand
  double rows = 0;      // of that: all but its last dimension
  double passes = 0;    // over so many elements, read or written
  double element_bytes = 4;
  bool is_arithmetic = false;  // takes what its traffic takes
  bool is_reduction = false;
};

struct Chain {
  std::vector<Loop> loops;
  std::vector<size_t> smaller;  // kernels between them
  double reduced_rows = 0;      // of its last reduction; 0 where it has none
};

// What the rules say of an operator's name; asked once of each.
struct Kind {
  bool is_arithmetic = false, is_reduction = false, is_view = false, is_of_torch = false;
};

class Finder {
 public:
  Finder(const Recording& recording, const RecordedRun& run, const OperatorRules& rules)
      : recording_(recording), run_(run), rules_(rules) {
    for (const char* name : {"elementwise", "activation", "normalization", "softmax"}) {
      groups_.push_back(rules.group(name));
    }
  }

  std::vector<Chain> chains() {
    for (size_t i = 0; i < recording_.events.size(); ++i) take(i);
    end();
    return std::move(found_);
  }
  // Of PyTorch: a compiled graph makes none.
  [[nodiscard]] const std::vector<size_t>& views() const { return views_; }

 private:
  const Kind& kind_of(size_t kernel) {
    static constexpr Kind kUnknown;
    const uint32_t event = recording_.events[kernel];
    if (event == kNone) return kUnknown;
    const uint32_t name = run_.trace.events[event].name;
    const auto [found, is_new] = kinds_.try_emplace(name);
    if (is_new) {
      std::string_view text = run_.trace.names.at(name);
      while (text.ends_with('_')) text.remove_suffix(1);  // in place
      found->second = {rules_.is_loop_part(LoopPart::arithmetic, text),
                       rules_.is_loop_part(LoopPart::reduction, text),
                       rules_.is_loop_part(LoopPart::view, text), text.starts_with("aten::")};
    }
    return found->second;
  }

  // Nothing where the operator is no loop, or its shapes were not recorded.
  [[nodiscard]] std::optional<Loop> loop_of(size_t kernel, const Kind& kind) const {
    const size_t group = recording_.program.kernels[kernel].group;
    if (std::find(groups_.begin(), groups_.end(), group) == groups_.end()) return std::nullopt;
    const uint32_t detail = run_.trace.events[recording_.events[kernel]].detail;
    if (detail == kNone) return std::nullopt;
    const auto inputs = parse_inputs(run_.trace.names.at(detail));
    if (!inputs) return std::nullopt;
    Loop loop{
        .kernel = kernel, .is_arithmetic = kind.is_arithmetic, .is_reduction = kind.is_reduction};
    for (const RecordedInput& input : *inputs) {
      if (!input.dtype) continue;
      double elements = 1;
      for (const int64_t size : input.sizes) elements *= static_cast<double>(size);
      if (elements < loop.elements) continue;
      loop.passes = elements > loop.elements ? 1 : loop.passes + 1;
      loop.elements = elements;
      loop.rows = input.sizes.empty() ? 0 : elements / static_cast<double>(input.sizes.back());
      loop.element_bytes = static_cast<double>(op::element_size(*input.dtype));
    }
    if (loop.elements <= 0) return std::nullopt;
    if (!loop.is_reduction) loop.passes += 1;
    return loop;
  }

  void take(size_t kernel) {
    const Kind& kind = kind_of(kernel);
    if (kind.is_view) {
      if (kind.is_of_torch) views_.push_back(kernel);
      return;
    }
    const auto loop = loop_of(kernel, kind);
    if (!loop) return end();
    if (!chain_.loops.empty() && loop->elements < chain_.loops.back().elements) {
      // What a reduction made of each row stays in a register; all else that is smaller is work.
      if (loop->elements != chain_.reduced_rows) return end();
      pending_.push_back(kernel);
      return;
    }
    const bool goes_on = !chain_.loops.empty() && loop->elements == chain_.loops.back().elements &&
                         loop->element_bytes == chain_.loops.back().element_bytes;
    if (!goes_on) end();
    chain_.smaller.insert(chain_.smaller.end(), pending_.begin(), pending_.end());
    pending_.clear();
    chain_.loops.push_back(*loop);
    if (loop->is_reduction) chain_.reduced_rows = loop->rows;
  }

  void end() {
    if (chain_.loops.size() > 1) found_.push_back(std::move(chain_));
    chain_ = {};
    pending_.clear();
  }

  const Recording& recording_;
  const RecordedRun& run_;
  const OperatorRules& rules_;
  std::unordered_map<uint32_t, Kind> kinds_;  // by the name's id
  std::vector<size_t> groups_;
  Chain chain_;
  std::vector<size_t> pending_;  // smaller ones, of the chain if it goes on
  std::vector<Chain> found_;
  std::vector<size_t> views_;
};

// What the chain takes fused, of what it took: for the middle, and for less and more.
struct Shares {
  double middle = 1;
  double less = 1;
  double more = 1;
};

// Nothing where none of it is arithmetic, whose rate would be known.
std::optional<Shares> shares_of(const Chain& chain, const timing::Program& program) {
  const auto ns = [&](const Loop& loop) {
    return static_cast<double>(program.kernels[loop.kernel].duration_ns);
  };
  double moved = 0;  // passes of arithmetic
  double moving_ns = 0;
  double passes = 0;
  double total_ns = 0;
  for (const Loop& loop : chain.loops) {
    passes += loop.passes;
    total_ns += ns(loop);
    if (!loop.is_arithmetic) continue;
    moved += loop.passes;
    moving_ns += ns(loop);
  }
  if (moved <= 0 || total_ns <= 0) return std::nullopt;
  const double pass_ns = moving_ns / moved;
  double computing_ns = 0;
  for (const Loop& loop : chain.loops) {
    if (!loop.is_arithmetic) computing_ns += std::max(0.0, ns(loop) - loop.passes * pass_ns);
  }
  const auto links = static_cast<double>(chain.loops.size() - 1);
  const auto share = [&](double left) {
    return std::min(1.0, (std::max(left, 2.0) * pass_ns + computing_ns) / total_ns);
  };
  return Shares{share(passes - 2 * links), share(passes - links), share(2)};
}

}  // namespace

std::optional<Scenario> host_fusion(const Recording& recording, const RecordedRun& run,
                                    const OperatorRules& rules) {
  const timing::Program& program = recording.program;
  Scenario fused{"fuse_elementwise", "elementwise chains fused", {}, {}, 0};
  fused.made.kernel_factors.assign(program.kernels.size(), 1.0);
  timing::ReplayChange less = fused.made;
  timing::ReplayChange more = fused.made;
  bool has_any = false;
  Finder finder(recording, run, rules);
  for (const Chain& chain : finder.chains()) {
    const auto shares = shares_of(chain, program);
    if (!shares) continue;
    has_any = true;
    for (const Loop& loop : chain.loops) {
      fused.made.kernel_factors[loop.kernel] = shares->middle;
      less.kernel_factors[loop.kernel] = shares->less;
      more.kernel_factors[loop.kernel] = shares->more;
    }
    for (const size_t kernel : chain.smaller) {
      fused.made.kernel_factors[kernel] = more.kernel_factors[kernel] = 0;
    }
  }
  if (!has_any) return std::nullopt;
  for (const size_t view : finder.views()) {
    fused.made.kernel_factors[view] = more.kernel_factors[view] = 0;
  }
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    fused.saved_ms += static_cast<double>(program.kernels[i].duration_ns) / 1e6 *
                      (1 - fused.made.kernel_factors[i]);
  }
  fused.spanned = {std::move(less), std::move(more)};
  return fused;
}

}  // namespace headroom::ops
