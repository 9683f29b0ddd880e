#include "step/interpreter.h"

#include "step/fused_operations.h"
#include "step/recorded.h"

namespace headroom::step {

using model::Attributes;
using model::Operation;
using op::Dims;
using op::Eager;
using op::OpKind;
using op::Tensor;

namespace {

Dims dims_of(std::span<const int64_t> values) {
  Dims dims;
  for (const int64_t value : values) dims.push_back(value);
  return dims;
}

int dim_of(const Attributes& attributes, size_t i = 0) {
  return static_cast<int>(attributes.ints[i]);
}

std::vector<int> all_dims(const Attributes& attributes) {
  return {attributes.ints.begin(), attributes.ints.end()};
}

using Inputs = std::span<const Tensor>;

// Each of these answers with an undefined tensor for a kind that is not its own.
Tensor run_view(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  switch (kind) {
    case OpKind::view:
      return op::view(e, in[0], dims_of(a.ints));
    case OpKind::reshape:
      return op::reshape(e, in[0], dims_of(a.ints));
    case OpKind::transpose:
      return op::transpose(e, in[0], dim_of(a), dim_of(a, 1));
    case OpKind::permute:
      return op::permute(e, in[0], dims_of(a.ints));
    case OpKind::expand:
      return op::expand(e, in[0], dims_of(a.ints));
    case OpKind::unsqueeze:
      return op::unsqueeze(e, in[0], dim_of(a));
    case OpKind::squeeze:
      return op::squeeze(e, in[0], dim_of(a));
    case OpKind::slice:
      // Python's x[..., :n] gives x itself where that is all of it (applySlice).
      if (a.ints[1] == 0 && a.ints[2] == in[0].size(dim_of(a)) && a.ints[3] == 1) {
        return op::view(e, in[0], in[0].sizes());
      }
      return op::slice(e, in[0], dim_of(a), a.ints[1], a.ints[2], a.ints[3]);
    case OpKind::select:
      return op::select(e, in[0], dim_of(a), a.ints[1]);
    case OpKind::contiguous:
      return op::contiguous(e, in[0]);
    case OpKind::view_as_real:
      return op::view_as_real(e, in[0]);
    case OpKind::view_as_complex:
      return op::view_as_complex(e, in[0]);
    case OpKind::detach:
      return op::detach(e, in[0]);
    case OpKind::require_grad:
      return op::require_grad(in[0]);
    case OpKind::dtype_of:
      return op::dtype_of(in[0]);
    default:
      return {};
  }
}

Tensor run_copy(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  switch (kind) {
    case OpKind::clone:
      return op::clone(e, in[0]);
    case OpKind::cast:
      return a.flag ? op::to_contiguous(e, in[0], *a.dtype) : op::to(e, in[0], *a.dtype);
    case OpKind::cast_like:
      return a.flag ? op::to_contiguous(e, in[0], in[1].dtype()) : op::to(e, in[0], in[1].dtype());
    case OpKind::autocast:
      return op::is_floating(in[0].dtype()) ? op::to(e, in[0], *a.dtype) : in[0];
    case OpKind::empty:
      return e.empty(dims_of(a.ints), a.dtype ? *a.dtype : in[0].dtype());
    case OpKind::copy_slice:
      return op::copy_slice(e, in[0], in[1], dim_of(a), a.ints[1], a.ints[2]);
    case OpKind::copy_select:
      return op::copy_select(e, in[0], in[1], dim_of(a), a.ints[1]);
    case OpKind::fill:
      if (a.flag) return op::zeros_like(e, in[0]);
      return op::full(e, dims_of(a.ints), a.dtype ? *a.dtype : in[0].dtype());
    case OpKind::arange:
      return op::arange(e, a.ints[0], *a.dtype);
    case OpKind::cat:
      return op::cat(e, in, dim_of(a));
    case OpKind::stack:
      return op::stack(e, in, dim_of(a));
    case OpKind::pad:
      return op::pad(e, in[0], a.ints);
    case OpKind::repeat:
      return op::repeat(e, in[0], dims_of(a.ints));
    case OpKind::triangle:
      return op::triangle(e, in[0]);
    default:
      return {};
  }
}

Tensor run_elementwise(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  const bool with_number = a.flag;
  switch (kind) {
    case OpKind::add:
      return with_number ? op::add_scalar(e, in[0], a.number) : op::add(e, in[0], in[1]);
    case OpKind::mul:
      return with_number ? op::mul_scalar(e, in[0], a.number) : op::mul(e, in[0], in[1]);
    case OpKind::div:
      return with_number ? op::div_scalar(e, in[0], a.number) : op::div(e, in[0], in[1]);
    case OpKind::sub:
      return op::sub(e, in[0], in[1]);
    case OpKind::neg:
      return op::neg(e, in[0]);
    case OpKind::pow:
      return op::pow(e, in[0], a.number);
    case OpKind::sqrt:
      return op::sqrt(e, in[0]);
    case OpKind::rsqrt:
      return op::rsqrt(e, in[0]);
    case OpKind::exp:
      return op::exp(e, in[0]);
    case OpKind::log:
      return op::log(e, in[0]);
    case OpKind::sin:
      return op::sin(e, in[0]);
    case OpKind::cos:
      return op::cos(e, in[0]);
    case OpKind::polar:
      return op::polar(e, in[0], in[1]);
    case OpKind::clamp:
      return a.flag ? op::clamp_assign(e, in[0], dim_of(a)) : op::clamp(e, in[0], dim_of(a));
    case OpKind::floor_divide:
      return op::floor_divide(e, in[0], a.number);
    case OpKind::add_assign:
      return op::add_assign(e, in[0], in[1]);
    case OpKind::div_assign:
      return with_number ? op::div_scalar_assign(e, in[0], a.number)
                         : op::div_assign(e, in[0], in[1]);
    case OpKind::mul_assign:
      return with_number ? op::mul_scalar_assign(e, in[0], a.number)
                         : op::mul_assign(e, in[0], in[1]);
    case OpKind::compare:
    case OpKind::logical:
      return op::compare(e, in[0], in.size() > 1 ? &in[1] : nullptr);
    case OpKind::where:
      return op::where(e, in[0], in[1], in[2]);
    case OpKind::masked_fill:
      return a.flag ? op::masked_fill_assign(e, in[0], in[1]) : op::masked_fill(e, in[0], in[1]);
    default:
      return {};
  }
}

Tensor run_activation(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  switch (kind) {
    case OpKind::gelu:
      return op::gelu(e, in[0], false);
    case OpKind::gelu_tanh:
      return op::gelu(e, in[0], true);
    case OpKind::gelu_bloom:
      return op::gelu_bloom(e, in[0]);
    case OpKind::silu:
      return op::silu(e, in[0]);
    case OpKind::relu:
      return op::relu(e, in[0]);
    case OpKind::sigmoid:
      return op::sigmoid(e, in[0]);
    case OpKind::tanh:
      return op::tanh(e, in[0]);
    case OpKind::softplus:
      return op::softplus(e, in[0]);
    case OpKind::softmax:
      return op::softmax(e, in[0], dim_of(a), a.dtype);
    case OpKind::log_softmax:
      return op::log_softmax(e, in[0], dim_of(a), a.dtype);
    case OpKind::dropout:
      return op::dropout(e, in[0], a.number, true);
    case OpKind::sum:
      return op::sum(e, in[0], all_dims(a), a.flag);
    case OpKind::mean:
      return op::mean(e, in[0], all_dims(a), a.flag);
    case OpKind::argmax:
      return op::argmax(e, in[0], dim_of(a));
    case OpKind::amax:
      return op::amax(e, in[0], dim_of(a), a.flag);
    case OpKind::vector_norm:
      return op::vector_norm(e, in[0], dim_of(a));
    case OpKind::cumsum:
      return op::cumsum(e, in[0], dim_of(a), a.dtype);
    default:
      return {};
  }
}

// The groups, then a stride and a padding for each dimension of space.
op::Convolution convolution_of(const Attributes& a) {
  op::Convolution convolution;
  convolution.groups = a.ints[0];
  const size_t dims = (a.ints.size() - 1) / 2;
  for (size_t i = 0; i < dims; ++i) {
    convolution.stride.push_back(a.ints[1 + i]);
    convolution.padding.push_back(a.ints[1 + dims + i]);
  }
  return convolution;
}

Tensor run_product(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  switch (kind) {
    case OpKind::mm:
      return op::mm(e, in[0], in[1]);
    case OpKind::addmm:
      return op::addmm(e, in[0], in[1], in[2]);
    case OpKind::bmm:
      return op::bmm(e, in[0], in[1]);
    case OpKind::baddbmm:
      return op::baddbmm(e, in[0], in[1], in[2], a.number);
    case OpKind::matmul:
      return op::matmul(e, in[0], in[1]);
    case OpKind::solve_triangular:
      return op::solve_triangular(e, in[0], in[1]);
    case OpKind::grouped_mm:
      return op::grouped_mm(e, in[0], in[1], in[2]);
    case OpKind::linear:
      return (a.flag ? op::zero3_linear : op::linear)(e, in[0], in[1],
                                                      in.size() > 2 ? in[2] : Tensor());
    case OpKind::float8_linear:
      return op::float8_linear(e, in[0], in[1], in.size() > 2 ? in[2] : Tensor());
    case OpKind::quantized_linear:
      return op::quantized_linear(e, in[0], in[2],
                                  {.format = static_cast<op::QuantizedFormat>(a.ints[0]),
                                   .in = a.ints[1],
                                   .out = a.ints[2],
                                   .unpacked = static_cast<op::DType>(a.ints[3]),
                                   .compute = *a.dtype,
                                   .keeps_input = a.flag});
    case OpKind::convolution:
      return op::convolution(e, in[0], in[1], in.size() > 2 ? in[2] : Tensor(), convolution_of(a));
    case OpKind::layer_norm:
      return op::layer_norm(e, in[0], in[1], in[2]);
    case OpKind::rms_norm:
      return op::rms_norm(e, in[0], in[1]);
    case OpKind::sdpa:
      return op::scaled_dot_product_attention(
          e, in[0], in[1], in[2], in[3],
          {.dropout = a.number, .causal = a.ints[0] != 0, .grouped = a.ints[1] != 0});
    case OpKind::ring_attention:
      return op::ring_attention(e, in[0], in[1], in[2], a.ints[0] != 0, a.ints[2]);
    case OpKind::flash_attention:
      return op::flash_attention(e, in[0], in[1], in[2],
                                 {.dropout = a.number, .causal = a.ints[0] != 0, .grouped = true});
    default:
      return {};
  }
}

Tensor run_lookup(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  switch (kind) {
    case OpKind::embedding:
      return op::embedding(e, in[0], in[1]);
    case OpKind::index_select:
      return op::index_select(e, in[0], dim_of(a), in[1]);
    case OpKind::index:
      return in.size() > 2 ? op::index_pairs(e, in[0], in[1], in[2])
                           : op::index(e, in[0], in[1], dim_of(a));
    case OpKind::index_put:
      return op::index_put(e, in[0], in[1], in[2]);
    case OpKind::index_add_assign:
      return op::index_add_assign(e, in[0], dim_of(a), in[1], in[2]);
    case OpKind::nonzero:
      return op::nonzero(e, in[0], a.ints[0]);
    case OpKind::histogram:
      return op::histogram(e, in[0], a.ints[0]);
    case OpKind::index_add:
      return op::index_add(e, in[0], dim_of(a), in[1], in[2]);
    case OpKind::scatter:
      return in.size() > 2 ? op::scatter_assign(e, in[0], dim_of(a), in[1], in[2])
                           : op::scatter(e, in[0], dim_of(a), in[1]);
    case OpKind::gather:
      return op::gather(e, in[0], dim_of(a), in[1]);
    case OpKind::one_hot:
      return op::one_hot(e, in[0], a.ints[0]);
    case OpKind::sparse_mixer:
      return op::sparse_mixer(e, in[0], in[1], in[2], in[3], in[4]);
    case OpKind::nll_loss:
      return op::nll_loss(e, in[0], in[1]);
    case OpKind::cross_entropy:
      return op::cross_entropy(e, in[0], in[1]);
    default:
      return {};
  }
}

// Operators of several outputs; empty for any other kind.
std::vector<Tensor> run_many(Eager& e, OpKind kind, const Attributes& a, Inputs in) {
  switch (kind) {
    case OpKind::split: {
      const std::span<const int64_t> sizes(a.ints.data(), a.ints.size() - 1);
      return op::split(e, in[0], sizes, static_cast<int>(a.ints.back()));
    }
    case OpKind::topk:
      return op::topk(e, in[0], a.ints[0]);
    case OpKind::sort:
      return op::sort(e, in[0]);
    case OpKind::max:
      return op::max(e, in[0], dim_of(a), a.flag);
    default:
      return {};
  }
}

}  // namespace

void run_operation(Eager& e, const Operation& operation, Inputs in, std::vector<Tensor>& outputs) {
  if (operation.recording) return run_recorded(e, operation, in, outputs);
  const OpKind kind = operation.kind;
  const Attributes& a = operation.attributes;
  outputs = run_many(e, kind, a, in);
  if (!outputs.empty()) return;
  for (const auto run :
       {run_view, run_elementwise, run_product, run_copy, run_activation, run_lookup}) {
    if (Tensor out = run(e, kind, a, in)) {
      outputs.push_back(std::move(out));
      return;
    }
  }
  outputs = run_fused(e, operation, in);
  HEADROOM_CHECK(!outputs.empty(), "an operator that the interpreter does not know");
}

void Interpreter::run_region(uint32_t region, Frame& frame) {
  const model::Region& part = graph_.regions[region];
  const uint32_t module_before = eager_.module();
  eager_.set_module(region + 1);
  std::optional<op::GradMode> no_grad;
  if (part.no_grad) no_grad.emplace(eager_, false);
  run(part.begin + 1, part.end - 1, frame);
  eager_.set_module(module_before);
}

namespace {

void pass_on(const SkippedInstructions& skipped, Frame& frame) {
  for (const auto& [from, to, is_moved] : skipped.passed_on) {
    frame[to] = is_moved ? std::move(frame[from]) : frame[from];
  }
}

}  // namespace

void Interpreter::run(uint32_t begin, uint32_t end, Frame& frame) {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  for (uint32_t i = begin; i < end; ++i) {
    if (skipped_ != nullptr && i == skipped_->begin) {
      pass_on(*skipped_, frame);
      i = skipped_->end - 1;
      continue;
    }
    if (marks_ != nullptr && (*marks_)[i].before) watcher_(i, false, frame);
    const model::Instruction& instruction = graph_.instructions[i];
    switch (instruction.kind) {
      case model::InstructionKind::drop:
        frame[instruction.index] = Tensor();
        break;
      case model::InstructionKind::enter: {
        const model::Region& region = graph_.regions[instruction.index];
        if (!handler_ || !handler_(instruction.index, frame)) run_region(instruction.index, frame);
        if (is_cut_off_) return;
        i = region.end - 1;
        break;
      }
      case model::InstructionKind::leave:
        break;
      case model::InstructionKind::operation: {
        is_cut_off_ = is_last_ && is_last_();
        const Operation& operation = graph_.operations[instruction.index];
        inputs.clear();
        for (const model::ValueId id : operation.inputs) {
          inputs.push_back(id == model::kNoValue ? Tensor() : frame[id]);
        }
        run_operation(eager_, operation, inputs, outputs);
        inputs.clear();
        for (size_t o = 0; o < operation.outputs.size(); ++o) {
          frame[operation.outputs[o]] = std::move(outputs[o]);
        }
        outputs.clear();
        if (is_cut_off_) return;
        break;
      }
    }
    if (marks_ != nullptr && (*marks_)[i].after) watcher_(i, true, frame);
  }
}

}  // namespace headroom::step
