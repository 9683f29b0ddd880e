#include "step/transform/split_rules.h"

#include <algorithm>
#include <array>

#include "operator/kind.h"

namespace headroom::step {

using model::Attributes;
using op::Dims;
using op::OpKind;

namespace {

Error cannot(const SplitQuestion& question, const char* why) {
  return {ErrorCode::usage, "'" + std::string(op::name_of(question.operation.kind)) + "' " + why,
          "--method", "this model cannot be modelled under tensor parallelism yet: fsdp2:N, ddp:N"};
}

Error uneven(int64_t parts, int64_t ranks) {
  return {ErrorCode::usage,
          std::to_string(parts) + " heads, or groups of them, are not divided by " +
              std::to_string(ranks),
          "--method", "tp:N with an N that divides the heads of queries, keys and values"};
}

int dim_of(const Attributes& attributes, int rank, size_t i = 0) {
  const auto dim = static_cast<int>(attributes.ints[i]);
  return dim < 0 ? dim + rank : dim;
}

int64_t before(const Dims& sizes, size_t end) {
  int64_t count = 1;
  for (size_t i = 0; i < end; ++i) count *= sizes[i];
  return count;
}

// Which dimension of `to` holds the divided factor, of which `ahead` elements lie before it in
// every row; the factor has `parts` elements or fewer.
Result<Split> placed(const SplitQuestion& question, const Dims& to, int64_t ahead) {
  int64_t seen = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 1) continue;
    const int64_t next = seen * to[i];
    if (seen == ahead || next > ahead) {
      if (ahead % seen != 0) return cannot(question, "mixes what is divided with what is not");
      const Split split{static_cast<int>(i), ahead / seen};
      const int64_t parts = to[i] / split.outer;
      if (to[i] % split.outer != 0 || parts % question.ranks != 0) {
        return uneven(parts, question.ranks);
      }
      return split;
    }
    seen = next;
  }
  return cannot(question, "mixes what is divided with what is not");
}

// Views that keep the order of elements: what lies before the divided factor stays before it.
Result<SplitAnswer> of_view(const SplitQuestion& question) {
  const Dims& from = question.inputs[0];
  const Split& split = question.splits[0];
  const int64_t ahead = before(from, static_cast<size_t>(split.dim)) * split.outer;
  HEADROOM_ASSIGN(const Split out, placed(question, question.outputs[0], ahead));
  SplitAnswer answer{question.operation.attributes, {out}, {}};
  answer.attributes.ints = {};
  for (const int64_t size : local_sizes(question.outputs[0], out, question.ranks)) {
    answer.attributes.ints.push_back(size);
  }
  return answer;
}

Result<SplitAnswer> of_expand(const SplitQuestion& question) {
  const auto shift = static_cast<int>(question.outputs[0].size() - question.inputs[0].size());
  const Split out{question.splits[0].dim + shift, question.splits[0].outer};
  SplitAnswer answer{question.operation.attributes, {out}, {}};
  answer.attributes.ints = {};
  for (const int64_t size : local_sizes(question.outputs[0], out, question.ranks)) {
    answer.attributes.ints.push_back(size);
  }
  return answer;
}

Result<SplitAnswer> of_permutation(const SplitQuestion& question) {
  const auto rank = static_cast<int>(question.inputs[0].size());
  const Attributes& attributes = question.operation.attributes;
  Split out = question.splits[0];
  if (question.operation.kind == OpKind::transpose) {
    const int a = dim_of(attributes, rank), b = dim_of(attributes, rank, 1);
    if (out.dim == a) {
      out.dim = b;
    } else if (out.dim == b) {
      out.dim = a;
    }
  } else {
    for (int i = 0; i < rank; ++i) {
      if (dim_of(attributes, rank, static_cast<size_t>(i)) != question.splits[0].dim) continue;
      out.dim = i;
      break;
    }
  }
  return SplitAnswer{attributes, {out}, {}};
}

// One dimension is taken away or comes in.
Result<SplitAnswer> of_shift(const SplitQuestion& question) {
  const Attributes& attributes = question.operation.attributes;
  const auto in_rank = static_cast<int>(question.inputs[0].size());
  const auto out_rank = static_cast<int>(question.outputs[0].size());
  const int dim = dim_of(attributes, std::max(in_rank, out_rank));
  Split out = question.splits[0];
  if (out_rank < in_rank) {
    if (out.dim == dim) return cannot(question, "takes one of what is divided");
    if (out.dim > dim) --out.dim;
  } else if (out_rank > in_rank && out.dim >= dim) {
    ++out.dim;
  }
  return SplitAnswer{attributes, {out}, {}};
}

// Of values that are all divided alike.
Result<SplitAnswer> of_stack(const SplitQuestion& question) {
  for (const Split& split : question.splits) {
    if (!(split == question.splits[0])) return cannot(question, "meets two ways to divide");
  }
  return of_shift(question);
}

// A part of a dimension, or several.
Result<SplitAnswer> of_part(const SplitQuestion& question) {
  const Attributes& attributes = question.operation.attributes;
  const auto rank = static_cast<int>(question.inputs[0].size());
  const Split& split = question.splits[0];
  SplitAnswer answer{attributes, std::vector<Split>(question.outputs.size(), split), {}};
  if (question.operation.kind == OpKind::slice) {
    if (dim_of(attributes, rank) == split.dim) {
      return cannot(question, "takes a part of what is divided");
    }
    return answer;
  }
  const int dim = static_cast<int>(attributes.ints.back());
  if ((dim < 0 ? dim + rank : dim) != split.dim) return answer;
  const auto count = static_cast<int64_t>(question.outputs.size());
  if (count % split.outer != 0 && split.outer % count != 0) {
    return cannot(question, "parts what is divided");
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t& size = answer.attributes.ints[static_cast<size_t>(i)];
    if (size % question.ranks != 0) return uneven(size, question.ranks);
    size /= question.ranks;
    answer.outputs[static_cast<size_t>(i)].outer = std::max<int64_t>(1, split.outer / count);
  }
  return answer;
}

// Dimensions are held against each other from the last one on, as broadcasting does; the last
// `own` of them are the operator's.
Result<SplitAnswer> of_broadcast(const SplitQuestion& question, size_t own = 0) {
  const size_t rank = question.outputs[0].size();
  SplitAnswer answer{question.operation.attributes, {}, {}};
  Split out;
  for (size_t i = 0; i < question.inputs.size(); ++i) {
    const Split& split = question.splits[i];
    if (!split) continue;
    const auto shift = static_cast<int>(rank - question.inputs[i].size());
    const Split here{split.dim + shift, split.outer};
    if (static_cast<size_t>(here.dim) + own >= rank) return cannot(question, "joins divided rows");
    if (out && !(out == here)) return cannot(question, "meets two ways to divide");
    out = here;
  }
  answer.cuts.resize(question.inputs.size());
  for (size_t i = 0; i < question.inputs.size(); ++i) {
    if (question.splits[i] || question.inputs[i].empty()) continue;
    const int dim = out.dim - static_cast<int>(rank - question.inputs[i].size());
    if (dim < 0 || question.inputs[i][static_cast<size_t>(dim)] == 1) continue;
    answer.cuts[i] = {dim, out.outer};
  }
  answer.outputs.assign(question.outputs.size(), out);
  return answer;
}

// Along one dimension or more, which must be whole.
Result<SplitAnswer> of_reduction(const SplitQuestion& question) {
  const Attributes& attributes = question.operation.attributes;
  const auto rank = static_cast<int>(question.inputs[0].size());
  Split out = question.splits[0];
  int gone = 0;
  for (size_t i = 0; i < attributes.ints.size(); ++i) {
    const int dim = dim_of(attributes, rank, i);
    if (dim == out.dim) return cannot(question, "is along what is divided");
    if (question.outputs[0].size() < question.inputs[0].size() && dim < out.dim) ++gone;
  }
  out.dim -= gone;
  return SplitAnswer{attributes, std::vector<Split>(question.outputs.size(), out), {}};
}

Result<SplitAnswer> of_norm(const SplitQuestion& question) {
  const Split& out = question.splits[0];
  if (!out || out.dim + 1 == static_cast<int>(question.inputs[0].size())) {
    return cannot(question, "is along what is divided");
  }
  return SplitAnswer{question.operation.attributes, {out}, {}};
}

Result<SplitAnswer> of_cat(const SplitQuestion& question) {
  HEADROOM_ASSIGN(SplitAnswer answer, of_broadcast(question));
  const bool all = std::ranges::all_of(question.splits, [](const Split& s) { return bool{s}; });
  const bool along = dim_of(question.operation.attributes,
                            static_cast<int>(question.outputs[0].size())) == answer.outputs[0].dim;
  if (along && !all) return cannot(question, "joins what is divided to what is not");
  return answer;
}

// Each output is divided as the input in its place is.
Result<SplitAnswer> of_pairs(const SplitQuestion& question) {
  SplitAnswer answer{question.operation.attributes, {}, {}};
  for (size_t i = 0; i < question.outputs.size(); ++i) answer.outputs.push_back(question.splits[i]);
  return answer;
}

// Products and attention, over whole matrices.
Result<SplitAnswer> of_matrices(const SplitQuestion& question) { return of_broadcast(question, 2); }

Result<SplitAnswer> of_type(const SplitQuestion& question) {
  return SplitAnswer{question.operation.attributes, {Split{}}, {}};
}

struct Rule {
  OpKind kind;
  Result<SplitAnswer> (*answer)(const SplitQuestion& question);
};
constexpr std::array kRules = std::to_array<Rule>({
    {OpKind::view, of_view},
    {OpKind::reshape, of_view},
    {OpKind::expand, of_expand},
    {OpKind::transpose, of_permutation},
    {OpKind::permute, of_permutation},
    {OpKind::unsqueeze, of_shift},
    {OpKind::squeeze, of_shift},
    {OpKind::select, of_shift},
    {OpKind::stack, of_stack},
    {OpKind::slice, of_part},
    {OpKind::split, of_part},
    {OpKind::matmul, of_matrices},
    {OpKind::bmm, of_matrices},
    {OpKind::sdpa, of_matrices},
    {OpKind::baddbmm, of_matrices},
    {OpKind::softmax, of_reduction},
    {OpKind::sum, of_reduction},
    {OpKind::mean, of_reduction},
    {OpKind::amax, of_reduction},
    {OpKind::layer_norm, of_norm},
    {OpKind::rms_norm, of_norm},
    {OpKind::liger_rms_norm, of_norm},
    {OpKind::cat, of_cat},
    {OpKind::liger_rotary, of_pairs},
    {OpKind::cast_like, of_pairs},
    {OpKind::dtype_of, of_type},
});
// Element by element, over what is broadcast.
constexpr std::array kElementwise = std::to_array<OpKind>({
    OpKind::add,       OpKind::sub,         OpKind::mul,          OpKind::div,
    OpKind::neg,       OpKind::pow,         OpKind::sqrt,         OpKind::rsqrt,
    OpKind::exp,       OpKind::where,       OpKind::masked_fill,  OpKind::gelu,
    OpKind::gelu_tanh, OpKind::gelu_bloom,  OpKind::silu,         OpKind::relu,
    OpKind::sigmoid,   OpKind::tanh,        OpKind::clamp,        OpKind::dropout,
    OpKind::clone,     OpKind::contiguous,  OpKind::detach,       OpKind::cast,
    OpKind::autocast,  OpKind::liger_gated, OpKind::fused_kernel,
});

}  // namespace

Dims local_sizes(const Dims& whole, const Split& split, int64_t ranks) {
  Dims sizes = whole;
  if (!split) return sizes;
  int64_t& size = sizes[static_cast<size_t>(split.dim)];
  const int64_t parts = size / split.outer;
  size = split.outer * ((parts + ranks - 1) / ranks);
  return sizes;
}

Result<SplitAnswer> split_of(const SplitQuestion& question) {
  const OpKind kind = question.operation.kind;
  if (std::ranges::find(kElementwise, kind) != kElementwise.end()) return of_broadcast(question);
  const auto rule = std::ranges::find(kRules, kind, &Rule::kind);
  if (rule == kRules.end()) return cannot(question, "on what is divided has no rule here");
  return rule->answer(question);
}

}  // namespace headroom::step
