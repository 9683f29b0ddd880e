#include "fit/question.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/suggest.h"
#include "fit/checkpointing_words.h"
#include "fit/compile_words.h"
#include "fit/element_words.h"
#include "fit/expert_imbalance.h"
#include "fit/optimizer_words.h"
#include "fit/search/method_words.h"
#include "fit/search/network.h"
#include "fit/stage3_flags.h"
#include "fit/words.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

constexpr std::array<Word<Dtype>, 3> kDtypes{
    {{"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}, {"fp32", Dtype::fp32}}};
constexpr std::array<Word<MixedPrecision>, 3> kMixedPrecisions{{{"none", MixedPrecision::none},
                                                                {"bf16", MixedPrecision::bf16},
                                                                {"fp16", MixedPrecision::fp16}}};
constexpr std::array<Word<Attention>, 8> kAttentions{{{"auto", Attention::automatic},
                                                      {"eager", Attention::eager},
                                                      {"sdpa", Attention::sdpa},
                                                      {"sdpa-math", Attention::sdpa_math},
                                                      {"sdpa-efficient", Attention::sdpa_efficient},
                                                      {"sdpa-flash", Attention::sdpa_flash},
                                                      {"sdpa-cudnn", Attention::sdpa_cudnn},
                                                      {"flash2", Attention::flash2}}};
constexpr std::array<Word<Loss>, 6> kLosses{{{"auto", Loss::automatic},
                                             {"hf", Loss::hf},
                                             {"fused-linear", Loss::fused_linear},
                                             {"fused", Loss::fused},
                                             {"chunked", Loss::chunked},
                                             {"chunked-head", Loss::chunked_head}}};
constexpr std::array<Word<Offload>, 4> kOffloads{
    {{"none", Offload::none},
     {"optimizer", Offload::optimizer},
     {"parameters", Offload::parameters},
     {"optimizer,parameters", Offload::optimizer_and_parameters}}};
constexpr std::array<Word<Kernels>, 3> kKernels{
    {{"none", Kernels::none}, {"liger", Kernels::liger}, {"fast", Kernels::fast}}};
constexpr std::array<Word<KbitPreparation>, 4> kPreparations{{{"none", KbitPreparation::none},
                                                              {"norms", KbitPreparation::norms},
                                                              {"others", KbitPreparation::others},
                                                              {"all", KbitPreparation::all}}};
constexpr std::array<Word<step::PipelineSchedule>, 5> kSchedules{
    {{"1f1b", step::PipelineSchedule::one_forward_one_backward},
     {"gpipe", step::PipelineSchedule::gpipe},
     {"zero-bubble", step::PipelineSchedule::zero_bubble},
     {"zbv", step::PipelineSchedule::zero_bubble_v},
     {"dualpipev", step::PipelineSchedule::dual_pipe_v}}};
constexpr std::array<Word<bool>, 2> kTasks{{{"own", false}, {"sequence-classification", true}}};
constexpr std::array<Word<Float8>, 3> kFloat8s{
    {{"none", Float8::none}, {"tensorwise", Float8::tensorwise}, {"rowwise", Float8::rowwise}}};
constexpr std::array<Word<step::Reshards>, 3> kReshards{
    {{"true", step::Reshards::layers},
     {"but-last", step::Reshards::all_but_last_layer},
     {"false", step::Reshards::none}}};
constexpr std::array<Word<bool>, 2> kCheckpointKinds{
    {{"reentrant", true}, {"non-reentrant", false}}};
constexpr std::array<Word<bool>, 2> kSwitches{{{"true", true}, {"false", false}}};

// Text that ends up in tables and pages: printable ASCII or UTF-8, no control characters.
Result<void> printable(std::string_view name, std::string_view words, std::string& field) {
  if (words.empty() || words.size() > 4096) return refuse(name, words, "1 to 4096 characters");
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return refuse(name, "...", "free of control characters");
  }
  field = words;
  return {};
}

// "2.4" or "2.4.1+cu121": what follows the numbers is accepted and ignored by comparisons.
Result<void> version(std::string_view name, std::string_view words, std::string& field) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t dot = words.find('.');
  const bool good = words.size() <= 40 && dot != std::string_view::npos && dot > 0 &&
                    dot + 1 < words.size() && is_digit(words[0]) && is_digit(words[dot + 1]);
  if (!good) return refuse(name, words, "a version like 2.4 or 4.48.1");
  return printable(name, words, field);
}

// Names with commas between them.
Result<void> set_names(std::string_view flag, std::string_view words,
                       std::vector<std::string>& field) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= words.size()) {
    const size_t end = std::min(words.find(',', begin), words.size());
    std::string name;
    HEADROOM_TRY(printable(flag, words.substr(begin, end - begin), name));
    if (names.size() == 64) return refuse(flag, words, "at most 64 names");
    names.push_back(std::move(name));
    begin = end + 1;
  }
  field = std::move(names);
  return {};
}

constexpr size_t kMostParts = 4096;

// "7,9,9,7"
Result<void> set_stage_layers(std::string_view words, std::vector<int64_t>& field) {
  constexpr int64_t kMostLayers = 1'000'000;
  std::vector<int64_t> layers;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const auto value = text::parse_number<int64_t>(words.substr(begin, end - begin));
    if (!value || *value < 0 || *value > kMostLayers || layers.size() == kMostParts) {
      return refuse("stage-layers", words, "layers of each part, such as 7,9,9,7");
    }
    layers.push_back(*value);
    begin = end + 1;
  }
  field = std::move(layers);
  return {};
}

std::string join(const std::vector<int64_t>& numbers) {
  std::string joined;
  for (const int64_t number : numbers)
    joined += (joined.empty() ? "" : ",") + std::to_string(number);
  return joined;
}

Result<void> set_clip(std::string_view words, std::optional<double>& field) {
  const std::optional<double> value = text::parse_number<double>(words);
  if (!value || *value <= 0) return refuse("clip", words, "a norm above 0, such as 1.0");
  field = value;
  return {};
}

Result<void> set_dropout(std::string_view words, double& field) {
  const std::optional<double> value = text::parse_number<double>(words);
  if (!value || *value < 0 || *value >= 1) {
    return refuse("lora-dropout", words, "a share from 0 to below 1, such as 0.1");
  }
  field = *value;
  return {};
}

// What GPTQ's kernels take (gptqmodel's SUPPORTS_GROUP_SIZE), and 0 for their -1.
constexpr std::array<int64_t, 8> kGptqGroups{0, 16, 32, 64, 128, 256, 512, 1024};

Result<void> set_group(std::string_view words, int64_t& field) {
  const std::optional<int64_t> value = text::parse_number<int64_t>(words);
  if (value && std::ranges::find(kGptqGroups, *value) != kGptqGroups.end()) {
    field = *value;
    return {};
  }
  std::string expected = "one of ";
  for (const int64_t size : kGptqGroups) {
    expected += (size == kGptqGroups.front() ? "" : ", ") + std::to_string(size);
  }
  return refuse("gptq-group", words, std::move(expected));
}

std::string join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : ",") + word;
  return joined;
}

Result<void> set_link(std::string_view words, std::string& field) {
  HEADROOM_TRY(network_rate(words));
  field = words;
  return {};
}

Result<void> set_mixed_precision(std::string_view words, FitQuestion& question) {
  question.any_precision = words == "any";
  if (!question.any_precision) {
    return choose("mixed-precision", words, kMixedPrecisions, question.mixed_precision);
  }
  question.mixed_precision = MixedPrecision::none;
  return {};
}

using Setter = Result<void> (*)(FitQuestion&, std::string_view);
struct Field {
  QuestionFlag flag;
  Setter set;
};

Result<void> set_stage3(size_t i, std::string_view words, int64_t& field) {
  const engines::Stage3Count& count = engines::kStage3Counts[i];
  const std::string_view flag = kStage3Flags[i].name();
  return count.takes_auto() ? set_elements_or_auto(flag, words, count.least, field)
                            : set_elements(flag, words, count.least, field);
}

template <engines::Stage3 kCount>
constexpr Field stage3_field() {
  constexpr auto kPlace = static_cast<size_t>(kCount);
  return {{kStage3Flags[kPlace].name(), "N", engines::kStage3Counts[kPlace].meaning},
          [](FitQuestion& q, std::string_view w) {
            constexpr auto kIndex = static_cast<size_t>(kCount);
            return set_stage3(kIndex, w, q.stage3[kIndex]);
          }};
}

// Every flag of the question: its words in the help, and what setting it does.
constexpr std::array<Field, 64> kFields{{
    {{"device", "NAME",
      "the GPU: a100-sxm-80gb, h100-sxm-80gb, ... or auto (what is here); with figures of your "
      "own: h100-sxm-80gb,power=500W"},
     [](FitQuestion& q, std::string_view w) { return printable("device", w, q.device); }},
    {{"batch", "N", "sequences in a micro-batch"},
     [](FitQuestion& q, std::string_view w) { return count("batch", w, 1'000'000, q.batch); }},
    {{"seq", "N", "tokens in a sequence"},
     [](FitQuestion& q, std::string_view w) { return count("seq", w, 100'000'000, q.seq); }},
    {{"task", "NAME",
      "what is trained: own (of a language model the next token, say), or sequence-classification "
      "(transformers' ...ForSequenceClassification); else what the config is of"},
     [](FitQuestion& q, std::string_view w) { return choose("task", w, kTasks, q.classifies); }},
    {{"labels", "N", "classes of sequence-classification; else the config's, two if it names none"},
     [](FitQuestion& q, std::string_view w) {
       return count("labels", w, 1'000'000, q.labels.emplace());
     }},
    {{"decoder-seq", "N", "tokens that an encoder-decoder model predicts; else as many as --seq"},
     [](FitQuestion& q, std::string_view w) {
       return count("decoder-seq", w, 100'000'000, q.decoder_seq.emplace());
     }},
    {{"dtype", "TYPE", "of the weights: bf16, fp16, fp32"},
     [](FitQuestion& q, std::string_view w) { return choose("dtype", w, kDtypes, q.dtype); }},
    {{"mixed-precision", "TYPE",
      "autocast over fp32 weights (of ZeRO DeepSpeed's own 16 bits): none, bf16, fp16; with --gpus "
      "and --smallest any: 16-bit "
      "weights, mixed precision and fp32 beside one another, which changes what is trained"},
     [](FitQuestion& q, std::string_view w) { return set_mixed_precision(w, q); }},
    {{"method", "KIND",
      "full, lora (rsLoRA needs the same), dora, ia3, qlora, lora-8bit, gptq-lora; one of N GPUs: "
      "ddp:N, "
      "zero1:N, zero2:N, zero3:N (DeepSpeed's), fsdp2:N, fsdp1:N, lora,fsdp2:N, lora,tp:N, "
      "qlora,fsdp2:N; of N times M: "
      "fsdp2:N,replicate:M (hybrid sharding); tp:N (tensor parallelism), fsdp2:M,tp:N, ddp:M,tp:N; "
      "fsdp2:M,cp:N (N share each sequence, as context_parallel has it); fsdp2:M,ep:N (N of M "
      "share "
      "a mixture's experts out); gemini:N, gemini:M,tp:N "
      "(Colossal-AI's); pp:N, pp:N,vpp:M (PyTorch's pipelines)"},
     [](FitQuestion& q, std::string_view w) { return set_method(w, q); }},
    {{"pipeline-schedule", "NAME",
      "with pp, 1f1b (interleaved with vpp), gpipe, zero-bubble (gradients of weights later), zbv "
      "or dualpipev (two parts a stage, mirrored)"},
     [](FitQuestion& q, std::string_view w) {
       return choose("pipeline-schedule", w, kSchedules, q.schedule);
     }},
    {{"stage-layers", "N,N,...",
      "with pp, layers of each part of the model in its order (with vpp:M, M a stage); else as "
      "torchtitan shares them out, embedding and head counting as one each"},
     [](FitQuestion& q, std::string_view w) { return set_stage_layers(w, q.stage_layers); }},
    {{"sequence-parallel", "BOOL",
      "with tp, true: norms and what is added up are of each rank's part of the sequence, and the "
      "loss of its part of the vocabulary, as torchtitan has it"},
     [](FitQuestion& q, std::string_view w) {
       return choose("sequence-parallel", w, kSwitches, q.sequence_parallel);
     }},
    {{"nodes", "N", "machines that the GPUs are spread over; needs --link"},
     [](FitQuestion& q, std::string_view w) { return count("nodes", w, 65'536, q.nodes); }},
    {{"link", "NAME",
      "between machines, of one GPU: a name that ends in its rate in Gbit/s, ib-400g, or 50GB/s"},
     [](FitQuestion& q, std::string_view w) { return set_link(w, q.link); }},
    {{"bucket-cap-mb", "N", "with ddp, MiB of gradients that are reduced together"},
     [](FitQuestion& q, std::string_view w) {
       return count("bucket-cap-mb", w, 1'000'000, q.bucket_cap_mb);
     }},
    {{"gradient-as-bucket-view", "BOOL", "with ddp, true: gradients lie in the buckets"},
     [](FitQuestion& q, std::string_view w) {
       return choose("gradient-as-bucket-view", w, kSwitches, q.gradient_as_bucket_view);
     }},
    {{"find-unused-parameters", "BOOL",
      "with ddp, true as HF's Trainer has it without checkpointing: outputs are copied"},
     [](FitQuestion& q, std::string_view w) {
       return choose("find-unused-parameters", w, kSwitches, q.find_unused_parameters);
     }},
    {{"reduce-dtype", "TYPE",
      "with fsdp2, what gradients are reduced in: bf16, fp16 or fp32; else their own type"},
     [](FitQuestion& q, std::string_view w) {
       return choose("reduce-dtype", w, kDtypes, q.reduce_dtype.emplace());
     }},
    {{"shard-ends", "BOOL",
      "true if fully_shard is called on the embedding, and on the final norm with the head, as "
      "torchtitan and accelerate do"},
     [](FitQuestion& q, std::string_view w) {
       return choose("shard-ends", w, kSwitches, q.shard_ends.emplace());
     }},
    {{"reshard-after-forward", "WHICH",
      "of fully_shard's layers: true (gathered again in backward), but-last (all but the last), "
      "false (none; ZeRO-2's way)"},
     [](FitQuestion& q, std::string_view w) {
       return choose("reshard-after-forward", w, kReshards, q.reshards);
     }},
    {{"sync-each-batch", "BOOL",
      "with fsdp1 and fsdp2 and --grad-accum, false: gradients are whole on every rank until the "
      "last micro-batch, as accelerate and HF's Trainer have it (no_sync); true: each is reduced"},
     [](FitQuestion& q, std::string_view w) {
       return choose("sync-each-batch", w, kSwitches, q.sync_each_batch.emplace());
     }},
    {{"reduce-bucket-size", "N",
      "with zero1, zero2 and zero3, elements of gradients that are reduced together; auto: as HF's "
      "Trainer has it, the square of the hidden size"},
     [](FitQuestion& q, std::string_view w) {
       return set_elements_or_auto("reduce-bucket-size", w, 1, q.reduce_bucket_size);
     }},
    {{"overlap-comm", "BOOL",
      "with zero1 and zero2, true: two buckets by turns; with zero3 (there true), gathers and "
      "reductions beside what is computed"},
     [](FitQuestion& q, std::string_view w) {
       return choose("overlap-comm", w, kSwitches, q.overlap_comm.emplace());
     }},
    stage3_field<engines::Stage3::sub_group_size>(),
    stage3_field<engines::Stage3::prefetch_bucket_size>(),
    stage3_field<engines::Stage3::param_persistence_threshold>(),
    stage3_field<engines::Stage3::max_live_parameters>(),
    stage3_field<engines::Stage3::max_reuse_distance>(),
    {{"lora-rank", "N", "rank of the adapters"},
     [](FitQuestion& q, std::string_view w) { return count("lora-rank", w, 65'536, q.lora_rank); }},
    {{"lora-targets", "NAMES", "modules with adapters: q_proj,v_proj or all-linear"},
     [](FitQuestion& q, std::string_view w) {
       return set_names("lora-targets", w, q.lora_targets);
     }},
    {{"lora-dropout", "P", "before the adapters, 0 to 1"},
     [](FitQuestion& q, std::string_view w) { return set_dropout(w, q.lora_dropout); }},
    {{"lora-dtype", "TYPE", "of the adapters: bf16, fp16, fp32"},
     [](FitQuestion& q, std::string_view w) {
       return choose("lora-dtype", w, kDtypes, q.lora_dtype);
     }},
    {{"ia3-feedforward", "NAMES", "with ia3, targets whose input is scaled: down_proj"},
     [](FitQuestion& q, std::string_view w) {
       return set_names("ia3-feedforward", w, q.ia3_feedforward);
     }},
    {{"optimizer", "KIND",
      "adamw, adam, sgd, sgd-momentum, adafactor (each also -foreach, -fused, -loop), "
      "hf-adafactor (transformers'); bitsandbytes' lion, lion-8bit, paged-lion, paged-lion-8bit, "
      "adamw-8bit, paged-adamw, paged-adamw-8bit, ademamix, ademamix-8bit, paged-ademamix, "
      "paged-ademamix-8bit, rmsprop-bnb, rmsprop-bnb-8bit"},
     [](FitQuestion& q, std::string_view w) { return set_optimizer(w, q); }},
    {{"optimizer-in-backward", "", "step each parameter as its gradient arrives, and free it"},
     [](FitQuestion& q, std::string_view w) {
       return choose("optimizer-in-backward", w, kSwitches, q.optimizer_in_backward);
     }},
    {{"freeze", "PARTS", "parameters that are not trained: embed_tokens,layers.0-15"},
     [](FitQuestion& q, std::string_view w) { return set_names("freeze", w, q.freeze); }},
    {{"expert-imbalance", "SHARE",
      "of experts that ranks share out, what a rank gets of an even share: 1.2, or its least, "
      "expected and most, 1:1.1:1.4, and the answer gives the peak of each"},
     [](FitQuestion& q, std::string_view w) { return set_imbalance(w, q.expert_imbalance); }},
    {{"offload", "WHAT",
      "to the CPU: none, optimizer (torchao's, or DeepSpeed's with zero1, zero2, zero3), "
      "parameters (FSDP's shares of them with gradients and states; zero3's alone), "
      "optimizer,parameters (zero3)"},
     [](FitQuestion& q, std::string_view w) { return choose("offload", w, kOffloads, q.offload); }},
    {{"kernels", "WHOSE", "fused kernels: none, liger (Liger-Kernel's), fast (fms-acceleration's)"},
     [](FitQuestion& q, std::string_view w) { return choose("kernels", w, kKernels, q.kernels); }},
    {{"kbit-preparation", "WHAT",
      "with qlora and lora-8bit, cast to float32: none (so FSDP and ZeRO), norms (TRL), others "
      "(all but norms, "
      "embeddings and head: axolotl), all (peft)"},
     [](FitQuestion& q, std::string_view w) {
       return choose("kbit-preparation", w, kPreparations, q.kbit_preparation);
     }},
    {{"gptq-group", "N", "with gptq-lora, input features that share a scale; 0: all"},
     [](FitQuestion& q, std::string_view w) { return set_group(w, q.gptq_group); }},
    {{"checkpointing", "KIND",
      "layers that run again in backward: none, full, every-N (each N-th), selective (all but "
      "matrix products and attention), selective-attention, selective-products, "
      "selective-every-N (of the products, each N-th runs again: torchtitan's is 2)"},
     [](FitQuestion& q, std::string_view w) { return set_checkpointing(w, q.checkpointing); }},
    {{"checkpointing-kind", "KIND",
      "of PyTorch's two: reentrant, non-reentrant; else transformers' own, the second since 5.0. "
      "Beside lora-8bit the second lets go of little"},
     [](FitQuestion& q, std::string_view w) {
       return choose("checkpointing-kind", w, kCheckpointKinds, q.reentrant.emplace());
     }},
    {{"compile", "PARTS",
      "what torch.compile is called on: none, model (all of it, as a Trainer's torch_compile has "
      "it), "
      "or a list of layers (each by itself, as torchtitan has it) and loss"},
     [](FitQuestion& q, std::string_view w) { return set_compile(w, q.compile); }},
    {{"float8", "KIND",
      "products of layers' linear modules in float8, with torchao's dynamic scales: none, "
      "tensorwise (what is gathered for them is float8, too), rowwise (is gathered as it is)"},
     [](FitQuestion& q, std::string_view w) { return choose("float8", w, kFloat8s, q.float8); }},
    {{"attention", "KIND",
      "auto, eager, sdpa, sdpa-math, sdpa-efficient, sdpa-flash, sdpa-cudnn, flash2"},
     [](FitQuestion& q, std::string_view w) {
       return choose("attention", w, kAttentions, q.attention);
     }},
    {{"loss", "KIND",
      "auto (what the kernels bring, else hf), hf (the model's own), fused-linear (no logits), "
      "fused (over whole logits), chunked (torchtune's, 8 chunks), chunked-head (torchtitan's: "
      "head and loss chunk by chunk, each with its backward pass)"},
     [](FitQuestion& q, std::string_view w) { return choose("loss", w, kLosses, q.loss); }},
    {{"loss-chunks", "N", "with --loss chunked-head, into how many chunks a sequence is cut"},
     [](FitQuestion& q, std::string_view w) {
       return count("loss-chunks", w, 4096, q.loss_chunks);
     }},
    {{"accelerate", "BOOL",
      "true if HF's Trainer or accelerate runs the loop: outputs in fp32 under autocast, "
      "embeddings with fp32 states in 8-bit optimizers"},
     [](FitQuestion& q, std::string_view w) {
       return choose("accelerate", w, kSwitches, q.accelerate);
     }},
    {{"keep-outputs", "BOOL", "true if the loop holds the model's outputs to the next step"},
     [](FitQuestion& q, std::string_view w) {
       return choose("keep-outputs", w, kSwitches, q.keep_outputs);
     }},
    {{"use-cache", "BOOL",
      "true if the model makes a key-value cache while it trains, as config.use_cache has it in a "
      "loop that leaves it so"},
     [](FitQuestion& q, std::string_view w) {
       return choose("use-cache", w, kSwitches, q.use_cache);
     }},
    {{"grad-accum", "N", "micro-batches before a step"},
     [](FitQuestion& q, std::string_view w) {
       return count("grad-accum", w, 1'000'000, q.grad_accum);
     }},
    {{"global-batch", "N", "sequences in a step on all GPUs, in place of --grad-accum"},
     [](FitQuestion& q, std::string_view w) {
       return count("global-batch", w, 1'000'000'000, q.global_batch.emplace());
     }},
    {{"clip", "NORM", "clip gradients to this norm"},
     [](FitQuestion& q, std::string_view w) { return set_clip(w, q.clip); }},
    {{"vocab", "N", "tokens in the vocabulary, in place of the config's"},
     [](FitQuestion& q, std::string_view w) {
       return count("vocab", w, 100'000'000, q.vocab.emplace());
     }},
    {{"torch", "VERSION", "of PyTorch"},
     [](FitQuestion& q, std::string_view w) { return version("torch", w, q.torch); }},
    {{"transformers", "VERSION", "of transformers"},
     [](FitQuestion& q, std::string_view w) { return version("transformers", w, q.transformers); }},
    {{"allocator", "CONF",
      "PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True; planned: by a plan of this step"},
     [](FitQuestion& q, std::string_view w) {
       if (w != "default") return printable("allocator", w, q.allocator);
       q.allocator.clear();
       return Result<void>{};
     }},
    {{"assume", "FAMILY", "treat an unknown architecture as this one: llama, gpt2, ..."},
     [](FitQuestion& q, std::string_view w) { return printable("assume", w, q.assume); }},
    {{"calibration", "FILE",
      "what was measured: corrections of memory (--save-calibration), times (bench device)"},
     [](FitQuestion& q, std::string_view w) { return printable("calibration", w, q.calibration); }},
    {{"events", "FILE", "write every allocation and release of the step"},
     [](FitQuestion& q, std::string_view w) { return printable("events", w, q.events); }},
    {{"placements", "FILE.csv",
      "write a plan of the step: id,lower,upper,size,offset; pack reads it"},
     [](FitQuestion& q, std::string_view w) { return printable("placements", w, q.placements); }},
    {{"search", "BOOL", "false: no remedies, no largest batch, no longest sequence"},
     [](FitQuestion& q, std::string_view w) { return choose("search", w, kSwitches, q.search); }},
    {{"timeline", "BOOL", "true: memory over the step in the answer (always so in a page)"},
     [](FitQuestion& q, std::string_view w) {
       return choose("timeline", w, kSwitches, q.timeline);
     }},
}};

// The flags alone, as question_flags() hands them out.
constexpr std::array<QuestionFlag, kFields.size()> kFlags = [] {
  std::array<QuestionFlag, kFields.size()> flags{};
  for (size_t i = 0; i < kFields.size(); ++i) flags[i] = kFields[i].flag;
  return flags;
}();

}  // namespace

Result<void> FitQuestion::set(std::string_view name, std::string_view words) {
  std::array<std::string_view, kFields.size()> names;
  for (size_t i = 0; i < kFields.size(); ++i) {
    names[i] = kFields[i].flag.name;
    if (names[i] != name) continue;
    FitQuestion changed = *this;
    HEADROOM_TRY(kFields[i].set(changed, words));
    *this = std::move(changed);
    given.emplace(name);
    return {};
  }
  Error error;
  error.code = ErrorCode::usage;
  error.message = "fit has no setting '" + std::string(name.substr(0, 80)) + "'";
  if (const std::string_view nearest = nearest_word(name, names); !nearest.empty()) {
    error.hint = "did you mean --" + std::string(nearest) + "?";
  }
  return error;
}

std::string_view word_of(Loss loss) {
  for (const Word<Loss>& entry : kLosses) {
    if (entry.value == loss) return entry.word;
  }
  return {};
}

std::span<const QuestionFlag> question_flags() { return kFlags; }

std::string default_of(std::string_view flag) {
  // Some settings are there for some methods only.
  for (const Method method : every_method()) {
    FitQuestion question;
    question.method = method;
    for (const Division division : {Division::ddp, Division::zero2, Division::zero3}) {
      question.division = division;
      for (const Setting& setting : settings_of(question)) {
        if (setting.name == flag && flag != "method") return setting.value;
      }
    }
  }
  // What is not shown as a setting of the answer.
  const FitQuestion question;
  if (flag == "method") return method_word(question);
  if (flag == "expert-imbalance") return imbalance_words(question.expert_imbalance);
  if (flag == "search") return word_of(kSwitches, question.search);
  if (flag == "timeline") return word_of(kSwitches, question.timeline);
  return {};
}

std::string setting_of(const std::vector<Setting>& settings, std::string_view name) {
  const auto found = std::ranges::find(settings, name, &Setting::name);
  return found == settings.end() ? std::string() : found->value;
}

std::vector<Setting> settings_of(const FitQuestion& q) {
  std::vector<Setting> settings;
  const auto add = [&](std::string_view name, std::string value) {
    const bool given = q.given.find(name) != q.given.end();
    settings.push_back({std::string(name), std::move(value),
                        given ? SettingOrigin::given : SettingOrigin::standard});
  };
  const auto add_switch = [&](std::string_view name, bool value) {
    add(name, value ? "true" : "false");
  };
  add("device", q.device);
  add("batch", std::to_string(q.batch));
  add("seq", std::to_string(q.seq));
  add("dtype", word_of(kDtypes, q.dtype));
  add("mixed-precision", word_of(kMixedPrecisions, q.mixed_precision));
  add("method", method_word(q) + division_words(q));
  if (q.method != Method::full) {
    const bool has_matrices = q.method != Method::ia3;
    if (has_matrices) add("lora-rank", std::to_string(q.lora_rank));
    if (!q.lora_targets.empty()) add("lora-targets", join(q.lora_targets));
    if (!q.ia3_feedforward.empty()) add("ia3-feedforward", join(q.ia3_feedforward));
    if (has_matrices) add("lora-dropout", number_words(q.lora_dropout));
    add("lora-dtype", word_of(kDtypes, q.lora_dtype));
  }
  if (q.stages > 1) add("pipeline-schedule", word_of(kSchedules, q.schedule));
  if (!q.stage_layers.empty()) add("stage-layers", join(q.stage_layers));
  if (q.tensor_ranks > 1 && q.division != Division::gemini) {
    add_switch("sequence-parallel", q.sequence_parallel);
  }
  if (q.expert_ranks > 1) add("expert-imbalance", imbalance_words(q.expert_imbalance));
  if (q.nodes > 1) add("nodes", std::to_string(q.nodes));
  if (!q.link.empty()) add("link", q.link);
  if (q.division == Division::ddp) {
    add("bucket-cap-mb", std::to_string(q.bucket_cap_mb));
    add_switch("gradient-as-bucket-view", q.gradient_as_bucket_view);
    add_switch("find-unused-parameters", q.find_unused_parameters);
  }
  if (q.division == Division::fsdp2 && q.reduce_dtype) {
    add("reduce-dtype", word_of(kDtypes, *q.reduce_dtype));
  }
  if (q.division == Division::fsdp2) {
    add_switch("shard-ends", shards_ends(q));
    add("reshard-after-forward", word_of(kReshards, q.reshards));
  }
  if (is_fsdp(q.division) && q.grad_accum > 1) {
    add_switch("sync-each-batch", syncs_each_batch(q));
  }
  if (is_zero(q.division)) {
    add("reduce-bucket-size", elements_words(q.reduce_bucket_size));
    add_switch("overlap-comm", overlaps_comm(q));
  }
  if (q.division == Division::zero3) {
    for (size_t i = 0; i < kStage3Flags.size(); ++i) {
      add(kStage3Flags[i].name(), elements_words(q.stage3[i]));
    }
  }
  add("optimizer", optimizer_words(q));
  add_switch("optimizer-in-backward", q.optimizer_in_backward);
  add("offload", word_of(kOffloads, q.offload));
  if (!q.freeze.empty()) add("freeze", join(q.freeze));
  add("kernels", word_of(kKernels, q.kernels));
  if (has_bitsandbytes_base(q)) {
    add("kbit-preparation", word_of(kPreparations, q.kbit_preparation));
  }
  if (q.method == Method::gptq_lora) add("gptq-group", std::to_string(q.gptq_group));
  add("checkpointing", checkpointing_word(q.checkpointing));
  if (q.reentrant) add("checkpointing-kind", word_of(kCheckpointKinds, *q.reentrant));
  add("compile", compile_word(q.compile));
  add("float8", word_of(kFloat8s, q.float8));
  add("attention", word_of(kAttentions, q.attention));
  add("loss", word_of(kLosses, q.loss));
  if (q.loss == Loss::chunked_head) add("loss-chunks", std::to_string(q.loss_chunks));
  add_switch("accelerate", q.accelerate);
  add_switch("keep-outputs", q.keep_outputs);
  add_switch("use-cache", q.use_cache);
  add("grad-accum", std::to_string(q.grad_accum));
  if (q.global_batch) add("global-batch", std::to_string(*q.global_batch));
  add("clip", q.clip ? number_words(*q.clip) : "none");
  if (q.classifies) add("task", "sequence-classification");
  if (q.labels) add("labels", std::to_string(*q.labels));
  if (q.decoder_seq) add("decoder-seq", std::to_string(*q.decoder_seq));
  if (q.vocab) add("vocab", std::to_string(*q.vocab));
  add("torch", q.torch);
  add("transformers", q.transformers);
  add("allocator", q.allocator.empty() ? "default" : q.allocator);
  if (!q.assume.empty()) add("assume", q.assume);
  if (!q.calibration.empty()) add("calibration", q.calibration);
  return settings;
}

}  // namespace headroom::fit
