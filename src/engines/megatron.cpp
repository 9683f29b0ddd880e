#include "engines/megatron.h"

#include <algorithm>
#include <array>
#include <map>

#include "text/parse_number.h"

namespace headroom::engines {

namespace {

constexpr int64_t kMost = int64_t{1} << 31;
constexpr size_t kMostWords = 100'000;

bool is_name(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

// Words of a script: what blanks, quotes, brackets and line ends leave; comments go.
std::vector<std::string> words_of(std::string_view content) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  bool in_comment = false;
  for (const char c : content) {
    if (c == '\n') in_comment = false;
    if (in_comment) continue;
    if (c == '#' && word.empty()) {
      in_comment = true;
      continue;
    }
    const bool ends = c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '"' || c == '\'' ||
                      c == '(' || c == ')' || c == '\\' || c == ';' || c == ',';
    if (ends) {
      end();
    } else {
      word += c;
    }
    if (words.size() > kMostWords) return words;
  }
  end();
  return words;
}

// NAME=value of a script, where the value is a plain word.
std::map<std::string, std::string, std::less<>> names_of(const std::vector<std::string>& words) {
  std::map<std::string, std::string, std::less<>> names;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || word.starts_with('-')) continue;
    if (!std::ranges::all_of(word.substr(0, equals), is_name)) continue;
    names[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return names;
}

// Arguments with the values behind them; a switch has none.
class Arguments {
 public:
  Arguments(std::string_view content, std::string file) : file_(std::move(file)) {
    const std::vector<std::string> words = words_of(content);
    names_ = names_of(words);
    for (size_t i = 0; i < words.size(); ++i) {
      std::string name = words[i];
      if (!name.starts_with("--") || name.size() < 3) continue;
      name.erase(0, 2);
      std::string value;
      if (const size_t equals = name.find('='); equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      } else if (i + 1 < words.size() && !words[i + 1].starts_with("--")) {
        value = words[i + 1];
      }
      if (name.ends_with(':')) name.pop_back();  // YAML
      std::ranges::replace(name, '_', '-');
      values_[std::move(name)] = std::move(value);
    }
  }

  // As it is written, names put in; nothing where it is not there.
  Result<std::optional<std::string>> words(std::string_view name) {
    seen_.emplace_back(name);
    const auto at = values_.find(name);
    if (at == values_.end()) return std::optional<std::string>();
    HEADROOM_ASSIGN(std::string value, resolved(at->second, name));
    return std::optional<std::string>(std::move(value));
  }

  Result<std::optional<int64_t>> number(std::string_view name, int64_t least = 1) {
    HEADROOM_ASSIGN(const auto value, words(name));
    if (!value) return std::optional<int64_t>();
    const auto parsed = text::parse_number<int64_t>(*value);
    if (!parsed || *parsed < least || *parsed > kMost) {
      return Error{ErrorCode::bad_input,
                   "--" + std::string(name) + " is '" + value->substr(0, 60) + "'", file_,
                   "a whole number from " + std::to_string(least) + " on"};
    }
    return parsed;
  }

  Result<void> take(std::string_view name, int64_t& to, int64_t least = 1) {
    HEADROOM_ASSIGN(const auto value, number(name, least));
    if (value) to = *value;
    return {};
  }

  Result<void> take(std::string_view name, double& to) {
    HEADROOM_ASSIGN(const auto value, words(name));
    if (!value) return {};
    const auto parsed = text::parse_number<double>(*value);
    if (!parsed || !(*parsed >= 0) || !(*parsed < 1)) {
      return Error{ErrorCode::bad_input,
                   "--" + std::string(name) + " is '" + value->substr(0, 60) + "'", file_,
                   "from 0 to below 1"};
    }
    to = *parsed;
    return {};
  }

  // A switch; in YAML it has a value.
  bool is_on(std::string_view name) {
    seen_.emplace_back(name);
    const auto at = values_.find(name);
    return at != values_.end() && at->second != "false" && at->second != "False";
  }

  [[nodiscard]] const std::string& file() const { return file_; }

  [[nodiscard]] std::vector<std::string> unseen() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : values_) {
      if (std::ranges::find(seen_, name) == seen_.end()) names.push_back("--" + name);
    }
    return names;
  }

 private:
  // $NAME, ${NAME} and ${NAME:-else}.
  Result<std::string> resolved(const std::string& value, std::string_view name) const {
    if (!value.starts_with('$')) return value;
    std::string inner = value.substr(1);
    std::string otherwise;
    if (inner.starts_with('{') && inner.ends_with('}')) {
      inner = inner.substr(1, inner.size() - 2);
      if (const size_t colon = inner.find(":-"); colon != std::string::npos) {
        otherwise = inner.substr(colon + 2);
        inner.resize(colon);
      }
    }
    const auto at = names_.find(inner);
    if (at != names_.end() && !at->second.starts_with('$')) return at->second;
    if (at != names_.end() && at->second.find(":-") != std::string::npos) {
      const std::string& text = at->second;  // NAME=${NAME:-else}
      const size_t begin = text.find(":-") + 2;
      return text.substr(begin, text.find('}', begin) - begin);
    }
    if (!otherwise.empty()) return otherwise;
    return Error{ErrorCode::bad_input,
                 "--" + std::string(name) + " is '" + value.substr(0, 60) +
                     "', which the file does not give",
                 file_, "write the number"};
  }

  std::string file_;
  std::map<std::string, std::string, std::less<>> names_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> seen_;
};

// Arguments that change memory, and are not modelled.
constexpr std::array<std::string_view, 25> kNotModelled{"recompute-activations",
                                                        "num-experts",
                                                        "fp8-format",
                                                        "fp8",
                                                        "fp4-format",
                                                        "multi-latent-attention",
                                                        "num-layers-per-virtual-pipeline-stage",
                                                        "num-virtual-stages-per-pipeline-rank",
                                                        "decoder-first-pipeline-num-layers",
                                                        "decoder-last-pipeline-num-layers",
                                                        "pipeline-model-parallel-layout",
                                                        "use-megatron-fsdp",
                                                        "use-torch-fsdp2",
                                                        "cuda-graph-impl",
                                                        "enable-cuda-graph",
                                                        "optimizer-cpu-offload",
                                                        "cpu-offloading-num-layers",
                                                        "mtp-num-layers",
                                                        "hybrid-layer-pattern",
                                                        "hybrid-override-pattern",
                                                        "cross-entropy-loss-fusion",
                                                        "use-precision-aware-optimizer",
                                                        "fp32-residual-connection",
                                                        "apply-residual-connection-post-layernorm",
                                                        "qk-layernorm"};

Result<void> check_modelled(Arguments& in) {
  for (const std::string_view name : kNotModelled) {
    if (!in.is_on(name)) continue;
    return Error{ErrorCode::bad_input, "--" + std::string(name) + " is not modelled", in.file(),
                 "leave it out to see the rest; docs/formats/setup_files.md lists what is"};
  }
  HEADROOM_ASSIGN(const auto implementation, in.words("transformer-impl"));
  if (implementation && *implementation != "transformer_engine") {
    return Error{ErrorCode::bad_input, "--transformer-impl " + *implementation + " is not modelled",
                 in.file(), "transformer_engine is"};
  }
  return {};
}

Result<void> read_sizes(Arguments& in, MegatronArguments& a) {
  struct Needed {
    std::string_view name;
    int64_t* to;
  };
  for (const Needed& needed :
       {Needed{"num-layers", &a.layers}, Needed{"hidden-size", &a.hidden},
        Needed{"num-attention-heads", &a.heads}, Needed{"seq-length", &a.sequence}}) {
    HEADROOM_TRY(in.take(needed.name, *needed.to));
    if (*needed.to > 0) continue;
    return Error{ErrorCode::bad_input, "has no --" + std::string(needed.name), in.file(),
                 "name the file that holds Megatron-LM's arguments for the model"};
  }
  a.swiglu = in.is_on("swiglu");
  a.query_groups = a.heads;
  if (in.is_on("group-query-attention")) {
    a.query_groups = 1;
    HEADROOM_TRY(in.take("num-query-groups", a.query_groups));
  }
  a.kv_channels = a.hidden / a.heads;
  HEADROOM_TRY(in.take("kv-channels", a.kv_channels));
  constexpr int64_t kGatedMultiple = 64;
  a.ffn = a.swiglu ? a.hidden * 8 / 3 / kGatedMultiple * kGatedMultiple : 4 * a.hidden;
  HEADROOM_TRY(in.take("ffn-hidden-size", a.ffn));
  HEADROOM_TRY(in.take("max-position-embeddings", a.positions));
  HEADROOM_ASSIGN(a.vocabulary, in.number("vocab-size"));
  HEADROOM_TRY(in.take("make-vocab-size-divisible-by", a.vocabulary_multiple));
  HEADROOM_ASSIGN(const auto tokenizer, in.words("tokenizer-type"));
  constexpr int64_t kGpt2Vocabulary = 50'257;
  if (!a.vocabulary && tokenizer == "GPT2BPETokenizer") a.vocabulary = kGpt2Vocabulary;
  return {};
}

Result<void> read_model(Arguments& in, MegatronArguments& a) {
  HEADROOM_TRY(read_sizes(in, a));
  HEADROOM_ASSIGN(const auto norm, in.words("normalization"));
  a.rms_norm = norm == "RMSNorm";
  a.linear_bias = !in.is_on("disable-bias-linear");
  a.qkv_bias = in.is_on("add-qkv-bias");
  a.tied = !in.is_on("untie-embeddings-and-output-weights");
  HEADROOM_ASSIGN(const auto position, in.words("position-embedding-type"));
  a.rotary = position == "rope" || in.is_on("use-rotary-position-embeddings");
  if (position && !a.rotary && *position != "learned_absolute" && *position != "none") {
    return Error{ErrorCode::bad_input,
                 "--position-embedding-type " + *position + " is not modelled", in.file(),
                 "learned_absolute, rope or none"};
  }
  if (a.rotary || position == "none") a.positions = 0;
  HEADROOM_TRY(in.take("hidden-dropout", a.hidden_dropout));
  HEADROOM_TRY(in.take("attention-dropout", a.attention_dropout));
  HEADROOM_ASSIGN(const auto backend, in.words("attention-backend"));
  if (backend) a.attention_backend = *backend;
  if (!backend && in.is_on("use-flash-attn")) a.attention_backend = "flash";
  a.deterministic = in.is_on("deterministic-mode");
  a.type = in.is_on("bf16") ? "bf16" : in.is_on("fp16") ? "fp16" : "fp32";
  return {};
}

Result<void> read_recomputation(Arguments& in, MegatronArguments& a) {
  HEADROOM_ASSIGN(const auto granularity, in.words("recompute-granularity"));
  HEADROOM_ASSIGN(const auto method, in.words("recompute-method"));
  int64_t layers = 1;
  HEADROOM_TRY(in.take("recompute-num-layers", layers));
  if (!granularity) return {};
  a.recomputes_layers = *granularity == "full" && method == "uniform" && layers == 1;
  if (a.recomputes_layers) return {};
  return Error{ErrorCode::bad_input, "--recompute-granularity " + *granularity + " is not modelled",
               in.file(),
               "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
               "is"};
}

Result<void> read_division(Arguments& in, MegatronArguments& a) {
  HEADROOM_TRY(in.take("micro-batch-size", a.micro_batch));
  HEADROOM_ASSIGN(a.global_batch, in.number("global-batch-size"));
  HEADROOM_TRY(in.take("tensor-model-parallel-size", a.tensor_ranks));
  HEADROOM_TRY(in.take("pipeline-model-parallel-size", a.stages));
  HEADROOM_TRY(in.take("context-parallel-size", a.context_ranks));
  // validate_args switches it off where there is nothing to share.
  a.sequence_parallel = in.is_on("sequence-parallel") && a.tensor_ranks > 1;
  a.distributed_optimizer = in.is_on("use-distributed-optimizer");
  HEADROOM_TRY(in.take("num-distributed-optimizer-instances", a.optimizer_instances));
  a.overlap_grad_reduce = in.is_on("overlap-grad-reduce");
  a.gradients_in_half = in.is_on("grad-reduce-in-bf16");
  a.fused_accumulation = !in.is_on("no-gradient-accumulation-fusion");
  a.mask_from_loader = !in.is_on("no-create-attention-mask-in-dataloader");
  for (const char* name : {"nproc-per-node", "nproc"}) {
    HEADROOM_ASSIGN(const auto ranks, in.number(name));
    if (ranks) a.ranks_per_node = ranks;
  }
  HEADROOM_ASSIGN(a.nodes, in.number("nnodes"));
  return read_recomputation(in, a);
}

}  // namespace

bool has_megatron_arguments(std::string_view content) {
  return content.find("--num-layers") != std::string_view::npos &&
         content.find("--hidden-size") != std::string_view::npos;
}

Result<MegatronArguments> read_megatron_arguments(std::string_view content,
                                                  const std::string& file) {
  Arguments in(content, file);
  MegatronArguments arguments;
  HEADROOM_TRY(check_modelled(in));
  HEADROOM_TRY(read_model(in, arguments));
  HEADROOM_TRY(read_division(in, arguments));
  arguments.not_looked_at = in.unseen();
  return arguments;
}

}  // namespace headroom::engines
