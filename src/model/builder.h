// GraphBuilder: writes a Graph by running a model's forward function on variables without data.
//
// A Var is what a Python variable is: a counted handle; when the last one goes, the value is
// dropped in the graph. So a forward function here is written with the same variables, in the same
// scopes, as the one it stands for, and lifetimes come out right by themselves. Note that Python's
// `module(x)` keeps x alive for the whole call (the argument tuple holds it), which a C++ reference
// parameter mirrors.
//
// Not thread-safe. Declare parameters in the order of the module's constructor.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.h"
#include "operator/pool.h"

namespace headroom::model {

class GraphBuilder;

class Var {
 public:
  Var() = default;
  Var(const Var& other);
  Var(Var&& other) noexcept;
  Var& operator=(Var other) noexcept;
  ~Var();
  explicit operator bool() const { return slot_ != nullptr; }
  [[nodiscard]] ValueId id() const;

 private:
  friend class GraphBuilder;
  struct Slot {
    uint32_t refs;
    ValueId id;
    GraphBuilder* builder;
    bool permanent;  // parameters and inputs are never dropped

    static void* operator new(size_t) { return op::FreeList<sizeof(Slot)>::of_thread().allocate(); }
    static void operator delete(void* memory) {
      op::FreeList<sizeof(Slot)>::of_thread().release(memory);
    }
  };
  explicit Var(Slot* slot) : slot_(slot) {}
  Slot* slot_ = nullptr;
};

class GraphBuilder {
 public:
  GraphBuilder();
  // Goes on with a graph's declarations (parameters, buffers, inputs, values), without
  // instructions.
  explicit GraphBuilder(Graph declared) : graph_(std::move(declared)) {}
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // --- declaring ------------------------------------------------------------------------------
  Var parameter(std::string name, const Dims& shape, ParameterRole role);
  // One that has a type of its own and, maybe, no gradient.
  Var parameter(std::string name, const Dims& shape, ParameterRole role, DType dtype,
                bool trainable = true);
  // The same tensor under a second name (lm_head.weight of a tied model).
  Var tied(std::string name, const Var& holder, ParameterRole role);
  // Without a dtype it has the model's own.
  Var buffer(std::string name, const Dims& shape, std::optional<DType> dtype, bool persistent);
  // Without a type it is in the model's own.
  Var input(std::string name, const Dims& shape, std::optional<DType> dtype);
  // In the model's own type, from another process, which wants its gradient back.
  Var received(std::string name, const Dims& shape);
  // What was made since the last call is a chunk of its own, which ends in what it sends on.
  void end_chunk(const Var& sent);
  // Counts the layers that have asked for a key-value cache: 0 for the first.
  uint32_t next_cache_layer() { return cache_layers_++; }
  // A value that the forward function returns: it outlives its variables.
  void keep(const Var& x);

  // --- rewriting (step/transform) ----------------------------------------------------------------
  Var existing(ValueId value);  // a variable for a value of the graph; it never drops it
  Var new_parameter_value();    // a value for a parameter that the caller will list itself
  ValueId release(Var var);     // gives the value up without a drop; no copy of `var` may live
  void drop(ValueId value);
  // An operation of another graph: inputs under the names that its values have here, its outputs
  // named anew. names[v]: the value that stands here for v there.
  void copy(const Operation& operation, std::vector<ValueId>& names);
  uint32_t enter(Region region);  // begin and end are its new ones
  void leave(uint32_t region);

  // --- regions --------------------------------------------------------------------------------
  uint32_t enter(RegionKind kind, std::string name, std::initializer_list<const Var*> inputs);
  void leave(uint32_t region, std::initializer_list<const Var*> outputs);
  void set_positional(uint32_t region, uint32_t count) {
    graph_.regions[region].positional = count;
  }
  void set_no_grad(uint32_t region) { graph_.regions[region].no_grad = true; }

  // --- operators ------------------------------------------------------------------------------
  // They take their variables by value and let them go before they return: a temporary that is
  // passed on dies inside the call, as it does in Python.
  Var apply(OpKind kind, std::vector<Var> inputs, Attributes attributes = {});
  std::vector<Var> apply_many(OpKind kind, std::vector<Var> inputs, size_t outputs,
                              Attributes attributes = {});

  // Views. Sizes may hold one -1.
  Var view(Var x, std::vector<int64_t> sizes);
  Var reshape(Var x, std::vector<int64_t> sizes);
  Var transpose(Var x, int dim0, int dim1);
  Var permute(Var x, std::vector<int64_t> order);
  Var expand(Var x, std::vector<int64_t> sizes);
  Var unsqueeze(Var x, int dim);
  Var squeeze(Var x, int dim);
  Var slice(Var x, int dim, int64_t start, int64_t end, int64_t step = 1);
  Var select(Var x, int dim, int64_t index);
  std::vector<Var> split(Var x, std::vector<int64_t> sizes, int dim);
  Var contiguous(Var x);
  Var detach(Var x);
  Var require_grad(Var x);  // in place: x.requires_grad_(True)
  Var dtype_of(Var x);      // x.dtype, as a reference for to_like that does not keep x
  Var view_as_real(Var x);
  Var view_as_complex(Var x);
  // Moving data.
  Var clone(Var x);
  Var to(Var x, DType dtype);
  Var to_like(Var x, Var reference);  // x.to(reference.dtype)
  // The same, contiguous where a cast is needed (memory_format=torch.contiguous_format).
  Var to_contiguous(Var x, DType dtype);
  Var to_like_contiguous(Var x, Var reference);
  Var empty(std::vector<int64_t> sizes, DType dtype);
  Var empty_like(std::vector<int64_t> sizes, Var like);  // in the type of `like`
  Var full(std::vector<int64_t> sizes, DType dtype);
  Var full_like(std::vector<int64_t> sizes, Var like);  // in the type of `like`
  Var zeros_like(Var x);                                // in the layout of `x`, too
  Var arange(int64_t count, DType dtype = DType::i64);
  Var cat(std::span<const Var> xs, int dim);
  Var stack(std::span<const Var> xs, int dim);
  Var pad(Var x, std::vector<int64_t> padding);
  Var repeat(Var x, std::vector<int64_t> repeats);
  Var triangle(Var x);
  // Arithmetic.
  Var add(Var a, Var b);
  Var sub(Var a, Var b);
  Var mul(Var a, Var b);
  Var div(Var a, Var b);
  Var add(Var a, double b);
  Var mul(Var a, double b);
  Var div(Var a, double b);
  Var neg(Var x);
  Var pow(Var x, double exponent);
  Var sqrt(Var x);
  Var rsqrt(Var x);
  Var exp(Var x);
  Var log(Var x);
  Var sin(Var x);
  Var cos(Var x);
  Var polar(Var radius, Var angle);
  Var clamp(Var x, int bounds = 1);
  Var floor_divide(Var a, double b);
  Var compare(Var a);
  Var compare(Var a, Var b);
  Var where(Var condition, Var a, Var b);
  Var masked_fill(Var x, Var mask);
  // Activations and reductions.
  Var gelu(Var x, bool tanh_approximation);
  Var gelu_bloom(Var x);
  Var silu(Var x);
  Var relu(Var x);
  Var sigmoid(Var x);
  Var tanh(Var x);
  Var softplus(Var x);
  Var softmax(Var x, int dim, std::optional<DType> dtype = {});
  Var log_softmax(Var x, int dim, std::optional<DType> dtype = {});
  Var dropout(Var x, double probability);
  Var sum(Var x, std::vector<int64_t> dims, bool keepdim);
  Var mean(Var x, std::vector<int64_t> dims, bool keepdim);
  Var amax(Var x, int dim, bool keepdim);
  Var argmax(Var x, int dim);
  Var vector_norm(Var x, int dim);                     // of what needs no gradient
  std::vector<Var> max(Var x, int dim, bool keepdim);  // values, indices
  Var cumsum(Var x, int dim, std::optional<DType> dtype = {});
  // Products.
  Var mm(Var a, Var b);
  Var addmm(Var bias, Var a, Var b);
  Var bmm(Var a, Var b);
  Var baddbmm(Var input, Var a, Var b, double alpha = 1);
  Var matmul(Var a, Var b);
  Var solve_triangular(Var matrix, Var right);  // lower, with ones on the diagonal
  Var linear(Var x, Var weight, Var bias = {});
  Var conv1d(Var x, Var weight, Var bias, int64_t padding, int64_t groups);  // with stride 1
  Var conv2d(Var x, Var weight, Var bias, std::array<int64_t, 2> stride);    // without padding
  // Normalization, look-ups, attention, losses.
  Var layer_norm(Var x, Var weight, Var bias);
  Var rms_norm(Var x, Var weight);
  Var embedding(Var weight, Var indices);
  Var index_select(Var x, int dim, Var index);
  Var index(Var x, Var index, int dim = 0);
  Var index_add(Var x, int dim, Var index, Var source);
  Var gather(Var x, int dim, Var index);
  Var scatter(Var x, int dim, Var index);  // of a number
  Var scatter_assign(Var x, int dim, Var index, Var source);
  std::vector<Var> topk(Var x, int64_t k);
  std::vector<Var> sort(Var x);
  Var one_hot(Var x, int64_t classes);
  Var index_pairs(Var x, Var first, Var second);  // x[first, second]
  Var nonzero(Var x, int64_t count);              // `count` true elements
  Var histogram(Var x, int64_t bins);
  Var grouped_mm(Var rows, Var matrices, Var offsets);
  // In place: the variable takes what is returned (x = g.add_assign(x, y)).
  Var add_assign(Var a, Var b);
  Var div_assign(Var a, Var b);
  Var mul_assign(Var a, Var b);
  Var mul_assign(Var a, double b);
  Var div_assign(Var a, double b);
  Var index_put(Var x, Var index, Var value);
  Var masked_fill_assign(Var x, Var mask);
  Var clamp_assign(Var x, int bounds);
  Var index_add_assign(Var x, int dim, Var index, Var source);
  Var copy_slice(Var x, Var source, int dim, int64_t start, int64_t end);
  Var copy_select(Var x, Var source, int dim, int64_t index);
  // [batch, heads, sequence, head]; mask may be empty.
  Var sdpa(Var query, Var key, Var value, Var mask, bool causal, bool grouped, double dropout);
  // [batch, sequence, heads, head].
  Var flash_attention(Var query, Var key, Var value, bool causal, double dropout);
  // Phi-3.5-MoE's own gradient of a gate; what goes to scores alone.
  Var sparse_mixer(Var scores, Var gate, Var chosen, Var gates, Var midpoint);
  Var nll_loss(Var log_probabilities, Var target);
  Var cross_entropy(Var logits, Var target);

  // Of what has been written.
  [[nodiscard]] uint32_t instruction_count() const {
    return static_cast<uint32_t>(graph_.instructions.size());
  }

  // Ends building: gives the graph up. Variables must all be gone, outputs excepted.
  void set_outputs(const Var& loss, const Var& logits, std::initializer_list<const Var*> others);
  Graph finish();

 private:
  friend class Var;
  Var make_value(bool permanent);
  [[nodiscard]] ModuleId open_module() const;
  void instruct(InstructionKind kind, size_t index);
  void add_operation(OpKind kind, std::vector<Var> inputs, std::span<Var> outputs,
                     Attributes attributes);

  Graph graph_;
  std::vector<uint32_t> open_regions_;
  uint32_t cache_layers_ = 0;
  bool finished_ = false;
};

// Names the modules that operators belong to, for the length of a scope.
class RegionScope {
 public:
  RegionScope(GraphBuilder& builder, RegionKind kind, std::string name,
              std::initializer_list<const Var*> inputs = {})
      : builder_(builder), region_(builder.enter(kind, std::move(name), inputs)) {}
  // The first `count` inputs are passed by position; one is, where nothing is said.
  void set_positional(uint32_t count) { builder_.set_positional(region_, count); }
  // It runs under torch.no_grad().
  void set_no_grad() { builder_.set_no_grad(region_); }
  // Leaves with these outputs; else the destructor leaves with none.
  void leave(std::initializer_list<const Var*> outputs) {
    builder_.leave(region_, outputs);
    left_ = true;
  }
  ~RegionScope() {
    if (!left_) builder_.leave(region_, {});
  }
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  GraphBuilder& builder_;
  uint32_t region_;
  bool left_ = false;
};

}  // namespace headroom::model
