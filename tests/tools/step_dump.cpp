// step_dump CONFIG.json [key=value ...]: the symbolic step of a model as headroom.events/1 on
// stdout, for the exactness tests (tests/python), which hold it against the oracle; with
// parameters=1, the model's parameters and buffers instead; with tensor_plans=1, every
// architecture's plan; with graph=1, the file is a traced
// module (headroom.graph/1).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "model/load.h"
#include "model/traced_graph.h"
#include "step/events_json.h"
#include "step/model_parts.h"
#include "step/pipeline_actions.h"
#include "step/train_step.h"
#include "step/transform/autocast.h"
#include "step/transform/chunked_loss.h"
#include "step/transform/enclose.h"
#include "step/transform/fast_kernels.h"
#include "step/transform/freeze.h"
#include "step/transform/fused_linear_loss.h"
#include "step/transform/fused_loss.h"
#include "step/transform/head_in_chunks.h"
#include "step/transform/ia3.h"
#include "step/transform/input_gradients.h"
#include "step/transform/liger.h"
#include "step/transform/lora.h"
#include "step/transform/quantize.h"
#include "step/transform/tensor_parallel.h"
#include "step/transform/tensor_plan.h"
#include "step/transform/zero3_linear.h"

namespace {

using headroom::step::TrainOptions;

headroom::model::Attention attention_of(const std::string& name) {
  using headroom::model::Attention;
  if (name == "eager") return Attention::eager;
  return name == "flash_attention_2" ? Attention::flash_attention_2 : Attention::sdpa;
}

std::vector<std::string> split(const std::string& words) {
  std::vector<std::string> parts;
  std::istringstream stream(words);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// The oracle's words: torch.optim's classes with their own defaults, "sgd:momentum".
void set_optimizer(headroom::step::OptimizerOptions& options, const std::string& word) {
  using headroom::step::OptimizerKind;
  static const std::map<std::string, OptimizerKind> kKinds = {
      {"sgd", OptimizerKind::sgd},
      {"sgd:momentum", OptimizerKind::sgd},
      {"adam", OptimizerKind::adam},
      {"adafactor", OptimizerKind::adafactor},
      {"hf_adafactor", OptimizerKind::hf_adafactor},
  };
  // Of bitsandbytes: "bnb:1,1,8,paged", the means in either state, the bits.
  if (word.starts_with("bnb:")) {
    const std::vector<std::string> parts = split(word.substr(4));
    options.kind = OptimizerKind::bitsandbytes;
    options.bitsandbytes.first_means = std::atoi(parts.at(0).c_str());
    options.bitsandbytes.second_means = std::atoi(parts.at(1).c_str());
    options.bitsandbytes.has_8_bits = parts.at(2) == "8";
    options.bitsandbytes.is_paged = parts.size() > 3;
    options.weight_decay = false;
    return;
  }
  const auto found = kKinds.find(word);
  if (found == kKinds.end()) return;
  options.kind = found->second;
  options.weight_decay = false;
  options.momentum = word == "sgd:momentum" ? 0.9 : 0;
}

bool is_checkpointed(std::map<std::string, std::string>& words) {
  const std::string& kind = words["checkpointing"];
  return !kind.empty() && kind != "none";
}

// One rank of a divided step: fsdp=VERSION with ranks=N, or ddp=N.
headroom::step::ParallelOptions parallel_options(std::map<std::string, std::string>& words,
                                                 headroom::op::DType weights) {
  if (!words["fsdp"].empty()) {
    headroom::step::FsdpOptions fsdp;
    fsdp.version = std::atoi(words["fsdp"].c_str());
    fsdp.ranks = std::max(1, std::atoi(words["ranks"].c_str()));
    fsdp.replicas = std::max(1, std::atoi(words["replicas"].c_str()));
    fsdp.expert_ranks = std::max(1, std::atoi(words["expert_ranks"].c_str()));
    fsdp.weights = weights;
    fsdp.compute = headroom::op::parse_dtype(words["fsdp_compute"]);
    fsdp.reduce = headroom::op::parse_dtype(words["fsdp_reduce"]);
    if (fsdp.version == 1 && !words["lora_rank"].empty()) {
      fsdp.wrap.adapters = headroom::step::WrapAdapters::apart;
    }
    fsdp.wrap.reshards = words["fsdp_reshards"] == "none" ? headroom::step::Reshards::none
                         : words["fsdp_reshards"] == "but-last"
                             ? headroom::step::Reshards::all_but_last_layer
                             : headroom::step::Reshards::layers;
    fsdp.wrap.ends = words["fsdp_ends"] == "1";
    fsdp.wrap.inside_checkpoints = words["fsdp_inside_checkpoints"] == "1";
    fsdp.sync_each_batch = words["no_sync"] != "1";
    fsdp.defers_replicas = words["defers_replicas"] == "1";
    fsdp.in_pipeline = !words["schedule"].empty();
    return fsdp;
  }
  if (!words["ddp"].empty()) {
    headroom::step::DdpOptions ddp;
    if (const int bytes = std::atoi(words["bucket_bytes"].c_str()); bytes > 0) {
      ddp.first_bucket_bytes = ddp.bucket_bytes = bytes;
    }
    ddp.gradient_as_bucket_view = words["gradient_as_bucket_view"] == "1";
    ddp.find_unused_parameters = words["find_unused_parameters"] == "1";
    return ddp;
  }
  if (!words["zero"].empty()) {
    headroom::step::ZeroOptions zero;
    zero.stage = std::atoi(words["zero"].c_str());
    zero.ranks = std::max(1, std::atoi(words["ranks"].c_str()));
    zero.decay_groups = false;
    if (const int elements = std::atoi(words["bucket_elements"].c_str()); elements > 0) {
      zero.reduce_bucket_elements = elements;
    }
    zero.overlap_comm = words["overlap_comm"] == "1";
    zero.offload_optimizer = words["offload_optimizer"] == "1";
    zero.offload_parameters = words["offload_parameters"] == "1";
    zero.weights = weights;
    const std::map<std::string, int64_t*> limits{
        {"sub_group_elements", &zero.sub_group_elements},
        {"prefetch_elements", &zero.prefetch_elements},
        {"persistence_elements", &zero.persistence_elements},
        {"most_live_elements", &zero.most_live_elements},
        {"reuse_elements", &zero.reuse_elements}};
    for (const auto& [word, field] : limits) {
      if (!words[word].empty()) *field = std::atoll(words[word].c_str());
    }
    return zero;
  }
  return {};
}

// One rank of torch.distributed.pipelining's: schedule=1f1b with stages=N, stage=I, chunks=N.
headroom::step::Pipeline pipeline_of(std::map<std::string, std::string>& words) {
  using headroom::step::PipelineSchedule;
  headroom::step::Pipeline pipeline;
  if (words["schedule"].empty()) return pipeline;
  pipeline.engine = headroom::step::PipelineEngine::torch;
  const std::map<std::string, PipelineSchedule> schedules{
      {"gpipe", PipelineSchedule::gpipe},
      {"1f1b", PipelineSchedule::one_forward_one_backward},
      {"zero-bubble", PipelineSchedule::zero_bubble},
      {"zbv", PipelineSchedule::zero_bubble_v},
      {"dualpipev", PipelineSchedule::dual_pipe_v}};
  pipeline.schedule = schedules.at(words["schedule"]);
  pipeline.stages = std::max(1, std::atoi(words["stages"].c_str()));
  pipeline.stage = std::atoi(words["stage"].c_str());
  pipeline.chunks = std::max(1, std::atoi(words["chunks"].c_str()));
  pipeline.micro_batches = std::max(1, std::atoi(words["accumulation"].c_str()));
  return pipeline;
}

TrainOptions train_options(std::map<std::string, std::string>& words) {
  using namespace headroom::step;
  TrainOptions options;
  options.weights = headroom::op::parse_dtype(words["dtype"]).value_or(options.weights);
  options.clip_gradients = words["clip"] == "1";
  options.hold_loss = true;  // as the oracle's loop does
  options.keep_outputs = words["keep_outputs"] == "1";
  options.accumulation = std::max(1, std::atoi(words["accumulation"].c_str()));
  if (words["checkpointing"] == "reentrant" || words["checkpointing"] == "non_reentrant") {
    options.checkpointing = CheckpointPolicy::full;
    options.checkpoint_kind = words["checkpointing"] == "reentrant" ? CheckpointKind::reentrant
                                                                    : CheckpointKind::non_reentrant;
  }
  if (words["checkpointing"].starts_with("every-")) {
    options.checkpointing = CheckpointPolicy::every_nth;
    options.checkpoint_every = std::max(1, std::atoi(words["checkpointing"].c_str() + 6));
    options.checkpoint_kind = CheckpointKind::non_reentrant;
  }
  if (words["checkpointing"].starts_with("selective")) {
    const std::string kind = words["checkpointing"];
    options.checkpointing = CheckpointPolicy::full;
    options.checkpoint_keeps.attention = kind != "selective-products";
    options.checkpoint_keeps.products = kind != "selective-attention";
    if (kind.starts_with("selective-every-")) {
      options.checkpoint_keeps.but_every = std::atoi(kind.c_str() + 16);
    }
  }
  options.compiled.layers = words["compile"].find("layers") != std::string::npos;
  options.compiled.loss = words["compile"].find("loss") != std::string::npos;
  options.compiled.model = words["compile"] == "model";
  if (words["implementation"] == "fused") {
    options.optimizer.implementation = OptimizerImplementation::fused;
  } else if (words["implementation"] == "loop") {
    options.optimizer.implementation = OptimizerImplementation::loop;
  }
  if (const int count = std::atoi(words["multiprocessors"].c_str()); count > 0) {
    options.environment.multiprocessors = count;
  }
  // Fake tensors show neither scratch nor workspaces.
  options.environment.kernel_scratch = words["scratch"] == "1";
  for (const auto backend :
       {headroom::op::AttentionBackend::math, headroom::op::AttentionBackend::efficient,
        headroom::op::AttentionBackend::flash, headroom::op::AttentionBackend::cudnn}) {
    if (words["sdpa"] == headroom::op::name_of(backend)) options.environment.attention = backend;
  }
  options.steps = std::max(1, std::atoi(words["steps"].c_str()));
  set_optimizer(options.optimizer, words["optimizer"]);
  options.optimizer.decay_groups = false;
  options.optimizer.states_on_cpu = words["offload"] == "optimizer";
  options.optimizer_in_backward = words["optimizer_in_backward"] == "1";
  options.parallel = parallel_options(words, options.weights);
  options.pipeline = pipeline_of(words);
  return options;
}

// What Liger-Kernel patches, or torchtune chunks, before anything else is done to a model.
headroom::Result<headroom::model::Graph> with_kernels(headroom::model::Graph graph,
                                                      const std::string& model_type,
                                                      std::map<std::string, std::string>& words) {
  if (words["kernels"] == "liger") {
    HEADROOM_ASSIGN(graph, headroom::step::apply_liger(graph, model_type));
  } else if (words["kernels"] == "fast") {
    HEADROOM_ASSIGN(graph, headroom::step::apply_fast_kernels(graph, model_type));
    return headroom::step::apply_fused_loss(graph, headroom::step::FusedLoss::fast_causal);
  }
  if (words["loss"] == "fused-linear") {
    headroom::step::FusedLinearLossOptions options;
    options.loss.float32_accumulation = words["accum_float32"] == "1";
    return headroom::step::apply_fused_linear_loss(graph, options);
  }
  if (words["loss"] == "fused") {
    return headroom::step::apply_fused_loss(graph, headroom::step::FusedLoss::liger);
  }
  if (words["loss"] == "chunked") return headroom::step::apply_chunked_loss(graph);
  if (words["loss"] == "head-in-chunks") {
    return headroom::step::apply_head_in_chunks(graph, {.chunks = 4});
  }
  return graph;
}

// What the words ask for, applied to the model's graph in the order that a user's program would.
headroom::Result<headroom::model::Graph> transformed(headroom::model::Graph graph,
                                                     const std::string& model_type,
                                                     std::map<std::string, std::string>& words) {
  HEADROOM_ASSIGN(graph, with_kernels(std::move(graph), model_type, words));
  if (!words["quantize"].empty()) {
    const std::map<std::string, headroom::op::QuantizedFormat> formats{
        {"nf4", headroom::op::QuantizedFormat::nf4},
        {"nf4_double", headroom::op::QuantizedFormat::nf4_double},
        {"int8", headroom::op::QuantizedFormat::int8},
        {"gptq", headroom::op::QuantizedFormat::gptq}};
    headroom::step::QuantizeOptions quantize;
    quantize.format = formats.at(words["quantize"]);
    quantize.float32_rest = words["float32_rest"] == "1";
    quantize.calls_keep_inputs = words["bitsandbytes"] == "old";
    if (const auto storage = headroom::op::parse_dtype(words["quant_storage"])) {
      quantize.storage = *storage;
    }
    HEADROOM_ASSIGN(graph, headroom::step::apply_quantization(graph, quantize));
  }
  if (!words["freeze"].empty()) {
    HEADROOM_ASSIGN(graph, headroom::step::apply_freeze(graph, split(words["freeze"])));
    if (words["checkpointing"] != "none") graph = headroom::step::require_input_gradients(graph);
  }
  if (!words["lora_rank"].empty()) {
    headroom::step::LoraOptions lora;
    lora.rank = std::atoi(words["lora_rank"].c_str());
    lora.alpha = 2.0 * static_cast<double>(lora.rank);
    lora.targets = split(words["lora_targets"]);
    lora.dropout = std::atof(words["lora_dropout"].c_str());
    lora.dora = words["dora"] == "1";
    if (const auto dtype = headroom::op::parse_dtype(words["lora_dtype"])) {
      lora.adapter_dtype = *dtype;
    }
    lora.model_type = model_type;
    lora.autocast = !words["autocast"].empty();
    lora.require_input_gradients = is_checkpointed(words);
    lora.trains_head = !words["classes"].empty();
    HEADROOM_ASSIGN(graph, headroom::step::apply_lora(graph, lora));
  }
  if (words["ia3"] == "1") {
    headroom::step::Ia3Options ia3;
    ia3.targets = split(words["lora_targets"]);
    if (const auto dtype = headroom::op::parse_dtype(words["lora_dtype"])) {
      ia3.adapter_dtype = *dtype;
    }
    ia3.model_type = model_type;
    ia3.require_input_gradients = is_checkpointed(words);
    HEADROOM_ASSIGN(graph, headroom::step::apply_ia3(graph, ia3));
  }
  if (const int ranks = std::atoi(words["tensor_ranks"].c_str()); ranks > 1) {
    headroom::step::TensorParallelOptions tensor;
    tensor.ranks = ranks;
    tensor.model_type = model_type;
    tensor.cuts_gradients = !words["fsdp"].empty() || !words["ddp"].empty();
    tensor.is_sequence_parallel = words["sequence_parallel"] == "1";
    tensor.divides_embedding = words["whole_embedding"] != "1";
    HEADROOM_ASSIGN(graph, headroom::step::apply_tensor_parallel(graph, tensor));
  }
  if (!words["autocast"].empty()) {
    headroom::step::AutocastOptions autocast;
    autocast.dtype = headroom::op::parse_dtype(words["autocast"]).value_or(autocast.dtype);
    autocast.outputs_to_float32 = words["outputs_to_float32"] == "1";
    graph = headroom::step::apply_autocast(graph, autocast);
  }
  if (words["zero"] == "3") graph = headroom::step::apply_zero3_linear(std::move(graph));
  if (words["compile"] == "model") {
    HEADROOM_ASSIGN(graph, headroom::step::enclose(std::move(graph), model_type));
  }
  return graph;
}

headroom::Result<headroom::model::Graph> traced_graph(const headroom::text::Json& json,
                                                      const char* file) {
  HEADROOM_ASSIGN(auto traced, headroom::model::read_traced_graph({json, file}));
  return std::move(traced.graph);
}

// The parameters and buffers as tests/python/dump_parameters.py lists them.
headroom::text::Json list_of(const std::vector<headroom::model::Parameter>& parameters,
                             bool buffers) {
  using headroom::text::Json;
  Json list = Json::array();
  for (const auto& parameter : parameters) {
    Json shape = Json::array();
    for (const int64_t size : parameter.shape) shape.push_back(size);
    Json entry = Json::object();
    entry.set("name", parameter.name).set("shape", std::move(shape));
    if (parameter.tied_to) entry.set("tied_to", parameters[*parameter.tied_to].name);
    if (buffers) entry.set("persistent", parameter.persistent);
    list.push_back(std::move(entry));
  }
  return list;
}

// Which modules tensor parallelism divides, by architecture.
headroom::text::Json tensor_plans() {
  using headroom::text::Json;
  Json plans = Json::object();
  for (const std::string_view model_type : headroom::step::planned_architectures()) {
    const auto plan = headroom::step::tensor_plan(model_type);
    Json rules = Json::object();
    for (const auto& rule : plan->rules) {
      rules.set(std::string(rule.module), headroom::step::name_of(rule.style));
    }
    Json entry = Json::object();
    entry.set("is_transformers", plan->is_transformers).set("rules", std::move(rules));
    plans.set(std::string(model_type), std::move(entry));
  }
  return plans;
}

// What a rank gathers, lets go, sends and reduces, in order: [phase, kind, bytes].
headroom::text::Json gathers_of(const headroom::step::StepTrace& trace) {
  using headroom::memory::Category;
  using headroom::text::Json;
  Json list = Json::array();
  std::vector<bool> is_bucket;
  size_t phase = 0;
  for (uint32_t i = 0; i < trace.memory.events.size(); ++i) {
    while (phase + 1 < trace.phases.size() && trace.phases[phase + 1].first_event <= i) ++phase;
    const headroom::memory::MemoryEvent& event = trace.memory.events[i];
    const headroom::memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    const bool is_alloc = event.kind == headroom::memory::EventKind::alloc;
    // A gradient's block that backward does not make is a bucket of gradients.
    if (is_alloc && is_bucket.size() <= event.buffer) is_bucket.resize(event.buffer + 1);
    if (is_alloc) {
      is_bucket[event.buffer] = buffer.category == Category::gradient &&
                                trace.phases[phase].phase != headroom::step::Phase::backward;
    }
    const bool is_gathered = buffer.category == Category::gathered ||
                             buffer.category == Category::communication || is_bucket[event.buffer];
    const bool is_reduced = is_alloc && buffer.category == Category::gradient && buffer.stream == 2;
    if (!is_gathered && !is_reduced) continue;
    Json entry = Json::array();
    entry.push_back(headroom::step::name_of(trace.phases[phase].phase));
    entry.push_back(is_reduced ? "reduce" : is_alloc ? "gather" : "release");
    entry.push_back(buffer.requested_bytes);
    list.push_back(std::move(entry));
  }
  return list;
}

// What is allocated at the end of each phase, by what it is for: [phase, {category: bytes}].
headroom::text::Json live_of(const headroom::step::StepTrace& trace) {
  using headroom::text::Json;
  Json list = Json::array();
  std::map<std::string_view, int64_t> live;
  uint32_t next = 0;
  for (size_t phase = 0; phase < trace.phases.size(); ++phase) {
    const uint32_t end = phase + 1 < trace.phases.size()
                             ? trace.phases[phase + 1].first_event
                             : static_cast<uint32_t>(trace.memory.events.size());
    for (; next < end; ++next) {
      const headroom::memory::MemoryEvent& event = trace.memory.events[next];
      const headroom::memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
      const bool is_alloc = event.kind == headroom::memory::EventKind::alloc;
      live[category_name(buffer.category)] +=
          is_alloc ? buffer.requested_bytes : -buffer.requested_bytes;
    }
    Json categories = Json::object();
    for (const auto& [name, bytes] : live) categories.set(std::string(name), bytes);
    Json entry = Json::array();
    entry.push_back(headroom::step::name_of(trace.phases[phase].phase));
    entry.push_back(std::move(categories));
    list.push_back(std::move(entry));
  }
  return list;
}

// Every block that comes and goes: [phase, kind, bytes, category, block].
headroom::text::Json blocks_of(const headroom::step::StepTrace& trace) {
  using headroom::text::Json;
  Json list = Json::array();
  size_t phase = 0;
  for (uint32_t i = 0; i < trace.memory.events.size(); ++i) {
    while (phase + 1 < trace.phases.size() && trace.phases[phase + 1].first_event <= i) ++phase;
    const headroom::memory::MemoryEvent& event = trace.memory.events[i];
    const headroom::memory::BufferInfo& buffer = trace.memory.buffers[event.buffer];
    const bool is_alloc = event.kind == headroom::memory::EventKind::alloc;
    Json entry = Json::array();
    entry.push_back(headroom::step::name_of(trace.phases[phase].phase));
    entry.push_back(is_alloc ? "gather" : "release");
    entry.push_back(buffer.requested_bytes);
    entry.push_back(category_name(buffer.category));
    entry.push_back(int64_t{event.buffer});
    list.push_back(std::move(entry));
  }
  return list;
}

// What the last step of the optimizer moves: {"read": bytes, "written": bytes}.
headroom::text::Json traffic_of(const headroom::step::StepTrace& trace) {
  int64_t read = 0;
  int64_t written = 0;
  const auto last =
      std::ranges::find(trace.phases.rbegin(), trace.phases.rend(),
                        headroom::step::Phase::optimizer, &headroom::step::PhaseMark::phase);
  for (size_t i = last->first_call; i < trace.calls.size(); ++i) {
    read += trace.calls[i].bytes_read;
    written += trace.calls[i].bytes_written;
  }
  return headroom::text::Json::object().set("read", read).set("written", written);
}

headroom::text::Json log_of(const headroom::step::StepTrace& trace, const std::string& kind) {
  if (kind == "gathers") return gathers_of(trace);
  if (kind == "live") return live_of(trace);
  if (kind == "blocks") return blocks_of(trace);
  if (kind == "traffic") return traffic_of(trace);
  if (kind == "host") {
    return headroom::text::Json::object()
        .set("requested", trace.host.requested_bytes)
        .set("taken", trace.host.taken_bytes);
  }
  return headroom::step::events_json(trace);
}

const char* word_of(const headroom::step::PipelineAction& action) {
  using headroom::step::BackwardPart;
  using Kind = headroom::step::PipelineActionKind;
  if (action.kind == Kind::gather) return "UNSHARD";
  if (action.kind == Kind::let_go) return "RESHARD";
  if (action.kind == Kind::reduce) return "REDUCE_GRAD";
  if (action.pass.is_forward) return "F";
  if (action.pass.part == BackwardPart::whole) return "B";
  return action.pass.part == BackwardPart::inputs ? "I" : "W";
}

// "F0", "B1"; of split ones "I0", "W0"; of chunks that are divided "UNSHARD0", in PyTorch's words:
// what is done and the chunk, in order.
headroom::text::Json actions_of(const TrainOptions& options) {
  headroom::text::Json list = headroom::text::Json::array();
  for (const auto& action : headroom::step::actions_of(options.pipeline, options.accumulation)) {
    list.push_back(word_of(action) + std::to_string(action.chunk));
  }
  return list;
}

// "2,3,1"
std::vector<int64_t> numbers_of(const std::string& words) {
  std::vector<int64_t> numbers;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) numbers.push_back(std::atoll(word.c_str()));
  return numbers;
}

// The parts of the model that the rank has, of so many layers each where that is said.
void take_parts(const headroom::text::JsonView& config, const TrainOptions& options,
                const std::vector<int64_t>& said, headroom::model::BuildOptions& build) {
  const auto whole = headroom::model::build_graph(config, build);
  if (!whole) return;
  const int64_t layers = std::ranges::count(whole->regions, headroom::model::RegionKind::layer,
                                            &headroom::model::Region::kind);
  const auto& pipeline = options.pipeline;
  const auto shared = headroom::step::model_parts(layers, pipeline.stages * pipeline.chunks);
  if (!shared) return;
  const auto all = said.empty() ? *shared : headroom::step::model_parts(said);
  build.parts = headroom::step::parts_of_rank(all, pipeline.stages, pipeline.stage,
                                              headroom::step::is_mirrored(pipeline.schedule));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::map<std::string, std::string> words;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals != std::string::npos) words[word.substr(0, equals)] = word.substr(equals + 1);
  }
  const auto json = headroom::text::read_json_file(argv[1]);
  if (!json) {
    std::fprintf(stderr, "%s\n", json.error().to_string().c_str());
    return 3;
  }
  headroom::model::BuildOptions build;
  build.batch = std::max(1, std::atoi(words["batch"].c_str()));
  build.sequence = std::max(1, std::atoi(words["seq"].c_str()));
  if (const int classes = std::atoi(words["classes"].c_str()); classes > 0) build.classes = classes;
  if (const int length = std::atoi(words["decoder_seq"].c_str()); length > 0) {
    build.decoder_sequence = length;
  }
  build.expert_ranks = std::max(1, std::atoi(words["expert_ranks"].c_str()));
  build.checkpointing = is_checkpointed(words);
  build.compiled = words["compile"] == "model";
  // transformers makes none beside checkpoints.
  build.use_cache = words["use_cache"] == "1" && !is_checkpointed(words);
  if (const int vocabulary = std::atoi(words["vocab"].c_str()); vocabulary > 0) {
    build.vocabulary = vocabulary;
  }
  build.attention = attention_of(words["attention"]);
  if (const std::string& version = words["transformers"]; !version.empty()) {
    std::sscanf(version.c_str(), "%d.%d", &build.transformers.major, &build.transformers.minor);
  }
  if (words["experts"] == "eager") {
    build.experts = headroom::model::ExpertsImplementation::eager;
  } else if (words["experts"] == "batched_mm") {
    build.experts = headroom::model::ExpertsImplementation::batched_mm;
  }
  if (words["log"] == "actions") {
    std::puts(actions_of(train_options(words)).dump().c_str());
    return 0;
  }
  if (!words["schedule"].empty()) {
    take_parts({*json, argv[1]}, train_options(words), numbers_of(words["stage_layers"]), build);
  }
  const bool is_traced = words["graph"] == "1";
  auto graph = is_traced ? traced_graph(*json, argv[1])
                         : headroom::model::build_graph({*json, argv[1]}, build);
  if (graph && !is_traced) {
    const headroom::text::JsonView config(*json, argv[1]);
    const auto model_type = config.get_string("model_type");
    graph = transformed(*graph, model_type ? *model_type : "", words);
  }
  if (!graph) {
    std::fprintf(stderr, "%s\n", graph.error().to_string().c_str());
    return 3;
  }
  if (words["tensor_plans"] == "1") {
    std::puts(tensor_plans().dump().c_str());
    return 0;
  }
  if (words["parameters"] == "1") {
    auto lists = headroom::text::Json::object();
    lists.set("parameters", list_of(graph->parameters, false));
    lists.set("buffers", list_of(graph->buffers, true));
    std::puts(lists.dump().c_str());
    return 0;
  }
  const auto trace = headroom::step::trace_training(*graph, train_options(words));
  if (!trace) {
    std::fprintf(stderr, "%s\n", trace.error().to_string().c_str());
    return 3;
  }
  std::puts(log_of(*trace, words["log"]).dump().c_str());
  return 0;
}
