#include "step/transform/tensor_parallel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "step/interpreter.h"
#include "step/transform/graph_rewriter.h"
#include "step/transform/linear_site.h"
#include "step/transform/peft.h"
#include "step/transform/split_rules.h"
#include "step/transform/tensor_plan.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::InstructionKind;
using model::kNoValue;
using model::Operation;
using model::Parameter;
using model::ValueId;
using model::Var;
using op::Dims;
using op::OpKind;

namespace {

class Nowhere : public op::Sink {
 public:
  uint32_t on_allocate(int64_t) override { return 0; }
  void on_free(uint32_t) override {}
  void on_kernel(const op::KernelWork&) override {}
  void on_saved(uint32_t) override {}
  void on_module(uint32_t) override {}
};

// By value: the sizes that it has on one device.
std::vector<Dims> whole_sizes(const Graph& graph) {
  Nowhere nowhere;
  op::Environment environment;
  environment.kernel_scratch = false;
  op::Eager eager(nowhere, environment);
  const op::GradMode no_grad(eager, false);
  std::vector<Dims> sizes(graph.value_count);
  Frame frame(graph.value_count);
  const auto declare = [&](ValueId value, const Dims& shape, std::optional<op::DType> dtype) {
    frame[value] = eager.empty(shape, dtype.value_or(op::DType::bf16));
    sizes[value] = shape;
  };
  for (const Parameter& p : graph.parameters) {
    if (!p.tied_to) declare(p.value, p.shape, p.dtype);
  }
  for (const Parameter& p : graph.buffers) declare(p.value, p.shape, p.dtype);
  for (const model::GraphChunk& chunk : model::chunks_of(graph)) {
    for (const model::GraphInput& i : chunk.inputs) declare(i.value, i.shape, i.dtype);
  }
  std::vector<op::Tensor> inputs;
  std::vector<op::Tensor> outputs;
  for (const model::Instruction& instruction : graph.instructions) {
    if (instruction.kind == InstructionKind::drop) frame[instruction.index] = op::Tensor();
    if (instruction.kind != InstructionKind::operation) continue;
    const Operation& operation = graph.operations[instruction.index];
    for (const ValueId id : operation.inputs) {
      inputs.push_back(id == kNoValue ? op::Tensor() : frame[id]);
    }
    run_operation(eager, operation, inputs, outputs);
    inputs.clear();
    for (size_t i = 0; i < operation.outputs.size(); ++i) {
      if (outputs[i]) sizes[operation.outputs[i]] = outputs[i].sizes();
      frame[operation.outputs[i]] = std::move(outputs[i]);
    }
    outputs.clear();
  }
  return sizes;
}

struct DividedModule {
  LinearSite site;
  TensorStyle style = TensorStyle::colwise;
  int64_t packed = 1;

  [[nodiscard]] bool has_part_of_output() const {
    return style != TensorStyle::rowwise && style != TensorStyle::rowwise_split_input;
  }
};

// [batch, sequence, ...]
const Split kSequence{1, 1};

struct Embedding {
  int64_t rows = 0;  // on one device
  bool is_tied = false;
};

bool is_of_attention(std::string_view module) {
  return module.find("attn") != std::string_view::npos ||
         module.find("attention") != std::string_view::npos;
}

// Attention on every rank with all heads, its products divided.
TensorRule with_whole_heads(TensorRule rule) {
  if (!is_of_attention(rule.module)) return rule;
  if (rule.style == TensorStyle::colwise || rule.style == TensorStyle::packed_colwise) {
    return {rule.module, TensorStyle::colwise_gather_output};
  }
  if (rule.style == TensorStyle::rowwise) rule.style = TensorStyle::rowwise_split_input;
  return rule;
}

class TensorParallelWriter {
 public:
  TensorParallelWriter(const Graph& graph, const TensorParallelOptions& options, bool divides_heads)
      : graph_(graph),
        options_(options),
        divides_heads_(divides_heads),
        sizes_(whole_sizes(graph)),
        splits_(graph.value_count),
        parts_(graph.parameters.size()),
        rewriter_(graph) {
    if (!options.is_sequence_parallel) return;
    for (const model::GraphChunk& chunk : model::chunks_of(graph)) {
      for (const model::GraphInput& i : chunk.inputs) {
        if (i.requires_grad) splits_[i.value] = kSequence;
      }
    }
  }

  void choose(const TensorPlan& plan) {
    mark_head();
    for (const LinearSite& site : linear_sites(graph_)) {
      const PeftPlace place = peft_place(graph_.parameters[site.weight]);
      if (head_.contains(site.product) && place.part != PeftPlace::Part::base) {
        divide_adapter(site, place, TensorStyle::colwise_gather_output);
        continue;
      }
      if (head_.contains(site.product)) {
        divide({site, options_.is_sequence_parallel ? TensorStyle::colwise
                                                    : TensorStyle::colwise_gather_output});
        set_vocabulary(site.out_features);
        continue;
      }
      for (const TensorRule& of_plan : plan.rules) {
        if (!names_module(std::string(of_plan.module), place.module)) continue;
        const TensorRule rule = divides_heads_ ? of_plan : with_whole_heads(of_plan);
        if (place.part == PeftPlace::Part::base) {
          divide({site, rule.style, rule.packed});
        } else {
          divide_adapter(site, place, rule.style);
        }
        break;
      }
    }
    choose_head_in_chunks();
    for (const TensorRule& rule : plan.rules) {
      if (options_.is_sequence_parallel) continue;  // sums wait for whoever takes the gradients
      if (rule.style == TensorStyle::replicated_with_grad_allreduce) mark_reduced(rule.module);
    }
    choose_embedding(plan);
  }

  Result<Graph> run() {
    if (error_) return *error_;
    Graph graph = rewriter_.run([this](const Operation& operation) { return replace(operation); });
    if (error_) return *error_;
    for (size_t i = 0; i < graph.parameters.size(); ++i) {
      Parameter& parameter = graph.parameters[i];
      const size_t holder = parameter.tied_to.value_or(static_cast<uint32_t>(i));
      parameter.shape = local_sizes(parameter.shape, parts_[holder], options_.ranks);
    }
    if (options_.is_sequence_parallel) divide_what_is_passed_on(graph);
    return graph;
  }

 private:
  void mark_head() {
    for (const model::Region& region : graph_.regions) {
      if (region.kind != model::RegionKind::lm_head) continue;
      for (uint32_t i = region.begin; i < region.end; ++i) {
        const model::Instruction& instruction = graph_.instructions[i];
        if (instruction.kind == InstructionKind::operation) head_.insert(instruction.index);
      }
    }
  }

  // Between stages of a pipeline each rank sends its part to its like.
  void divide_what_is_passed_on(Graph& graph) const {
    const auto divide = [&](std::vector<model::GraphInput>& inputs) {
      for (model::GraphInput& input : inputs) {
        if (input.requires_grad) input.shape = local_sizes(input.shape, kSequence, options_.ranks);
      }
    };
    divide(graph.inputs);
    for (model::GraphChunk& chunk : graph.chunks_before) divide(chunk.inputs);
    if (graph.passed_on.size() > 1) {
      graph.passed_on = local_sizes(graph.passed_on, kSequence, options_.ranks);
    }
  }

  void set_vocabulary(int64_t rows) {
    vocabulary_ = rows;
    if (!options_.is_sequence_parallel || rows % options_.ranks == 0) return;
    error_ = Error{ErrorCode::usage,
                   "a vocabulary of " + std::to_string(rows) + " that " +
                       std::to_string(options_.ranks) + " ranks do not divide",
                   "--sequence-parallel", "false, which gathers the logits"};
  }

  // A head whose loss goes chunk by chunk is one operation with it.
  void choose_head_in_chunks() {
    for (const Operation& operation : graph_.operations) {
      if (operation.kind != OpKind::head_in_chunks) continue;
      for (size_t i = 0; i < graph_.parameters.size(); ++i) {
        const Parameter& parameter = graph_.parameters[i];
        if (parameter.value != operation.inputs[1]) continue;
        parts_[parameter.tied_to.value_or(static_cast<uint32_t>(i))] = {0, 1};
        set_vocabulary(parameter.shape[0]);
      }
    }
  }

  // Weights lie as [out, in], those of a Conv1D as [in, out].
  void divide(const DividedModule& divided) {
    const LinearSite& site = divided.site;
    const bool part_of_output = divided.has_part_of_output();
    parts_[site.weight] = {part_of_output == site.conv1d ? 1 : 0, divided.packed};
    if (site.last_parameter != site.weight && part_of_output) {
      parts_[site.last_parameter] = {0, divided.packed};
      // Where it is added in a step of its own.
      if (site.last != site.product && !site.conv1d) {
        splits_[graph_.parameters[site.last_parameter].value] = {0, divided.packed};
      }
    }
    products_.emplace(site.product, divided);
    if (site.conv1d) {
      firsts_.emplace(site.first, divided);
      lasts_.emplace(site.last, divided);
    }
  }

  // Of a module with a part of the output, what answers for it; of one with a part of the input,
  // what takes it. The other matrix is whole on every rank.
  void divide_adapter(const LinearSite& site, const PeftPlace& place, TensorStyle style) {
    if (style == TensorStyle::colwise) {
      if (place.part == PeftPlace::Part::lora_b) divide({site, style});
    } else if (style == TensorStyle::rowwise) {
      if (place.part == PeftPlace::Part::lora_a) divide({site, style});
    } else {
      error_ = Error{ErrorCode::usage,
                     place.module + ": adapters beside a module that is " +
                         std::string(name_of(style)) + " cannot be modelled yet",
                     "--lora-targets", "modules that are colwise or rowwise; or lora,fsdp2:N"};
    }
  }

  void mark_reduced(std::string_view module) {
    for (const Parameter& parameter : graph_.parameters) {
      if (names_module(std::string(module), peft_place(parameter).module)) {
        reduced_.insert(parameter.value);
      }
    }
  }

  // transformers divides what the model calls embed_tokens; where the plan is ours, the embedding
  // that has a row for each of the head's answers.
  void choose_embedding(const TensorPlan& plan) {
    for (uint32_t i = 0; i < graph_.parameters.size(); ++i) {
      const Parameter& parameter = graph_.parameters[i];
      if (parameter.tied_to || parameter.role != model::ParameterRole::embedding) continue;
      const bool is_named =
          options_.divides_embedding && peft_place(parameter).module == "model.embed_tokens";
      const bool is_vocabulary = parameter.shape.size() == 2 && parameter.shape[0] == vocabulary_;
      if (!(plan.is_transformers ? is_named : is_vocabulary) && !parts_[i]) continue;
      parts_[i] = {0, 1};
      const bool is_tied = std::ranges::any_of(
          graph_.parameters, [&](const Parameter& other) { return other.tied_to == i; });
      embeddings_.emplace(parameter.value, Embedding{parameter.shape[0], is_tied});
    }
  }

  Var input(ValueId id) {
    Var var = rewriter_.value(id);
    if (!reduced_.contains(id)) return var;
    return rewriter_.builder().apply(OpKind::parallel_weight, {std::move(var)});
  }

  // What stands for the whole sequence; made once, and there as long as the part is.
  Var whole_sequence(ValueId part) {
    GraphBuilder& g = rewriter_.builder();
    const auto known = whole_.find(part);
    if (known != whole_.end()) return g.existing(known->second);
    Var whole =
        apply_with(OpKind::parallel_gather_sequence, rewriter_.value(part), {options_.ranks});
    const ValueId kept = rewriter_.keep_beside(part, std::move(whole));
    whole_.emplace(part, kept);
    return g.existing(kept);
  }

  // What a row-parallel module answers with: the sum over the ranks.
  Var summed(Var y, ValueId out) {
    if (!options_.is_sequence_parallel) {
      return rewriter_.builder().apply(OpKind::parallel_sum, {std::move(y)});
    }
    splits_[out] = kSequence;
    return apply_with(OpKind::parallel_scatter_sequence, std::move(y), {options_.ranks});
  }

  Var apply_with(OpKind kind, Var x, const model::Numbers& numbers) {
    model::Attributes attributes;
    attributes.ints = numbers;
    return rewriter_.builder().apply(kind, {std::move(x)}, std::move(attributes));
  }

  GraphRewriter::Outputs replace(const Operation& operation) {
    if (error_) return {};
    const uint32_t at = rewriter_.index_of(operation);
    if (const auto first = firsts_.find(at); first != firsts_.end()) {
      return first_of(operation, first->second);
    }
    if (const auto product = products_.find(at); product != products_.end()) {
      return product_of(operation, product->second);
    }
    if (operation.kind == OpKind::embedding && embeddings_.contains(operation.inputs[0])) {
      return embedding_of(operation);
    }
    if (operation.kind == OpKind::head_in_chunks) {
      return {rewriter_.builder().apply(
          operation.kind,
          {whole_sequence(operation.inputs[0]), rewriter_.value(operation.inputs[1]),
           rewriter_.value(operation.inputs[2])},
          operation.attributes)};
    }
    if (operation.kind == OpKind::cross_entropy && splits_[operation.inputs[0]].dim == 1) {
      return {rewriter_.builder().apply(
          OpKind::parallel_loss,
          {rewriter_.value(operation.inputs[0]), rewriter_.value(operation.inputs[1])})};
    }
    GraphRewriter::Outputs outputs = divided(operation);
    const auto last = lasts_.find(at);
    if (last == lasts_.end() || last->second.has_part_of_output()) return outputs;
    if (outputs.empty()) outputs.push_back(rewriter_.copy_of(operation));
    return {rewriter_.builder().apply(OpKind::parallel_sum, std::move(outputs))};
  }

  // A Conv1D begins by making rows.
  GraphRewriter::Outputs first_of(const Operation& operation, const DividedModule& module) {
    if (!module.has_part_of_output()) return divided(operation);
    GraphBuilder& g = rewriter_.builder();
    Var x = g.apply(OpKind::parallel_input, {rewriter_.value(operation.inputs[0])});
    return {g.apply(operation.kind, {std::move(x)}, operation.attributes)};
  }

  GraphRewriter::Outputs product_of(const Operation& operation, const DividedModule& module) {
    const size_t x_at = module.site.conv1d ? 1 : 0;
    const size_t bias_at = module.site.conv1d ? 0 : 2;
    const ValueId out = operation.outputs[0];
    const auto last_dim = static_cast<int>(sizes_[out].size()) - 1;
    std::vector<Var> inputs;
    for (const ValueId id : operation.inputs) inputs.push_back(rewriter_.value(id));
    const Split x_split = splits_[operation.inputs[x_at]];
    GraphBuilder& g = rewriter_.builder();
    if (module.has_part_of_output()) {
      if (options_.is_sequence_parallel && x_split == kSequence) {
        inputs[0] = whole_sequence(operation.inputs[0]);
      } else if (x_split) {
        return fail(module, "takes what is divided already");
      } else if (!module.site.conv1d) {
        inputs[0] = g.apply(OpKind::parallel_input, {std::move(inputs[0])});
      }
      Var y = g.apply(operation.kind, std::move(inputs), operation.attributes);
      if (module.style != TensorStyle::colwise_gather_output) {
        splits_[out] = {last_dim, module.packed};
        return {std::move(y)};
      }
      return {apply_with(OpKind::parallel_gather, std::move(y),
                         {options_.ranks, module.site.out_features})};
    }
    if (module.style == TensorStyle::rowwise_split_input && !x_split) {
      inputs[x_at] = apply_with(OpKind::parallel_split, std::move(inputs[x_at]), {options_.ranks});
    } else if (x_split.dim + 1 != static_cast<int>(sizes_[operation.inputs[x_at]].size())) {
      return fail(module, "does not take the rank's part of its input");
    }
    if (inputs.size() > bias_at && inputs[bias_at]) {
      inputs[bias_at] = g.apply(OpKind::parallel_bias, {std::move(inputs[bias_at])});
    }
    Var y = g.apply(operation.kind, std::move(inputs), operation.attributes);
    if (module.site.conv1d) return {std::move(y)};  // summed once it has its own sizes again
    return {summed(std::move(y), out)};
  }

  GraphRewriter::Outputs embedding_of(const Operation& operation) {
    const Dims& out = sizes_[operation.outputs[0]];
    if (options_.is_sequence_parallel && (out.size() < 2 || out[1] % options_.ranks != 0)) {
      error_ = Error{ErrorCode::usage,
                     "a sequence that " + std::to_string(options_.ranks) + " ranks do not divide",
                     "--seq", "a multiple of tensor parallelism's ranks"};
      return {};
    }
    std::vector<Var> inputs{rewriter_.value(operation.inputs[0]),
                            rewriter_.value(operation.inputs[1])};
    model::Attributes attributes;
    const Embedding& embedding = embeddings_.at(operation.inputs[0]);
    const op::RowsGradient gradient = embedding.is_tied         ? op::RowsGradient::cut_to_add
                                      : options_.cuts_gradients ? op::RowsGradient::cut
                                                                : op::RowsGradient::whole;
    attributes.ints = {embedding.rows, static_cast<int64_t>(gradient),
                       options_.is_sequence_parallel ? options_.ranks : 1};
    if (options_.is_sequence_parallel) splits_[operation.outputs[0]] = kSequence;
    return {rewriter_.builder().apply(OpKind::parallel_embedding, std::move(inputs), attributes)};
  }

  // Any other operator, on the rank's own part where something that it takes is divided.
  GraphRewriter::Outputs divided(const Operation& operation) {
    SplitQuestion question{operation, {}, {}, {}, options_.ranks};
    bool is_divided = false;
    bool is_reduced = false;
    for (const ValueId id : operation.inputs) {
      question.inputs.push_back(id == kNoValue ? Dims{} : sizes_[id]);
      question.splits.push_back(id == kNoValue ? Split{} : splits_[id]);
      is_divided = is_divided || question.splits.back();
      is_reduced = is_reduced || reduced_.contains(id);
    }
    if (!is_divided && !is_reduced) return {};
    std::vector<Var> inputs;
    for (const ValueId id : operation.inputs) inputs.push_back(input(id));
    SplitAnswer answer{operation.attributes, std::vector<Split>(operation.outputs.size()), {}};
    if (is_divided) {
      for (const ValueId id : operation.outputs) question.outputs.push_back(sizes_[id]);
      Result<SplitAnswer> found = split_of(question);
      if (!found) {
        error_ = found.error();
        return {};
      }
      answer = std::move(*found);
    }
    GraphBuilder& g = rewriter_.builder();
    for (size_t i = 0; i < answer.cuts.size(); ++i) {
      const Split& cut = answer.cuts[i];
      if (!cut) continue;
      const Dims local = local_sizes(question.inputs[i], cut, options_.ranks);
      inputs[i] = g.slice(std::move(inputs[i]), cut.dim, 0, local[static_cast<size_t>(cut.dim)]);
    }
    for (size_t i = 0; i < operation.outputs.size(); ++i) {
      splits_[operation.outputs[i]] = answer.outputs[i];
    }
    return g.apply_many(operation.kind, std::move(inputs), operation.outputs.size(),
                        std::move(answer.attributes));
  }

  GraphRewriter::Outputs fail(const DividedModule& module, const char* why) {
    error_ = Error{ErrorCode::usage,
                   graph_.parameters[module.site.weight].name + ": this module " + why, "--method",
                   "this model cannot be modelled under tensor parallelism yet: fsdp2:N, ddp:N"};
    return {};
  }

  const Graph& graph_;
  const TensorParallelOptions& options_;
  const bool divides_heads_;
  const std::vector<Dims> sizes_;  // by value of the source
  std::vector<Split> splits_;      // by value of the source
  std::vector<Split> parts_;       // by parameter
  GraphRewriter rewriter_;
  std::set<uint32_t> head_;                     // operations of the head
  std::map<uint32_t, DividedModule> products_;  // by operation
  std::map<uint32_t, DividedModule> firsts_;    // of Conv1D
  std::map<uint32_t, DividedModule> lasts_;
  std::set<ValueId> reduced_;                // weights
  std::map<ValueId, ValueId> whole_;         // by part of a sequence
  std::map<ValueId, Embedding> embeddings_;  // by weight
  int64_t vocabulary_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<Graph> apply_tensor_parallel(const Graph& graph, const TensorParallelOptions& options) {
  const auto plan = tensor_plan(options.model_type);
  if (!plan) {
    return Error{ErrorCode::usage,
                 "tensor parallelism of '" + std::string(options.model_type) +
                     "' cannot be modelled yet",
                 "--method", "fsdp2:N, ddp:N"};
  }
  if (options.is_sequence_parallel && !plan->divides_sequences) {
    return Error{ErrorCode::usage,
                 "sequence parallelism of '" + std::string(options.model_type) +
                     "' is not modelled: torchtitan's plan is for Llama, Mistral, Qwen2 and Qwen3",
                 "--sequence-parallel", "false"};
  }
  const bool has_adapters = std::ranges::any_of(graph.parameters, &Parameter::adapter);
  if (has_adapters && (!plan->is_transformers || options.is_sequence_parallel)) {
    return Error{ErrorCode::usage,
                 "peft divides adapters as transformers' own plan divides modules, and '" +
                     std::string(options.model_type) + "' is not divided by that here",
                 "--method", "one that leaves modules whole: lora,fsdp2:N, lora,ddp:N"};
  }
  // Command R+: there are fewer heads than the norm has vectors, and the product fails.
  const bool norms_heads_apart = std::ranges::any_of(graph.parameters, [](const Parameter& p) {
    return p.role == model::ParameterRole::norm && p.shape.size() > 1;
  });
  if (norms_heads_apart) {
    return Error{ErrorCode::usage,
                 "its norms have a vector for each head, which transformers' plan leaves whole: it "
                 "ends with an error there",
                 "--method", "fsdp2:N"};
  }
  const auto apply = [&](bool divides_heads) {
    TensorParallelWriter writer(graph, options, divides_heads);
    writer.choose(*plan);
    return writer.run();
  };
  Result<Graph> divided = apply(true);
  // transformers ends with an error where heads do not come out even; a plan of ours may gather.
  if (divided || plan->is_transformers) return divided;
  return apply(false);
}

}  // namespace headroom::step
