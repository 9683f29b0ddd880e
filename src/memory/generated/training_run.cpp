#include "memory/generated/training_run.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "base/check.h"

namespace headroom::memory::generated {
namespace {

constexpr int64_t kHalf = 2;    // bytes of a bf16 number
constexpr int64_t kSingle = 4;  // of an fp32 number
constexpr int64_t kToken = 8;   // of a token's id
constexpr uint32_t kCompute = 0;
constexpr uint32_t kCommunication = 1;
constexpr uint32_t kUsedByCommunication = 12;  // events

using Buffer = uint32_t;

// What a layer's forward leaves for its backward.
struct LayerState {
  int64_t layer = 0;
  std::vector<Buffer> saved;
  std::vector<int64_t> expert_tokens;
  std::vector<Buffer> away;  // what was saved and lies in host memory
};

// One micro-batch on its way through one chunk of the model.
struct InFlight {
  int64_t tokens = 0;
  std::vector<Buffer> head;  // inputs, and logits where this rank has them
  std::vector<LayerState> layers;
};

class Program {
 public:
  explicit Program(const TrainingShape& shape)
      : shape_(shape), lengths_(shape.seed), routing_(shape.seed * 1000 + shape.rank) {
    HEADROOM_CHECK(shape.rank < shape.stages && shape.layers % shape.model_chunks == 0,
                   "a shape of a training run that does not fit together");
    run_.labels.emplace_back();
  }

  TrainingRun run() {
    setup();
    for (iteration_ = 0; iteration_ < shape_.iterations; ++iteration_) {
      run_.iterations.push_back(run_.trace.events.size());
      pass();
      optimize();
      const bool is_due =
          shape_.evaluate_every > 0 && (iteration_ + 1) % shape_.evaluate_every == 0;
      if (is_due) evaluate();
    }
    return std::move(run_);
  }

 private:
  // --- requests ---
  Buffer make(int64_t bytes, const std::string& what, bool varies, uint32_t stream = kCompute) {
    BufferInfo info;
    info.requested_bytes = bytes;
    info.stream = stream;
    info.label = label(what);
    run_.varies.push_back(varies);
    run_.release_delay.push_back(0);
    return run_.trace.alloc(info, 0);
  }
  void release(Buffer buffer) { run_.trace.free(buffer, 0); }
  void release_all(std::vector<Buffer>& buffers) {
    for (; !buffers.empty(); buffers.pop_back()) release(buffers.back());
  }
  uint32_t label(const std::string& what) {
    const auto [at, is_new] =
        label_ids_.try_emplace(what, static_cast<uint32_t>(run_.labels.size()));
    if (is_new) run_.labels.push_back(what);
    return at->second;
  }
  void begin(RunPhase phase, int64_t micro_batch = 0, int64_t chunk = 0) {
    run_.phases.push_back({phase, iteration_, micro_batch, chunk, run_.trace.events.size()});
  }
  static std::string in_layer(int64_t layer, const char* what) {
    return "layer " + std::to_string(layer) + ": " + what;
  }

  // --- what lives throughout ---
  [[nodiscard]] bool has_embedding() const { return shape_.rank == 0; }
  [[nodiscard]] bool has_head() const { return shape_.rank == shape_.stages - 1; }
  // Elements of every parameter, in their order.
  [[nodiscard]] std::vector<std::pair<std::string, int64_t>> parameters() const {
    const int64_t h = shape_.hidden;
    std::vector<std::pair<std::string, int64_t>> all;
    if (has_embedding()) all.emplace_back("embedding", shape_.vocabulary * h);
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      all.emplace_back(in_layer(layer, "norm"), h);
      all.emplace_back(in_layer(layer, "attention in"), 3 * h * h);
      all.emplace_back(in_layer(layer, "attention out"), h * h);
      if (shape_.experts > 0) all.emplace_back(in_layer(layer, "router"), h * shape_.experts);
      const int64_t mlps = std::max<int64_t>(1, shape_.experts);
      for (int64_t i = 0; i < mlps; ++i) {
        all.emplace_back(in_layer(layer, "mlp in"), 2 * h * intermediate());
        all.emplace_back(in_layer(layer, "mlp out"), h * intermediate());
      }
    }
    if (has_head()) all.emplace_back("lm_head", shape_.vocabulary * h);
    return all;
  }
  // Of an expert a quarter of the dense one.
  [[nodiscard]] int64_t intermediate() const {
    return shape_.experts > 0 ? shape_.hidden * 2 / 3 : shape_.hidden * 8 / 3;
  }
  void setup() {
    begin(RunPhase::setup);
    for (const auto& [name, elements] : parameters()) {
      make(elements * kHalf, name + ": weight", false);
    }
  }

  // --- one layer ---
  // Tokens that each expert gets; some get none.
  std::vector<int64_t> route(int64_t tokens) {
    std::vector<int64_t> weights(static_cast<size_t>(shape_.experts));
    int64_t sum = 0;
    for (int64_t& weight : weights) {
      const auto draw = static_cast<int64_t>(routing_() % 1000);
      weight = draw < 50 ? 0 : draw;
      sum += weight;
    }
    for (int64_t& weight : weights) {
      weight = weight * tokens * shape_.experts_per_token / std::max<int64_t>(sum, 1);
    }
    return weights;
  }
  [[nodiscard]] bool lengths_vary() const { return shape_.shortest_sequence > 0; }

  // Keeps nothing where `keeps` is false.
  void layer_forward(LayerState& state, int64_t tokens, bool keeps) {
    const int64_t row = tokens * shape_.hidden * kHalf;
    const auto tensor = [&](const char* what, int64_t bytes) {
      const Buffer made = make(bytes, in_layer(state.layer, what), lengths_vary());
      state.saved.push_back(made);
      return made;
    };
    const auto scratch = [&](const char* what, int64_t bytes) {
      release(make(bytes, in_layer(state.layer, what), lengths_vary()));
    };
    tensor("norm", row);
    tensor("norm statistics", tokens * kSingle);
    tensor("attention in", 3 * row);
    scratch("attention scratch", row / 2 + 4096);
    tensor("attention", row);
    tensor("attention log-sum", tokens * 16 * kSingle);
    tensor("attention out", row);
    tensor("second norm", row);
    if (shape_.experts > 0) {
      experts_forward(state, tokens);
    } else {
      const int64_t wide = tokens * intermediate() * kHalf;
      tensor("mlp gate", wide);
      tensor("mlp up", wide);
      scratch("mlp product", wide);
      tensor("mlp activation", wide);
    }
    tensor("mlp out", row);
    if (!keeps) release_all(state.saved);
  }

  void experts_forward(LayerState& state, int64_t tokens) {
    state.saved.push_back(
        make(tokens * shape_.experts * kSingle, in_layer(state.layer, "router"), lengths_vary()));
    for (const int64_t routed : state.expert_tokens) {
      if (routed == 0) continue;
      const auto tensor = [&](const char* what, int64_t width) {
        state.saved.push_back(make(routed * width * kHalf, in_layer(state.layer, what), true));
      };
      tensor("expert in", shape_.hidden);
      tensor("expert activation", 2 * intermediate());
      tensor("expert out", shape_.hidden);
    }
  }

  // Copied behind the next layer's forward, and back before the backward of the one after it.
  void offload(LayerState& state) {
    state.away = std::move(state.saved);
    state.saved.clear();
    for (const Buffer saved : state.away) {
      run_.release_delay[saved] = kUsedByCommunication;
      release(saved);
    }
  }
  void fetch(LayerState& state) {
    for (const Buffer away : std::exchange(state.away, {})) {
      const int64_t bytes = run_.trace.buffers[away].requested_bytes;
      const Buffer fetched =
          make(bytes, in_layer(state.layer, "fetched"), run_.varies[away], kCommunication);
      run_.release_delay[fetched] = kUsedByCommunication;
      state.saved.push_back(fetched);
    }
  }

  void layer_backward(LayerState& state, int64_t tokens, bool is_first) {
    Buffer gradient = make(tokens * shape_.hidden * kHalf,
                           in_layer(state.layer, "gradient of the output"), lengths_vary());
    if (shape_.recomputes) {
      // What the forward kept is the input alone; it is let go after the second forward.
      LayerState again{state.layer, {}, state.expert_tokens, {}};
      layer_forward(again, tokens, true);
      state.saved.insert(state.saved.end(), again.saved.begin(), again.saved.end());
    }
    while (!state.saved.empty()) {
      const Buffer saved = state.saved.back();
      state.saved.pop_back();
      const BufferInfo info = run_.trace.buffers[saved];
      const Buffer next =
          make(info.requested_bytes, in_layer(state.layer, "gradient"), run_.varies[saved]);
      release(saved);
      release(gradient);
      gradient = next;
    }
    release(gradient);
    parameter_gradients(state.layer, is_first);
  }

  // The first micro-batch's stay, later ones are added to them.
  void parameter_gradients(int64_t layer, bool is_first) {
    const std::string prefix = in_layer(layer, "");
    for (const auto& [name, elements] : parameters()) {
      if (name.starts_with(prefix)) parameter_gradient(name, elements, is_first);
    }
  }
  void parameter_gradient(const std::string& name, int64_t elements, bool is_first) {
    const Buffer made = make(elements * kHalf, name + ": gradient", false);
    if (is_first && !has_gradients_) {
      gradients_.push_back(made);
    } else {
      release(made);
    }
  }

  // --- one micro-batch ---
  [[nodiscard]] int64_t tokens_of(int64_t micro_batch) {
    const auto known = drawn_.find(micro_batch);
    if (known != drawn_.end()) return known->second;
    int64_t length = shape_.sequence;
    if (lengths_vary()) {
      const int64_t choices =
          (shape_.sequence - shape_.shortest_sequence) / shape_.sequence_step + 1;
      length = shape_.shortest_sequence +
               shape_.sequence_step * static_cast<int64_t>(lengths_() % choices);
    }
    return drawn_[micro_batch] = length * shape_.batch;
  }

  InFlight chunk_forward(int64_t micro_batch, int64_t chunk, bool keeps) {
    InFlight state;
    state.tokens = tokens_of(micro_batch);
    const bool is_first_chunk = has_embedding() && chunk == 0;
    const int64_t row = state.tokens * shape_.hidden * kHalf;
    if (is_first_chunk) {
      state.head.push_back(make(state.tokens * kToken, "tokens", lengths_vary()));
      state.head.push_back(make(row, "embedding", lengths_vary()));
    } else {
      const uint32_t stream = shape_.communicates ? kCommunication : kCompute;
      state.head.push_back(make(row, "received from the stage before", lengths_vary(), stream));
    }
    const int64_t layers = shape_.layers / shape_.model_chunks;
    for (int64_t layer = chunk * layers; layer < (chunk + 1) * layers; ++layer) {
      state.layers.push_back({layer, {}, {}, {}});
      LayerState& made = state.layers.back();
      if (shape_.experts > 0) made.expert_tokens = route(state.tokens);
      if (keeps && shape_.recomputes) {
        LayerState gone = made;
        made.saved.push_back(make(row, in_layer(layer, "input"), lengths_vary()));
        layer_forward(gone, state.tokens, false);
      } else {
        layer_forward(made, state.tokens, keeps);
      }
      const size_t count = state.layers.size();
      if (keeps && shape_.offloads && count > 1) offload(state.layers[count - 2]);
    }
    if (is_last_chunk(chunk)) {
      const int64_t logits = state.tokens * shape_.vocabulary;
      state.head.push_back(make(logits * kHalf, "logits", lengths_vary()));
      state.head.push_back(make(logits * kSingle, "logits in fp32", lengths_vary()));
    } else {
      send(row, "sent to the stage after");
    }
    return state;
  }
  [[nodiscard]] bool is_last_chunk(int64_t chunk) const {
    return has_head() && chunk == shape_.model_chunks - 1;
  }
  // Made here, used there: released at once, complete when the other stream is done with it.
  void send(int64_t bytes, const char* what) {
    const Buffer sent = make(bytes, what, lengths_vary());
    if (shape_.communicates) run_.release_delay[sent] = kUsedByCommunication;
    release(sent);
  }

  void chunk_backward(InFlight state, int64_t chunk, bool is_first) {
    const int64_t row = state.tokens * shape_.hidden * kHalf;
    if (is_last_chunk(chunk)) {
      const int64_t logits = state.tokens * shape_.vocabulary;
      const Buffer gradient = make(logits * kSingle, "gradient of the logits", lengths_vary());
      release(state.head.back());
      state.head.pop_back();
      release(state.head.back());
      state.head.pop_back();
      parameter_gradient("lm_head", shape_.vocabulary * shape_.hidden, is_first);
      release(gradient);
    }
    for (size_t i = state.layers.size(); i-- > 0;) {
      if (i > 0) fetch(state.layers[i - 1]);
      layer_backward(state.layers[i], state.tokens, is_first);
    }
    if (has_embedding() && chunk == 0) {
      parameter_gradient("embedding", shape_.vocabulary * shape_.hidden, is_first);
    } else {
      send(row, "gradient sent to the stage before");
    }
    release_all(state.head);
  }

  // --- one iteration ---
  // Micro-batch and chunk of the k-th forward of this rank; of the k-th backward with the chunks in
  // reverse. Interleaved pipelines go round the chunks in groups of as many micro-batches as there
  // are stages (Megatron-LM's schedule).
  [[nodiscard]] std::pair<int64_t, int64_t> at(int64_t k, bool is_forward) const {
    const int64_t group = std::min(shape_.stages, shape_.micro_batches);
    const int64_t chunks = shape_.model_chunks;
    const int64_t full_groups = shape_.micro_batches / group;
    const int64_t of_full = full_groups * group * chunks;
    const int64_t width = k < of_full ? group : shape_.micro_batches - full_groups * group;
    const int64_t round = k < of_full ? k / (group * chunks) : full_groups;
    const int64_t within = k - round * group * chunks;
    const int64_t chunk = within / width;
    return {round * group + within % width, is_forward ? chunk : chunks - 1 - chunk};
  }
  [[nodiscard]] int64_t forwards_ahead() const {
    const int64_t behind = shape_.stages - shape_.rank - 1;
    const int64_t chunks = shape_.model_chunks;
    const int64_t ahead = chunks == 1 ? behind : 2 * behind + (chunks - 1) * shape_.stages;
    return std::min(ahead, shape_.micro_batches * chunks);
  }

  void pass() {
    drawn_.clear();
    std::map<std::pair<int64_t, int64_t>, InFlight> in_flight;
    std::vector<bool> is_begun(static_cast<size_t>(shape_.model_chunks));
    const int64_t count = shape_.micro_batches * shape_.model_chunks;
    const auto forward = [&](int64_t k) {
      const auto [micro_batch, chunk] = at(k, true);
      begin(RunPhase::forward, micro_batch, chunk);
      in_flight[{micro_batch, chunk}] = chunk_forward(micro_batch, chunk, true);
    };
    const auto backward = [&](int64_t k) {
      const auto [micro_batch, chunk] = at(k, false);
      begin(RunPhase::backward, micro_batch, chunk);
      const auto found = in_flight.find({micro_batch, chunk});
      HEADROOM_CHECK(found != in_flight.end(), "a backward before its forward");
      const bool is_first = !is_begun[static_cast<size_t>(chunk)];
      is_begun[static_cast<size_t>(chunk)] = true;
      chunk_backward(std::move(found->second), chunk, is_first);
      in_flight.erase(found);
    };
    const int64_t ahead = forwards_ahead();
    for (int64_t k = 0; k < ahead; ++k) forward(k);
    for (int64_t k = 0; k < count; ++k) {
      if (k + ahead < count) forward(k + ahead);
      backward(k);
    }
  }

  void optimize() {
    begin(RunPhase::optimizer);
    if (shape_.communicates) {
      for (const auto& [name, elements] : parameters()) {
        release(make(elements * kHalf, name + ": reduced", false, kCommunication));
      }
    }
    for (const auto& [name, elements] : parameters()) {
      if (iteration_ == 0) {
        make(elements * kSingle, name + ": first moment", false);
        make(elements * kSingle, name + ": second moment", false);
      }
      release(make(elements * kSingle, name + ": update", false));
    }
    has_gradients_ = shape_.keeps_gradients;
    if (!shape_.keeps_gradients) {
      for (const Buffer gradient : gradients_) release(gradient);
      gradients_.clear();
    }
  }

  void evaluate() {
    drawn_.clear();
    for (int64_t batch = 0; batch < shape_.evaluation_batches; ++batch) {
      for (int64_t chunk = 0; chunk < shape_.model_chunks; ++chunk) {
        begin(RunPhase::evaluation, batch, chunk);
        InFlight state = chunk_forward(batch, chunk, false);
        release_all(state.head);
      }
    }
  }

  const TrainingShape shape_;
  std::mt19937_64 lengths_;
  std::mt19937_64 routing_;
  TrainingRun run_;
  std::map<std::string, uint32_t> label_ids_;
  std::map<int64_t, int64_t> drawn_;  // tokens by micro-batch
  std::vector<Buffer> gradients_;
  bool has_gradients_ = false;
  int64_t iteration_ = 0;
};

}  // namespace

TrainingRun generate_training_run(const TrainingShape& shape) { return Program(shape).run(); }

}  // namespace headroom::memory::generated
