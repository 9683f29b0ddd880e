#include "step/train_step.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "step/clip.h"
#include "step/compiled/compiler.h"
#include "step/engine.h"
#include "step/interpreter.h"
#include "step/layer_unfold.h"
#include "step/optimizer_in_backward.h"
#include "step/parallel_method.h"
#include "step/recorder.h"
#include "step/repeat.h"
#include "step/stage_traffic.h"
#include "step/torch_stages.h"

namespace headroom::step {

using memory::Category;
using model::Graph;
using model::GraphChunk;
using model::Parameter;
using model::ParameterRole;
using model::RegionKind;
using op::Tensor;

namespace {

// Of one run of a chunk, while others run.
using HeldValues = std::vector<std::pair<model::ValueId, Tensor>>;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Of what is allocated while a region runs, where nothing else says what it is for.
Category category_within(RegionKind kind) {
  switch (kind) {
    case RegionKind::lm_head:
    case RegionKind::logits:
      return Category::logits;
    case RegionKind::head_weight:
      return Category::lm_head_weight;
    case RegionKind::loss:
      return Category::loss;
    case RegionKind::model:
    case RegionKind::layer:
    case RegionKind::attention:
    case RegionKind::core_attention:
    case RegionKind::mlp:
    case RegionKind::experts:
    case RegionKind::whole:
    case RegionKind::other:
      return Category::temporary;
  }
  return Category::temporary;
}

bool is_lm_head(const Parameter& parameter) { return parameter.role == ParameterRole::lm_head; }

bool is_optimized(const Parameter& parameter) { return parameter.trainable && !parameter.tied_to; }

Error no_gradient_error() {
  return Error{ErrorCode::bad_input,
               "no gradient reaches the loss: all that it comes from is frozen", "",
               "behind reentrant checkpoints, a frozen embedding's output must require gradients"};
}

std::vector<bool> checkpointed_regions(const Graph& graph, const TrainOptions& options) {
  std::vector<bool> checkpointed(graph.regions.size());
  if (options.checkpointing == CheckpointPolicy::none) return checkpointed;
  if (options.checkpointing == CheckpointPolicy::core_attention) {
    for (size_t i = 0; i < graph.regions.size(); ++i) {
      checkpointed[i] = graph.regions[i].kind == RegionKind::core_attention;
    }
    return checkpointed;
  }
  int layer = 0;
  for (size_t i = 0; i < graph.regions.size(); ++i) {
    if (graph.regions[i].kind != RegionKind::layer) continue;
    checkpointed[i] =
        options.checkpointing == CheckpointPolicy::full || layer % options.checkpoint_every == 0;
    ++layer;
  }
  return checkpointed;
}

std::vector<bool> compiled_regions(const Graph& graph, const CompiledParts& parts) {
  std::vector<bool> compiled(graph.regions.size());
  for (size_t i = 0; i < graph.regions.size(); ++i) {
    const RegionKind kind = graph.regions[i].kind;
    // A loss that is not within the whole is a graph of its own.
    compiled[i] = (parts.layers && kind == RegionKind::layer) ||
                  ((parts.loss || parts.model) && kind == RegionKind::loss) ||
                  (parts.model && kind == RegionKind::whole);
  }
  return compiled;
}

// The run of a whole training: owns everything that lives from step to step.
class TrainingRun {
 public:
  // With a fold, for record_passes() alone.
  TrainingRun(const Graph& graph, const TrainOptions& options, const LayerFold* fold = nullptr)
      : graph_(graph),
        options_(options),
        recorder_(trace_, fold == nullptr ? options.live_bytes_of_interest : kNoLimit,
                  fold != nullptr || options.keep_calls),
        eager_(recorder_, options.environment),
        interpreter_(eager_, graph),
        engine_(eager_, engine_options()),
        checkpointer_(eager_, graph, interpreter_, engine_, options.checkpoint_kind,
                      options.checkpoint_keeps),
        compiler_(eager_, graph, {checkpointed_regions(graph, options), options.checkpoint_keeps}),
        frame_(graph.value_count),
        traffic_(eager_, recorder_, options.pipeline, options.weights),
        chunks_(model::chunks_of(graph)),
        checkpointed_(checkpointed_regions(graph, options)),
        compiled_(compiled_regions(graph, options.compiled)) {
    trace_.modules.emplace_back();
    for (const model::Region& region : graph.regions) trace_.modules.push_back(region.name);
    recorder_.set_module_categories(categories_by_module());
    interpreter_.set_region_handler([this](uint32_t region, Frame& frame) {
      if (compiled_[region]) {
        compiler_.run(region, frame);
        return true;
      }
      if (!checkpointed_[region]) return false;
      run_checkpointed(region, frame);
      return true;
    });
    if (fold != nullptr) interpreter_.set_skipped(&fold->skipped);
    divide(make_parallel_method(options.parallel, graph, eager_, recorder_));
    if (options.pipeline.engine == PipelineEngine::torch) {
      torch_stages_.emplace(eager_, recorder_, interpreter_, engine_, graph, stages_options());
    }
  }

  // The passes of the first step and the release of their outputs; nothing where no gradient
  // reaches the loss.
  std::optional<PassesRecording> record_passes() {
    construct();
    PassesRecording recording;
    recording.passes.begin = recorder_.position();
    if (!run_passes(1)) return std::nullopt;
    recording.passes.end = recording.release.begin = recorder_.position();
    recording.gradients = gradients_of(parameters_);
    recording.workspaces = eager_.held_workspaces();
    release_outputs();
    recording.release.end = recorder_.position();
    recording.saved = recorder_.saved();
    for (const Parameter& parameter : graph_.parameters) {
      if (is_optimized(parameter)) recording.parameters.push_back(parameter.value);
    }
    recording.trace = std::move(trace_);
    return recording;
  }

  // With a copy of a settled unfolder, the passes are written by it.
  Result<StepTrace> run(const LayerUnfolder* unfolder) {
    if (unfolder != nullptr) {
      unfolder_ = *unfolder;
      make_room();
    }
    try {
      HEADROOM_TRY(run_steps());
    } catch (const BeyondInterest&) {
      trace_.cut_short = true;
    }
    // The trace ends in the steady state between steps: what is left is never freed, and what this
    // object's end releases is written into the empty trace that stays behind.
    return std::move(trace_);
  }

 private:
  void run_checkpointed(uint32_t region, Frame& frame) {
    const bool is_reentrant = parallel_ != nullptr && eager_.grad_enabled() &&
                              options_.checkpoint_kind == CheckpointKind::reentrant;
    if (is_reentrant) parallel_->before_reentrant(graph_.regions[region], frame);
    checkpointer_.run(region, frame);
    if (is_reentrant) parallel_->after_reentrant(graph_.regions[region], frame);
  }

  Result<void> run_steps() {
    construct();
    if (options_.optimizer_in_backward) {
      in_backward_.emplace(options_.optimizer, parameters_);
    } else {
      optimizer_ = make_optimizer(options_.optimizer, parameters_);
    }
    for (int step = 1; step <= options_.steps; ++step) {
      const bool repeats = step > 1 && repeater_.has_value();
      if (repeats) {
        repeater_->repeat_passes(eager_, parameters_, step);
      } else {
        if (step == 1) repeater_.emplace(trace_, recorder_).begin_passes();
        if (unfolder_) {
          unfold_passes();
        } else if (!run_passes(step)) {
          return no_gradient_error();
        }
        if (step == 1) repeater_->end_passes(parameters_);
      }
      recorder_.begin_phase(Phase::clip, step);
      recorder_.set_category(Category::temporary);
      const bool is_clipped = parallel_ && parallel_->clips_gradients();
      if (options_.clip_gradients && !is_clipped) clip_gradients(eager_, parameters_);
      recorder_.begin_phase(Phase::optimizer, step);
      if (optimizer_) step_optimizer();
      recorder_.begin_phase(Phase::release, step);
      for (OptimizedParameter& parameter : parameters_) parameter.tensor->grad = Tensor();
      if (repeats) {
        repeater_->repeat_release(step);
        continue;
      }
      if (step == 1) repeater_->begin_release();
      if (unfolder_) {
        unfolder_->write_release(recorder_);
      } else {
        release_outputs();
      }
      if (step == 1) repeater_->end_release();
      if (!may_repeat()) repeater_.reset();
      HEADROOM_CHECK(!unfolder_ || repeater_, "steps that were unfolded are to be repeated");
    }
    return {};
  }

  void step_optimizer() {
    const auto step = [this] { optimizer_->step(eager_, recorder_); };
    if (!parallel_) return step();
    parallel_->run_optimizer(step);
  }

  TorchStagesOptions stages_options() {
    TorchStagesOptions stages;
    stages.parallel = parallel_.get();
    stages.accumulated = engine_options().hooks.post_accumulate;
    stages.pipeline = options_.pipeline;
    stages.micro_batches = options_.accumulation;
    stages.buffers = std::max(options_.pipeline.micro_batches, options_.accumulation);
    const auto* fsdp = std::get_if<FsdpOptions>(&options_.parallel);
    stages.weights = fsdp != nullptr ? fsdp->compute.value_or(options_.weights) : options_.weights;
    stages.returns_outputs = options_.keep_outputs;
    return stages;
  }

  // False where no gradient reaches the loss.
  bool run_passes(int step) {
    if (torch_stages_) return torch_stages_->run_step(step, frame_);
    const std::vector<PipelinePass> passes = passes_of(options_.pipeline, options_.accumulation);
    const auto forwards = std::ranges::count_if(passes, &PipelinePass::is_forward);
    const bool holds = options_.pipeline.holds_micro_batches();
    int64_t begun = 0;
    std::vector<std::deque<HeldValues>> waiting(chunks_.size());  // forward alone, the oldest first
    for (size_t i = 0; i < passes.size(); ++i) {
      const GraphChunk& chunk = chunks_[static_cast<size_t>(passes[i].chunk)];
      std::deque<HeldValues>& held = waiting[static_cast<size_t>(passes[i].chunk)];
      if (passes[i].is_forward) {
        run_forward(step, {begun == 0, begun + 1 == forwards}, chunk);
        ++begun;
        if (holds) held.push_back(take_values(chunk));
      } else if (!holds) {
        if (!run_backward(step, chunk, false)) return false;
      } else {
        HEADROOM_CHECK(!held.empty(), "backward before forward: groups of stages are not whole");
        if (!run_held_backward(step, chunk, held.front())) return false;
        held.pop_front();
      }
      if (options_.pipeline.receives_ahead()) traffic_.receive_ahead(step, passes, i, chunks_);
    }
    traffic_.end_step();
    return true;
  }

  // What a micro-batch made, for its backward pass; the next one finds parameters and buffers
  // alone, and what came from the stage before (drop_inputs).
  HeldValues take_values(const GraphChunk& chunk) {
    HeldValues held;
    for (const model::GraphInput& input : chunk.inputs) {
      held.emplace_back(input.value, frame_[input.value]);
      if (!input.requires_grad) frame_[input.value] = Tensor();
    }
    const auto take = [&](model::ValueId id) {
      if (id != model::kNoValue) held.emplace_back(id, std::exchange(frame_[id], Tensor()));
    };
    for (const model::ValueId id : chunk.outputs) take(id);
    take(chunk.logits);
    take(chunk.loss);
    return held;
  }

  // With what was held in its place, and then what was there before.
  bool run_held_backward(int step, const GraphChunk& chunk, HeldValues& held) {
    for (auto& [id, value] : held) std::swap(frame_[id], value);
    const bool is_done = run_backward(step, chunk, true);
    for (auto& [id, value] : std::views::reverse(held)) std::swap(frame_[id], value);
    return is_done;
  }

  void divide(std::unique_ptr<ParallelMethod> method) {
    parallel_ = std::move(method);
    if (!parallel_ || parallel_->marks() == nullptr) return;
    interpreter_.set_watcher(*parallel_->marks(),
                             [this](uint32_t instruction, bool is_after, Frame& frame) {
                               if (is_after) return parallel_->after(instruction, frame);
                               parallel_->before(instruction, frame);
                             });
  }

  // For about what will be written: vectors that grow step by step touch twice the memory.
  void make_room() {
    const RecorderPosition passes = unfolder_->size_of_passes();
    const auto steps = static_cast<size_t>(options_.steps);
    const size_t others = 8 * graph_.parameters.size();  // of construction and optimizers
    trace_.memory.events.reserve(steps * (passes.event + others));
    trace_.memory.buffers.reserve(steps * (passes.buffer + others));
    if (options_.keep_calls) trace_.calls.reserve(steps * (passes.call + others));
  }

  void unfold_passes() {
    trace_.unfolded_units = unfolder_->skipped_units();
    unfolder_->write_passes(recorder_);
    hang_gradients(eager_, parameters_, unfolder_->gradients(),
                   [](uint32_t buffer) { return buffer; });
    eager_.hold_workspaces(unfolder_->workspaces());
    eager_.set_module(0);
  }

  // An optimizer that steps in backward is part of the passes, and makes its states in the first.
  [[nodiscard]] bool may_repeat() {
    const bool is_steady = !parallel_ || parallel_->is_steady_at_once();
    return options_.repeat_steps && is_steady && !torch_stages_ &&
           !options_.optimizer_in_backward && repeater_ && repeater_->settle();
  }

  EngineOptions engine_options() {
    EngineOptions engine;
    engine.accumulate_in_place = options_.accumulate_in_place;
    engine.hooks.unpack = [this](op::Node& node) {
      if (checkpointer_.unpack(node) && parallel_) parallel_->recomputed();
    };
    engine.hooks.before = [this](op::Node& node) {
      if (parallel_) parallel_->before_backward(node);
    };
    engine.hooks.post_accumulate = [this](const Tensor& parameter) {
      if (parameter->is_parameter) {
        const bool head = parameter.get() == lm_head_;
        recorder_.recategorize(parameter->grad,
                               head ? Category::lm_head_gradient : Category::gradient);
      }
      if (parallel_) parallel_->accumulated(parameter);
      if (in_backward_ && parameter->is_parameter) {
        in_backward_->step(parameter, eager_, recorder_);
      }
    };
    return engine;
  }

  std::vector<Category> categories_by_module() const {
    std::vector<Category> categories{Category::temporary};
    for (const model::Region& region : graph_.regions) {
      categories.push_back(category_within(region.kind));
    }
    return categories;
  }

  void construct() {
    recorder_.begin_phase(Phase::construct, 0);
    if (!parallel_ || parallel_->keeps_parameters_whole()) {
      construct_whole();
    } else {
      recorder_.set_category(Category::parameter);
      for (const Parameter& buffer : graph_.buffers) construct_buffer(buffer);
    }
    if (parallel_) parameters_ = parallel_->construct(frame_, std::move(parameters_));
  }

  void construct_whole() {
    for (const Parameter* parameter : in_loading_order()) construct_parameter(*parameter);
    recorder_.set_category(Category::parameter);
    for (const Parameter& buffer : graph_.buffers) {
      if (!frame_[buffer.value]) construct_buffer(buffer);
    }
    for (const Parameter& parameter : graph_.parameters) {
      if (parameter.adapter) construct_parameter(parameter);
    }
    for (const Parameter& parameter : graph_.parameters) {
      if (!is_optimized(parameter)) continue;
      parameters_.push_back(optimized_parameter(frame_[parameter.value], parameter));
    }
  }

  // A model that is moved to the device as a whole goes in its own order; one that is quantized
  // there comes weight by weight, as safetensors lists a file: by name.
  [[nodiscard]] std::vector<const Parameter*> in_loading_order() const {
    std::vector<const Parameter*> order;
    for (const Parameter& parameter : graph_.parameters) {
      if (!parameter.adapter) order.push_back(&parameter);
    }
    const auto loads = [](const Parameter* parameter) { return parameter->loading.has_value(); };
    if (std::ranges::any_of(order, loads)) {
      std::ranges::stable_sort(order, {},
                               [](const Parameter* p) { return std::string_view(p->name); });
    }
    return order;
  }

  void construct_buffer(const Parameter& buffer) {
    frame_[buffer.value] = eager_.empty(buffer.shape, buffer.dtype.value_or(options_.weights));
  }

  void construct_parameter(const Parameter& parameter) {
    if (parameter.tied_to) return;
    Tensor copy;
    Tensor second;  // in float16, or the maxima
    const auto& loading = parameter.loading;
    if (loading) {
      recorder_.set_category(Category::temporary);
      copy = eager_.empty(loading->copy, options_.weights);
      if (loading->maxima > 0) second = eager_.empty({loading->maxima}, op::DType::f32);
      if (loading->has_8_bits) second = eager_.empty(loading->copy, op::DType::f16);
    }
    if (loading && loading->has_8_bits) construct_tables(*loading);
    recorder_.set_category(is_lm_head(parameter) ? Category::lm_head_weight : Category::parameter);
    Tensor tensor = eager_.empty(parameter.shape, parameter.dtype.value_or(options_.weights));
    tensor->is_parameter = true;
    tensor->requires_grad = parameter.trainable;
    if (is_lm_head(parameter)) lm_head_ = tensor.get();
    frame_[parameter.value] = std::move(tensor);
    if (loading && !loading->has_8_bits) construct_tables(*loading);
  }

  void construct_tables(const model::Loading& loading) {
    recorder_.set_category(Category::parameter);
    for (const uint32_t table : loading.tables) construct_buffer(graph_.buffers[table]);
  }

  void run_forward(int step, const MicroBatch& micro_batch, const GraphChunk& chunk) {
    recorder_.begin_phase(Phase::input, step);
    recorder_.set_category(Category::input);
    traffic_.put_inputs(chunk, frame_);
    recorder_.begin_phase(Phase::forward, step);
    eager_.set_module(0);
    if (parallel_) parallel_->begin_forward(micro_batch, frame_);
    interpreter_.run(chunk.begin, chunk.end, frame_);
    if (parallel_) parallel_->end_forward(frame_);
    if (ends_in_loss(chunk)) {
      if (!options_.keep_outputs) drop_outputs_but_loss(chunk);
    } else {
      traffic_.send_outputs(chunk, frame_);
    }
  }

  // False where no gradient reaches the loss. Of what was `held`, nothing stays.
  bool run_backward(int step, const GraphChunk& chunk, bool held) {
    const bool has_loss = ends_in_loss(chunk);
    recorder_.begin_phase(Phase::backward, step);
    recorder_.set_category(has_loss ? Category::loss : Category::input);
    Tensor root = frame_[has_loss ? chunk.loss : chunk.outputs.front()];
    if (has_loss && options_.accumulation > 1) {
      root = op::div_scalar(eager_, root, static_cast<double>(options_.accumulation));
    }
    // torch.autograd.backward holds the seed until it returns.
    const Tensor received = has_loss ? Tensor() : traffic_.take_gradient();
    const Tensor seed = received ? received : op::full(eager_, root.sizes(), root.dtype());
    if (!root.requires_grad()) return false;
    engine_.run(root, seed);
    if (parallel_) parallel_->end_backward();
    eager_.set_module(0);
    // The graph goes, with all that custom functions and checkpoints hung on it.
    if (!has_loss) {
      for (const model::ValueId id : chunk.outputs) frame_[id] = Tensor();
    } else if (!options_.hold_loss) {
      frame_[chunk.loss] = op::detach(eager_, frame_[chunk.loss]);
    }
    traffic_.send_gradients(chunk, frame_);
    drop_inputs(chunk, held);
    return true;
  }

  // What came from the stage before, and its gradient, stays where the module was told of it
  // (set_input_tensor) until the next one comes.
  void drop_inputs(const GraphChunk& chunk, bool held) {
    for (const model::GraphInput& input : chunk.inputs) {
      if (!input.requires_grad || held) frame_[input.value] = Tensor();
    }
  }

  void drop_outputs_but_loss(const GraphChunk& chunk) {
    const Tensor loss = ends_in_loss(chunk) ? frame_[chunk.loss] : Tensor();
    if (chunk.logits != model::kNoValue) frame_[chunk.logits] = Tensor();
    for (const model::ValueId id : chunk.outputs) frame_[id] = Tensor();
    if (loss) frame_[chunk.loss] = loss;
  }

  void release_outputs() {
    if (torch_stages_) return;  // they hold what the loop does
    const GraphChunk& last = chunks_.back();
    drop_outputs_but_loss(last);
    if (ends_in_loss(last)) frame_[last.loss] = Tensor();
  }

  const Graph& graph_;
  const TrainOptions& options_;
  StepTrace trace_;
  Recorder recorder_;
  op::Eager eager_;
  Interpreter interpreter_;
  Engine engine_;
  Checkpointer checkpointer_;
  Compiler compiler_;
  Frame frame_;
  StageTraffic traffic_;
  const std::vector<GraphChunk> chunks_;
  std::vector<bool> checkpointed_;
  std::vector<bool> compiled_;
  std::optional<LayerUnfolder> unfolder_;  // nothing where all layers are run
  std::optional<StepRepeater> repeater_;
  std::vector<OptimizedParameter> parameters_;
  std::unique_ptr<Optimizer> optimizer_;  // null where stepping is done in backward
  std::optional<OptimizerInBackward> in_backward_;
  std::optional<TorchStages> torch_stages_;
  op::TensorImpl* lm_head_ = nullptr;
  std::unique_ptr<ParallelMethod> parallel_;  // null: all is on one device
};

}  // namespace

struct FoldedPasses {
  FoldedPasses(LayerFold&& its_fold, PassesRecording&& its_recording)
      : fold(std::move(its_fold)), recording(std::move(its_recording)), unfolder(fold, recording) {}

  LayerFold fold;
  PassesRecording recording;
  LayerUnfolder unfolder;  // settled
};

std::shared_ptr<const FoldedPasses> fold_passes(const Graph& graph, const TrainOptions& options) {
  const bool is_alone = !options.optimizer_in_backward && !is_parallel(options.parallel) &&
                        options.pipeline.engine == PipelineEngine::megatron;
  // Of a model that is compiled as a whole no layer is a stretch by itself.
  const bool has_layers = !options.compiled.model;
  if (!options.fold_layers || !options.repeat_steps || !is_alone || !has_layers) return {};
  auto fold = fold_layers(graph, checkpointed_regions(graph, options));
  if (!fold) return {};
  try {
    auto recording = TrainingRun(graph, options, &*fold).record_passes();
    if (!recording) return {};
    auto folded = std::make_shared<FoldedPasses>(std::move(*fold), std::move(*recording));
    if (!folded->unfolder.settle()) return {};
    return folded;
  } catch (const op::Impossible&) {
    return {};  // found again, and said, where every layer is run
  }
}

Result<StepTrace> trace_training(const Graph& graph, const TrainOptions& options) {
  return trace_training(graph, options, fold_passes(graph, options).get());
}

Result<StepTrace> trace_training(const Graph& graph, const TrainOptions& options,
                                 const FoldedPasses* folded) {
  try {
    TrainingRun run(graph, options);
    return run.run(folded == nullptr ? nullptr : &folded->unfolder);
  } catch (const op::Impossible& impossible) {
    return impossible_error(impossible);
  }
}

}  // namespace headroom::step
