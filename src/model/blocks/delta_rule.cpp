#include "model/blocks/delta_rule.h"

#include <array>
#include <utility>

namespace headroom::model {

namespace {

constexpr int64_t kChunk = kDeltaRuleChunk;

Var column(GraphBuilder& g, Var x) { return g.unsqueeze(std::move(x), -1); }

// x * rsqrt(sum of x * x)
Var normalized(GraphBuilder& g, const Var& x) {
  const Var inverse = g.rsqrt(g.add(g.sum(g.mul(x, x), {-1}, true), 1e-6));
  return g.mul(x, inverse);
}

// A function of transformers while it runs. Members that are variables are the Python function's
// own: they hold what they name until it returns, or until they are given something else.
class Rule {
 public:
  Rule(GraphBuilder& g, const BuildOptions& options, const DeltaRuleShape& shape,
       const DeltaRuleInputs& in)
      : g_(g),
        o_(options),
        s_(shape),
        query_(in.query),
        key_(in.key),
        value_(in.value),
        beta_(in.beta),
        decay_(in.decay) {
    if (s_.key_heads != s_.value_heads) {
      query_ = repeated_heads(query_);
      key_ = repeated_heads(key_);
    }
    const std::array<Var*, 5> variables{&query_, &key_, &value_, &beta_, &decay_};
    std::array<Var, 5> wide;
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = g_.to_contiguous(g_.transpose(*variables[i], 1, 2), DType::f32);
    }
    for (size_t i = 0; i < wide.size(); ++i) *variables[i] = std::move(wide[i]);
    query_ = normalized(g_, query_);
    key_ = normalized(g_, key_);
  }

 protected:
  // x.repeat_interleave(repeats, dim=2)
  [[nodiscard]] Var repeated_heads(const Var& x) const {
    const int64_t repeats = s_.value_heads / s_.key_heads;
    const Var expanded = g_.expand(g_.unsqueeze(x, 3), {-1, -1, -1, repeats, -1});
    return g_.reshape(expanded, {o_.batch, o_.sequence, s_.value_heads, s_.key_dim});
  }
  void begin_state(const Var& given) {
    state_ = given ? g_.to(given, DType::f32)
                   : g_.full({o_.batch, s_.value_heads, s_.key_dim, s_.value_dim}, DType::f32);
  }

  GraphBuilder& g_;
  const BuildOptions& o_;
  const DeltaRuleShape& s_;
  Var query_, key_, value_, beta_, decay_;
  Var state_;
  Var output_;
};

class ChunkedRule : public Rule {
 public:
  using Rule::Rule;

  DeltaRuleOutputs run(const DeltaRuleInputs& in, bool keeps_state) {
    query_ = g_.mul(query_, 1.0);
    cut_into_chunks();
    solve_within_chunks();
    begin_state(in.state);
    output_ = g_.zeros_like(new_values_);
    carry_decay();
    const int64_t chunks = (o_.sequence + kChunk - 1) / kChunk;
    for (int64_t i = 0; i < chunks; ++i) pass_chunk(i);
    if (!keeps_state) state_ = Var();
    output_ = g_.reshape(output_, {o_.batch, s_.value_heads, -1, s_.value_dim});
    output_ = g_.slice(output_, 2, 0, o_.sequence);
    output_ = g_.to_like_contiguous(g_.transpose(output_, 1, 2), in.query);
    return {output_, state_};
  }

 private:
  void cut_into_chunks() {
    const int64_t padding = (kChunk - o_.sequence % kChunk) % kChunk;
    const auto pad = [&](std::initializer_list<Var*> variables, const std::vector<int64_t>& sizes) {
      std::vector<Var> padded;
      for (const Var* x : variables) padded.push_back(g_.pad(*x, sizes));
      size_t i = 0;
      for (Var* x : variables) *x = std::move(padded[i++]);
    };
    pad({&query_, &key_, &value_}, {0, 0, 0, padding});
    pad({&beta_, &decay_}, {0, padding});
    value_beta_ = g_.mul(value_, column(g_, beta_));
    key_beta_ = g_.mul(key_, column(g_, beta_));
    const auto chunked = [&](Var& x, int64_t size) {
      x = g_.reshape(x, {o_.batch, s_.value_heads, -1, kChunk, size});
    };
    chunked(query_, s_.key_dim);
    chunked(key_, s_.key_dim);
    chunked(key_beta_, s_.key_dim);
    chunked(value_beta_, s_.value_dim);
    decay_ = g_.reshape(decay_, {o_.batch, s_.value_heads, -1, kChunk});
  }

  // Products between the tokens of a chunk, and the triangular systems of the corrections.
  void solve_within_chunks() {
    later_ = g_.triangle(g_.full({kChunk, kChunk}, DType::boolean));
    summed_decay_ = g_.cumsum(decay_, 3);
    const auto products = [&](const Var& rows) {
      Var product = g_.matmul(rows, g_.transpose(key_, -1, -2));
      return g_.mul(std::move(product), pairwise_decay_);
    };
    {
      Var rows = g_.unsqueeze(summed_decay_, 4);
      pairwise_decay_ = g_.sub(std::move(rows), g_.unsqueeze(summed_decay_, 3));
    }
    pairwise_decay_ = g_.masked_fill(pairwise_decay_, later_);
    pairwise_decay_ = g_.exp(pairwise_decay_);
    system_ = products(key_beta_);
    attention_ = products(query_);
    decayed_key_beta_ = g_.mul(key_beta_, column(g_, g_.exp(summed_decay_)));
    new_values_ = g_.solve_triangular(system_, value_beta_);
    solved_keys_ = g_.solve_triangular(system_, decayed_key_beta_);
  }

  void carry_decay() {
    query_ = g_.mul(query_, column(g_, g_.exp(summed_decay_)));
    {
      Var rest = g_.sub(g_.slice(summed_decay_, -1, kChunk - 1, kChunk), summed_decay_);
      key_ = g_.mul(key_, column(g_, g_.exp(std::move(rest))));
    }
    chunk_decay_ = column(g_, column(g_, g_.exp(g_.select(summed_decay_, -1, kChunk - 1))));
  }

  void pass_chunk(int64_t i) {
    const auto chunk = [&](const Var& x) { return g_.select(x, 2, i); };
    {
      Var values = chunk(new_values_);
      corrected_ = g_.sub(std::move(values), g_.matmul(chunk(solved_keys_), state_));
    }
    from_state_ = g_.matmul(chunk(query_), state_);
    {
      Var within = g_.matmul(chunk(attention_), corrected_);
      output_ = g_.copy_select(output_, g_.add(from_state_, std::move(within)), 2, i);
    }
    Var kept = g_.mul(state_, chunk(chunk_decay_));
    state_ = g_.add(std::move(kept), g_.matmul(g_.transpose(chunk(key_), -1, -2), corrected_));
  }

  Var value_beta_, key_beta_;
  Var later_, summed_decay_, pairwise_decay_;
  Var system_, attention_, decayed_key_beta_;
  Var new_values_, solved_keys_, chunk_decay_;
  Var corrected_, from_state_;
};

class RecurrentRule : public Rule {
 public:
  using Rule::Rule;

  DeltaRuleOutputs run(const DeltaRuleInputs& in) {
    query_ = g_.div(query_, 1.0);
    begin_state(in.state);
    output_ = g_.zeros_like(value_);
    for (int64_t i = 0; i < o_.sequence; ++i) pass_token(i);
    output_ = g_.to_like(g_.contiguous(g_.transpose(output_, 1, 2)), in.query);
    return {output_, state_};
  }

 private:
  void pass_token(int64_t i) {
    const auto token = [&](const Var& x) { return g_.select(x, 2, i); };
    const auto read = [&](const Var& rows) {
      return g_.sum(g_.mul(state_, column(g_, rows)), {-2}, false);
    };
    token_query_ = token(query_);
    token_key_ = token(key_);
    token_value_ = token(value_);
    token_decay_ = column(g_, column(g_, g_.exp(token(decay_))));
    state_ = g_.mul(state_, token_decay_);
    token_beta_ = column(g_, token(beta_));
    predicted_ = read(token_key_);
    correction_ = g_.mul(g_.sub(token_value_, predicted_), token_beta_);
    state_ = g_.add(state_, g_.mul(column(g_, token_key_), g_.unsqueeze(correction_, -2)));
    output_ = g_.copy_select(output_, read(token_query_), 2, i);
  }

  Var token_query_, token_key_, token_value_, token_decay_, token_beta_, predicted_, correction_;
};

}  // namespace

DeltaRuleOutputs chunked_delta_rule(GraphBuilder& g, const BuildOptions& options,
                                    const DeltaRuleShape& shape, const DeltaRuleInputs& inputs,
                                    bool keeps_state) {
  return ChunkedRule(g, options, shape, inputs).run(inputs, keeps_state);
}

DeltaRuleOutputs recurrent_delta_rule(GraphBuilder& g, const BuildOptions& options,
                                      const DeltaRuleShape& shape, const DeltaRuleInputs& inputs) {
  return RecurrentRule(g, options, shape, inputs).run(inputs);
}

}  // namespace headroom::model
