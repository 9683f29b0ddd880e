#include "engines/shell_words.h"

#include <gtest/gtest.h>

namespace headroom::engines {
namespace {

ShellWords read(std::string_view content) {
  auto script = ShellWords::read(content, "run.sh");
  EXPECT_TRUE(script);
  return std::move(*script);
}

std::string value_of(std::string_view content, const std::string& word) {
  return read(content).resolved(word).value_or("nothing");
}

TEST(ShellWords, AQuotedValueIsANamesValue) {
  EXPECT_EQ(value_of("TP=\"2\"", "$TP"), "2");
  EXPECT_EQ(value_of("export A='expandable_segments:True' B=\"\"", "$A"),
            "expandable_segments:True");
  EXPECT_EQ(value_of("B=\"\" C=3", "${B}"), "");
  EXPECT_EQ(value_of("DATA_PATH=\"0.3 /d/a\n 0.7 /d/b\"", "$DATA_PATH"), "0.3 /d/a 0.7 /d/b");
  EXPECT_EQ(value_of("D=(0.3 /d/a '0.7' /d/b)\nE=1", "${D[@]}"), "0.3 /d/a 0.7 /d/b");
  EXPECT_EQ(value_of("N=\"${N:-8}\"", "$N"), "8");
  EXPECT_EQ(read("x --load=\"/mnt/ckpt\" --y").written("load"), "/mnt/ckpt");
}

TEST(ShellWords, ANameThatIsGivenItselfSaysNothing) {
  EXPECT_EQ(value_of("N=8\nif x; then N=\"${N}\"; fi\necho \"N=$N\"", "$N"), "8");
}

TEST(ShellWords, WhatTakesMoreOfAShellHasNoValue) {
  for (const char* script : {"A=\"$B\"/c", "A=1\nA+=\" 2\"", "A=b\"c\"", "A=(\"my run\" x)",
                             "A=\"x$(dirname \"$0\")\"", "A=b\\ c"}) {
    EXPECT_EQ(value_of(script, "$A"), "nothing") << script;
  }
}

// Also of one argument, as scripts have them to be switched on and off.
TEST(ShellWords, ArgumentsWithinANameAreArguments) {
  const ShellWords script = read("A=\"--bf16\"\nB=\"--lr 3 --save x\"\n$A $B");
  EXPECT_EQ(script.arguments(), (std::vector<std::string>{"bf16", "lr", "save"}));
  EXPECT_EQ(script.written("lr"), "3");
}

std::string marks_of(std::string_view content) {
  std::string marks;
  const auto script = ShellWords::read(content, "run.sh");
  for (const ShellWord& word : script->words()) {
    marks += (marks.empty() ? "" : " ") + word.text + (word.is_torn ? "<torn>" : "") +
             (word.is_of_phrase ? "<phrase>" : "") + (word.is_quoted ? "<quoted>" : "");
  }
  return marks;
}

TEST(ShellWords, PartsOfOneWordAreMarked) {
  EXPECT_EQ(marks_of("a \"b\" 'c|d' \"\""), "a b<quoted> c|d<quoted> <quoted>");
  EXPECT_EQ(marks_of("a \"$B\"/c d"), "a $B<torn><quoted> /c<torn> d");
  EXPECT_EQ(marks_of("a b\"c\" d"), "a b<torn> c<torn><quoted> d");
  EXPECT_EQ(marks_of("a b\\ c d"), "a b<torn> c<torn> d");
  EXPECT_EQ(marks_of("a \\$b c"), "a $b<torn> c");
  EXPECT_EQ(marks_of("a \"b c\" d"), "a b<phrase> c<phrase> d");
  EXPECT_EQ(marks_of("a 'b;c' d"), "a b<torn> c<torn> d");
  EXPECT_EQ(marks_of("a \"#1\" # b"), "a #1<quoted>");
  EXPECT_EQ(marks_of("a \\\n  b \\\r\n  c"), "a b c");
  EXPECT_EQ(marks_of("bash -c \"x --b c\""), "bash -c x<phrase> --b c");
  EXPECT_EQ(marks_of("A=\"b c\" d"), "A= b c d");
  EXPECT_EQ(marks_of("[\"a\", \"b\"]"), "[<torn> a<torn><quoted> b<torn><quoted> ]<torn>");
}

TEST(ShellWords, WhatStandsBeforeAProgramIsItsLaunchers) {
  using Names = std::set<std::string, std::less<>>;
  EXPECT_EQ(read("x --a 1\nsrun --b=2 --c d \\\n  run.py --e 1\nx --f").before("run.py"),
            (Names{"b", "c"}));
  EXPECT_EQ(
      read("L=(--a 1)\nM=(--b 1)\nN=\"--c 1\" srun ${L[@]} run.py ${M[@]} $N").before("run.py"),
      (Names{"a"}));
  EXPECT_EQ(read("S=\"run.py\"\nx --a && srun --b $S --c --d y/run.py").before("run.py"),
            (Names{"b"}));
  EXPECT_EQ(read("srun --a \"my job\" bash -c \"go --b run.py --c\"").before("run.py"),
            (Names{"a", "b"}));
  EXPECT_TRUE(read("--a --b").before("run.py").empty());
}

}  // namespace
}  // namespace headroom::engines
