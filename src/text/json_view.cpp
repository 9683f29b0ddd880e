#include <array>
#include <charconv>
#include <cmath>

#include "text/json.h"

namespace headroom::text {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

// RFC 6901: '~' and '/' are escaped in a pointer.
std::string pointer_token(std::string_view key) {
  std::string token = "/";
  for (const char c : key.substr(0, 200)) {
    if (c == '~') {
      token += "~0";
    } else if (c == '/') {
      token += "~1";
    } else {
      token += c;
    }
  }
  return token;
}

// A value as a message shows it, short.
std::string show(const Json& value) {
  if (value.is_array() || value.is_object()) {
    return std::string(kind_name(value.kind())) + " of " + std::to_string(value.size());
  }
  if (value.is_string() && value.as_string().size() > 40) {
    return quote_json(value.as_string().substr(0, 40)) + "...";
  }
  return value.dump();
}

std::string show(double value) { return Json(value).dump(); }

// nothing where `result` is nothing.
template <typename T>
Result<std::optional<T>> lift(Result<T> result) {
  if (!result) return std::move(result).error();
  return std::optional<T>(std::move(result).value());
}

}  // namespace

Error JsonView::error(std::string message, std::string hint) const {
  return Error{ErrorCode::bad_input, std::move(message), place_, std::move(hint)};
}

Error JsonView::error_at(std::string_view key, std::string message, std::string hint) const {
  return Error{ErrorCode::bad_input, std::move(message), place_ + pointer_token(key),
               std::move(hint)};
}

Error JsonView::wrong_kind(const char* expected) const {
  return error("expected " + std::string(expected) + ", found " + show(*value_));
}

bool JsonView::has(std::string_view key) const {
  const Json* found = value_->find(key);
  return found != nullptr && !found->is_null();
}

Result<JsonView> JsonView::member(std::string_view key) const {
  if (!value_->is_object()) return wrong_kind("an object");
  const Json* found = value_->find(key);
  if (found == nullptr) return error_at(key, "is missing");
  if (found->is_null()) return error_at(key, "is null, expected a value");
  return JsonView(At{}, *found, place_ + pointer_token(key));
}

Result<int64_t> JsonView::to_int(int64_t min, int64_t max) const {
  int64_t value = 0;
  if (value_->is_integer()) {
    value = value_->as_int();
  } else if (value_->kind() == Json::Kind::number) {
    const double number = value_->as_double();
    if (std::abs(number) > kExactIntegers) {
      return error(show(number) + " is outside " + std::to_string(min) + " to " +
                   std::to_string(max));
    }
    if (number != std::floor(number)) return wrong_kind("an integer");
    value = static_cast<int64_t>(number);
  } else {
    return wrong_kind("an integer");
  }
  if (value < min || value > max) {
    return error(std::to_string(value) + " is outside " + std::to_string(min) + " to " +
                 std::to_string(max));
  }
  return value;
}

Result<double> JsonView::to_double(double min, double max) const {
  if (!value_->is_numeric()) return wrong_kind("a number");
  const double value = value_->as_double();
  if (!(value >= min && value <= max)) {
    return error(show(value) + " is outside " + show(min) + " to " + show(max));
  }
  return value;
}

Result<bool> JsonView::to_bool() const {
  if (value_->kind() != Json::Kind::boolean) return wrong_kind("true or false");
  return value_->as_bool();
}

Result<std::string> JsonView::to_string() const {
  if (!value_->is_string()) return wrong_kind("a string");
  return value_->as_string();
}

Result<JsonView> JsonView::as_object() const {
  if (!value_->is_object()) return wrong_kind("an object");
  return *this;
}

Result<std::vector<JsonView>> JsonView::to_array(size_t max_items) const {
  if (!value_->is_array()) return wrong_kind("an array");
  const Json::Array& items = value_->items();
  if (items.size() > max_items) {
    return error("has " + std::to_string(items.size()) + " items, at most " +
                 std::to_string(max_items) + " are allowed");
  }
  std::vector<JsonView> views;
  views.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    views.push_back(JsonView(At{}, items[i], place_ + "/" + std::to_string(i)));
  }
  return views;
}

Result<std::vector<std::pair<std::string, JsonView>>> JsonView::get_members() const {
  if (!value_->is_object()) return wrong_kind("an object");
  std::vector<std::pair<std::string, JsonView>> views;
  views.reserve(value_->size());
  for (const auto& [key, value] : value_->members()) {
    views.emplace_back(key, JsonView(At{}, value, place_ + pointer_token(key)));
  }
  return views;
}

Result<int64_t> JsonView::get_int(std::string_view key, int64_t min, int64_t max) const {
  HEADROOM_ASSIGN(const JsonView found, member(key));
  return found.to_int(min, max);
}

Result<double> JsonView::get_double(std::string_view key, double min, double max) const {
  HEADROOM_ASSIGN(const JsonView found, member(key));
  return found.to_double(min, max);
}

Result<bool> JsonView::get_bool(std::string_view key) const {
  HEADROOM_ASSIGN(const JsonView found, member(key));
  return found.to_bool();
}

Result<std::string> JsonView::get_string(std::string_view key) const {
  HEADROOM_ASSIGN(const JsonView found, member(key));
  return found.to_string();
}

Result<JsonView> JsonView::get_object(std::string_view key) const {
  HEADROOM_ASSIGN(const JsonView found, member(key));
  return found.as_object();
}

Result<std::vector<JsonView>> JsonView::get_array(std::string_view key, size_t max_items) const {
  HEADROOM_ASSIGN(const JsonView found, member(key));
  return found.to_array(max_items);
}

JsonView::Optional<int64_t> JsonView::optional_int(std::string_view key, int64_t min,
                                                   int64_t max) const {
  if (value_->is_object() && !has(key)) return std::optional<int64_t>();
  return lift(get_int(key, min, max));
}

JsonView::Optional<double> JsonView::optional_double(std::string_view key, double min,
                                                     double max) const {
  if (value_->is_object() && !has(key)) return std::optional<double>();
  return lift(get_double(key, min, max));
}

JsonView::Optional<bool> JsonView::optional_bool(std::string_view key) const {
  if (value_->is_object() && !has(key)) return std::optional<bool>();
  return lift(get_bool(key));
}

JsonView::Optional<std::string> JsonView::optional_string(std::string_view key) const {
  if (value_->is_object() && !has(key)) return std::optional<std::string>();
  return lift(get_string(key));
}

JsonView::Optional<JsonView> JsonView::optional_object(std::string_view key) const {
  if (value_->is_object() && !has(key)) return std::optional<JsonView>();
  return lift(get_object(key));
}

JsonView::Optional<std::vector<JsonView>> JsonView::optional_array(std::string_view key,
                                                                   size_t max_items) const {
  if (value_->is_object() && !has(key)) return std::optional<std::vector<JsonView>>();
  return lift(get_array(key, max_items));
}

}  // namespace headroom::text
