#include "serving/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include <set>

namespace headroom::serving {
namespace {

TEST(Prompt, NoTwoBeginAlikeAndTheSameSeedGivesTheSame) {
  std::set<std::string> begins;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint64_t request = 0; request < 5000; ++request) {
      begins.insert(prompt_of(11, seed, request));
    }
  }
  EXPECT_EQ(begins.size(), 20'000u);
  EXPECT_EQ(prompt_of(100, 7, 3), prompt_of(100, 7, 3));
  EXPECT_TRUE(prompt_of(100, 7, 3).starts_with(prompt_of(11, 7, 3)));
}

TEST(Prompt, HasTheWordsThatAreAskedFor) {
  for (const int64_t words : {1, 2, 11, 12, 500}) {
    const std::string prompt = prompt_of(words, 1, 2);
    EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ' ') + 1, words);
  }
}

TEST(Prompt, TwoProbesGiveTheServersWayOfCounting) {
  const auto law = fit_prompt_law({80, 111}, {160, 215});  // 1.3 a word and 7 of a template
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->per_word, 1.3, 1e-9);
  EXPECT_NEAR(law->base, 7, 1e-9);
  EXPECT_EQ(law->words_for(267), 200);
  EXPECT_EQ(law->words_for(3), 1);
  EXPECT_FALSE(fit_prompt_law({80, 100}, {160, 100}));
  EXPECT_FALSE(fit_prompt_law({80, 0}, {160, 1'000'000}));
}

TEST(Prompt, BeginsAsItsHashesSay) {
  const std::vector<uint64_t> one = {7, 8, 9};
  const std::vector<uint64_t> other = {7, 8, 5};
  const auto words_in = [](const std::string& text) {
    return std::count(text.begin(), text.end(), ' ') + 1;
  };
  const std::string a = prompt_of_hashes(one, 20, 75, 1, 1);
  const std::string b = prompt_of_hashes(other, 20, 75, 1, 2);
  EXPECT_EQ(words_in(a), 75);
  const auto alike = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  EXPECT_GE(words_in(a.substr(0, static_cast<size_t>(alike))), 40);
  EXPECT_LE(words_in(a.substr(0, static_cast<size_t>(alike))), 51);
  EXPECT_NE(a.substr(0, 60), prompt_of_hashes(one, 20, 75, 2, 1).substr(0, 60));
  EXPECT_EQ(words_in(prompt_of_hashes(one, 20, 20, 1, 1)), 20);
  EXPECT_EQ(prompt_of_hashes({}, 20, 30, 1, 5), prompt_of(30, 1, 5));
}

// Half of 200 tokens, 7 of which are the server's own template and 1.3 a word.
TEST(Prompt, AShareOfItBeginsAlike) {
  const PromptLaw law{.base = 7, .per_word = 1.3};
  const auto words_in = [](const std::string& text) {
    return std::count(text.begin(), text.end(), ' ') + 1;
  };
  const std::string a = prompt_sharing(law, 200, 0.5, 3, 1);
  const std::string b = prompt_sharing(law, 400, 0.5, 3, 2);
  EXPECT_EQ(words_in(a), law.words_for(200));
  const auto alike = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const auto shared = words_in(a.substr(0, static_cast<size_t>(alike)));
  EXPECT_NEAR(static_cast<double>(shared), (0.5 * 200 - 7) / 1.3, 2);
  // Nothing beyond the template, another seed, and a word of its own at least.
  EXPECT_EQ(prompt_sharing(law, 200, 0, 3, 1), prompt_of(law.words_for(200), 3, 1));
  EXPECT_NE(a.substr(0, 60), prompt_sharing(law, 200, 0.5, 4, 1).substr(0, 60));
  EXPECT_NE(prompt_sharing(law, 200, 0.999, 3, 1), prompt_sharing(law, 200, 0.999, 3, 2));
}

}  // namespace
}  // namespace headroom::serving
