#include "step/transform/enclose.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace headroom::step {

using model::Graph;
using model::Instruction;
using model::InstructionKind;
using model::Region;
using model::RegionKind;

namespace {

// Instructions [begin, end) that are compiled together.
struct Stretch {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// A model finds its loss by its class's name. GPT2LMHeadModel's has none that is known, and the
// warning about that is what cannot be traced (transformers/modeling_utils.py, loss_type).
bool has_loss_apart(std::string_view model_type) { return model_type == "gpt2"; }

// Of the first region of a kind.
uint32_t beginning_of(const Graph& graph, RegionKind kind) {
  const auto region = std::ranges::find(graph.regions, kind, &Region::kind);
  return region == graph.regions.end() ? static_cast<uint32_t>(graph.instructions.size())
                                       : region->begin;
}

std::vector<uint32_t> broken_at(const Graph& graph) {
  std::vector<uint32_t> breaks;
  for (uint32_t i = 0; i < graph.instructions.size(); ++i) {
    const Instruction& instruction = graph.instructions[i];
    const bool breaks_graph = instruction.kind == InstructionKind::operation &&
                              graph.operations[instruction.index].kind == op::OpKind::require_grad;
    if (breaks_graph) breaks.push_back(i);
  }
  return breaks;
}

Result<std::vector<Stretch>> stretches_of(const Graph& graph, std::string_view model_type) {
  const auto all = static_cast<uint32_t>(graph.instructions.size());
  const uint32_t end = has_loss_apart(model_type) ? beginning_of(graph, RegionKind::loss) : all;
  const std::vector<uint32_t> breaks = broken_at(graph);
  if (breaks.empty()) return std::vector{Stretch{0, end}};
  const uint32_t head = beginning_of(graph, RegionKind::lm_head);
  const bool is_inside = std::ranges::any_of(graph.regions, [&](const Region& region) {
    return region.begin < breaks.front() && breaks.front() < region.end;
  });
  if (breaks.size() > 1 || is_inside || breaks.front() > head || head > end) {
    return Error{ErrorCode::usage,
                 "checkpoints that break a compiled model's graph in several places cannot be "
                 "modelled yet",
                 "--compile", "--checkpointing none, or --compile layers"};
  }
  return std::vector{Stretch{0, breaks.front()}, Stretch{breaks.front() + 1, head},
                     Stretch{head, end}};
}

// What the whole function answers with, of what is made in here.
std::vector<model::ValueId> answers_of(const Graph& graph, const Stretch& stretch) {
  std::vector<model::ValueId> asked{graph.loss, graph.logits};
  asked.insert(asked.end(), graph.outputs.begin(), graph.outputs.end());
  std::vector<model::ValueId> answers;
  for (uint32_t i = stretch.begin; i < stretch.end; ++i) {
    if (graph.instructions[i].kind != InstructionKind::operation) continue;
    for (const model::ValueId made : graph.operations[graph.instructions[i].index].outputs) {
      if (std::ranges::find(asked, made) != asked.end()) answers.push_back(made);
    }
  }
  return answers;
}

void enclose_stretch(Graph& graph, const Stretch& stretch) {
  Region whole;
  whole.kind = RegionKind::whole;
  whole.outputs = answers_of(graph, stretch);
  // One instruction comes in front, and one behind.
  const auto moved = [&stretch](uint32_t instruction) {
    return instruction + (instruction >= stretch.begin ? 1 : 0) +
           (instruction >= stretch.end ? 1 : 0);
  };
  for (Region& region : graph.regions) {
    region.begin = moved(region.begin);
    region.end = moved(region.end - 1) + 1;
  }
  whole.begin = stretch.begin;
  whole.end = stretch.end + 2;
  const auto index = static_cast<uint32_t>(graph.regions.size());
  graph.regions.push_back(std::move(whole));
  auto& instructions = graph.instructions;
  instructions.insert(instructions.begin() + stretch.end,
                      Instruction{InstructionKind::leave, index});
  instructions.insert(instructions.begin() + stretch.begin,
                      Instruction{InstructionKind::enter, index});
}

}  // namespace

Result<Graph> enclose(Graph graph, std::string_view model_type) {
  HEADROOM_ASSIGN(const std::vector<Stretch> stretches, stretches_of(graph, model_type));
  // From the last on, so that those before keep their places.
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    enclose_stretch(graph, *stretch);
  }
  return graph;
}

}  // namespace headroom::step
