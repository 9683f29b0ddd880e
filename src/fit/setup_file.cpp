#include "fit/setup_file.h"

#include <array>
#include <charconv>

#include "base/file.h"
#include "engines/accelerate.h"
#include "engines/deepspeed.h"
#include "text/block_yaml.h"
#include "text/gzip.h"

namespace headroom::fit {

namespace {

using engines::Half;
using engines::Sharing;
using engines::TrainingSetup;

struct SharingWord {
  Sharing sharing;
  Division division;
  std::string_view word;
};
constexpr std::array kSharings{SharingWord{Sharing::none, Division::none, ""},
                               SharingWord{Sharing::ddp, Division::ddp, "ddp"},
                               SharingWord{Sharing::fsdp1, Division::fsdp1, "fsdp1"},
                               SharingWord{Sharing::fsdp2, Division::fsdp2, "fsdp2"},
                               SharingWord{Sharing::zero1, Division::zero1, "zero1"},
                               SharingWord{Sharing::zero2, Division::zero2, "zero2"}};

std::string_view word_of(Half half) {
  return half == Half::none ? "none" : half == Half::bf16 ? "bf16" : "fp16";
}

std::string number_words(double number) {
  std::array<char, 32> digits{};
  const auto [end, code] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return code == std::errc() ? std::string(digits.data(), end) : std::string();
}

Result<TrainingSetup> read_setup(std::string_view content, const std::string& file) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || content[first] != '{') {
    HEADROOM_ASSIGN(const text::Json root, text::parse_block_yaml(content, file));
    return engines::read_accelerate(text::JsonView(root, file));
  }
  HEADROOM_ASSIGN(const text::Json root, text::parse_json(content, file));
  const text::JsonView view(root, file);
  if (view.has("distributed_type")) return engines::read_accelerate(view);
  return engines::read_deepspeed(view);
}

// "lora,fsdp2:8,replicate:2"
Result<std::string> method_words(const TrainingSetup& setup, const std::string& file,
                                 std::string_view method) {
  std::string words(method);
  for (const SharingWord& entry : kSharings) {
    if (entry.sharing != setup.sharing || entry.word.empty()) continue;
    if (setup.ranks < 2) {
      return Error{ErrorCode::bad_input, "says no number of GPUs", file,
                   "train_batch_size, train_micro_batch_size_per_gpu and "
                   "gradient_accumulation_steps together do; or leave --from out"};
    }
    words +=
        (words.empty() ? "" : ",") + std::string(entry.word) + ":" + std::to_string(setup.ranks);
    if (setup.replicas > 1) words += ",replicate:" + std::to_string(setup.replicas);
  }
  return words;
}

TrainingSetup setup_of(const FitQuestion& q, std::vector<std::string>& by_hand) {
  TrainingSetup setup;
  for (const SharingWord& entry : kSharings) {
    if (entry.division == q.division) setup.sharing = entry.sharing;
  }
  const bool is_zero = q.division == Division::zero1 || q.division == Division::zero2;
  const bool is_fsdp = q.division == Division::fsdp1 || q.division == Division::fsdp2;
  setup.ranks = q.ranks;
  setup.replicas = q.replicas;
  setup.nodes = q.nodes;
  const auto half_of = [](bool bf16, bool fp16) {
    return bf16 ? Half::bf16 : fp16 ? Half::fp16 : Half::none;
  };
  if (is_zero) {
    setup.weights = half_of(q.dtype == Dtype::bf16, q.dtype == Dtype::fp16);
    setup.reduce_bucket_size = q.reduce_bucket_size;
    setup.overlap_comm = q.overlap_comm;
  } else {
    setup.mixed_precision = half_of(q.mixed_precision == MixedPrecision::bf16,
                                    q.mixed_precision == MixedPrecision::fp16);
  }
  setup.batch = q.batch;
  setup.grad_accum = q.grad_accum;
  setup.clip = q.clip;
  const bool is_full = q.checkpointing.kind == CheckpointingKind::full;
  if (is_fsdp && is_full) {
    setup.checkpoints = true;
  } else if (q.checkpointing.kind != CheckpointingKind::none) {
    by_hand.emplace_back("checkpointing");
  }
  return setup;
}

// What only a training script says, where it is not as frameworks have it.
void add_by_hand(const FitQuestion& q, std::string_view kind, std::vector<std::string>& by_hand) {
  constexpr std::array kOfTheScript{
      "batch",     "seq",       "dtype",        "optimizer",
      "attention", "loss",      "kernels",      "optimizer-in-backward",
      "freeze",    "lora-rank", "lora-targets", "lora-dtype"};
  const bool is_accelerate = kind == "accelerate";
  for (const char* flag : kOfTheScript) {
    if (flag == std::string_view("batch") && !is_accelerate) continue;
    if (q.given.contains(flag)) by_hand.emplace_back(flag);
  }
  const bool is_zero = q.division == Division::zero1 || q.division == Division::zero2;
  if (!is_accelerate) return;
  if (q.grad_accum > 1 && !is_zero) by_hand.emplace_back("grad-accum");
  if (q.clip && !is_zero) by_hand.emplace_back("clip");
  for (const char* flag : {"bucket-cap-mb", "gradient-as-bucket-view", "find-unused-parameters",
                           "reduce-bucket-size", "overlap-comm"}) {
    if (q.given.contains(flag)) by_hand.emplace_back(flag);
  }
}

}  // namespace

Result<std::vector<FlagWords>> flags_of_setup(std::string_view content, const std::string& file,
                                              std::string_view method) {
  HEADROOM_ASSIGN(const TrainingSetup setup, read_setup(content, file));
  std::vector<FlagWords> flags;
  HEADROOM_ASSIGN(std::string words, method_words(setup, file, method));
  if (!words.empty()) flags.emplace_back("method", std::move(words));
  if (setup.nodes > 1) flags.emplace_back("nodes", std::to_string(setup.nodes));
  if (setup.mixed_precision) {
    flags.emplace_back("mixed-precision", word_of(*setup.mixed_precision));
    if (setup.is_accelerated && setup.mixed_precision != Half::none) {
      flags.emplace_back("accelerate", "true");
    }
  }
  if (setup.weights) {
    flags.emplace_back("dtype", *setup.weights == Half::none ? "fp32" : word_of(*setup.weights));
  }
  if (setup.checkpoints) flags.emplace_back("checkpointing", *setup.checkpoints ? "full" : "none");
  if (setup.batch) flags.emplace_back("batch", std::to_string(*setup.batch));
  if (setup.grad_accum) flags.emplace_back("grad-accum", std::to_string(*setup.grad_accum));
  if (setup.clip) flags.emplace_back("clip", number_words(*setup.clip));
  if (setup.reduce_bucket_size) {
    flags.emplace_back("reduce-bucket-size", std::to_string(*setup.reduce_bucket_size));
  }
  if (setup.overlap_comm)
    flags.emplace_back("overlap-comm", *setup.overlap_comm ? "true" : "false");
  return flags;
}

Result<EmitRequest> parse_emit(std::string_view words) {
  const size_t equals = words.find('=');
  EmitRequest request{std::string(words.substr(0, equals)), ""};
  if (equals != std::string_view::npos) request.file = words.substr(equals + 1);
  const bool is_accelerate = request.kind == "accelerate";
  if (!is_accelerate && request.kind != "deepspeed") {
    return Error{ErrorCode::usage, "'" + request.kind.substr(0, 40) + "' is nothing to write",
                 "--emit", "accelerate, deepspeed, or accelerate=FILE"};
  }
  if (equals == std::string_view::npos) {
    request.file = is_accelerate ? "accelerate.yaml" : "ds_config.json";
  }
  if (request.file.empty() || request.file == "-") {
    return Error{ErrorCode::usage, "standard output has the answer", "--emit", "name a file"};
  }
  return request;
}

Result<Emitted> emit_setup(const FitQuestion& question, const EmitRequest& request) {
  const bool is_zero = question.division == Division::zero1 || question.division == Division::zero2;
  if (question.tensor_ranks > 1) {
    return Error{ErrorCode::usage, "a file with tensor parallelism is not written yet", "--emit",
                 "from_pretrained(..., distributed_config=DistributedConfig(tp_size=N))"};
  }
  Emitted emitted;
  const TrainingSetup setup = setup_of(question, emitted.by_hand);
  add_by_hand(question, request.kind, emitted.by_hand);
  emitted.kind = request.kind;
  emitted.file = request.file;
  std::string content;
  if (request.kind == "accelerate") {
    if (question.division == Division::fsdp1 && question.replicas > 1) {
      return Error{ErrorCode::usage, "accelerate divides so with FSDP 2 alone", "--emit accelerate",
                   "--method fsdp2:N,replicate:M"};
    }
    content = engines::accelerate_yaml(setup);
    emitted.command = engines::accelerate_line(setup, request.file);
  } else {
    if (!is_zero) {
      return Error{ErrorCode::usage, "DeepSpeed's file is for its ZeRO", "--emit deepspeed",
                   "--method zero1:N or zero2:N; or --emit accelerate"};
    }
    content = engines::deepspeed_json(setup);
    emitted.command = engines::deepspeed_line(setup, request.file);
  }
  HEADROOM_TRY(write_file_atomic(request.file, content));
  return emitted;
}

}  // namespace headroom::fit
