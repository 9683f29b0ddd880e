#include "fit/optimizer_words.h"

#include <array>
#include <vector>

#include "base/suggest.h"
#include "fit/words.h"

namespace headroom::fit {

namespace {

using step::BitsAndBytes;

struct Named {
  std::string_view word;
  Optimizer value;
  std::optional<BitsAndBytes> kept = std::nullopt;  // of bitsandbytes'
};

constexpr BitsAndBytes kept(int first, int second, bool has_8_bits, bool is_paged) {
  return {first, second, has_8_bits, is_paged};
}

// bitsandbytes/optim (0.50): lion.py, adamw.py, ademamix.py, rmsprop.py. Of torch's name, but not
// its states, is RMSprop alone.
constexpr std::array kOptimizers{
    Named{"adamw", Optimizer::adamw},
    Named{"adam", Optimizer::adam},
    Named{"sgd", Optimizer::sgd},
    Named{"sgd-momentum", Optimizer::sgd_momentum},
    Named{"adafactor", Optimizer::adafactor},
    Named{"hf-adafactor", Optimizer::hf_adafactor},
    Named{"lion", Optimizer::lion, kept(1, 0, false, false)},
    Named{"lion-8bit", Optimizer::lion_8bit, kept(1, 0, true, false)},
    Named{"paged-lion", Optimizer::paged_lion, kept(1, 0, false, true)},
    Named{"paged-lion-8bit", Optimizer::paged_lion_8bit, kept(1, 0, true, true)},
    Named{"adamw-8bit", Optimizer::adamw_8bit, kept(1, 1, true, false)},
    Named{"paged-adamw", Optimizer::paged_adamw, kept(1, 1, false, true)},
    Named{"paged-adamw-8bit", Optimizer::paged_adamw_8bit, kept(1, 1, true, true)},
    Named{"ademamix", Optimizer::ademamix, kept(2, 1, false, false)},
    Named{"ademamix-8bit", Optimizer::ademamix_8bit, kept(2, 1, true, false)},
    Named{"paged-ademamix", Optimizer::paged_ademamix, kept(2, 1, false, true)},
    Named{"paged-ademamix-8bit", Optimizer::paged_ademamix_8bit, kept(2, 1, true, true)},
    Named{"rmsprop-bnb", Optimizer::rmsprop_bnb, kept(1, 0, false, false)},
    Named{"rmsprop-bnb-8bit", Optimizer::rmsprop_bnb_8bit, kept(1, 0, true, false)}};
constexpr std::array<Word<OptimizerLoop>, 4> kLoops{{{"", OptimizerLoop::automatic},
                                                     {"-foreach", OptimizerLoop::foreach},
                                                     {"-fused", OptimizerLoop::fused},
                                                     {"-loop", OptimizerLoop::loop}}};

const Named& named(Optimizer optimizer) {
  for (const Named& entry : kOptimizers) {
    if (entry.value == optimizer) return entry;
  }
  return kOptimizers.front();
}

// One that is not known, by the nearest of the words that are: with and without suffix.
Error refuse_optimizer(std::string_view words) {
  std::vector<std::string> known;
  std::string expected = "one of ";
  for (const Named& entry : kOptimizers) {
    expected += (known.empty() ? "" : ", ") + std::string(entry.word);
    for (const Word<OptimizerLoop>& loop : kLoops) {
      known.push_back(std::string(entry.word) + std::string(loop.word));
    }
  }
  const std::vector<std::string_view> views(known.begin(), known.end());
  return refuse("optimizer", words, std::move(expected), nearest_word(words, views));
}

std::optional<Optimizer> optimizer_of(std::string_view word) {
  for (const Named& entry : kOptimizers) {
    if (entry.word == word) return entry.value;
  }
  return std::nullopt;
}

}  // namespace

Result<void> set_optimizer(std::string_view words, FitQuestion& question) {
  std::string_view kind = words;
  OptimizerLoop loop = OptimizerLoop::automatic;
  for (const Word<OptimizerLoop>& entry : kLoops) {
    if (!entry.word.empty() && words.ends_with(entry.word)) {
      kind = words.substr(0, words.size() - entry.word.size());
      loop = entry.value;
    }
  }
  const std::optional<Optimizer> optimizer = optimizer_of(kind);
  if (!optimizer) return refuse_optimizer(words);
  const bool torch_walks = *optimizer <= Optimizer::adafactor;
  if (!torch_walks && loop != OptimizerLoop::automatic) {
    return refuse("optimizer", words,
                  "an optimizer of torch.optim, so it takes no -foreach, -fused or -loop");
  }
  if (*optimizer == Optimizer::adafactor && loop == OptimizerLoop::fused) {
    return refuse("optimizer", words, "in torch.optim: Adafactor has no fused kernel");
  }
  question.optimizer = *optimizer;
  question.optimizer_loop = loop;
  return {};
}

std::string optimizer_words(const FitQuestion& question) {
  std::string words(named(question.optimizer).word);
  for (const Word<OptimizerLoop>& loop : kLoops) {
    if (loop.value == question.optimizer_loop) words += loop.word;
  }
  return words;
}

std::optional<BitsAndBytes> bitsandbytes_of(Optimizer optimizer) { return named(optimizer).kept; }

}  // namespace headroom::fit
