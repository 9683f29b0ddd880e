#include "formats/pickle.h"

#include <gtest/gtest.h>

#include <random>

#include "base/file.h"

namespace headroom::formats {
namespace {

using std::string_literals::operator""s;

Result<PickleDocument> read(std::string_view bytes, PickleSink* sink = nullptr,
                            const PickleLimits& limits = {}) {
  ByteSource source(bytes, "test.pickle");
  return read_pickle(source, sink, limits);
}

std::string error_of(std::string_view bytes, const PickleLimits& limits = {}) {
  const auto result = read(bytes, nullptr, limits);
  return result ? "no error" : result.error().to_string();
}

// pickle.dumps({'a': [1, -2, 300, 2**40, -2**40], 'b': (None, True, False, 1.5), 'c': 'a'}, N)
TEST(Pickle, ReadsProtocols2To5) {
  const std::string protocol2 =
      "\x80\x02}q\0(X\x01\0\0\0aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01\x8a\x06\0\0\0\0\0\x01"
      "\x8a\x06\0\0\0\0\0\xff"
      "eX\x01\0\0\0bq\x03(N\x88\x89G?\xf8\0\0\0\0\0\0tq\x04X\x01\0\0\0cq\x05h\x01u."s;
  const std::string protocol4 =
      "\x80\x04\x95@\0\0\0\0\0\0\0}\x94(\x8c\x01"
      "a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01\x8a\x06\0\0\0\0\0\x01\x8a\x06\0\0\0\0\0\xff"
      "e\x8c\x01"
      "b\x94(N\x88\x89G?\xf8\0\0\0\0\0\0t\x94\x8c\x01"
      "c\x94h\x01u."s;
  for (const std::string& bytes : {protocol2, protocol4}) {
    const auto document = read(bytes);
    ASSERT_TRUE(document) << document.error().to_string();
    const auto a = document->find(document->root(), "a");
    ASSERT_TRUE(a);
    const auto numbers = document->items(*a);
    ASSERT_EQ(numbers.size(), 5u);
    EXPECT_EQ(document->integer(numbers[0]), 1);
    EXPECT_EQ(document->integer(numbers[1]), -2);
    EXPECT_EQ(document->integer(numbers[2]), 300);
    EXPECT_EQ(document->integer(numbers[3]), int64_t{1} << 40);
    EXPECT_EQ(document->integer(numbers[4]), -(int64_t{1} << 40));
    const auto tuple = document->items(*document->find(document->root(), "b"));
    ASSERT_EQ(tuple.size(), 4u);
    EXPECT_EQ(tuple[0].kind(), PickleKind::none);
    EXPECT_TRUE(tuple[1].is_true());
    EXPECT_EQ(tuple[2].kind(), PickleKind::boolean);
    EXPECT_FALSE(tuple[2].is_true());
    EXPECT_DOUBLE_EQ(document->real(tuple[3]), 1.5);
    EXPECT_EQ(document->text(*document->find(document->root(), "c")), "a");
    EXPECT_FALSE(document->find(document->root(), "d"));
  }
}

TEST(Pickle, RefusesCodeWithItsPlace) {
  // pickle.dumps(os.system), and a REDUCE.
  EXPECT_EQ(error_of("\x80\x02"s + "cos\nsystem\n.").substr(0, 60),
            "test.pickle: byte 2: instruction GLOBAL would run code from ");
  EXPECT_NE(error_of("\x80\x04)\x8c\x01"
                     "aR."s)
                .find("REDUCE"),
            std::string::npos);
  EXPECT_NE(error_of("\x80\x04\x8c\x01"
                     "a\x8c\x01"
                     "b\x93."s)
                .find("STACK_GLOBAL"),
            std::string::npos);
}

TEST(Pickle, RefusesDamage) {
  const std::string whole =
      "\x80\x04}\x94(\x8c\x01"
      "a\x94]\x94(K\x01K\x02"
      "eu."s;
  ASSERT_TRUE(read(whole));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(read(whole.substr(0, length))) << length;
  }
  for (const std::string& bytes :
       {"\x80\x01N."s, "\x80\x06N."s, "\x80\x04."s, "\x80\x04NN."s, "\x80\x04(N."s, "\x80\x04Ne."s,
        "\x80\x04Na."s, "\x80\x04NNa."s, "\x80\x04}Ns."s, "\x80\x04}(Nu."s, "\x80\x04h\x05."s,
        "\x80\x04\x94."s, "\x80\x04N\x85\x86."s, "\x80\x04\x8a\t123456789."s,
        "\x80\x04X\xff\xff\xff\xff"s, "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s,
        "\x80\x04](N(a."s, "\x80\x04Nr\xff\xff\xff\x7f."s, "\x80\x04(Nd."s}) {
    EXPECT_FALSE(read(bytes));
  }
}

TEST(Pickle, BoundsDepthValuesAndMemo) {
  EXPECT_NE(error_of("\x80\x04" + std::string(200, '('), {.max_depth = 100}).find("deep"),
            std::string::npos);
  // What is on the stack is counted from window to window.
  const std::string more(200'000, 'N');
  EXPECT_NE(error_of("\x80\x04" + more, {.max_values = 100}).find("many values"),
            std::string::npos);
  EXPECT_NE(error_of("\x80\x04](" + more + "e.", {.max_values = 100'000}).find("many values"),
            std::string::npos);
  EXPECT_NE(
      error_of("\x80\x04" + std::string(200'000, ']'), {.max_containers = 100}).find("containers"),
      std::string::npos);
  EXPECT_NE(error_of("\x80\x04N" + std::string(200'000, '\x94'), {.max_memo = 100}).find("memo"),
            std::string::npos);
}

TEST(Pickle, NumbersOfEveryWidth) {
  for (const int64_t number :
       {int64_t{0}, int64_t{1} << 58, int64_t{1} << 59, int64_t{1} << 60, INT64_MAX,
        -(int64_t{1} << 59), -(int64_t{1} << 59) - 1, INT64_MIN}) {
    std::string bytes = "\x80\x02\x8a\x08";
    for (int i = 0; i < 8; ++i) {
      bytes += static_cast<char>(static_cast<uint64_t>(number) >> 8 * i);
    }
    const auto document = read(bytes + ".");
    ASSERT_TRUE(document);
    EXPECT_EQ(document->integer(document->root()), number);
  }
  const auto three_bytes = read("\x80\x02\x8a\x03\xff\xff\xff."s);
  ASSERT_TRUE(three_bytes);
  EXPECT_EQ(three_bytes->integer(three_bytes->root()), -1);
  const auto none = read("\x80\x02\x8a\0."s);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->integer(none->root()), 0);
}

// A text that is longer than the buffer of a file, and one that says so and is not there.
TEST(Pickle, LongTexts) {
  const std::string text(1'000'000, 'x');
  const std::string bytes = "\x80\x02X\x40\x42\x0f\0"s + text + ".";
  const std::string path = testing::TempDir() + "headroom_pickle_test.pickle";
  ASSERT_TRUE(write_file_atomic(path, bytes));
  auto source = ByteSource::open(path);
  ASSERT_TRUE(source);
  const auto from_file = read_pickle(*source);
  ASSERT_TRUE(from_file) << from_file.error().to_string();
  EXPECT_EQ(from_file->text(from_file->root()), text);
  EXPECT_FALSE(read(bytes.substr(0, bytes.size() - 2)));
  EXPECT_NE(error_of("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f" + text).find("a text of"),
            std::string::npos);
}

// Makes records of dicts that have a number under "n", and of lists of such.
class SumSink : public PickleSink {
 public:
  Made on_dict(const PickleDocument& document, int64_t, uint32_t,
               std::span<const PickleValue> items) override {
    ++dicts;
    for (size_t i = 0; i < items.size(); i += 2) {
      if (document.text(items[i]) == "n")
        return {static_cast<uint64_t>(*document.integer(items[i + 1])), true};
    }
    return {};
  }
  Made on_list(const PickleDocument& document, int64_t, Record sum,
               std::span<const PickleValue> items) override {
    ++lists;
    uint64_t total = sum.value_or(0);
    for (const PickleValue item : items) {
      const auto record = document.record(item);
      if (!record) return {};
      total += *record;
    }
    return {total, true};
  }
  int dicts = 0;
  int lists = 0;
};

TEST(Pickle, ASinkMakesRecords) {
  // pickle.dumps([[a, b], [a, b], [b]], 4) with a = {'n': 1} and b = {'n': 2}
  const std::string bytes =
      "\x80\x04]\x94(]\x94(}\x94\x8c\x01n\x94K\x01s}\x94h\x03K\x02se]\x94(h\x02h\x04"
      "e]\x94h\x04"
      "ae."s;
  SumSink sink;
  const auto document = read(bytes, &sink);
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(sink.dicts, 2);
  EXPECT_EQ(sink.lists, 4);
  EXPECT_EQ(document->record(document->root()), 8u);
  EXPECT_TRUE(document->items(document->root()).empty());
}

TEST(Pickle, ListsOfTheSameReferencesAreAskedForOnce) {
  // [[a, b], [a, b], [a, b, a], [a, b]] where both dicts are in the memo from before.
  const std::string bytes =
      "\x80\x04]\x94(}\x94\x8c\x01n\x94K\x01s}\x94h\x02K\x02s](h\x01h\x03"
      "e](h\x01h\x03"
      "e](h\x01h\x03h\x01"
      "e](h\x01h\x03"
      "ee."s;
  SumSink sink;
  const auto document = read(bytes, &sink);
  ASSERT_TRUE(document) << document.error().to_string();
  EXPECT_EQ(sink.lists, 3);
  EXPECT_EQ(document->record(document->root()), 1u + 2 + 3 + 3 + 4 + 3);
}

TEST(Pickle, DictsOfTheSameBytesAreAskedForOnce) {
  // [{'n': 1}, then four times with the key as a reference: 1, 2, 1, 2, 1], as numbers of one byte.
  const std::string bytes =
      "\x80\x04](}\x94(\x8c\x01n\x94K\x01u}\x94(h\x01K\x01u}\x94(h\x01K\x02u"
      "}\x94(h\x01K\x01u}\x94(h\x01K\x02u}\x94(h\x01K\x01u"
      "e."s;
  SumSink sink;
  const auto document = read(bytes, &sink);
  ASSERT_TRUE(document) << document.error().to_string();
  // Not the one with the key spelled out, nor the one that taught the shape.
  EXPECT_EQ(sink.dicts, 4);
  EXPECT_EQ(document->record(document->root()), 1u + 1 + 2 + 1 + 2 + 1);
}

TEST(Pickle, AGroupBehindAnotherMarkIsNotTheDicts) {
  SumSink sink;
  const std::string head =
      "\x80\x04](}\x94(\x8c\x01n\x94K\x01u}\x94(h\x01K\x01u}\x94(h\x01K\x02u}\x94("s;
  EXPECT_TRUE(read(head + "h\x01K\x01ue.", &sink));
  EXPECT_FALSE(read(head + "(h\x01K\x01uue.", &sink));
}

// Spells dicts and lists out, so that a record says all that was read.
class SpellingSink : public PickleSink {
 public:
  Made on_dict(const PickleDocument& document, int64_t, uint32_t shape,
               std::span<const PickleValue> items) override {
    ++dicts;
    shapes += shape != kNoShape ? 1 : 0;
    return {words_.intern("{" + spell(document, items) + "}"), true};
  }
  Made on_list(const PickleDocument& document, int64_t, Record known,
               std::span<const PickleValue> items) override {
    const std::string before = known ? std::string(words_[static_cast<uint32_t>(*known)]) : "";
    return {words_.intern(before + "[" + spell(document, items) + "]"), true};
  }
  std::string spell(const PickleDocument& document, std::span<const PickleValue> items) const {
    std::string out;
    for (const PickleValue item : items) out += spell(document, item) + ",";
    return out;
  }
  std::string spell(const PickleDocument& document, PickleValue value) const {
    if (const auto record = document.record(value)) {
      return std::string(words_[static_cast<uint32_t>(*record)]);
    }
    switch (value.kind()) {
      case PickleKind::integer:
        return std::to_string(*document.integer(value));
      case PickleKind::text:
        return "'" + std::string(document.text(value)) + "'";
      case PickleKind::dict:
        return "{" + spell(document, document.items(value)) + "}";
      case PickleKind::list:
        return document.items(value).empty() ? ""
                                             : "[" + spell(document, document.items(value)) + "]";
      default:
        return value.is_true() ? "True" : "None or False";
    }
  }
  int dicts = 0;
  int shapes = 0;

 private:
  Interner words_;
};

// Dicts with keys from a few sets in random order and values of every kind, dicts within dicts.
class RandomPickle {
 public:
  RandomPickle(uint64_t seed, bool is_old) : random_(seed), is_old_(is_old) {
    bytes_ = is_old_ ? "\x80\x02](" : "\x80\x04](";
    for (int i = 0; i < 300; ++i) text("key" + std::to_string(i));
    for (int i = 0; i < 400; ++i) dict(0);
    bytes_ += "e.";
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  uint64_t below(uint64_t limit) { return random_() % limit; }
  void number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> 8 * i);
  }
  void put() {
    if (!is_old_) {
      bytes_ += '\x94';
    } else {
      bytes_ += memo_ < 256 ? 'q' : 'r';
      number(memo_, memo_ < 256 ? 1 : 4);
    }
    ++memo_;
  }
  void text(const std::string& text) {
    bytes_ += is_old_ ? 'X' : '\x8c';
    number(text.size(), is_old_ ? 4 : 1);
    bytes_ += text;
    put();
  }
  void reference(uint64_t index) {
    bytes_ += index < 256 ? 'h' : 'j';
    number(index, index < 256 ? 1 : 4);
  }
  void list() {
    bytes_ += ']';
    put();
    bytes_ += '(';
    const uint64_t first = below(4);
    for (uint64_t i = 0; i < 5; ++i) reference(first + 100 * i % 300);
    bytes_ += 'e';
  }
  void value(int depth) {
    switch (below(depth < 2 ? 12 : 11)) {
      case 0:
        return list();
      case 1:
        return text(std::string(below(12), 'x'));
      case 2:
        bytes_ += "N\x88\x89"[below(3)];
        return;
      case 3:
        bytes_ += 'M';
        return number(below(65536), 2);
      case 4:
        bytes_ += 'J';
        return number(below(uint64_t{1} << 32), 4);
      case 5:
        bytes_ += "\x8a\x05";
        return number(random_(), 5);
      case 6:
        return reference(below(300));
      case 11:
        return dict(depth + 1);
      default:
        bytes_ += 'K';
        return number(below(2), 1);
    }
  }
  void dict(int depth) {
    // Sets of keys that begin alike, that are each other's beginnings, and more than are learnt.
    const uint64_t set = below(40) < 38 ? below(6) : below(40);
    bytes_ += '}';
    put();
    bytes_ += '(';
    for (uint64_t i = 0; i < 2 + set % 4; ++i) {
      reference(i < 2 ? set / 4 + i : 250 + (set * i) % 20);
      value(depth);
    }
    bytes_ += 'u';
  }

  std::mt19937_64 random_;
  bool is_old_;
  uint64_t memo_ = 0;
  std::string bytes_;
};

TEST(Pickle, ShapesAndPiecesSayWhatTheInstructionsSay) {
  int with_shape = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const RandomPickle pickle(seed, seed % 2 == 0);
    SpellingSink none;
    SpellingSink sink;
    const auto whole = read(pickle.bytes());
    const auto records = read(pickle.bytes(), &sink);
    ASSERT_TRUE(whole) << whole.error().to_string();
    ASSERT_TRUE(records) << records.error().to_string();
    ASSERT_EQ(sink.spell(*records, records->root()), none.spell(*whole, whole->root())) << seed;
    EXPECT_LT(sink.dicts, 400 * 2);
    with_shape += sink.shapes;
  }
  EXPECT_GT(with_shape, 10'000);
}

// torch's own pickler remembers a container when it is full, and CPython when it is empty.
TEST(Pickle, ContainersAreRememberedFullOrEmpty) {
  // [{'n': 1}, the same, 'n'] with a dict that is remembered behind its items.
  const std::string bytes = "\x80\x02](}(X\x01\0\0\0nq\0K\x01uq\x01h\x01h\0e."s;
  const auto document = read(bytes);
  ASSERT_TRUE(document) << document.error().to_string();
  const auto items = document->items(document->root());
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(document->integer(document->find(items[0], "n").value()), 1);
  EXPECT_EQ(document->text(items[2]), "n");
}

TEST(Pickle, WhatWasUsedDoesNotChange) {
  SumSink sink;
  // A dict that gets another key after it became a record.
  EXPECT_FALSE(read("\x80\x04}\x94\x8c\x01n\x94K\x01sh\x01K\x02s."s, &sink));
  // A list of records that gets what is none.
  EXPECT_FALSE(read("\x80\x04](}\x8c\x01n\x94K\x01seNa."s, &sink));
  // A memo entry that is written twice.
  EXPECT_FALSE(read("\x80\x02Nq\0q\0."s));
}

}  // namespace
}  // namespace headroom::formats
