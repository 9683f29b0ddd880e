// A database made by hand, for tests: the bytes of what some SQL makes.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

namespace headroom::formats {

inline std::string database_of(const char* sql) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &database), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, &message), SQLITE_OK)
      << (message != nullptr ? message : "");
  sqlite3_int64 size = 0;
  unsigned char* const data = sqlite3_serialize(database, "main", &size, 0);
  std::string bytes(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  sqlite3_free(data);
  sqlite3_close(database);
  return bytes;
}

}  // namespace headroom::formats
