// Repeated steps against steps that were run, event by event.
#include "step/repeat.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "model/load.h"
#include "step/trace_equality.h"
#include "step/train_step.h"

namespace headroom::step {
namespace {

model::Graph small_llama(int64_t batch, model::Attention attention, bool tied) {
  const auto config =
      text::parse_json(std::string(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64,
          "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": )") +
                           (tied ? "true}" : "false}"),
                       "test");
  model::BuildOptions build;
  build.batch = batch;
  build.sequence = 24;
  build.attention = attention;
  return model::build_graph({*config, "test"}, build).value();
}

TEST(RepeatedSteps, AreWhatRunningThemWrites) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 120; ++i) {
    TrainOptions options;
    options.checkpointing = pick(2) != 0 ? CheckpointPolicy::full : CheckpointPolicy::none;
    options.checkpoint_kind =
        pick(2) != 0 ? CheckpointKind::reentrant : CheckpointKind::non_reentrant;
    options.accumulation = 1 + pick(3);
    options.clip_gradients = pick(2) != 0;
    options.keep_outputs = pick(2) != 0;
    options.optimizer.implementation = static_cast<OptimizerImplementation>(pick(3));
    options.optimizer.kind = pick(3) == 0 ? OptimizerKind::sgd : OptimizerKind::adamw;
    options.environment.blas.main_bytes = pick(2) != 0 ? 8 << 20 : 0;
    options.environment.blas.lt_bytes = 1 << 20;
    options.environment.blas.lt = static_cast<op::BlasWorkspaces::Lt>(pick(3));
    options.steps = 1 + pick(4);
    const model::Graph graph =
        small_llama(1 + pick(3), static_cast<model::Attention>(pick(3)), pick(2) != 0);
    const auto repeated = trace_training(graph, options);
    options.repeat_steps = false;
    const auto run = trace_training(graph, options);
    ASSERT_TRUE(repeated.has_value() && run.has_value());
    SCOPED_TRACE("round " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(expect_equal(*repeated, *run));
  }
}

}  // namespace
}  // namespace headroom::step
