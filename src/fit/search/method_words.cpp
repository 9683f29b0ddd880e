#include "fit/search/method_words.h"

#include <algorithm>
#include <array>
#include <optional>

#include "fit/words.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

constexpr std::array<Word<Method>, 7> kMethods{{{"full", Method::full},
                                                {"lora", Method::lora},
                                                {"dora", Method::dora},
                                                {"ia3", Method::ia3},
                                                {"qlora", Method::qlora},
                                                {"lora-8bit", Method::lora_8bit},
                                                {"gptq-lora", Method::gptq_lora}}};
constexpr std::array<Word<Division>, 7> kDivisions{{{"fsdp2", Division::fsdp2},
                                                    {"fsdp1", Division::fsdp1},
                                                    {"ddp", Division::ddp},
                                                    {"zero1", Division::zero1},
                                                    {"zero2", Division::zero2},
                                                    {"zero3", Division::zero3},
                                                    {"gemini", Division::gemini}}};
constexpr int64_t kMostRanks = 65'536;

// The number of "fsdp2:8"; one alone divides nothing, but Gemini has chunks, and DeepSpeed masters
// and buckets, all the same.
Result<void> set_ranks(std::string_view word, int64_t& field, int64_t least = 2) {
  const size_t digits = std::min(word.find(':'), word.size() - 1) + 1;
  const auto ranks = text::parse_number<int64_t>(word.substr(digits));
  if (!ranks || *ranks < least || *ranks > kMostRanks) {
    return refuse("method", word, "2 to 65536 behind a colon, such as fsdp2:8");
  }
  field = *ranks;
  return {};
}

// The words of --method as far as they are read; nothing where none of a kind was there.
struct MethodWords {
  std::optional<Method> method;
  std::optional<Division> division;
  int64_t ranks = 1;
  int64_t replicas = 1;
  int64_t tensor_ranks = 1;
  int64_t context_ranks = 1;
  int64_t expert_ranks = 1;
  int64_t stages = 1;
  int64_t stage_chunks = 1;
};

// Words that stand beside a division, or alone, with the number of what they count.
struct CountWord {
  std::string_view word;
  int64_t MethodWords::*field;
  int64_t FitQuestion::*setting;
};
constexpr std::array kCounts{
    CountWord{"replicate", &MethodWords::replicas, &FitQuestion::replicas},
    CountWord{"tp", &MethodWords::tensor_ranks, &FitQuestion::tensor_ranks},
    CountWord{"cp", &MethodWords::context_ranks, &FitQuestion::context_ranks},
    CountWord{"ep", &MethodWords::expert_ranks, &FitQuestion::expert_ranks},
    CountWord{"pp", &MethodWords::stages, &FitQuestion::stages},
    CountWord{"vpp", &MethodWords::stage_chunks, &FitQuestion::stage_chunks}};

// Every word that takes a number.
Error refuse_division(std::string_view name) {
  std::array<std::string_view, kDivisions.size() + kCounts.size()> choices;
  const auto rest = std::ranges::transform(kDivisions, choices.begin(), &Word<Division>::word).out;
  std::ranges::transform(kCounts, rest, &CountWord::word);
  return refuse_choice("method", name, choices);
}

constexpr const char* kOneOfEach = "one way to train and one to divide, such as lora,fsdp2:8";

Result<void> read_method_word(std::string_view word, MethodWords& read) {
  const std::string_view name = word.substr(0, word.find(':'));
  const bool has_number = name.size() < word.size();
  if (const auto count = std::ranges::find(kCounts, name, &CountWord::word);
      count != kCounts.end()) {
    int64_t& field = read.*(count->field);
    if (field > 1) return refuse("method", word, kOneOfEach);
    return set_ranks(word, field);
  }
  const auto division = std::ranges::find(kDivisions, name, &Word<Division>::word);
  const bool divides = has_number || division != kDivisions.end();
  if (divides ? read.division.has_value() : read.method.has_value()) {
    return refuse("method", word, kOneOfEach);
  }
  if (!divides) return choose("method", word, kMethods, read.method.emplace());
  if (division == kDivisions.end()) return refuse_division(name);
  read.division = division->value;
  const bool may_be_alone = read.division == Division::gemini || is_zero(*read.division) ||
                            read.division == Division::fsdp2;
  return set_ranks(word, read.ranks, may_be_alone ? 1 : 2);
}

}  // namespace

Result<void> set_method(std::string_view words, FitQuestion& question) {
  MethodWords read;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    HEADROOM_TRY(read_method_word(words.substr(begin, end - begin), read));
    begin = end + 1;
  }
  question.method = read.method.value_or(Method::full);
  question.division = read.division.value_or(Division::none);
  question.ranks = read.ranks;
  for (const CountWord& count : kCounts) question.*(count.setting) = read.*(count.field);
  if (read.replicas > 1 && !is_fsdp(question.division)) {
    return refuse("method", words,
                  "replicate:N beside fsdp1:N or fsdp2:N, whose groups it repeats");
  }
  if (question.division == Division::gemini && read.ranks * read.tensor_ranks == 1) {
    return refuse("method", words, "gemini:N of two GPUs or more, or gemini:1,tp:N");
  }
  const bool shards_alone = read.ranks * read.context_ranks == 1;
  if (question.division == Division::fsdp2 && shards_alone &&
      (read.tensor_ranks * read.stages == 1 || read.replicas > 1)) {
    return refuse("method", words,
                  "fsdp2:N of two GPUs or more, or fsdp2:1 beside cp:N, tp:N or pp:N");
  }
  if (read.context_ranks > 1 && question.division != Division::fsdp2) {
    return refuse("method", words, "cp:N beside fsdp2:M, which shards among all M times N");
  }
  const bool has_experts_apart = read.expert_ranks > 1;
  if (has_experts_apart &&
      (question.division != Division::fsdp2 || read.ranks % read.expert_ranks != 0)) {
    return refuse("method", words,
                  "ep:N beside fsdp2:M, M a multiple of N, which share experts out");
  }
  if (read.stages == 1 && read.stage_chunks > 1) {
    return refuse("method", words, "vpp:N beside pp:N, whose stages it gives N parts of the model");
  }
  if (read.replicas >
      kMostRanks / read.ranks / read.tensor_ranks / read.context_ranks / read.stages) {
    return refuse("method", words, "65536 GPUs in all at most");
  }
  return {};
}

std::span<const Method> every_method() {
  static constexpr auto kEvery = [] {
    std::array<Method, kMethods.size()> methods{};
    for (size_t i = 0; i < kMethods.size(); ++i) methods[i] = kMethods[i].value;
    return methods;
  }();
  return kEvery;
}

std::string method_word(const FitQuestion& question) { return word_of(kMethods, question.method); }

std::string division_words(const FitQuestion& question) {
  std::string words;
  const auto add = [&](std::string_view word, int64_t count) {
    words.append(",").append(word).append(":").append(std::to_string(count));
  };
  if (question.division != Division::none) {
    add(word_of(kDivisions, question.division), question.ranks);
  }
  for (const CountWord& count : kCounts) {
    if (question.*(count.setting) > 1) add(count.word, question.*(count.setting));
  }
  return words;
}

}  // namespace headroom::fit
