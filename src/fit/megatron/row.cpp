#include "fit/megatron/row.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "fit/measured/measured_row.h"
#include "fit/measured/row_words.h"
#include "fit/megatron/layers.h"
#include "fit/search/methods.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

class MegatronRow {
 public:
  MegatronRow(const text::CsvTable& table, size_t row) : table_(table), row_(row) {}
  [[nodiscard]] std::string_view operator[](std::string_view column) const {
    return table_.at(row_, column);
  }
  // Of sizes and counts: from 1 on, and no more than any machine has.
  Result<int64_t> number(std::string_view column) const {
    const auto value = text::parse_number<int64_t>((*this)[column]);
    if (value && *value >= 1 && *value <= kMost) return *value;
    return unsupported("'" + std::string(column) + "' is no number from 1 on");
  }
  // "24+24", "512 enc / 128 dec": an encoder's and a decoder's.
  Result<std::pair<int64_t, int64_t>> both(std::string_view column) const {
    const std::string_view words = (*this)[column];
    const size_t cut = words.find_first_of("+/");
    const auto first = counted(words.substr(0, cut));
    const auto second =
        cut == std::string_view::npos ? std::nullopt : counted(words.substr(cut + 1));
    if (first && second) return std::pair(*first, *second);
    return unsupported("'" + std::string(column) + "' is not an encoder's and a decoder's number");
  }
  [[nodiscard]] bool is_true(std::string_view column) const { return (*this)[column] == "true"; }
  // Whether the test has these words in its name, which its url holds.
  [[nodiscard]] bool names(std::string_view words) const { return has((*this)["url"], words); }

 private:
  static constexpr int64_t kMost = int64_t{1} << 24;

  // The number that words begin with, behind blanks.
  static std::optional<int64_t> counted(std::string_view words) {
    words.remove_prefix(std::min(words.find_first_not_of(' '), words.size()));
    const size_t end = std::min(words.find_first_not_of("0123456789"), words.size());
    const auto value = text::parse_number<int64_t>(words.substr(0, end));
    return value && *value >= 1 && *value <= kMost ? value : std::nullopt;
  }

  const text::CsvTable& table_;
  size_t row_;
};

// NVIDIA's containers and the PyTorch in them (their release notes); a container newer than these
// is taken to have the newest.
struct Container {
  std::string_view tag;
  std::string_view torch;
};
constexpr std::array kContainers{Container{"24.01", "2.2"}, Container{"25.09", "2.9"},
                                 Container{"26.02", "2.11"}, Container{"26.04", "2.12"},
                                 Container{"26.06", "2.13"}};

std::string_view torch_of(std::string_view container) {
  for (const Container& known : kContainers) {
    if (has(container, known.tag)) return known.torch;
  }
  return kContainers.back().torch;
}

// What is not modelled, by column: the words that are.
struct Modelled {
  std::string_view column;
  std::array<std::string_view, 2> words;  // beside none at all

  [[nodiscard]] bool has(std::string_view word) const {
    return word.empty() || std::ranges::find(words, word) != words.end();
  }
};
constexpr std::array kModelled{
    Modelled{"mtp_layers", {"0"}},
    Modelled{"cpu_offload", {"none"}},
    Modelled{"cuda_graph", {"none"}},
    Modelled{"fsdp", {"none"}},
    Modelled{"hybrid_pattern", {}},
    Modelled{"optimizer", {"adam"}},
    Modelled{"transformer_impl", {"transformer_engine", "local"}},
    Modelled{"loss_fusion", {"none", "native"}},
};

// What is not modelled and no column says: by words of the test's name, whose script has it.
struct NamedUnmodelled {
  std::string_view words;
  std::string_view what;
};
constexpr std::array kNamedUnmodelled{
    NamedUnmodelled{"_gdn", "gated delta networks in the place of attention"},
    NamedUnmodelled{"_dsa", "sparse attention"},
    NamedUnmodelled{"_distill", "a teacher beside the model"},
    NamedUnmodelled{"_a2a_p2p", "context parallelism by all-to-all"},
    NamedUnmodelled{"_tp_overlap", "user buffers of overlapped tensor parallelism"},
    NamedUnmodelled{"_flextron", "Flextron's routers"},
};

Result<void> check(const MegatronRow& row) {
  const std::string_view model = row["model"];
  const bool is_known = model.starts_with("gpt") || model.starts_with("moe") ||
                        model.starts_with("mixtral") || model.starts_with("t5") ||
                        model.starts_with("bert");
  if (!is_known) {
    return unsupported("Megatron-LM's model '" + std::string(model.substr(0, model.find(':'))) +
                       "' is not modelled");
  }
  for (const NamedUnmodelled& named : kNamedUnmodelled) {
    if (row.names(named.words)) {
      return unsupported("Megatron-LM with " + std::string(named.what) + " is not modelled");
    }
  }
  for (const Modelled& modelled : kModelled) {
    const std::string_view word = row[modelled.column];
    if (modelled.has(word)) continue;
    return unsupported("Megatron-LM with " + std::string(modelled.column) + " '" +
                       std::string(word) + "' is not modelled");
  }
  return {};
}

// "hybrid/tensorwise", a format and a recipe; what else is said behind them is not modelled.
Result<void> read_fp8(const MegatronRow& row, model::MegatronFp8& fp8) {
  std::string_view words = row["fp8"];
  if (words.empty() || words == "none") return {};
  for (const std::string_view format : {"e4m3/", "hybrid/"}) {
    if (words.starts_with(format)) fp8.recipe = op::fp8_recipe_of(words.substr(format.size()));
  }
  if (fp8.is_on()) return {};
  return unsupported("Megatron-LM with fp8 '" + std::string(words) + "' is not modelled");
}

// Its scripts say `--spec local` in the place of --transformer-impl.
bool is_local(const MegatronRow& row) {
  return row["transformer_impl"] == "local" || row.names("_local_spec");
}

bool has_encoder(const MegatronRow& row) { return row["model"].starts_with("t5"); }

Result<void> read_sizes(const MegatronRow& row, model::MegatronModel& m) {
  struct Field {
    std::string_view column;
    int64_t* to;
  };
  for (const Field& field : {Field{"hidden", &m.hidden}, Field{"heads", &m.heads},
                             Field{"kv_heads", &m.kv_heads}, Field{"head_dim", &m.head_size},
                             Field{"ffn", &m.inner}, Field{"padded_vocab", &m.padded_vocabulary}}) {
    HEADROOM_ASSIGN(*field.to, row.number(field.column));
  }
  if (has_encoder(row)) {
    HEADROOM_ASSIGN(const auto layers, row.both("layers"));
    std::tie(m.layers, m.decoder_layers) = layers;
  } else {
    HEADROOM_ASSIGN(m.layers, row.number("layers"));
  }
  const std::string_view place = row["position_embedding"];
  if (place == "learned_absolute") {
    HEADROOM_ASSIGN(m.positions, row.number("max_positions"));
  }
  m.rotary = place == "rope";
  m.plain_rotary = row.names("no_fusion") || has(row["notes"], "no-rope-fusion");
  m.interleaved_rotary = row.names("interleaved");
  return {};
}

// "q_lora=192 kv_lora=64 qk=16 rope=8 v=16".
Result<void> read_latent(const MegatronRow& row, model::MegatronModel& m) {
  std::string_view words = row["mla"];
  if (words == "none" || words.empty()) return {};
  model::MegatronLatent& l = m.latent;
  const std::array fields{std::pair{std::string_view("q_lora"), &l.query_rank},
                          std::pair{std::string_view("kv_lora"), &l.key_rank},
                          std::pair{std::string_view("qk"), &l.key_size},
                          std::pair{std::string_view("rope"), &l.rotary_size},
                          std::pair{std::string_view("v"), &l.value_size}};
  for (const auto& [name, to] : fields) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    const size_t equals = std::min(word.find('='), word.size());
    const auto value = text::parse_number<int64_t>(word.substr(std::min(equals + 1, word.size())));
    if (word.substr(0, equals) != name || !value) return unsupported("'mla' is not understood");
    *to = *value;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  l.fused_rotary = m.rotary && !m.plain_rotary;
  return {};
}

Result<void> read_model(const MegatronRow& row, model::MegatronModel& m) {
  HEADROOM_TRY(read_sizes(row, m));
  HEADROOM_TRY(read_latent(row, m));
  HEADROOM_TRY(read_fp8(row, m.fp8));
  std::string_view norm = row["norm"];
  constexpr std::string_view kOfHeads = " +qk_norm";
  const bool norms_heads = norm.ends_with(kOfHeads);
  if (norms_heads) norm.remove_suffix(kOfHeads.size());
  if (norm != "LayerNorm" && norm != "RMSNorm") {
    return unsupported("norm '" + std::string(norm) + "' is not modelled");
  }
  m.rms_norm = norm == "RMSNorm";
  m.latent.norms = norms_heads && m.latent.key_rank > 0;
  m.head_norms = norms_heads && m.latent.key_rank == 0;
  const std::string_view activation = row["activation"];
  m.gated = activation.starts_with("swiglu");
  if (!m.gated && activation != "gelu") {
    return unsupported("activation '" + std::string(activation) + "' is not modelled");
  }
  m.linear_bias = m.qkv_bias = row.is_true("bias_linear");
  m.tied = row.is_true("tied_embeddings");
  const bool drops = row["dropout"].starts_with("hidden=0.1");
  m.hidden_dropout = m.attention_dropout = drops ? 0.1 : 0;
  m.compiled_loss = row["loss_fusion"] == "native";
  m.bert = row["model"].starts_with("bert");
  m.local = is_local(row);
  // --no-masked-softmax-fusion and --apply-query-key-layer-scaling in its script.
  m.fused_softmax = !row.names("_uninstall_te");
  m.scaled_softmax = m.wide_softmax = !m.fused_softmax;
  const std::string_view attention = row["attention_backend"];
  if (attention == "unfused") {
    m.attention = model::MegatronAttention::unfused;
  } else if (attention == "flash") {
    m.attention = model::MegatronAttention::flash;
  } else if (attention == "fused") {
    m.attention = model::MegatronAttention::fused;
  }
  return {};
}

// Every layer a mixture of experts, whose tokens are gathered or sent by all-to-all.
Result<void> read_experts(const MegatronRow& row, MegatronSetting& setting) {
  const std::string_view experts = row["experts"];
  const std::string_view shared = row["shared_expert"];
  const bool has_shared = shared != "none" && !shared.empty();
  if (experts == "none" || experts.empty()) {
    if (!has_shared) return {};
    return unsupported("'shared_expert' of a row whose 'experts' are none");
  }
  model::MegatronModel& m = setting.stage.model;
  model::MegatronRank& r = setting.stage.rank;
  HEADROOM_ASSIGN(m.experts, row.number("experts"));
  HEADROOM_ASSIGN(m.experts_per_token, row.number("topk"));
  HEADROOM_ASSIGN(m.expert_inner, row.number("moe_ffn"));
  HEADROOM_ASSIGN(const int64_t layers, row.number("moe_layers"));
  if (layers != m.layers) return unsupported("Megatron-LM's mixtures beside dense layers");
  HEADROOM_ASSIGN(r.expert, row.number("ep"));
  r.expert_tensor = r.tensor;
  if (!row["etp"].empty()) {
    HEADROOM_ASSIGN(r.expert_tensor, row.number("etp"));
  }
  if (has_shared) {
    HEADROOM_ASSIGN(m.shared_inner, row.number("shared_expert"));
  }
  m.grouped_experts = has(row["moe_dispatcher"], "grouped_gemm");
  HEADROOM_ASSIGN(setting.data.expert_ranks, row.number("expert_dp"));
  return {};
}

Result<void> read_rank(const MegatronRow& row, MegatronSetting& setting) {
  model::MegatronRank& r = setting.stage.rank;
  HEADROOM_ASSIGN(r.tensor, row.number("tp"));
  HEADROOM_ASSIGN(r.pipeline, row.number("pp"));
  HEADROOM_ASSIGN(r.context, row.number("cp"));
  int64_t layers = setting.stage.model.layers;
  if (!has_encoder(row)) {
    HEADROOM_ASSIGN(layers, row.number("last_stage_layers"));
  }
  HEADROOM_ASSIGN(const int64_t chunks, row.number("vpp"));
  HEADROOM_TRY(check_passes(r.pipeline, chunks, layers));
  r.chunk_layers.assign(static_cast<size_t>(chunks), (layers + chunks - 1) / chunks);
  // The loss counts as a layer (--account-for-loss-in-pipeline-split).
  if (chunks > 1 && layers % chunks == chunks - 1) --r.chunk_layers.back();
  if (r.layers() != layers) return unsupported("chunks of different sizes");
  r.stage = r.pipeline - 1;
  r.sequence_parallel = row.is_true("sequence_parallel");
  r.mask_from_loader = !row.names("_no_create_attention_mask") && !row.names("_reruns_");
  r.fused_accumulation = row.is_true("grad_accum_fusion");
  step::MegatronOptions& data = setting.data;
  HEADROOM_ASSIGN(const int64_t data_parallel, row.number("dp"));
  data.data_ranks = data_parallel * r.context;
  data.distributed_optimizer = row.is_true("dist_opt");
  if (!row["dist_opt_instances"].empty()) {
    HEADROOM_ASSIGN(data.instances, row.number("dist_opt_instances"));
  }
  data.overlap_grad_reduce = row.is_true("overlap_grad_reduce");
  data.overlap_param_gather = row.is_true("overlap_param_gather");
  data.gradients = row.is_true("grad_reduce_in_fp32") || row["weights_dtype"] == "fp32"
                       ? op::DType::f32
                   : row["weights_dtype"] == "fp16" ? op::DType::f16
                                                    : op::DType::bf16;
  data.shares_embedding = setting.stage.model.tied && r.pipeline > 1;
  HEADROOM_ASSIGN(setting.micro_batches, row.number("num_micro_batches"));
  // --microbatch-group-size-per-virtual-pipeline-stage of gpt3_mcore_te_tp1_pp4_vp1_tunable_overlap
  // (tests/functional_tests/test_cases/gpt; Megatron-LM at 18acdf15): no column says it.
  constexpr int64_t kTunableGroup = 5;
  if (r.chunks() > 1 && row.names("_tunable_overlap")) r.group = kTunableGroup;
  const int64_t group = r.group > 0 ? r.group : r.pipeline;
  if (r.chunks() > 1 && setting.micro_batches % group != 0) {
    return unsupported("interleaved micro-batches that are no multiple of " +
                       std::to_string(group) + ", which go through a chunk at a time");
  }
  HEADROOM_TRY(read_experts(row, setting));
  if (data.data_ranks % data.instances != 0) {
    return unsupported("instances of the optimizer that do not divide the data parallel ranks");
  }
  setting.stage.model.deterministic = row.is_true("deterministic");
  // NVIDIA's container of January 2024 brings flash-attn 2.0.
  setting.old_flash_attention = has(row["container"], "24.01");
  if (row["cublas_workspace"] == ":4096:8") {
    setting.blas_workspace_bytes = int64_t{4096} * 8 * 1024;
  }
  return {};
}

// Each rank is one of tensor, context and data parallel ranks, and of a stage's.
Result<void> check_world(int64_t world, const MegatronSetting& setting) {
  const model::MegatronRank& rank = setting.stage.rank;
  const auto stage = checked_multiply(rank.tensor, setting.data.data_ranks);
  const auto all = stage ? checked_multiply(*stage, rank.pipeline) : std::nullopt;
  if (!all || *all != world || world > kMostGpus) {
    return unsupported("'world_size' is not tp x pp x cp x dp, or beyond " +
                       std::to_string(kMostGpus));
  }
  if (setting.stage.model.experts == 0) return {};
  int64_t experts = rank.pipeline;
  for (const int64_t ranks : {rank.expert, rank.expert_tensor, setting.data.expert_ranks}) {
    experts = checked_multiply(experts, ranks).value_or(0);
  }
  if (experts == world) return {};
  return unsupported("'world_size' is not ep x etp x expert_dp x pp");
}

Result<void> read_recomputation(const MegatronRow& row, FitQuestion& q) {
  const std::string_view granularity = row["recompute_granularity"];
  if (granularity == "none" || granularity.empty()) return {};
  if (granularity == "selective" &&
      (row["recompute_modules"].empty() || row["recompute_modules"] == "core_attn")) {
    return q.set("checkpointing", "selective");
  }
  const bool is_every_layer = granularity == "full" && row["recompute_method"] == "uniform" &&
                              row["recompute_num_layers"] == "1";
  if (!is_every_layer) {
    return unsupported("Megatron-LM with recompute_granularity '" + std::string(granularity) +
                       "' is not modelled but for every layer");
  }
  return q.set("checkpointing", "full");
}

}  // namespace

bool is_megatron_row(const text::CsvTable& table, size_t row) {
  return table.at(row, "framework").starts_with("Megatron-LM");
}

Result<FitQuestion> megatron_question_of(const text::CsvTable& table, size_t index) {
  const MegatronRow row(table, index);
  HEADROOM_TRY(check(row));
  FitQuestion q;
  q.search = false;
  q.model = row["model"];
  q.device = row["gpu"];
  MegatronSetting setting;
  HEADROOM_TRY(read_model(row, setting.stage.model));
  HEADROOM_TRY(read_rank(row, setting));
  HEADROOM_ASSIGN(setting.stage.micro_batch, row.number("micro_batch"));
  if (has_encoder(row)) {
    HEADROOM_ASSIGN(const auto sequences, row.both("seq_len"));
    std::tie(setting.stage.sequence, setting.stage.decoder_sequence) = sequences;
  } else {
    HEADROOM_ASSIGN(setting.stage.sequence, row.number("seq_len"));
  }
  q.batch = setting.stage.micro_batch;
  q.seq = setting.stage.sequence;
  q.grad_accum = setting.micro_batches;
  HEADROOM_ASSIGN(q.ranks, row.number("world_size"));
  HEADROOM_TRY(check_world(q.ranks, setting));
  HEADROOM_TRY(read_recomputation(row, q));
  HEADROOM_TRY(q.set("dtype", row["weights_dtype"]));
  HEADROOM_TRY(q.set("torch", torch_of(row["container"])));
  q.megatron = std::move(setting);
  return q;
}

}  // namespace headroom::fit
