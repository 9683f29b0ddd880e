#include "step/compiled/compiler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "step/compiled/partition.h"
#include "step/compiled/program.h"

namespace headroom::step {

using op::Eager;
using op::Grads;
using op::Node;
using op::Tensor;

struct CompiledRegion {
  JointGraph joint;
  Program forward;
  Program backward;
  std::vector<JointValueId> kept;  // for backward
  bool has_backward = false;
};

namespace {

using Memory = std::vector<Tensor>;  // by value of the joint graph

Tensor as_laid_out(Eager& eager, const Tensor& block, const JointTensor& joint) {
  Tensor tensor = eager.alias(block, joint.sizes, joint.strides);
  tensor->base = Tensor();
  tensor->dtype = joint.dtype;
  return tensor;
}

// What is sent goes to whom it goes outside of generated code.
void launch(Eager& eager, const std::vector<op::KernelWork>& kernels) {
  for (const op::KernelWork& work : kernels) {
    const op::OpGroup group = op::group_of(work.kind);
    if (group == op::OpGroup::gemm) eager.use_blas();
    if (work.kind == op::OpKind::send_receive) {
      eager.send(work.bytes_read);
    } else if (group == op::OpGroup::communication) {
      eager.collective(work.kind, work.bytes_read, work.bytes_written);
    } else {
      if (group == op::OpGroup::attention) eager.await_sent();
      eager.kernel(work);
    }
  }
}

void run_program(Eager& eager, const JointGraph& joint, const Program& program, Memory& memory) {
  const uint32_t module_before = eager.module();
  for (const ProgramStep& step : program.steps) {
    eager.set_module(step.module);
    for (const JointValueId value : step.reads) {
      HEADROOM_CHECK(memory[value], "generated code reads what is not there");
    }
    for (const auto& [from, to] : step.reuses) {
      memory[to] = as_laid_out(eager, memory[from], joint.values[to]);
    }
    for (const JointValueId value : step.allocates) {
      const JointTensor& made = joint.values[value];
      memory[value] = eager.empty_strided(made.sizes, made.strides, made.dtype);
    }
    {
      const Tensor scratch = eager.scratch(step.scratch_bytes);
      launch(eager, step.work);
    }
    for (const JointValueId value : step.frees) memory[value] = Tensor();
    for (const auto& [from, _] : step.reuses) memory[from] = Tensor();
  }
  eager.set_module(module_before);
}

// Whether a compiled backward pass takes its gradients out of the list that it is given them in
// (boxed_grads_call, pytorch pull request 177837 of March 2026): 2.13 does; that 2.12 does follows
// from the date.
bool takes_gradients(const op::Environment& environment) {
  return environment.torch >= op::Version{2, 12};
}

std::shared_ptr<const CompiledRegion> compile(JointGraph joint, bool holds_gradients) {
  auto region = std::make_shared<CompiledRegion>();
  std::vector<JointValueId> gradients;
  for (const auto& gradient : joint.gradients) {
    if (gradient) gradients.push_back(gradient->value);
  }
  region->has_backward = !gradients.empty();
  if (region->has_backward) {
    const std::vector<bool> at_hand = values_kept(joint);
    std::vector<bool> given = at_hand;
    for (const auto& gradient : joint.output_gradients) {
      if (gradient) given[*gradient] = true;
    }
    region->backward = backward_program(joint, given, gradients, holds_gradients);
    for (JointValueId value = 0; value < at_hand.size(); ++value) {
      if (at_hand[value] && region->backward.reads[value]) region->kept.push_back(value);
    }
  }
  std::vector<bool> given(joint.values.size());
  for (const JointValueId value : joint.arguments) given[value] = true;
  std::vector<JointValueId> wanted;
  for (const JointTensor& output : joint.outputs) wanted.push_back(output.value);
  wanted.insert(wanted.end(), region->kept.begin(), region->kept.end());
  region->forward = forward_program(joint, given, wanted);
  region->joint = std::move(joint);
  return region;
}

// What was kept, and in later versions what backward was given, goes as it is used, so a graph that
// is retained (a split backward pass) cannot have such a node.
void run_backward(Eager& eager, const CompiledRegion& region, Node& node, Grads& grads,
                  Grads& results) {
  const JointGraph& joint = region.joint;
  Memory memory(joint.values.size());
  for (size_t i = 0; i < region.kept.size(); ++i) {
    memory[region.kept[i]] = std::exchange(node.saved[i], Tensor());
  }
  for (size_t i = 0; i < joint.outputs.size(); ++i) {
    if (!joint.output_gradients[i]) continue;
    if (!grads[i]) grads[i] = op::zeros(eager, node.outputs[i].sizes, node.outputs[i].dtype);
    Tensor& given = memory[*joint.output_gradients[i]];
    given = takes_gradients(eager.environment()) ? std::exchange(grads[i], Tensor()) : grads[i];
  }
  run_program(eager, joint, region.backward, memory);
  for (size_t i = 0; i < joint.gradients.size(); ++i) {
    const auto& gradient = joint.gradients[i];
    if (gradient) results[i] = as_laid_out(eager, memory[gradient->value], *gradient);
  }
}

}  // namespace

Compiler::Compiler(Eager& eager, const model::Graph& graph, RegionCheckpoints checkpoints)
    : eager_(eager), graph_(graph), checkpoints_(std::move(checkpoints)) {}
Compiler::~Compiler() = default;

const CompiledRegion& Compiler::compiled(uint32_t region, const Frame& frame) {
  auto& compiled = regions_[region];
  if (!compiled) {
    const auto& environment = eager_.environment();
    compiled = compile(trace_joint_graph(graph_, region, frame, environment, checkpoints_),
                       !takes_gradients(environment));
  }
  return *compiled;
}

void Compiler::run(uint32_t index, Frame& frame) {
  const model::Region& part = graph_.regions[index];
  const CompiledRegion& region = compiled(index, frame);
  const JointGraph& joint = region.joint;
  const uint32_t module_before = eager_.module();
  eager_.set_module(index + 1);
  Memory memory(joint.values.size());
  std::vector<Tensor> arguments;
  for (size_t i = 0; i < joint.taken.size(); ++i) {
    arguments.push_back(frame[joint.taken[i]]);
    memory[joint.arguments[i]] = arguments.back();
  }
  run_program(eager_, joint, region.forward, memory);
  std::vector<Tensor> outputs;
  for (const JointTensor& output : joint.outputs) {
    outputs.push_back(as_laid_out(eager_, memory[output.value], output));
  }
  const bool keeps = region.has_backward && eager_.grad_enabled();
  if (Node* node =
          keeps ? eager_.history("CompiledFunctionBackward", arguments, outputs) : nullptr) {
    for (const JointValueId value : region.kept) node->save(memory[value]);
    eager_.finish(*node);
    node->apply = [shared = regions_[index]](Eager& eager, Node& n, Grads& grads, Grads& results) {
      run_backward(eager, *shared, n, grads, results);
    };
  }
  for (size_t i = 0; i < outputs.size(); ++i) frame[joint.made[i]] = std::move(outputs[i]);
  // What the region's own code lets go of its caller's.
  for (uint32_t i = part.begin; i < part.end; ++i) {
    const model::Instruction& instruction = graph_.instructions[i];
    if (instruction.kind == model::InstructionKind::drop) frame[instruction.index] = Tensor();
  }
  eager_.set_module(module_before);
}

}  // namespace headroom::step
