#include "formats/pickle.h"

#include <gtest/gtest.h>

namespace headroom::formats {
namespace {

using std::string_literals::operator""s;

Result<PickleDocument> read(std::string_view bytes, const PickleSink& sink = {},
                            const PickleLimits& limits = {}) {
  ByteSource source(bytes, "test.pickle");
  return read_pickle(source, sink, limits);
}

std::string error_of(std::string_view bytes, const PickleLimits& limits = {}) {
  const auto result = read(bytes, {}, limits);
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
    const PickleValue* const a = document->find(document->root(), "a");
    ASSERT_NE(a, nullptr);
    const auto numbers = document->items(*a);
    ASSERT_EQ(numbers.size(), 5u);
    EXPECT_EQ(numbers[0].payload, 1);
    EXPECT_EQ(numbers[1].payload, -2);
    EXPECT_EQ(numbers[2].payload, 300);
    EXPECT_EQ(numbers[3].payload, int64_t{1} << 40);
    EXPECT_EQ(numbers[4].payload, -(int64_t{1} << 40));
    const auto tuple = document->items(*document->find(document->root(), "b"));
    ASSERT_EQ(tuple.size(), 4u);
    EXPECT_EQ(tuple[0].kind, PickleKind::none);
    EXPECT_EQ(tuple[1].payload, 1);
    EXPECT_EQ(tuple[2].payload, 0);
    EXPECT_DOUBLE_EQ(document->real(tuple[3]), 1.5);
    EXPECT_EQ(document->text(*document->find(document->root(), "c")), "a");
    EXPECT_EQ(document->find(document->root(), "d"), nullptr);
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
  EXPECT_NE(error_of("\x80\x04" + std::string(200, 'N'), {.max_values = 100}).find("many values"),
            std::string::npos);
  EXPECT_NE(
      error_of("\x80\x04" + std::string(200, ']'), {.max_containers = 100}).find("containers"),
      std::string::npos);
  EXPECT_NE(error_of("\x80\x04N" + std::string(200, '\x94'), {.max_memo = 100}).find("memo"),
            std::string::npos);
}

TEST(Pickle, SinkTakesItemsOut) {
  // A list of three dicts, and a later reference to the second.
  const std::string bytes =
      "\x80\x04]\x94(}\x94}\x94}\x94"
      "eh\x02\x86."s;
  int seen = 0;
  const auto count = [&](PickleDocument&, PickleValue, PickleValue) -> Result<PickleVerdict> {
    ++seen;
    return PickleVerdict::leave_out;
  };
  const auto document = read(bytes, count);
  ASSERT_TRUE(document);
  EXPECT_EQ(seen, 3);
  EXPECT_TRUE(document->items(document->items(document->root())[0]).empty());
  const auto recycle = [](PickleDocument&, PickleValue, PickleValue) -> Result<PickleVerdict> {
    return PickleVerdict::recycle;
  };
  EXPECT_FALSE(read(bytes, recycle));
  const auto refuse = [](PickleDocument&, PickleValue, PickleValue) -> Result<PickleVerdict> {
    return Error{ErrorCode::bad_input, "no", "", ""};
  };
  const auto refused = read(bytes, refuse);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "test.pickle: byte 11");
}

}  // namespace
}  // namespace headroom::formats
