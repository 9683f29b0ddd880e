#include "engines/torchtitan.h"

#include <algorithm>
#include <utility>

#include "engines/script_launch.h"
#include "engines/shell_arguments.h"
#include "engines/torchtitan_names.h"
#include "engines/torchtitan_stages.h"
#include "text/ascii.h"
#include "text/parse_number.h"

namespace headroom::engines {

namespace {

Error not_modelled(const ShellArguments& in, std::string_view name, const std::string& value,
                   const std::string& hint) {
  return Error{ErrorCode::bad_input,
               "--" + std::string(name) + (value.empty() ? "" : " " + value.substr(0, 60)) +
                   " is not modelled",
               in.file(), hint};
}

Result<TorchtitanConfig> config_of(ShellArguments& in) {
  HEADROOM_ASSIGN(const auto module, in.words("module"));
  HEADROOM_ASSIGN(const auto name, in.words("config"));
  std::string known;
  for (const TorchtitanConfig& config : torchtitan_configs()) {
    if (module == config.module && name == config.name) return config;
    known += (known.empty() ? "" : ", ") + std::string(config.name);
  }
  return not_modelled(in, "config", name.value_or(""), known + " are, of torchtitan 0.3.0");
}

Result<void> check_modelled(ShellArguments& in) {
  for (const std::string_view name : torchtitan_not_modelled()) {
    if (in.is_on(name)) return not_modelled(in, name, "", "leave it out to see the rest");
  }
  return {};
}

// distributed/fsdp.py: "always" has the head gathered again, too.
Result<void> read_resharding(ShellArguments& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto reshards, in.words("parallelism.fsdp-reshard-after-forward"));
  if (setup.stages == 1) setup.reshards = reshards != "never";  // stages stay gathered
  if (!reshards || reshards == "default" || reshards == "never") return {};
  return not_modelled(in, "parallelism.fsdp-reshard-after-forward", *reshards, "default or never");
}

// What is left to the shards where nobody says it; `world` 0: not known.
Result<void> read_shards(ShellArguments& in, int64_t world, TrainingSetup& setup) {
  int64_t replicas = 1;
  HEADROOM_TRY(in.take("parallelism.data-parallel-replicate-degree", replicas));
  int64_t shards = -1;
  HEADROOM_TRY(in.take("parallelism.data-parallel-shard-degree", shards, -1));
  const int64_t within = setup.context_ranks * setup.tensor_ranks * setup.stages;
  if (within > kMostDevices || replicas > kMostDevices / within ||
      shards > kMostDevices / within / replicas) {
    return Error{ErrorCode::bad_input, "more GPUs than are known to train one model", in.file(),
                 ""};
  }
  const int64_t others = replicas * within;
  if (shards < 1 && world > 0 && world % others == 0) shards = world / others;
  if (world > 0 && shards * others != world) {
    return Error{ErrorCode::bad_input,
                 "replicas times shards" +
                     std::string(within > 1 ? " times context, tensor and pipeline ranks" : "") +
                     " are not the " + std::to_string(world) + " GPUs",
                 in.file(), ""};
  }
  if (shards == 1 && setup.context_ranks == 1 && (within == 1 || replicas > 1)) {
    return not_modelled(in, "parallelism.data-parallel-shard-degree", "1",
                        "shards among two or more are, or one rank's alone in a stage");
  }
  setup.sharing = Sharing::fsdp2;
  if (setup.stages == 1) setup.shards_ends = true;
  setup.replicas = replicas;
  setup.ranks = std::max<int64_t>(shards, 1);
  setup.is_counted = shards >= 1;
  return {};
}

Result<void> read_degree(ShellArguments& in, std::string_view name, int64_t& degree) {
  HEADROOM_TRY(in.take(name, degree));
  if (degree <= kMostDevices) return {};
  return not_modelled(in, name, std::to_string(degree), "fewer are");
}

// Stages of as many layers as embedding and head leave.
Result<void> read_pipeline(ShellArguments& in, const TorchtitanConfig& config,
                           TrainingSetup& setup) {
  HEADROOM_TRY(read_degree(in, "parallelism.pipeline-parallel-degree", setup.stages));
  HEADROOM_ASSIGN(const auto words, in.words("parallelism.pipeline-parallel-schedule"));
  int64_t each = 0;  // layers of a part
  HEADROOM_TRY(in.take("parallelism.pipeline-parallel-layers-per-stage", each));
  constexpr const char* kModules = "parallelism.module-fqns-per-model-part";
  HEADROOM_ASSIGN(const auto modules, in.words(kModules));
  if (setup.stages == 1) return {};
  if (modules) {
    return not_modelled(in, kModules, *modules,
                        "without the file, --method pp:N with --stage-layers is");
  }
  if (config.ties_ends) {
    return not_modelled(in, "parallelism.pipeline-parallel-degree", std::to_string(setup.stages),
                        "torchtitan refuses it, too, of a model whose head is the embedding");
  }
  const std::string schedule = words.value_or("1F1B");
  const auto named = std::ranges::find(torchtitan_schedules(), schedule, &TorchtitanSchedule::name);
  if (named == torchtitan_schedules().end()) {
    return not_modelled(in, "parallelism.pipeline-parallel-schedule", schedule,
                        "1F1B, GPipe, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble or "
                        "DualPipeV");
  }
  setup.schedule = named->schedule;
  setup.stage_chunks = named->chunks;
  if (each > 0) {
    auto chunks = chunks_by_layers(*named, setup.stages, config.layers, each);
    if (!chunks) {
      return Error{chunks.error().code, chunks.error().message, in.file(), chunks.error().hint};
    }
    setup.stage_chunks = *chunks;
  }
  for (const char* name : {"parallelism.pipeline-parallel-first-stage-less-layers",
                           "parallelism.pipeline-parallel-last-stage-less-layers"}) {
    int64_t less = 1;
    HEADROOM_TRY(in.take(name, less, 0));
    if (less != 1) return not_modelled(in, name, std::to_string(less), "1 is");
  }
  return {};
}

Result<void> read_division(ShellArguments& in, const TorchtitanConfig& config,
                           std::optional<int64_t> gpus, TrainingSetup& setup) {
  setup.tensor_ranks = config.tensor_ranks;
  HEADROOM_TRY(read_degree(in, "parallelism.context-parallel-degree", setup.context_ranks));
  HEADROOM_TRY(read_degree(in, "parallelism.tensor-parallel-degree", setup.tensor_ranks));
  HEADROOM_TRY(read_pipeline(in, config, setup));
  HEADROOM_ASSIGN(const auto sequence, in.words("parallelism.enable-sequence-parallel"));
  const bool is_off = in.is_on("parallelism.no-enable-sequence-parallel") ||
                      (sequence && text::lower(*sequence) == "false");
  if (is_off && setup.tensor_ranks > 1) {
    return not_modelled(in, "parallelism.no-enable-sequence-parallel", "",
                        "with sequences divided it is");
  }
  int64_t experts = 1;
  HEADROOM_TRY(in.take("parallelism.expert-parallel-degree", experts));
  if (experts > 1) {
    return not_modelled(in, "parallelism.expert-parallel-degree", std::to_string(experts), "1 is");
  }
  setup.nodes = std::min(in.number_if_any("nnodes").value_or(1), kMostDevices);
  const auto each = in.number_if_any("nproc-per-node");
  if (each && *each > kMostDevices / setup.nodes) {
    return Error{ErrorCode::bad_input, "more processes than are known to train one model",
                 in.file(), ""};
  }
  return read_shards(in, each ? *each * setup.nodes : gpus.value_or(0), setup);
}

Result<bool> is_float32(ShellArguments& in, std::string_view name, std::string_view standard) {
  HEADROOM_ASSIGN(const auto words, in.words(name));
  const std::string type = words.value_or(std::string(standard));
  if (type == "float32" || type == "bfloat16") return type == "float32";
  return not_modelled(in, name, type, "float32 or bfloat16");
}

// fully_shard keeps weights in one type, and computes in another.
Result<void> read_types(ShellArguments& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const bool keeps_whole, is_float32(in, "training.dtype", "float32"));
  HEADROOM_ASSIGN(const bool computes_whole,
                  is_float32(in, "training.mixed-precision-param", "bfloat16"));
  HEADROOM_ASSIGN(const bool reduces_whole,
                  is_float32(in, "training.mixed-precision-reduce", "float32"));
  setup.reduced = reduces_whole ? Half::none : Half::bf16;
  if (!keeps_whole && computes_whole) {
    return not_modelled(in, "training.mixed-precision-param", "float32",
                        "bfloat16 is, with --training.dtype bfloat16");
  }
  if (keeps_whole && !computes_whole) {
    setup.mixed_precision = Half::bf16;
  } else {
    setup.weights = keeps_whole ? Half::none : Half::bf16;
  }
  return {};
}

Result<void> read_checkpointing(const ShellArguments& in, const TorchtitanConfig& config,
                                TrainingSetup& setup) {
  std::string kind = config.checkpoints_layers ? "full" : "selective";
  for (const ShellWord& word : in.script().words()) {
    for (const std::string_view of : {"activation_checkpoint:", "activation-checkpoint:"}) {
      if (word.text.starts_with(of)) kind = word.text.substr(of.size());
    }
  }
  setup.checkpoints = kind != "none";
  setup.checkpoints_half_the_products = kind == "selective";
  if (kind == "none" || kind == "selective" || kind == "full") return {};
  return Error{ErrorCode::bad_input,
               "activation-checkpoint:" + kind.substr(0, 40) + " is not modelled", in.file(),
               "none, selective or full"};
}

Result<void> read_optimizer(ShellArguments& in, TrainingSetup& setup) {
  setup.optimizer = "adamw_torch";
  HEADROOM_ASSIGN(const auto words, in.words("optimizer.implementation"));
  const std::string loop = words.value_or("fused");
  setup.optimizer_loop = loop == "for-loop" ? "loop" : loop;
  if (loop == "fused" || loop == "foreach" || loop == "for-loop") return {};
  return not_modelled(in, "optimizer.implementation", loop, "fused, foreach or for-loop");
}

// Gradients are always clipped.
Result<void> read_clipping(ShellArguments& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto words, in.words("training.max-norm"));
  const auto norm = words ? text::parse_number<double>(*words) : std::optional(1.0);
  if (!norm || !(*norm > 0) || !(*norm < 1e30)) {
    return not_modelled(in, "training.max-norm", words.value_or(""), "a number above 0");
  }
  setup.clip = *norm;
  return {};
}

// distributed/fsdp.py: the policy of every unit; what is kept on the host is stepped there.
void read_offload(ShellArguments& in, TrainingSetup& setup) {
  if (in.is_on("training.enable-cpu-offload")) setup.offloads_parameters = true;
}

// A pipeline takes a step's sequences in micro-batches.
Result<void> read_micro_batches(ShellArguments& in, TrainingSetup& setup) {
  int64_t size = 1;
  HEADROOM_TRY(in.take("parallelism.pipeline-parallel-microbatch-size", size));
  if (setup.grad_accum.value_or(1) > 1) {
    return not_modelled(in, "training.global-batch-size", "",
                        "one pass of the pipeline a step is: leave it out");
  }
  if (*setup.batch % size != 0) {
    return Error{ErrorCode::bad_input,
                 "--training.local-batch-size is no multiple of "
                 "--parallelism.pipeline-parallel-microbatch-size",
                 in.file(), ""};
  }
  setup.grad_accum = *setup.batch / size;
  setup.batch = size;
  return {};
}

Result<void> read_step(ShellArguments& in, const TorchtitanConfig& config, TrainingSetup& setup) {
  setup.batch = config.batch;
  setup.sequence = config.sequence;
  HEADROOM_TRY(in.take("training.local-batch-size", *setup.batch));
  HEADROOM_TRY(in.take("training.seq-len", *setup.sequence));
  int64_t global = -1;
  HEADROOM_TRY(in.take("training.global-batch-size", global, -1));
  if (global > 0) {
    const int64_t at_once = setup.ranks * setup.replicas;  // at most kMostDevices
    const bool is_said = setup.is_counted || setup.context_ranks > 1;
    const bool divides =
        is_said && *setup.batch <= global / at_once && global % (at_once * *setup.batch) == 0;
    if (!divides) {
      return Error{ErrorCode::bad_input,
                   "--training.global-batch-size is no multiple of the GPUs times "
                   "--training.local-batch-size",
                   in.file(), "--gpus N says how many they are, where the script does not"};
    }
    setup.grad_accum = global / at_once / *setup.batch;
  }
  if (setup.stages > 1) HEADROOM_TRY(read_micro_batches(in, setup));
  setup.loss_chunks = 8;
  HEADROOM_TRY(in.take("loss.num-chunks", *setup.loss_chunks));
  if (setup.stages > 1 && *setup.loss_chunks > 1) {
    return not_modelled(in, "loss.num-chunks", std::to_string(*setup.loss_chunks),
                        "1 is, beside a pipeline");
  }
  return {};
}

// config/configs.py: CompileConfig; distributed/compile.py: each layer by itself.
Result<void> read_compile(ShellArguments& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto backend, in.words("compile.backend"));
  HEADROOM_ASSIGN(const auto words, in.list("compile.components"));
  if (!in.is_on("compile.enable")) return {};
  if (backend && *backend != "inductor") {
    return not_modelled(in, "compile.backend", *backend, "inductor is");
  }
  const std::string components = " " + words.value_or("model loss") + " ";
  setup.compiles_layers = components.find(" model ") != std::string::npos;
  setup.compiles_loss = components.find(" loss ") != std::string::npos;
  if (!*setup.compiles_layers && !*setup.compiles_loss) {
    return not_modelled(in, "compile.components", *words, "model, loss or both");
  }
  // Of chunks it is taken as not compiled: what they hold is little.
  if (*setup.loss_chunks > 1) setup.compiles_loss = false;
  return {};
}

void add_notes(ShellArguments& in, TrainingSetup& setup) {
  setup.notes.emplace_back(
      "torchtitan's layers are taken as transformers', and flex attention as sdpa's");
  if (!in.is_on("training.disable-cuda-graphs")) {
    setup.notes.emplace_back(
        "CUDA graphs are not modelled: the figures are with --training.disable_cuda_graphs");
  }
  for (const std::string& name : in.script().arguments()) {
    if (in.was_asked(name) || is_of_torchrun(name) || is_harmless_to_torchtitan(name)) continue;
    setup.notes.push_back("nobody looked at this, which may change memory: --" +
                          name.substr(0, 60));
  }
}

}  // namespace

bool is_torchtitan_script(std::string_view content) {
  const auto has = [&](std::string_view words) {
    return content.find(words) != std::string_view::npos;
  };
  return has("--module") && has("--config") && has("torchtitan.train");
}

Result<TrainingSetup> read_torchtitan(std::string_view content, const std::string& file,
                                      std::optional<int64_t> gpus) {
  HEADROOM_ASSIGN(ShellWords script, ShellWords::read(content, file));
  ShellArguments in(std::move(script), file);
  TrainingSetup setup;
  setup.counted_by = "torchrun --nproc_per_node N in the script";
  HEADROOM_ASSIGN(const TorchtitanConfig config, config_of(in));
  setup.model = config.model;
  HEADROOM_TRY(check_modelled(in));
  HEADROOM_TRY(read_division(in, config, gpus, setup));
  HEADROOM_TRY(read_resharding(in, setup));
  HEADROOM_TRY(read_types(in, setup));
  HEADROOM_TRY(read_checkpointing(in, config, setup));
  HEADROOM_TRY(read_optimizer(in, setup));
  HEADROOM_TRY(read_clipping(in, setup));
  read_offload(in, setup);
  HEADROOM_TRY(read_step(in, config, setup));
  HEADROOM_TRY(read_compile(in, setup));
  setup.attention = "sdpa";
  setup.allocator = in.allocator();
  add_notes(in, setup);
  return setup;
}

}  // namespace headroom::engines
