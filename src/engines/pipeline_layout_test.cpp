#include "engines/pipeline_layout.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

using Layers = std::vector<int64_t>;

TEST(PipelineLayout, LettersAndGroupsAreWrittenOut) {
  EXPECT_EQ(*read_pipeline_layout("Et*3|(tt|)*6L", "f"), (Layers{3, 2, 2, 2, 2, 2, 2, 0}));
  EXPECT_EQ(*read_pipeline_layout("Ettt,|(tt|)*2,tL", "f"), (Layers{3, 2, 2, 1}));
  EXPECT_EQ(*read_pipeline_layout("E|(t|)*3L", "f"), (Layers{0, 1, 1, 1, 0}));
  EXPECT_EQ(*read_pipeline_layout("EttL", "f"), (Layers{2}));
  EXPECT_EQ(*read_pipeline_layout("E(t*2|t)*2L", "f"), (Layers{2, 3, 1}));
}

TEST(PipelineLayout, WhatIsNoneIsAnError) {
  for (const char* words : {"", "tt", "Ett", "ttL", "EtE|L", "Et|mL", "E(tt|L", "Et*L", "Et*-1L",
                            "Et*99999999999999999999L", "E(t*4000|)*4000L", "EtxL", "Et)L"}) {
    const auto layers = read_pipeline_layout(words, "f");
    EXPECT_FALSE(layers) << words;
  }
}

}  // namespace
}  // namespace headroom::engines
