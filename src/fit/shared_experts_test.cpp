// Experts that ranks share out: what holds of an answer, which questions are refused. Blocks and
// gathers are held against transformers' own in tests/python (test_expert_parallel.py and others).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "fit/fit.h"
#include "fit/search/divisions.h"
#include "fit/search/methods.h"

namespace headroom::fit {
namespace {

FitQuestion mixture(const char* method) {
  FitQuestion question;
  question.model = "Qwen/Qwen3-30B-A3B";
  question.device = "h200-sxm-141gb";
  question.seq = 2048;
  question.search = false;
  EXPECT_TRUE(question.set("method", method));
  return question;
}

std::string refusal(const FitQuestion& question) {
  const auto found = answer(question);
  return found ? "" : found.error().to_string();
}

// However many share them out, all ranks together have each expert once, and one group's gathers
// are of that many fewer.
TEST(SharedExperts, ARankKeepsTheSameAndGathersLess) {
  const auto whole = answer(mixture("fsdp2:8"));
  const auto some = answer(mixture("fsdp2:8,ep:2"));
  const auto most = answer(mixture("fsdp2:8,ep:8"));
  ASSERT_TRUE(whole && some && most);
  const auto kept = static_cast<double>(whole->memory.steady_allocated.count);
  for (const auto* shared : {&*some, &*most}) {  // but for what blocks are rounded up by
    EXPECT_NEAR(static_cast<double>(shared->memory.steady_allocated.count), kept, 1e-4 * kept);
  }
  EXPECT_EQ(whole->parameter_count, most->parameter_count);
  FitQuestion question = mixture("full");
  ASSERT_TRUE(question.set("checkpointing", "none"));
  const auto chosen = choose_method(question, 8);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  const auto sent_by = [&](const char* method) {
    const auto row = std::ranges::find(chosen->rows, method, &MethodRow::method);
    EXPECT_NE(row, chosen->rows.end()) << method;
    return row == chosen->rows.end() ? 0 : row->sent.count;
  };
  EXPECT_GT(sent_by("fsdp2:8"), sent_by("fsdp2:8,ep:2"));
  EXPECT_GT(sent_by("fsdp2:8,ep:2"), 2 * sent_by("fsdp2:8,ep:8"));
}

TEST(SharedExperts, MoreRowsTakeMore) {
  FitQuestion question = mixture("fsdp2:8,ep:8");
  ASSERT_TRUE(question.set("expert-imbalance", "0.5:1:2"));
  const auto found = answer(question);
  ASSERT_TRUE(found) << found.error().to_string();
  const auto& interval = found->memory.peak_allocated_interval;
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->expected, found->memory.peak_allocated);
  EXPECT_LT(interval->low, interval->expected);
  EXPECT_GT(interval->high, interval->expected);
}

// transformers' Trainer reduces behind the last micro-batch: whole gradients add up until then, or,
// where there are replicas, shares of them.
TEST(SharedExperts, AccumulationIsTheTrainers) {
  const auto peak_of = [](const char* method, const char* sync) {
    FitQuestion question = mixture(method);
    EXPECT_TRUE(question.set("grad-accum", "4"));
    EXPECT_TRUE(question.set("checkpointing", "full"));
    if (*sync != '\0') {
      EXPECT_TRUE(question.set("sync-each-batch", sync));
    }
    const auto found = answer(question);
    EXPECT_TRUE(found) << found.error().to_string();
    return found ? found->memory.peak_allocated.count : 0;
  };
  EXPECT_EQ(peak_of("fsdp2:8,ep:2", ""), peak_of("fsdp2:8,ep:2", "false"));
  EXPECT_GT(peak_of("fsdp2:8,ep:2", ""), peak_of("fsdp2:8,ep:2", "true") + 20 * kGiB);
  EXPECT_LE(peak_of("fsdp2:8,replicate:2,ep:2", ""), peak_of("fsdp2:8,replicate:2,ep:2", "true"));
}

TEST(SharedExperts, ASearchTriesThemWhereThereAreSome) {
  FitQuestion question = mixture("full");
  ASSERT_TRUE(question.set("checkpointing", "full"));
  const auto has_experts_apart = [](const MethodRow& row) {
    return row.method.find("ep:") != std::string::npos;
  };
  const auto chosen = choose_method(question, 4);
  ASSERT_TRUE(chosen) << chosen.error().to_string();
  EXPECT_EQ(std::ranges::count_if(chosen->rows, has_experts_apart), 3);  // ep:4, of groups ep:2
  question.model = "meta-llama/Llama-3.2-1B";
  const auto dense = choose_method(question, 4);
  ASSERT_TRUE(dense) << dense.error().to_string();
  EXPECT_EQ(std::ranges::count_if(dense->rows, has_experts_apart), 0);
  EXPECT_EQ(expert_divisions_among(4),
            (std::vector<std::string>{"fsdp2:4,ep:4", "fsdp2:4,ep:2", "fsdp2:2,replicate:2,ep:2"}));
}

TEST(SharedExperts, WhatTransformersDoesNotDoIsRefused) {
  FitQuestion question;
  for (const char* words : {"ep:2", "ddp:2,ep:2", "fsdp2:3,ep:2", "fsdp2:2,ep:4", "fsdp2:2,ep:1"}) {
    EXPECT_FALSE(question.set("method", words)) << words;
  }
  for (const char* words : {"fsdp2:4,tp:2,ep:2", "fsdp2:4,cp:2,ep:2", "fsdp2:4,pp:2,ep:2",
                            "lora,fsdp2:4,ep:2", "fsdp2:3,ep:3"}) {
    EXPECT_NE(refusal(mixture(words)), "") << words;
  }
  for (const auto& [flag, words] : {std::pair{"mixed-precision", "fp16"},
                                    {"reshard-after-forward", "false"},
                                    {"reduce-dtype", "bf16"},
                                    {"loss", "chunked-head"},
                                    {"kernels", "liger"},
                                    {"compile", "layers"},
                                    {"optimizer", "adamw-foreach"},
                                    {"transformers", "5.20"},
                                    {"shard-ends", "false"}}) {
    FitQuestion asked = mixture("fsdp2:4,ep:2");
    ASSERT_TRUE(asked.set(flag, words)) << flag;
    EXPECT_NE(refusal(asked).find(flag), std::string::npos) << flag;
  }
  FitQuestion dense = mixture("fsdp2:4,ep:2");
  dense.model = "meta-llama/Llama-3.2-1B";
  EXPECT_NE(refusal(dense).find("no experts"), std::string::npos);
  const std::string uneven = refusal(mixture("fsdp2:6,ep:3"));
  EXPECT_NE(uneven.find("128 experts are not divided by 3"), std::string::npos) << uneven;
  EXPECT_NE(uneven.find("--method"), std::string::npos) << uneven;
  FitQuestion alone = mixture("fsdp2:4");
  ASSERT_TRUE(alone.set("expert-imbalance", "1.2"));
  EXPECT_NE(refusal(alone).find("expert-imbalance"), std::string::npos);
}

}  // namespace
}  // namespace headroom::fit
