// The search against trying every value.
#include "fit/search/search.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>

namespace headroom::fit {
namespace {

Prediction prediction_of(bool fits, double growth) {
  Prediction prediction;
  prediction.verdict = fits ? Verdict::yes : Verdict::no;
  prediction.growth = growth;
  return prediction;
}

// Guesses of all kinds, right ones and misleading ones, end at the same border.
TEST(Search, FindsTheBorderWhateverTheGuessesSay) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto step = static_cast<int64_t>(1 + random() % 64);
    const auto bound = static_cast<int64_t>(1 + random() % 5000);
    const auto border = static_cast<int64_t>(random() % 6000);  // fits up to here
    const auto kind = random() % 4;
    int probes = 0;
    const auto predict_at = [&](int64_t value) -> std::optional<Prediction> {
      ++probes;
      if (kind == 3 && value > 2 * border) return std::nullopt;
      const double right = static_cast<double>(border) / static_cast<double>(value);
      const double growth = kind == 0   ? right
                            : kind == 1 ? static_cast<double>(random() % 1000) / 100
                                        : 0.97 * right;
      return prediction_of(value <= border, growth);
    };
    const auto known = static_cast<int64_t>(1 + random() % 5000);
    const auto start = predict_at(known).value_or(prediction_of(false, 0));
    const Largest found = search_largest(predict_at, step, bound, {known, start});
    const int64_t most = std::max<int64_t>(1, bound / step);
    const int64_t expected = std::min(border / step, most) * step;
    ASSERT_EQ(found.value, expected) << round;
    ASSERT_EQ(found.at_bound, expected == most * step) << round;
    ASSERT_LE(probes, 9 + 14) << round;
    if (kind == 0) {
      ASSERT_LE(probes, 6) << round;
    }
  }
}

class SearchOverModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("headroom_search_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << R"({"model_type": "llama", "vocab_size": 4000,
        "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024})";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A device that is just large enough for `batches` or so.
  static Scenario on_small_device(const Scenario& scenario, int64_t bytes) {
    Scenario small = scenario;
    auto device = std::make_shared<device::Device>(*scenario.device);
    device->memory.value = Bytes(bytes);
    device->usable_memory = device->memory;
    small.device = std::move(device);
    return vary(small, small.question).value();
  }

  template <typename Fits>
  void expect_border(const Largest& found, int64_t step, int64_t bound, const Fits& fits) {
    if (found.value > 0) {
      EXPECT_TRUE(fits(found.value));
    }
    EXPECT_EQ(found.at_bound, found.value == bound);
    if (!found.at_bound) {
      EXPECT_FALSE(fits(found.value + step));
    }
    int64_t first_border = 0;
    while (first_border < bound && fits(first_border + step)) first_border += step;
    int64_t last_border = first_border;
    for (int64_t more = 2; more < 16 && first_border + more * step <= bound; ++more) {
      if (fits(first_border + more * step)) last_border = first_border + more * step;
    }
    ++borders_;
    if (first_border != last_border) {
      EXPECT_GE(found.value, first_border);
      return;
    }
    ++borders_alone_;
    EXPECT_EQ(found.value, first_border);
  }

  std::filesystem::path folder_;
  int borders_ = 0;
  int borders_alone_ = 0;  // where no value beyond the first border fits
};

bool fits(const Scenario& scenario, const FitQuestion& question) {
  const auto prediction = predict(vary(scenario, question).value());
  return prediction && prediction->verdict == Verdict::yes;
}

// The answer fits and the next value does not. Where no larger value tried fits either (a device's
// last megabytes may fit one value and not a smaller one, by how segments are cut), it is the only
// border, and trying every value finds the same.
TEST_F(SearchOverModel, EqualsTryingEveryValue) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    FitQuestion question;
    question.model = (folder_ / "config.json").string();
    question.device = "a100-sxm-80gb";
    question.batch = 1 + static_cast<int64_t>(random() % 12);
    question.seq = 64 * (1 + static_cast<int64_t>(random() % 8));
    question.attention = random() % 2 != 0 ? Attention::eager : Attention::sdpa;
    question.checkpointing.kind =
        random() % 2 != 0 ? CheckpointingKind::full : CheckpointingKind::none;
    question.optimizer_loop = random() % 2 != 0 ? OptimizerLoop::fused : OptimizerLoop::foreach;
    const auto resolved = resolve(question);
    ASSERT_TRUE(resolved) << resolved.error().to_string();
    const int64_t context = resolved->device->context.value.high.count;
    const auto room = static_cast<int64_t>(40 + random() % 500) * kMiB;
    const Scenario scenario = on_small_device(*resolved, context + room);
    const auto known = predict(scenario);
    ASSERT_TRUE(known) << known.error().to_string();

    const auto with_batch = [&](int64_t batch) {
      FitQuestion tried = question;
      tried.batch = batch;
      return fits(scenario, tried);
    };
    const auto batch = largest_batch(scenario, *known);
    ASSERT_TRUE(batch);
    expect_border(*batch, 1, 4096, with_batch);

    const auto with_sequence = [&](int64_t sequence) {
      FitQuestion tried = question;
      tried.seq = sequence;
      return fits(scenario, tried);
    };
    const auto sequence = longest_sequence(scenario, *known);
    ASSERT_TRUE(sequence);
    expect_border(*sequence, 64, 1024, with_sequence);
  }
  // Most scenarios have one border, or this would prove little.
  EXPECT_GT(borders_alone_, borders_ / 2);
}

// The cheap answer for what does not fit says what the full one says.
TEST_F(SearchOverModel, VerdictDoesNotDependOnWhichFiguresAreWanted) {
  FitQuestion question;
  question.model = (folder_ / "config.json").string();
  question.device = "a100-sxm-80gb";
  question.seq = 256;
  const Scenario large = resolve(question).value();
  for (int64_t mib = 20; mib < 400; mib += 3) {
    const int64_t context = large.device->context.value.high.count;
    const Scenario scenario = on_small_device(large, context + mib * kMiB);
    const auto always = predict(scenario);
    const auto where_it_fits = predict(scenario, Figures::where_it_fits);
    ASSERT_TRUE(always && where_it_fits);
    EXPECT_EQ(always->verdict == Verdict::yes, where_it_fits->verdict == Verdict::yes) << mib;
    if (where_it_fits->verdict == Verdict::yes) {
      EXPECT_EQ(always->peak_reserved, where_it_fits->peak_reserved);
    }
  }
}

}  // namespace
}  // namespace headroom::fit
