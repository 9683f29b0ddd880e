#include "formats/sqlite_file.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/tiny_database.h"

namespace headroom::formats {
namespace {

TEST(SqliteFile, RowsOfATable) {
  const std::string bytes = database_of(
      "CREATE TABLE \"odd\"\"name\" (a INT, b TEXT, c REAL);"
      "INSERT INTO \"odd\"\"name\" VALUES (1,'x',0.5),(NULL,NULL,NULL),('one',x'00',7)");
  const auto file = SqliteFile::from_bytes(bytes, "test");
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->tables(), std::vector<std::string>{"odd\"name"});
  EXPECT_TRUE(file->has_column("odd\"name", "b"));
  EXPECT_FALSE(file->has_column("odd\"name", "missing"));
  auto rows = file->rows("odd\"name", {"a", "b", "missing"});
  ASSERT_TRUE(rows) << rows.error().to_string();
  ASSERT_TRUE(rows->next());
  EXPECT_EQ(rows->integer(0), 1);
  EXPECT_EQ(rows->text(1), "x");
  EXPECT_EQ(rows->integer(2), std::nullopt);
  ASSERT_TRUE(rows->next());
  EXPECT_EQ(rows->integer(0), std::nullopt);
  EXPECT_EQ(rows->text(1), "");
  ASSERT_TRUE(rows->next());
  EXPECT_EQ(rows->number(), 3);
  EXPECT_EQ(rows->integer(0), std::nullopt);  // a text that is no number
  EXPECT_EQ(rows->text(1), "");               // a blob is no text
  EXPECT_FALSE(rows->next());
  EXPECT_FALSE(rows->fault());
}

// What could make reading a column run somebody's code, or for ever, is refused or bounded.
TEST(SqliteFile, HostileSchemas) {
  const std::string bytes = database_of(
      "CREATE TABLE plain (a INT);"
      "CREATE TABLE made (a INT, b GENERATED ALWAYS AS (hex(zeroblob(100000000))) VIRTUAL);"
      "INSERT INTO made VALUES (1);"
      "CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n)"
      "  SELECT x AS a FROM n;"
      "CREATE VIRTUAL TABLE words USING fts5(a)");
  const auto file = SqliteFile::from_bytes(bytes, "test");
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_TRUE(file->has("plain"));
  EXPECT_FALSE(file->has("endless"));
  EXPECT_FALSE(file->has("words"));
  // A generated column may compute, but no more than a value may be long.
  auto rows = file->rows("made", {"a", "b"});
  ASSERT_TRUE(rows) << rows.error().to_string();
  EXPECT_FALSE(rows->next());
  EXPECT_TRUE(rows->fault());
}

TEST(SqliteFile, AValueThatIsTooLongEndsTheRows) {
  const std::string bytes = database_of(
      "CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('short'); INSERT INTO t VALUES "
      "(printf('%.*c', 2000000, 'x'))");
  const auto file = SqliteFile::from_bytes(bytes, "test");
  ASSERT_TRUE(file);
  auto rows = file->rows("t", {"a"});
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->next());
  EXPECT_FALSE(rows->next());
  EXPECT_TRUE(rows->fault());
  EXPECT_FALSE(rows->next());
}

TEST(SqliteFile, NotADatabase) {
  for (const std::string& bytes :
       {std::string(), std::string("SQLite format 3"), std::string(2000, 'x')}) {
    const auto file = SqliteFile::from_bytes(bytes, "test");
    EXPECT_TRUE(!file || file->tables().empty());
  }
  EXPECT_FALSE(SqliteFile::open("no/such/file.sqlite"));
  EXPECT_TRUE(is_sqlite(database_of("CREATE TABLE t (a INT)")));
  EXPECT_FALSE(is_sqlite("SQLite format 2"));
}

}  // namespace
}  // namespace headroom::formats
