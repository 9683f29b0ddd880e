#include "step/optimizer.h"

#include <gtest/gtest.h>

#include <map>

#include "step/clip.h"
#include "step/optimizer_slots.h"
#include "step/type_groups.h"

namespace headroom::step {
namespace {

using op::DType;

// Two matrices and a bias, with gradients, and what an optimizer does with them.
class Bench {
 public:
  explicit Bench(const OptimizerOptions& options, bool matrix_is_embedding = false)
      : recorder_(trace_), eager_(recorder_, op::Environment{}) {
    trace_.modules.emplace_back();
    parameters_.push_back({leaf({1000, 100}), false, true, matrix_is_embedding});
    parameters_.push_back({leaf({200, 100}), false, true, false});
    parameters_.push_back({leaf({200}), false, false, false});
    optimizer_ = make_optimizer(options, parameters_);
  }

  void step() {
    recorder_.set_category(memory::Category::temporary);
    optimizer_->step(eager_, recorder_);
  }
  void clip() {
    recorder_.set_category(memory::Category::temporary);
    clip_gradients(eager_, parameters_);
  }

  // What updating moved since the beginning.
  Traffic traffic() const {
    Traffic all;
    for (const OperatorCall& call : trace_.calls) {
      if (call.kind != op::OpKind::optimizer_update) continue;
      all.read_bytes += call.bytes_read;
      all.written_bytes += call.bytes_written;
    }
    return all;
  }

  // Bytes alive in a category, and the most ever alive that were temporary.
  int64_t live(memory::Category category) const { return figures().live[category]; }
  int64_t temporary_peak() const { return figures().temporary_peak; }

 private:
  struct Figures {
    std::map<memory::Category, int64_t> live;
    int64_t temporary_peak = 0;
  };
  Figures figures() const {
    Figures figures;
    for (const memory::MemoryEvent& event : trace_.memory.events) {
      const memory::BufferInfo& buffer = trace_.memory.buffers[event.buffer];
      int64_t& live = figures.live[buffer.category];
      live +=
          event.kind == memory::EventKind::alloc ? buffer.requested_bytes : -buffer.requested_bytes;
      if (buffer.category == memory::Category::temporary) {
        figures.temporary_peak = std::max(figures.temporary_peak, live);
      }
    }
    return figures;
  }
  op::Tensor leaf(const op::Dims& sizes) {
    recorder_.set_category(memory::Category::parameter);
    op::Tensor tensor = eager_.empty(sizes, DType::bf16);
    recorder_.set_category(memory::Category::gradient);
    tensor->grad = eager_.empty(sizes, DType::bf16);
    return tensor;
  }

  StepTrace trace_;
  Recorder recorder_;
  op::Eager eager_;
  std::vector<OptimizedParameter> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

constexpr int64_t kElements = 100'000 + 20'000 + 200;

OptimizerOptions options_of(OptimizerKind kind, OptimizerImplementation implementation) {
  OptimizerOptions options;
  options.kind = kind;
  options.implementation = implementation;
  options.weight_decay = kind == OptimizerKind::adamw;
  options.decay_groups = false;
  return options;
}

// Passes over all parameters, as test_optimizer_traffic.py finds PyTorch's.
TEST(Optimizer, MovesWhatItsKernelsRead) {
  struct Case {
    OptimizerKind kind;
    OptimizerImplementation implementation;
    int64_t read;
    int64_t written;
  };
  using enum OptimizerImplementation;
  const Case cases[] = {{OptimizerKind::adamw, foreach, 12, 8},
                        {OptimizerKind::adam, foreach, 11, 7},
                        {OptimizerKind::adamw, fused, 4, 3},
                        {OptimizerKind::adamw, loop, 10, 6},
                        {OptimizerKind::sgd, foreach, 2, 1}};
  for (const Case& one : cases) {
    Bench bench(options_of(one.kind, one.implementation));
    bench.step();
    constexpr int64_t kPass = 2 * kElements;
    EXPECT_EQ(bench.traffic().read_bytes, one.read * kPass);
    EXPECT_EQ(bench.traffic().written_bytes, one.written * kPass);
  }
}

TEST(Optimizer, AdamWHoldsOneListOfTemporariesOrOneParametersOrNone) {
  using enum OptimizerImplementation;
  const std::map<OptimizerImplementation, int64_t> temporaries = {
      {foreach, kElements * 2},
      // The second matrix's root and quotient beside the first one's quotient.
      {loop, (100'000 + 100'000) * 2},
      {fused, 0}};
  for (const auto& [implementation, bytes] : temporaries) {
    Bench bench(options_of(OptimizerKind::adamw, implementation));
    bench.step();
    const int64_t counts = implementation == fused ? 3 * 4 : 0;
    EXPECT_EQ(bench.live(memory::Category::optimizer_state), 2 * kElements * 2 + counts);
    EXPECT_EQ(bench.temporary_peak(), bytes);
    EXPECT_EQ(bench.live(memory::Category::temporary), 0);
    bench.step();  // makes no more states
    EXPECT_EQ(bench.live(memory::Category::optimizer_state), 2 * kElements * 2 + counts);
  }
}

TEST(Optimizer, AmsgradKeepsAThirdMoment) {
  OptimizerOptions options = options_of(OptimizerKind::adam, OptimizerImplementation::foreach);
  options.amsgrad = true;
  Bench bench(options);
  bench.step();
  EXPECT_EQ(bench.live(memory::Category::optimizer_state), 3 * kElements * 2);
}

TEST(Optimizer, SgdKeepsMomentumOnly) {
  OptimizerOptions options = options_of(OptimizerKind::sgd, OptimizerImplementation::foreach);
  Bench plain(options);
  plain.step();
  EXPECT_EQ(plain.live(memory::Category::optimizer_state), 0);
  options.momentum = 0.9;
  Bench bench(options);
  bench.step();
  EXPECT_EQ(bench.live(memory::Category::optimizer_state), kElements * 2);
}

TEST(Optimizer, AdafactorKeepsRowsAndColumns) {
  const int64_t kept = 1000 + 100 + 200 + 100 + 200;
  Bench torch(options_of(OptimizerKind::adafactor, OptimizerImplementation::foreach));
  torch.step();
  EXPECT_EQ(torch.live(memory::Category::optimizer_state), kept * 2);
  Bench transformers(options_of(OptimizerKind::hf_adafactor, OptimizerImplementation::loop));
  transformers.step();
  EXPECT_EQ(transformers.live(memory::Category::optimizer_state), kept * 4);
  EXPECT_GE(transformers.temporary_peak(), 4 * 100'000 * 4);  // float32 copies of the largest
}

OptimizerOptions of_bitsandbytes(const BitsAndBytes& kept) {
  OptimizerOptions options = options_of(OptimizerKind::bitsandbytes, OptimizerImplementation::loop);
  options.bitsandbytes = kept;
  return options;
}

int64_t states_of(const OptimizerOptions& options, bool matrix_is_embedding = false) {
  Bench bench(options, matrix_is_embedding);
  bench.step();
  EXPECT_EQ(bench.temporary_peak(), 0);
  const int64_t kept = bench.live(memory::Category::optimizer_state);
  bench.step();  // makes no more states
  EXPECT_EQ(bench.live(memory::Category::optimizer_state), kept);
  return kept;
}

constexpr int64_t kBlocks = 391 + 79;  // of 256 elements
constexpr int64_t kSmall = 200 * 4;    // too small for 8 bits: float32
constexpr int64_t kMap = 1024;

TEST(Optimizer, EightBitStatesHaveScalesAndMaps) {
  OptimizerOptions options = of_bitsandbytes({.has_8_bits = true});
  const int64_t plain = states_of(options);
  EXPECT_EQ(plain, 2 * (120'000 + kBlocks * 4 + kSmall) + 2 * kMap);
  EXPECT_EQ(states_of(options, true), plain);

  options.bitsandbytes.version = {0, 43};  // blocks of 2,048
  EXPECT_EQ(states_of(options), 2 * (120'000 + (49 + 10) * 4 + kSmall) + 2 * kMap);

  options = of_bitsandbytes({.has_8_bits = true});
  options.wide_embedding_states = true;  // as HF's Trainer has it
  EXPECT_EQ(states_of(options, true), 2 * (100'000 * 4 + 20'000 + 79 * 4 + kSmall) + 2 * kMap);
}

TEST(Optimizer, PagedStatesOfLargeParametersAreNotTheAllocators) {
  const BitsAndBytes narrow{.has_8_bits = true, .is_paged = true};
  EXPECT_EQ(states_of(of_bitsandbytes(narrow)),
            2 * (391 * 4 + 20'000 + 79 * 4 + kSmall) + 2 * kMap);
  EXPECT_EQ(states_of(of_bitsandbytes({.is_paged = true})), 2 * (20'000 + 200) * 4);

  // They move all the same, those of an embedding as wide as they are.
  Bench bench(of_bitsandbytes({.is_paged = true}));
  bench.step();
  EXPECT_EQ(bench.traffic().written_bytes, kElements * (2 + 2 * 4));
  OptimizerOptions options = of_bitsandbytes(narrow);
  options.wide_embedding_states = true;
  Bench wide(options, true);
  wide.step();
  EXPECT_EQ(wide.traffic().written_bytes - bench.traffic().written_bytes,
            2 * (79 * 4 - 20'000 * 3));
}

TEST(Optimizer, LionKeepsTheFirstStateAlone) {
  EXPECT_EQ(states_of(of_bitsandbytes({.second_means = 0})), kElements * 4);
  EXPECT_EQ(states_of(of_bitsandbytes({.second_means = 0, .has_8_bits = true})),
            120'000 + kBlocks * 4 + kSmall + kMap);
}

TEST(Optimizer, AdEMAMixHasTwoMeansInTheFirstState) {
  EXPECT_EQ(states_of(of_bitsandbytes({.first_means = 2})), 3 * kElements * 4);
  EXPECT_EQ(states_of(of_bitsandbytes({.first_means = 2, .has_8_bits = true})),
            3 * (120'000 + kBlocks * 4 + kSmall) + 2 * kMap);
}

TEST(TypeGroups, TheTypeThatCameFirstComesLast) {
  using enum op::DType;
  const auto groups =
      grouped_by_type(std::vector{bf16, f32, bf16, f16}, [](op::DType type) { return type; });
  const std::vector<std::vector<op::DType>> expected{{f16}, {f32}, {bf16, bf16}};
  EXPECT_EQ(groups, expected);
}

TEST(Clip, HoldsPartialNormsAndANumberATensor) {
  Bench bench(options_of(OptimizerKind::sgd, OptimizerImplementation::foreach));
  bench.clip();
  // Two chunks of 65,536 for each of three tensors in float32, and three numbers of two bytes.
  EXPECT_EQ(bench.temporary_peak(), 3 * 2 * 4 + 3 * 2);
  EXPECT_EQ(bench.live(memory::Category::temporary), 0);
}

}  // namespace
}  // namespace headroom::step
