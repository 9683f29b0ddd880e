// Result<T>: a value, or an Error that says what went wrong, where, and what to do about it.
//
// Every expected failure (a bad file, an unknown model, a device that is not here) travels as a
// Result; exceptions are left for bugs and for memory running out. The shape follows C++23's
// std::expected, so that it can replace this one day. Not thread-safe, cheap to move.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headroom {

// What kind of failure; the command line maps these to its exit codes.
enum class ErrorCode {
  usage,        // 2: the words of the command line are off
  bad_input,    // 3: a file or value is malformed, truncated or out of range
  unavailable,  // 4: needs something that is not here (a GPU, a server, a Python package)
  partial,      // 5: some of the work was done, some could not be
};

struct Error {
  ErrorCode code = ErrorCode::bad_input;
  std::string message;  // what was found and what was expected
  std::string where;    // file and place in it: line, byte offset, JSON pointer; may be empty
  std::string hint;     // what the user can do; may be empty

  // One line, "where: message (hint)", leaving out what is empty.
  [[nodiscard]] std::string to_string() const;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): returning a value or an Error reads best.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // REQUIRES: has_value().
  T& value() & {
    HEADROOM_CHECK(has_value(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    HEADROOM_CHECK(has_value(), "value() of a failed Result");
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !has_value().
  const Error& error() const& {
    HEADROOM_CHECK(!has_value(), "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }
  Error&& error() && { return std::move(const_cast<Error&>(std::as_const(*this).error())); }

 private:
  std::variant<T, Error> state_;
};

// The result of something that is done for its effect.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}
  [[nodiscard]] bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& {
    HEADROOM_CHECK(error_.has_value(), "error() of a Result that succeeded");
    return *error_;
  }
  Error&& error() && {
    HEADROOM_CHECK(error_.has_value(), "error() of a Result that succeeded");
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace headroom

#define HEADROOM_CONCAT_INNER(a, b) a##b
#define HEADROOM_CONCAT(a, b) HEADROOM_CONCAT_INNER(a, b)

// Leaves the enclosing function with the Error of `expression`, if it has one.
#define HEADROOM_TRY(expression)                                             \
  do {                                                                       \
    auto headroom_try_result = (expression);                                 \
    if (!headroom_try_result) return std::move(headroom_try_result).error(); \
  } while (false)

// Same, and declares or assigns `target` from the value: HEADROOM_ASSIGN(auto json, parse(text));
// NOLINTBEGIN(bugprone-macro-parentheses): `target` is a declaration.
#define HEADROOM_ASSIGN(target, expression)                                \
  auto HEADROOM_CONCAT(headroom_result_, __LINE__) = (expression);         \
  if (!HEADROOM_CONCAT(headroom_result_, __LINE__))                        \
    return std::move(HEADROOM_CONCAT(headroom_result_, __LINE__)).error(); \
  target = std::move(HEADROOM_CONCAT(headroom_result_, __LINE__)).value()
// NOLINTEND(bugprone-macro-parentheses)
