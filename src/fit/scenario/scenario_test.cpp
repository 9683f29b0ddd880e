#include "fit/scenario/scenario.h"

#include <gtest/gtest.h>

#include <string>

namespace headroom::fit {
namespace {

Communicators communicators_of_method(const std::string& method) {
  FitQuestion question;
  EXPECT_TRUE(question.set("method", method));
  return communicators_of(question);
}

TEST(Communicators, AProcessHasOneForEachDivision) {
  EXPECT_EQ(communicators_of_method("full").ranks, 1);
  EXPECT_EQ(communicators_of_method("fsdp2:4").ranks, 4);
  EXPECT_EQ(communicators_of_method("fsdp2:4").others, 0);
  EXPECT_EQ(communicators_of_method("fsdp2:2,tp:2").others, 1);
}

// Colossal-AI at d4fb7bf: torch's default group in launch() and check_overflow(), and each list of
// ranks that a ProcessGroup is of (tensor/process_group.py), in which Gemini's chunks and the
// products communicate. All ranks' chunks and products of all ranks share one.
TEST(Communicators, GeminiHasTheDefaultOneBesideItsOwn) {
  const Communicators data = communicators_of_method("gemini:4");
  EXPECT_EQ(data.ranks, 4);
  EXPECT_EQ(data.others, 1);
  const Communicators tensor = communicators_of_method("gemini:1,tp:4");
  EXPECT_EQ(tensor.ranks, 4);
  EXPECT_EQ(tensor.others, 1);
  const Communicators both = communicators_of_method("gemini:2,tp:2");
  EXPECT_EQ(both.ranks, 4);
  EXPECT_EQ(both.others, 3);
}

}  // namespace
}  // namespace headroom::fit
