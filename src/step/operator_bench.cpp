#include "step/operator_bench.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "memory/caching_allocator.h"
#include "operator/functional.h"
#include "operator/fused_kernels.h"
#include "step/engine.h"
#include "step/recorder.h"

namespace headroom::step {

using op::Dims;
using op::DType;
using op::Eager;
using op::Tensor;

namespace {

// Peaks settle at the second iteration, when the gradients of the first are there.
constexpr int kIterations = 3;

// A benchmark script: what it makes once, and what it runs again and again.
class Script {
 public:
  Script(const OperatorBench& bench, const op::Environment& environment)
      : bench_(bench), recorder_(trace_), e_(recorder_, environment) {
    trace_.modules.emplace_back();
    engine_ = std::make_unique<Engine>(
        e_, EngineOptions{.accumulate_in_place = true,
                          .retain_graph = retains_graph(),
                          .hands_gradients_out = bench.kernel == BenchKernel::rope,
                          .hooks = {}});
  }

  std::optional<int64_t> peak() {
    set_up();
    size_t last_begin = 0;
    for (int i = 0; i < kIterations; ++i) {
      last_begin = trace_.memory.events.size();
      iterate();
    }
    return peak_from(last_begin);
  }

 private:
  [[nodiscard]] bool retains_graph() const {
    return bench_.kernel != BenchKernel::cross_entropy && bench_.kernel != BenchKernel::embedding &&
           bench_.kernel != BenchKernel::fused_linear_cross_entropy;
  }
  [[nodiscard]] int64_t rows() const { return bench_.batch * bench_.sequence; }

  Tensor leaf(const Dims& sizes, DType dtype) {
    Tensor tensor = e_.empty(sizes, dtype);
    tensor->requires_grad = true;
    return tensor;
  }
  Tensor keep(Tensor tensor) {
    kept_.push_back(tensor);
    return tensor;
  }

  // The scripts time the kernels before they measure memory, so by then every thread that runs
  // products has its workspace.
  void make_workspaces() {
    e_.use_blas();
    e_.set_thread(op::ThreadKind::autograd);
    e_.use_blas();
    e_.set_thread(op::ThreadKind::main);
  }

  void set_up();
  void set_up_rope();
  void set_up_gated();
  void set_up_loss();
  Tensor forward();
  Tensor gated(const Tensor& x);
  Tensor plain_rms_norm(const Tensor& x);
  Tensor linear_loss();
  Tensor plain_rotation(const Tensor& x);
  void iterate();
  void iterate_rope();
  std::optional<int64_t> peak_from(size_t begin) const;

  const OperatorBench& bench_;
  StepTrace trace_;
  Recorder recorder_;
  Eager e_;
  std::unique_ptr<Engine> engine_;
  std::vector<Tensor> kept_;  // what a script holds besides
  std::vector<Tensor> weights_;
  Tensor input_;
  Tensor key_;     // rope
  Tensor target_;  // losses, embedding
  Tensor seed_;    // the gradient of the output, where it is made once
  Tensor key_seed_;
  Tensor output_;  // scope backward
};

void Script::set_up() {
  const OperatorBench& b = bench_;
  switch (b.kernel) {
    case BenchKernel::rope:
      set_up_rope();
      return;
    case BenchKernel::geglu:
    case BenchKernel::swiglu:
      set_up_gated();
      return;
    case BenchKernel::cross_entropy:
    case BenchKernel::fused_linear_cross_entropy:
      set_up_loss();
      return;
    case BenchKernel::embedding:
      // Both modules are made, whichever is measured.
      weights_.push_back(leaf({b.classes, b.width}, b.dtype));
      keep(leaf({b.classes, b.width}, b.dtype));
      target_ = e_.empty({b.batch, b.sequence}, DType::i64);
      return;
    case BenchKernel::layer_norm:
    case BenchKernel::rms_norm: {
      const int parameters = b.kernel == BenchKernel::layer_norm ? 2 : 1;
      for (int i = 0; i < parameters; ++i) {
        weights_.push_back(leaf({b.width}, DType::f32));
        keep(leaf({b.width}, DType::f32));
      }
      input_ = leaf({rows(), b.width}, b.dtype);
      seed_ = e_.empty({rows(), b.width}, b.dtype);
      return;
    }
  }
}

void Script::set_up_rope() {
  const OperatorBench& b = bench_;
  const int64_t head = b.width / b.heads;
  const Tensor frequencies = keep(e_.empty({head / 2}, DType::f32));
  const auto sequence_first = [&](int64_t heads) {
    const Tensor dense = e_.empty({1, b.sequence, heads, head}, b.dtype);
    Tensor tensor = e_.detach(op::transpose(e_, dense, 1, 2));
    return tensor;
  };
  input_ = sequence_first(b.heads);
  key_ = sequence_first(b.key_heads);
  input_->requires_grad = true;
  key_->requires_grad = true;
  seed_ = sequence_first(b.heads);
  key_seed_ = sequence_first(b.key_heads);
  keep(e_.empty({b.sequence}, DType::i64));                      // positions
  e_.use_blas();                                                 // the angles are a product
  weights_.push_back(e_.empty({1, b.sequence, head}, b.dtype));  // cos and sin
  weights_.push_back(e_.empty({1, b.sequence, head}, b.dtype));
}

void Script::set_up_gated() {
  const OperatorBench& b = bench_;
  make_workspaces();
  input_ = leaf({b.batch, b.sequence, b.width}, b.dtype);
  weights_.push_back(leaf({b.intermediate, b.width}, b.dtype));
  weights_.push_back(leaf({b.intermediate, b.width}, b.dtype));
  weights_.push_back(leaf({b.width, b.intermediate}, b.dtype));
  if (b.scope == BenchScope::backward) {
    seed_ = e_.empty(input_.sizes(), b.dtype);
    output_ = forward();
  }
}

void Script::set_up_loss() {
  const OperatorBench& b = bench_;
  if (b.kernel == BenchKernel::cross_entropy) {
    input_ = leaf({rows(), b.classes}, DType::f32);
  } else {
    make_workspaces();
    weights_.push_back(leaf({b.classes, b.width}, b.dtype));
    keep(leaf({b.classes, b.width}, b.dtype));  // the other provider's layer
    input_ = leaf({rows(), b.width}, b.dtype);
  }
  target_ = e_.empty({rows()}, DType::i64);
}

Tensor Script::gated(const Tensor& x) {
  const bool is_silu = bench_.kernel == BenchKernel::swiglu;
  if (bench_.is_liger) {
    const Tensor gate = op::linear(e_, x, weights_[0], {});
    const Tensor up = op::linear(e_, x, weights_[1], {});
    return op::linear(e_, op::liger_gated(e_, gate, up), weights_[2], {});
  }
  Tensor gate = op::linear(e_, x, weights_[0], {});
  Tensor active = is_silu ? op::silu(e_, gate) : op::gelu(e_, gate, true);
  gate = Tensor();
  const Tensor up = op::linear(e_, x, weights_[1], {});
  const Tensor product = op::mul(e_, active, up);
  active = Tensor();
  return op::linear(e_, product, weights_[2], {});
}

Tensor Script::plain_rms_norm(const Tensor& x) {
  const int last[] = {-1};
  Tensor hidden = op::to(e_, x, DType::f32);
  const Tensor variance = op::mean(e_, op::pow(e_, hidden, 2), last, true);
  hidden = op::mul(e_, hidden, op::rsqrt(e_, op::add_scalar(e_, variance, 1e-6)));
  return op::mul(e_, weights_[0], op::to(e_, hidden, x.dtype()));
}

Tensor Script::linear_loss() {
  if (bench_.is_liger) {
    op::LigerLinearLoss loss;
    loss.liger = bench_.liger;
    return op::liger_linear_loss(e_, input_, weights_[0], {}, target_, loss).loss;
  }
  const Tensor logits = op::linear(e_, input_, weights_[0], {});
  return op::cross_entropy(e_, logits, target_);
}

Tensor Script::forward() {
  switch (bench_.kernel) {
    case BenchKernel::cross_entropy:
      return bench_.is_liger ? op::liger_cross_entropy(e_, input_, target_, bench_.liger)
                             : op::cross_entropy(e_, input_, target_);
    case BenchKernel::embedding:
      return bench_.is_liger ? op::liger_embedding(e_, weights_[0], target_)
                             : op::embedding(e_, weights_[0], target_);
    case BenchKernel::fused_linear_cross_entropy:
      return linear_loss();
    case BenchKernel::geglu:
    case BenchKernel::swiglu:
      return gated(input_);
    case BenchKernel::layer_norm:
      return bench_.is_liger
                 ? op::liger_layer_norm(e_, input_, weights_[0], weights_[1], bench_.liger)
                 : op::layer_norm(e_, input_, weights_[0], weights_[1]);
    case BenchKernel::rms_norm:
      return bench_.is_liger ? op::liger_rms_norm(e_, input_, weights_[0], {bench_.liger, true})
                             : plain_rms_norm(input_);
    case BenchKernel::rope:
      break;
  }
  return {};
}

// x * cos + rotate_half(x) * sin.
Tensor Script::plain_rotation(const Tensor& x) {
  const Tensor cos = op::unsqueeze(e_, weights_[0], 1);
  const Tensor sin = op::unsqueeze(e_, weights_[1], 1);
  const int64_t head = x.size(-1);
  const Tensor straight = op::mul(e_, x, cos);
  Tensor turned;
  {
    const Tensor first = op::slice(e_, x, -1, 0, head / 2);
    const Tensor second = op::slice(e_, x, -1, head / 2, head);
    const std::array<Tensor, 2> halves{op::neg(e_, second), first};
    turned = op::cat(e_, halves, -1);
  }
  turned = op::mul(e_, turned, sin);
  return op::add(e_, straight, turned);
}

void Script::iterate_rope() {
  std::array<Tensor, 2> outputs;
  if (bench_.is_liger) {
    auto [query, key] = op::liger_rotary(e_, input_, key_, weights_[0], weights_[1]);
    outputs = {query, key};
  } else {
    outputs[0] = plain_rotation(input_);
    outputs[1] = plain_rotation(key_);
  }
  engine_->run(outputs, {seed_, key_seed_});
  input_->grad = Tensor();
  key_->grad = Tensor();
}

void Script::iterate() {
  if (bench_.kernel == BenchKernel::rope) {
    iterate_rope();
    return;
  }
  if (bench_.scope == BenchScope::backward) {
    engine_->run(output_, seed_);
    return;
  }
  const Tensor out = forward();
  if (bench_.scope == BenchScope::forward) return;
  const bool makes_seed = !seed_;  // randn_like of the output, or ones for a loss
  const Tensor seed = makes_seed ? e_.empty(out.sizes(), out.dtype()) : seed_;
  engine_->run(out, seed);
}

// torch.cuda.max_memory_allocated() from this event on.
std::optional<int64_t> Script::peak_from(size_t begin) const {
  memory::DeviceMemory device;
  memory::CachingAllocator allocator(memory::AllocatorSettings{}, device);
  std::vector<memory::BlockId> blocks(trace_.memory.buffers.size(), memory::kNoBlock);
  for (size_t i = 0; i < trace_.memory.events.size(); ++i) {
    if (i == begin) allocator.reset_peaks();
    const memory::MemoryEvent& event = trace_.memory.events[i];
    memory::BlockId& block = blocks[event.buffer];
    if (event.kind == memory::EventKind::free) {
      if (block != memory::kNoBlock) allocator.free(block);
      continue;
    }
    const int64_t bytes = trace_.memory.buffers[event.buffer].requested_bytes;
    if (bytes == 0) continue;
    const auto allocation = allocator.allocate(bytes, 0);
    if (!allocation) return std::nullopt;
    block = allocation->block;
  }
  return allocator.statistics().allocated_bytes.peak;
}

}  // namespace

op::Environment operator_bench_environment() {
  op::Environment environment;
  environment.torch = {2, 4};
  environment.compute_capability = 80;
  environment.multiprocessors = 108;
  constexpr int64_t kCublas = 2 * (4096 << 10) + 8 * (16 << 10);  // ":4096:2:16:8"
  environment.blas = {
      .main_bytes = kCublas, .lt_bytes = 1 << 20, .lt = op::BlasWorkspaces::Lt::temporary};
  return environment;
}

Result<int64_t> operator_peak(const OperatorBench& bench, const op::Environment& environment) {
  const auto peak = Script(bench, environment).peak();
  if (!peak) {
    return Error{ErrorCode::bad_input, "an operator of this size fits no device", {}, {}};
  }
  return *peak;
}

}  // namespace headroom::step
