// Liger-Kernel's cross entropies. Source: src/liger_kernel/ops/cross_entropy.py and
// fused_linear_cross_entropy.py of the releases named below. Local variables live until a function
// returns or Python's `del`, so they are named here in the same order.
#include <algorithm>
#include <bit>

#include "operator/functional.h"
#include "operator/fused_kernels.h"

namespace headroom::op {

namespace {

constexpr Version kChecksTargets{0, 5};        // cross entropy: the classes are within bounds
constexpr Version kHalfPrecisionChunks{0, 5};  // the fused loss: no float32 copy of the logits
constexpr Version kProductWithOutType{2, 8};   // torch.addmm(..., out_dtype=)
constexpr int kTensorCoresOfBf16 = 80;         // compute capability

double elements_of(const Tensor& tensor) { return static_cast<double>(tensor.elements()); }

// (target != ignore_index).sum().item()
Tensor count_of(Eager& e, const Tensor& mask) { return sum(e, mask, {}, false); }

// What the incoming gradient is held against.
void compare_with_one(Eager& e) { const Tensor one = zeros(e, {}, DType::f32); }

void loss_kernel(Eager& e, OpKind kind, const Tensor& logits) {
  e.kernel(kind, 6 * elements_of(logits), 2 * logits.bytes(), logits.bytes());
}

// The largest and the least class are held against the bounds, each in a product of its own.
void check_targets(Eager& e, const Tensor& target, const Tensor& mask) {
  for (int i = 0; i < 2; ++i) {
    Tensor classes = mul(e, target, mask);
    const Tensor bound = e.empty({}, classes.dtype());
    e.kernel(OpKind::amax, elements_of(classes), classes.bytes(), bound.bytes());
    classes = Tensor();
    compare(e, bound, nullptr);
  }
}

Tensor in_place_loss(Eager& e, const Tensor& logits, const Tensor& target, Version liger) {
  const Tensor losses = zeros(e, {logits.size(0)}, logits.dtype());
  const Tensor mask = compare(e, target, nullptr);
  count_of(e, mask);
  if (liger >= kChecksTargets) check_targets(e, target, mask);
  loss_kernel(e, OpKind::liger_cross_entropy, logits);
  Tensor loss = sum(e, losses, {}, false);
  return liger < Version{0, 4} ? div_scalar(e, loss, 1) : loss;
}

}  // namespace

Tensor liger_cross_entropy(Eager& e, const Tensor& logits_in, const Tensor& target, Version liger) {
  Tensor logits;
  Tensor loss;
  {
    GradMode no_grad(e, false);
    logits = logits_in->strides.back() == 1 ? logits_in : contiguous(e, logits_in);
    loss = in_place_loss(e, logits, target, liger);
  }
  if (Node* node = e.history("LigerCrossEntropyFunctionBackward", {&logits_in}, {&loss})) {
    node->save(e.detach(logits));
    node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
      compare_with_one(eager);
      result[0] = detach(eager, n.saved[0]);
    };
    e.finish(*node);
  }
  return loss;
}

int64_t liger_chunk_rows(int64_t rows, int64_t width, int64_t classes) {
  const int64_t factor = (classes + width - 1) / width;
  const int64_t wanted = (rows + factor - 1) / factor;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(wanted, 1))));
}

namespace {

struct LinearLossInputs {
  const Tensor& hidden;
  const Tensor& weight;
  const Tensor& bias;
  const Tensor& target;
};

// What the forward pass makes for backward to hand out.
struct LossGradients {
  Tensor loss;
  Tensor hidden;
  Tensor weight;  // undefined for a frozen head
  Tensor bias;
  Tensor cast_weight;
};

// 0.2.1 to 0.4: float32 copies of every chunk, whose variables live until the next chunk takes
// their names. fms-acceleration carries a copy of this code.
class UpcastingLoss {
 public:
  UpcastingLoss(Eager& e, const LinearLossInputs& in) : e_(e), in_(in) {}

  LossGradients run() {
    LossGradients out;
    const int64_t rows = in_.hidden.size(0);
    const int64_t step = liger_chunk_rows(rows, in_.hidden.size(1), in_.weight.size(0));
    if (in_.weight.requires_grad()) out.weight = zeros_like(e_, in_.weight);
    out.hidden = zeros_like(e_, in_.hidden);
    if (in_.bias) out.bias = zeros_like(e_, in_.bias);
    const Tensor losses = zeros(e_, {rows}, DType::f32);
    count_ = count_of(e_, compare(e_, in_.target, nullptr));
    for (int64_t begin = 0; begin < rows; begin += step) {
      run_chunk(begin, std::min(begin + step, rows), losses, out);
    }
    out.loss = sum(e_, losses, {}, false);
    return out;
  }

 private:
  void run_chunk(int64_t begin, int64_t end, const Tensor& losses, LossGradients& out) {
    const Tensor input = slice(e_, in_.hidden, 0, begin, end);
    logits_ = mm(e_, input, t(e_, in_.weight));
    if (in_.bias) logits_ = add(e_, logits_, in_.bias);
    count_of(e_, compare(e_, slice(e_, in_.target, 0, begin, end), nullptr));
    logits_ = to(e_, logits_, DType::f32);
    loss_kernel(e_, OpKind::liger_linear_loss, logits_);
    logits_ = to(e_, logits_, input.dtype());
    share_ = div_scalar(e_, count_, 1);
    mul(e_, slice(e_, losses, 0, begin, end), share_);
    gradient_ = mul_scalar(e_, logits_, 1);
    mm(e_, gradient_, in_.weight);  // copied into its rows of the hidden states' gradient
    if (out.weight) {
      // Added by the product itself (addmm with out=).
      e_.use_blas();
      e_.kernel(OpKind::addmm, 2.0 * elements_of(in_.weight) * static_cast<double>(end - begin),
                logits_.bytes() + input.bytes(), out.weight.bytes());
    }
    if (out.bias) {
      const int first[] = {0};
      add_inplace(e_, out.bias, sum(e_, logits_, first, false));
    }
  }

  Eager& e_;
  const LinearLossInputs& in_;
  Tensor count_;
  Tensor logits_;
  Tensor gradient_;
  Tensor share_;
};

// 0.8: one buffer for the logits of all chunks where no cast comes between, and nothing of a chunk
// outlives it.
class LinearLoss {
 public:
  LinearLoss(Eager& e, const LinearLossInputs& in, const LigerLinearLoss& options)
      : e_(e), in_(in), options_(options) {
    const DType type = in.hidden.dtype();
    uses_out_ = type == in.weight.dtype() && options.autocast.value_or(type) == type;
  }

  LossGradients run() {
    const int64_t rows = in_.hidden.size(0);
    const int64_t step = liger_chunk_rows(rows, in_.hidden.size(1), in_.weight.size(0));
    out_.hidden = zeros_like(e_, in_.hidden);
    const auto accumulator = [&](const Tensor& of) {
      return zeros(e_, of.sizes(), options_.float32_accumulation ? DType::f32 : of.dtype());
    };
    if (in_.weight.requires_grad()) out_.weight = accumulator(in_.weight);
    if (in_.bias) out_.bias = accumulator(in_.bias);
    const Tensor losses = zeros(e_, {rows}, DType::f32);
    const Tensor mask = compare(e_, in_.target, nullptr);
    count_of(e_, mask);
    if (uses_out_ && (!in_.bias || in_.bias.dtype() == in_.hidden.dtype())) {
      buffer_ = e_.empty({step, in_.weight.size(0)}, in_.hidden.dtype());
    }
    for (int64_t begin = 0; begin < rows; begin += step) {
      run_chunk(slice(e_, in_.hidden, 0, begin, std::min(begin + step, rows)));
    }
    buffer_ = Tensor();
    out_.loss = sum(e_, losses, {}, false);
    if (out_.weight) out_.weight = to(e_, out_.weight, in_.weight.dtype());
    if (out_.bias) out_.bias = to(e_, out_.bias, in_.bias.dtype());
    return std::move(out_);
  }

 private:
  void run_chunk(const Tensor& input) {
    const Tensor logits = logits_of(input);
    loss_kernel(e_, OpKind::liger_linear_loss, logits);
    if (uses_out_ && logits.dtype() == out_.hidden.dtype()) {
      product_into(out_.hidden, logits, in_.weight, input.size(0));
    } else {
      mm(e_, cast(logits), cast_of_weight());  // copied into its rows
    }
    if (out_.weight) add_to_weight(input, logits);
    if (out_.bias) {
      const int first[] = {0};
      add_inplace(e_, out_.bias, sum(e_, logits, first, false));
    }
  }

  Tensor logits_of(const Tensor& input) {
    if (buffer_) {
      const Tensor logits = slice(e_, buffer_, 0, 0, input.size(0));
      product_into(logits, input, in_.weight, input.size(0));
      return in_.bias ? add_inplace(e_, logits, in_.bias) : logits;
    }
    // A call's arguments are cast last to first. A view is not kept by autocast's cache.
    const Tensor weight = cast(t(e_, in_.weight));
    const Tensor logits = mm(e_, cast(input), weight);
    return in_.bias ? add(e_, logits, in_.bias) : logits;
  }

  void add_to_weight(const Tensor& input, const Tensor& logits) {
    const op::Environment& environment = e_.environment();
    const bool has_tensor_cores = environment.compute_capability >= kTensorCoresOfBf16;
    const DType to_type = out_.weight.dtype();
    const bool widens = to_type == DType::f32 && environment.torch >= kProductWithOutType;
    if (has_tensor_cores && is_half(logits.dtype()) && (widens || to_type == logits.dtype())) {
      const Tensor same = to(e_, input, logits.dtype());
      product_into(out_.weight, logits, same, input.size(0));
      return;
    }
    const Tensor operand = cast(input);
    const Tensor gradient = to(e_, mm(e_, t(e_, cast(logits)), operand), DType::f32);
    add_inplace(e_, out_.weight, gradient);
  }

  // A product that is written (or added) into what is there. Each is of rows * width * classes.
  void product_into(const Tensor& out, const Tensor& a, const Tensor& b, int64_t rows) {
    e_.use_blas();
    e_.kernel(OpKind::mm, 2.0 * elements_of(in_.weight) * static_cast<double>(rows),
              a.bytes() + b.bytes(), out.bytes());
  }

  Tensor cast(const Tensor& tensor) {
    return options_.autocast ? to(e_, tensor, *options_.autocast) : tensor;
  }

  // Autocast's cache keeps a float32 leaf that requires a gradient.
  Tensor cast_of_weight() {
    const bool is_cached = in_.weight.requires_grad() && in_.weight.dtype() == DType::f32;
    if (!is_cached || !options_.autocast) return cast(in_.weight);
    if (!out_.cast_weight) out_.cast_weight = cast(in_.weight);
    return out_.cast_weight;
  }

  Eager& e_;
  const LinearLossInputs& in_;
  const LigerLinearLoss& options_;
  bool uses_out_ = false;
  Tensor buffer_;
  LossGradients out_;
};

}  // namespace

LigerLinearLossResult liger_linear_loss(Eager& e, const Tensor& hidden, const Tensor& weight,
                                        const Tensor& bias, const Tensor& target,
                                        const LigerLinearLoss& options) {
  const LinearLossInputs inputs{hidden, weight, bias, target};
  LossGradients made;
  {
    GradMode no_grad(e, false);
    made = options.liger < kHalfPrecisionChunks ? UpcastingLoss(e, inputs).run()
                                                : LinearLoss(e, inputs, options).run();
  }
  if (Node* node = e.history("LigerFusedLinearCrossEntropyFunctionBackward",
                             {&hidden, &weight, &bias}, {&made.loss})) {
    for (const Tensor& gradient : {made.hidden, made.weight, made.bias}) {
      node->save(gradient ? e.detach(gradient) : Tensor());
    }
    node->apply = [](Eager& eager, Node& n, Grads&, Grads& result) {
      compare_with_one(eager);
      for (size_t i = 0; i < 3; ++i) {
        if (n.needs(i)) result[i] = detach(eager, n.saved[i]);
      }
    };
    e.finish(*node);
  }
  return {made.loss, made.cast_weight};
}

}  // namespace headroom::op
