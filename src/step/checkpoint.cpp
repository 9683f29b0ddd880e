#include "step/checkpoint.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "operator/impossible.h"

namespace headroom::step {

using op::Grads;
using op::Node;
using op::Tensor;

namespace {

// The region's inputs that are there, in order.
std::vector<Tensor> inputs_of(const model::Region& region, const Frame& frame) {
  std::vector<Tensor> inputs;
  for (const model::ValueId id : region.inputs) {
    inputs.push_back(id == model::kNoValue ? Tensor() : frame[id]);
  }
  return inputs;
}

// Puts `inputs` in the frame for the length of a second run, then what was there before.
class InputsInPlace {
 public:
  InputsInPlace(const model::Region& region, Frame& frame, const std::vector<Tensor>& inputs)
      : region_(region), frame_(frame), before_(inputs) {
    swap();
  }
  ~InputsInPlace() { swap(); }
  InputsInPlace(const InputsInPlace&) = delete;
  InputsInPlace& operator=(const InputsInPlace&) = delete;

 private:
  void swap() {
    for (size_t i = 0; i < region_.inputs.size(); ++i) {
      if (region_.inputs[i] != model::kNoValue) std::swap(frame_[region_.inputs[i]], before_[i]);
    }
  }
  const model::Region& region_;
  Frame& frame_;
  std::vector<Tensor> before_;
};

// Takes what the first run put out away from a second run, and puts it back: a loop may hold it.
class OutputsKept {
 public:
  OutputsKept(const model::Region& region, Frame& frame) : region_(region), frame_(frame) {
    for (const model::ValueId id : region.outputs) first_.push_back(frame[id]);
  }
  ~OutputsKept() {
    for (size_t i = 0; i < first_.size(); ++i) frame_[region_.outputs[i]] = std::move(first_[i]);
  }
  OutputsKept(const OutputsKept&) = delete;
  OutputsKept& operator=(const OutputsKept&) = delete;

 private:
  const model::Region& region_;
  Frame& frame_;
  std::vector<Tensor> first_;
};

// CheckpointFunction runs backward from those outputs alone that have a gradient. Gives back the
// others and their gradients, which its frame holds to the end.
std::vector<Tensor> drop_without_gradient(std::vector<Tensor>& outputs, Grads& grads) {
  std::vector<Tensor> kept, others;
  Grads kept_grads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]->requires_grad) {
      others.push_back(std::move(outputs[i]));
      others.push_back(std::move(grads[i]));
      continue;
    }
    kept.push_back(std::move(outputs[i]));
    kept_grads.push_back(std::move(grads[i]));
  }
  outputs = std::move(kept);
  grads = std::move(kept_grads);
  return others;
}

}  // namespace

// What a selective checkpoint keeps, in the order in which its region's operators ran.
class Checkpointer::Cache : public op::OutputCache {
 public:
  Cache(op::Eager& eager, KeptOutputs kept) : eager_(eager), kept_(kept) {}

  void begin_second_run() { next_ = 0; }

  bool take(op::OpKind, std::initializer_list<Tensor*> outputs) override {
    if (!next_) return false;
    HEADROOM_CHECK(*next_ < entries_.size(), "a second run of more operators than the first");
    std::vector<Tensor>& entry = entries_[(*next_)++];
    if (entry.empty()) return false;
    auto from = entry.begin();
    for (Tensor* output : outputs) *output = std::move(*from++);
    entry.clear();
    return true;
  }

  void made(op::OpKind kind, std::initializer_list<const Tensor*> outputs) override {
    if (next_) return;
    std::vector<Tensor>& entry = entries_.emplace_back();
    if (!kept_.keeps(kind, products_)) return;
    for (const Tensor* output : outputs) {
      entry.push_back(eager_.detach(*output));
      eager_.note_saved(entry.back());
    }
  }

 private:
  op::Eager& eager_;
  KeptOutputs kept_;
  int64_t products_ = 0;
  std::optional<size_t> next_;                // in the second run: the entry that is next
  std::vector<std::vector<Tensor>> entries_;  // by operator; empty where it runs again
};

// One checkpointed run of a region: what a second run needs, and what it brought back.
struct Checkpointer::Recomputation {
  uint32_t region = 0;
  Frame* frame = nullptr;
  std::vector<Tensor> inputs;
  std::optional<Cache> cache;   // of a selective checkpoint
  uint32_t holders = 0;         // tensors that the first run saved
  uint32_t operation = 0;       // operations begun so far in the current run
  uint32_t newest_before = 0;   // block made last when the current operation began
  uint32_t last_operation = 0;  // the operation that saved last
  bool last_is_output = false;  // what it saved last was its own output
  bool done = false;
  std::vector<Tensor> recomputed;          // by holder
  std::vector<std::weak_ptr<void>> nodes;  // by holder: gone where its node is
};

// The hook of the first run: keeps nothing.
class Checkpointer::Taking : public op::SavedTensorHooks {
 public:
  explicit Taking(std::shared_ptr<Recomputation> recomputation)
      : recomputation_(std::move(recomputation)) {}
  bool pack(Node& node, size_t slot, const Tensor& tensor) override {
    Recomputation& r = *recomputation_;
    // One owner a node, so that a holder can tell whether its node is still there.
    if (!node.hook_owner) {
      auto owner = std::make_shared<std::shared_ptr<Recomputation>>(recomputation_);
      node.hook_owner = std::shared_ptr<void>(owner, recomputation_.get());
    }
    r.nodes.push_back(node.hook_owner);
    node.hooked.push_back({static_cast<uint32_t>(slot), r.holders++});
    r.last_operation = r.operation;
    // Outputs are saved without their history (Eager::finish), and are new.
    r.last_is_output =
        !tensor->grad_fn && !tensor->requires_grad && tensor->storage->buffer > r.newest_before;
    return true;
  }

 private:
  std::shared_ptr<Recomputation> recomputation_;
};

// The hook of the second run: keeps what nodes of the first run wait for. Some are gone by then,
// since nothing came of them (the scores by which experts are chosen).
class Checkpointer::Collecting : public op::SavedTensorHooks {
 public:
  Collecting(op::Eager& eager, Recomputation& recomputation)
      : eager_(eager), recomputation_(recomputation) {}
  bool pack(Node& node, size_t, const Tensor& tensor) override {
    auto& recomputed = recomputation_.recomputed;
    const bool wanted = recomputed.size() < recomputation_.nodes.size() &&
                        !recomputation_.nodes[recomputed.size()].expired();
    // The second run's own node holds it as well, wanted or not, for as long as it is there.
    if (!node.hook_owner) node.hook_owner = std::make_shared<std::vector<Tensor>>();
    auto& held = *static_cast<std::vector<Tensor>*>(node.hook_owner.get());
    held.push_back(eager_.detach(tensor));
    recomputed.push_back(wanted ? held.back() : Tensor());
    return true;
  }

 private:
  op::Eager& eager_;
  Recomputation& recomputation_;
};

void Checkpointer::clear_values(uint32_t region, Frame& frame) const {
  const model::Region& part = graph_.regions[region];
  for (uint32_t i = part.begin; i < part.end; ++i) {
    const model::Instruction& instruction = graph_.instructions[i];
    if (instruction.kind != model::InstructionKind::operation) continue;
    for (const model::ValueId id : graph_.operations[instruction.index].outputs) {
      frame[id] = Tensor();
    }
  }
}

void Checkpointer::run(uint32_t region, Frame& frame) {
  if (!eager_.grad_enabled()) {
    interpreter_.run_region(region, frame);
  } else if (kind_ == CheckpointKind::reentrant) {
    run_reentrant(region, frame);
  } else {
    run_non_reentrant(region, frame);
  }
}

namespace {

// What layers are given by keyword and gradients go back through: each layer's own backward would
// go through all that it was made of, and free what that kept, before the next layer's comes.
void refuse_shared_history(std::span<const Tensor> by_keyword) {
  for (const Tensor& input : by_keyword) {
    if (!input || !input->requires_grad || !input->grad_fn) continue;
    throw op::Impossible{
        "layers share what gradients go back through, and reentrant checkpoints would go back "
        "through it once for each, which PyTorch refuses",
        "take non-reentrant checkpoints"};
  }
}

}  // namespace

void Checkpointer::run_reentrant(uint32_t region, Frame& frame) {
  const model::Region& part = graph_.regions[region];
  std::vector<Tensor> inputs = inputs_of(part, frame);
  {
    op::GradMode no_grad(eager_, false);
    interpreter_.run_region(region, frame);
  }
  std::vector<Tensor> outputs;
  for (const model::ValueId id : part.outputs) {
    Tensor& output = frame[id];
    // What went in and comes out again is a view of itself
    // (torch/csrc/autograd/custom_function.cpp).
    const bool passed_on = std::ranges::any_of(
        inputs, [&](const Tensor& input) { return input.get() == output.get(); });
    if (passed_on) output = eager_.alias(output, output.sizes(), output.strides());
    outputs.push_back(output);
  }
  const std::span<const Tensor> all(inputs);
  const std::span positional = all.first(std::min<size_t>(part.positional, inputs.size()));
  refuse_shared_history(all.subspan(positional.size()));
  Node* node = eager_.history("CheckpointFunctionBackward", positional, outputs);
  if (!node) return;
  // What transformers passes by position is saved, and what it passes by keyword is held by the
  // function to run again.
  std::vector<Tensor> held = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool by_position = inputs[i] && i < positional.size();
    node->save_if(by_position, inputs[i]);
    if (by_position) held[i] = Tensor();
  }
  eager_.finish(*node);
  node->apply = [this, region, &frame, held = std::move(held)](op::Eager& eager, Node& n,
                                                               Grads& grads, Grads& results) {
    const model::Region& again = graph_.regions[region];
    // An autograd function written in Python gets zeros for outputs that nobody used.
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (!grads[i]) grads[i] = op::zeros(eager, n.outputs[i].sizes, n.outputs[i].dtype);
    }
    std::vector<Tensor> detached;
    for (size_t i = 0; i < held.size(); ++i) {
      const Tensor& input = n.saved[i];
      detached.push_back(input ? eager.detach(input) : held[i]);
      if (input) detached.back()->requires_grad = input->requires_grad;
    }
    std::vector<Tensor> second_outputs;
    const OutputsKept kept(again, frame);
    {
      op::GradMode with_grad(eager, true);
      InputsInPlace in_place(again, frame, detached);
      interpreter_.run_region(region, frame);
      for (const model::ValueId id : again.outputs) second_outputs.push_back(frame[id]);
      clear_values(region, frame);
    }
    const std::vector<Tensor> others = drop_without_gradient(second_outputs, grads);
    engine_.run(second_outputs, grads);
    for (size_t i = 0; i < detached.size(); ++i) {
      if (n.saved[i]) results[i] = detached[i]->grad;
    }
  };
}

void Checkpointer::run_non_reentrant(uint32_t region, Frame& frame) {
  auto recomputation = std::make_shared<Recomputation>();
  recomputation->region = region;
  recomputation->frame = &frame;
  recomputation->inputs = inputs_of(graph_.regions[region], frame);
  // _NoopSaveInputs keeps what was passed by position.
  for (size_t i = 0; i < recomputation->inputs.size(); ++i) {
    const Tensor& input = recomputation->inputs[i];
    const bool by_position = i < graph_.regions[region].positional;
    if (input && by_position) eager_.note_saved(input);
  }
  Taking hooks(recomputation);
  eager_.set_hooks(&hooks);
  if (kept_.any()) eager_.set_output_cache(&recomputation->cache.emplace(eager_, kept_));
  interpreter_.set_is_last([this, &r = *recomputation] {
    ++r.operation;
    r.newest_before = eager_.newest_buffer();
    return false;
  });
  interpreter_.run_region(region, frame);
  interpreter_.set_is_last(nullptr);
  eager_.set_output_cache(nullptr);
  eager_.set_hooks(nullptr);
}

void Checkpointer::recompute(Recomputation& r) {
  op::GradMode with_grad(eager_, true);
  Collecting hooks(eager_, r);
  eager_.set_hooks(&hooks);
  r.operation = 0;
  if (r.cache) {
    r.cache->begin_second_run();
    eager_.set_output_cache(&*r.cache);
  }
  // The run is cut off at the last tensor wanted; if that is an input of its operator, the operator
  // is interrupted before it runs.
  interpreter_.set_is_last([this, &r] {
    const bool is_last = ++r.operation == r.last_operation;
    if (is_last && !r.last_is_output) eager_.set_muted(true);
    return is_last;
  });
  {
    InputsInPlace in_place(graph_.regions[r.region], *r.frame, r.inputs);
    interpreter_.run_region(r.region, *r.frame);
    eager_.set_muted(false);
    clear_values(r.region, *r.frame);
  }
  interpreter_.set_is_last(nullptr);
  eager_.set_output_cache(nullptr);
  eager_.set_hooks(nullptr);
  r.recomputed.resize(std::max<size_t>(r.recomputed.size(), r.holders));
  r.done = true;
}

bool Checkpointer::unpack(Node& node) {
  if (node.hooked.empty()) return false;
  auto& r = *static_cast<Recomputation*>(node.hook_owner.get());
  const bool was_done = r.done;
  if (!was_done) recompute(r);
  for (const op::HookedSlot& hooked : node.hooked) {
    node.saved[hooked.slot] = std::move(r.recomputed[hooked.holder]);
  }
  node.hooked.clear();
  return !was_done;
}

}  // namespace headroom::step
