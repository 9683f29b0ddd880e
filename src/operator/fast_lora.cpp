// LoRA beside quantized weights, several modules in one autograd function: forward and backward are
// written out in torch operators, so that nothing but the inputs, the dropped inputs and (in a
// gated layer) gate and up is kept.
//
// Source: fused_ops/unsloth_lora/{bnb,gptq}/fast_lora.py and utils.py of fms_acceleration_foak.
// Each statement there is a block here, since its temporaries die with it.
#include <utility>

#include "operator/fast_kernels.h"

namespace headroom::op {

namespace {

double elements_of(const Tensor& tensor) { return static_cast<double>(tensor.elements()); }

// The operators of one fused function, forward or backward, without history.
class FastLora {
 public:
  FastLora(Eager& e, const FastLoraOptions& options)
      : e_(e), options_(options), no_grad_(e, false) {}

  // fast_dequantize, dequant248: [in, out], as a view or as it is.
  Tensor unpacked(const QuantizedLinear& q) {
    if (q.format == QuantizedFormat::gptq) return unpacked_gptq(e_, q);
    const Tensor weight = e_.empty({q.out, q.in}, q.unpacked);
    const Tensor maxima = unpacked_maxima(e_, q);
    unpack_nf4(e_, q, weight);
    return t(e_, weight);
  }

  // torch.matmul of matrices; autocast casts a call's arguments last to first.
  Tensor product(const Tensor& a, const Tensor& b) {
    const Tensor second = cast(b);
    return mm(e_, cast(a), second);
  }

  // matmul_lora. A weight that is not given is unpacked here and goes once its product is there.
  struct Applied {
    Tensor out;
    Tensor dropped;
  };
  Applied apply(const Tensor& x, const FastLoraModule& module, const Tensor& given) {
    Applied applied;
    {
      const Tensor weight = given ? given : unpacked(module.base);
      applied.out = product(x, weight);
    }
    applied.dropped = dropout(e_, x, options_.dropout, true);
    add_adapter(applied.out, applied.dropped, t(e_, module.a), t(e_, module.b));
    return applied;
  }

  // `down` is [in, rank] and `up` [rank, out].
  void add_adapter(const Tensor& out, const Tensor& x, const Tensor& down, const Tensor& up) {
    const Tensor low = product(x, to(e_, down, x.dtype()));
    const Tensor scaled = mul_scalar(e_, to(e_, up, x.dtype()), 1);
    add_inplace(e_, out, product(low, scaled));
  }

  struct AdapterGradients {
    Tensor a;
    Tensor b;
  };
  // Of the matrices as the function holds them, transposed: a [in, rank], b [rank, out].
  AdapterGradients adapter_gradients(const Tensor& dropped, const Tensor& grad,
                                     const FastLoraModule& module) {
    AdapterGradients gradients;
    {
      const Tensor low = product(grad, module.b);
      gradients.a = product(t(e_, dropped), low);
    }
    {
      const Tensor low = product(module.a, t(e_, dropped));
      gradients.b = product(low, grad);
    }
    scale(gradients.a);
    scale(gradients.b);
    return gradients;
  }

  // dX += (dropped != 0) * (grad @ B @ (scaling * A))
  void add_through_adapter(const Tensor& sum, const Tensor& dropped, const Tensor& grad,
                           const FastLoraModule& module) {
    const Tensor mask = compare(e_, dropped, nullptr);
    Tensor wide;
    {
      const Tensor low = product(grad, to(e_, module.b, sum.dtype()));
      const Tensor scaled = mul_scalar(e_, to(e_, module.a, sum.dtype()), 1);
      wide = product(low, scaled);
    }
    add_inplace(e_, sum, mul(e_, mask, wide));
  }

  // grad @ W, in the place of `place` where that is given: bnb's functions write over their input.
  Tensor through_weight(const Tensor& grad, const QuantizedLinear& base, const Tensor& place = {}) {
    const Tensor weight = unpacked(base);
    if (!place) return product(grad, t(e_, weight));
    e_.use_blas();
    e_.kernel(OpKind::mm, 2 * elements_of(grad) * static_cast<double>(base.in),
              grad.bytes() + weight.bytes(), place.bytes());
    return place;
  }

  void scale(const Tensor& tensor) {
    e_.kernel(OpKind::mul, elements_of(tensor), tensor.bytes(), tensor.bytes());
  }

 private:
  Tensor cast(const Tensor& tensor) {
    return options_.autocast ? to(e_, tensor, *options_.autocast) : tensor;
  }

  Eager& e_;
  FastLoraOptions options_;
  GradMode no_grad_;
};

Tensor rows_of(Eager& e, const Tensor& tensor) { return reshape(e, tensor, {-1, tensor.size(-1)}); }

Dims sizes_with(const Tensor& x, int64_t width) {
  Dims sizes = x.sizes();
  sizes.back() = width;
  return sizes;
}

// What backward knows of the modules besides what the node saved.
struct Bases {
  std::vector<QuantizedLinear> of;
  [[nodiscard]] bool is_gptq() const { return of[0].format == QuantizedFormat::gptq; }
};

Bases bases_of(std::span<const FastLoraModule> modules) {
  Bases bases;
  for (const FastLoraModule& module : modules) bases.of.push_back(module.base);
  return bases;
}

// Undefined biases stay undefined inputs; frozen ones get no gradient.
std::vector<Tensor> inputs_of(const Tensor& x, std::span<const FastLoraModule> modules) {
  std::vector<Tensor> inputs{x};
  for (const FastLoraModule& module : modules) {
    inputs.push_back(module.a);
    inputs.push_back(module.b);
  }
  return inputs;
}

// The parts of a node's `saved` that belong to module i: inputs_of's order, then dropped inputs.
FastLoraModule saved_module(const Node& n, const Bases& bases, size_t i) {
  return {bases.of[i], n.saved[1 + 2 * i], n.saved[2 + 2 * i], {}};
}

struct Forward {
  std::vector<Tensor> outputs;
  std::vector<Tensor> dropped;
};

Forward forward(Eager& e, const Tensor& x, std::span<const FastLoraModule> modules,
                const FastLoraOptions& options) {
  FastLora f(e, options);
  Forward made;
  std::vector<Tensor> weights;
  if (modules[0].base.format == QuantizedFormat::gptq) {
    for (const FastLoraModule& module : modules) weights.push_back(f.unpacked(module.base));
  }
  const Tensor rows = rows_of(e, x);
  for (size_t i = 0; i < modules.size(); ++i) {
    const FastLoraModule& module = modules[i];
    const FastLora::Applied applied =
        f.apply(rows, module, weights.empty() ? Tensor() : weights[i]);
    if (module.bias) add_inplace(e, applied.out, module.bias);
    made.outputs.push_back(view(e, applied.out, sizes_with(x, module.base.out)));
    made.dropped.push_back(applied.dropped);
  }
  return made;
}

void backward(Eager& e, Node& n, Grads& g, Grads& result, const Bases& bases,
              const FastLoraOptions& options) {
  FastLora f(e, options);
  const size_t count = bases.of.size();
  std::vector<Tensor> grads;
  for (size_t i = 0; i < count; ++i) grads.push_back(rows_of(e, g[i]));
  const Tensor x = rows_of(e, n.saved[0]);
  const auto dropped = [&](size_t i) -> const Tensor& { return n.saved[1 + 2 * count + i]; };
  for (size_t i = 0; i < count; ++i) {
    auto made = f.adapter_gradients(dropped(i), grads[i], saved_module(n, bases, i));
    result[1 + 2 * i] = t(e, made.a);
    result[2 + 2 * i] = t(e, made.b);
  }
  // bnb's function of three modules writes over its input.
  const bool overwrites = count > 1 && !bases.is_gptq();
  const Tensor sum = f.through_weight(grads[0], bases.of[0], overwrites ? x : Tensor());
  f.add_through_adapter(sum, dropped(0), grads[0], saved_module(n, bases, 0));
  for (size_t i = 1; i < count; ++i) {
    add_inplace(e, sum, f.through_weight(grads[i], bases.of[i]));
    f.add_through_adapter(sum, dropped(i), grads[i], saved_module(n, bases, i));
  }
  result[0] = view(e, sum, n.saved[0].sizes());
}

}  // namespace

std::vector<Tensor> fast_lora(Eager& e, const Tensor& x, std::span<const FastLoraModule> modules,
                              const FastLoraOptions& options) {
  Forward made = forward(e, x, modules, options);
  const std::vector<Tensor> inputs = inputs_of(x, modules);
  const std::span<const Tensor> all(inputs);
  Node* node = e.history("LoRA_QKVBackward", all, std::span<Tensor>(made.outputs));
  if (node == nullptr) return made.outputs;
  for (const Tensor& tensor : inputs) node->save(tensor);
  for (const Tensor& tensor : made.dropped) node->save(tensor);
  node->apply = [bases = bases_of(modules), options](Eager& eager, Node& n, Grads& g,
                                                     Grads& result) {
    backward(eager, n, g, result, bases, options);
  };
  e.finish(*node);
  return made.outputs;
}

namespace {

struct MlpForward {
  Tensor gate;
  Tensor up;
  Tensor out;
  std::vector<Tensor> dropped;
};

MlpForward mlp_forward(Eager& e, const Tensor& x, std::span<const FastLoraModule> modules,
                       const FastLoraOptions& options) {
  FastLora f(e, options);
  MlpForward made;
  std::vector<Tensor> kept;  // GPTQ's unpacked weights, to the end of the function
  const bool is_gptq = modules[0].base.format == QuantizedFormat::gptq;
  const auto run = [&](const Tensor& input, const FastLoraModule& module) {
    if (is_gptq) kept.push_back(f.unpacked(module.base));
    const Tensor rows = rows_of(e, input);
    FastLora::Applied applied = f.apply(rows, module, is_gptq ? kept.back() : Tensor());
    made.dropped.push_back(std::move(applied.dropped));
    return view(e, applied.out, sizes_with(input, module.base.out));
  };
  made.gate = run(x, modules[0]);
  made.up = run(x, modules[1]);
  const Tensor hidden = e.empty(made.gate.sizes(), made.gate.dtype());
  e.kernel(OpKind::fast_lora_mlp, 6 * elements_of(hidden), 2 * hidden.bytes(), hidden.bytes());
  made.out = run(hidden, modules[2]);
  return made;
}

void mlp_backward(Eager& e, Node& n, Grads& g, Grads& result, const Bases& bases,
                  const FastLoraOptions& options) {
  FastLora f(e, options);
  const FastLoraModule gate = saved_module(n, bases, 0);
  const FastLoraModule up = saved_module(n, bases, 1);
  const FastLoraModule down = saved_module(n, bases, 2);
  const Tensor& gate_x = n.saved[9];
  const Tensor& up_x = n.saved[10];
  const Tensor grad = rows_of(e, g[0]);
  const Tensor x = rows_of(e, n.saved[0]);
  Tensor down_weight = f.unpacked(down.base);
  Tensor hidden;
  {
    const Tensor mask = compare(e, n.saved[11], nullptr);
    hidden = f.product(grad, t(e, down_weight));
    if (!bases.is_gptq()) down_weight = Tensor();
    f.add_adapter(hidden, grad, down.b, down.a);
  }
  // Written over: the hidden states themselves, and the gradients of up and gate.
  const Tensor up_grad = rows_of(e, n.saved[7]);
  const Tensor gate_grad = rows_of(e, n.saved[8]);
  e.kernel(OpKind::fast_lora_mlp, 12 * elements_of(hidden), 3 * hidden.bytes(), 3 * hidden.bytes());
  const auto hand_out = [&](size_t i, const Tensor& input, const Tensor& gradient,
                            const FastLoraModule& module) {
    auto made = f.adapter_gradients(input, gradient, module);
    result[1 + 2 * i] = t(e, made.a);
    result[2 + 2 * i] = t(e, made.b);
  };
  hand_out(2, hidden, grad, down);
  hand_out(1, up_x, up_grad, up);
  hand_out(0, gate_x, gate_grad, gate);
  const Tensor sum = f.through_weight(up_grad, up.base, bases.is_gptq() ? Tensor() : x);
  f.add_through_adapter(sum, up_x, up_grad, up);
  add_inplace(e, sum, f.through_weight(gate_grad, gate.base));
  f.add_through_adapter(sum, gate_x, gate_grad, gate);
  result[0] = view(e, sum, n.saved[0].sizes());
}

}  // namespace

Tensor fast_lora_mlp(Eager& e, const Tensor& x, std::span<const FastLoraModule> modules,
                     const FastLoraOptions& options) {
  MlpForward made = mlp_forward(e, x, modules, options);
  const std::vector<Tensor> inputs = inputs_of(x, modules);
  const std::span<const Tensor> all(inputs);
  Node* node = e.history("LoRA_MLPBackward", all, std::span<Tensor>(&made.out, 1));
  if (node == nullptr) return made.out;
  for (const Tensor& tensor : inputs) node->save(tensor);
  node->save(made.gate);
  node->save(made.up);
  for (const Tensor& tensor : made.dropped) node->save(tensor);
  node->apply = [bases = bases_of(modules), options](Eager& eager, Node& n, Grads& g,
                                                     Grads& result) {
    mlp_backward(eager, n, g, result, bases, options);
  };
  e.finish(*node);
  return made.out;
}

}  // namespace headroom::op
