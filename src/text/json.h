// JSON: a small value type, a reader with limits, typed access that names the place, and a writer.
//
// Use it for everything small that is JSON: model configurations, device files, answers of ours.
// Files of hundreds of megabytes (profiler traces) have readers of their own that do not build
// values. An object keeps the order of its members, so what is written is deterministic; looking a
// member up is linear, which is fastest for the sizes meant here. Values are not synchronised:
// any number of threads may read one that nobody changes. Parsing costs about 20 ns a byte, and at
// most about 100 bytes of memory a value.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace headroom::text {

class Json {
 public:
  enum class Kind { null, boolean, integer, number, string, array, object };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  // Implicit, so that an answer can be written down plainly: object.set("fits", true).
  // NOLINTBEGIN(google-explicit-constructor)
  Json(std::nullptr_t) {}
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Json(T value) : value_(checked_integer(value)) {}
  Json(double value) : value_(value) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Bytes value) : value_(value.count) {}
  // NOLINTEND(google-explicit-constructor)
  static Json array(Array values = {});
  static Json object(Object members = {});

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(value_.index()); }
  [[nodiscard]] bool is_null() const { return kind() == Kind::null; }
  [[nodiscard]] bool is_object() const { return kind() == Kind::object; }
  [[nodiscard]] bool is_array() const { return kind() == Kind::array; }
  [[nodiscard]] bool is_string() const { return kind() == Kind::string; }
  [[nodiscard]] bool is_integer() const { return kind() == Kind::integer; }
  // An integer or a number with a fraction.
  [[nodiscard]] bool is_numeric() const { return is_integer() || kind() == Kind::number; }

  // REQUIRES: the kind that the name says. For input use JsonView, which checks.
  [[nodiscard]] bool as_bool() const { return get<bool>(); }
  [[nodiscard]] int64_t as_int() const { return get<int64_t>(); }
  [[nodiscard]] double as_double() const;  // an integer is converted
  [[nodiscard]] const std::string& as_string() const { return get<std::string>(); }
  [[nodiscard]] const Array& items() const { return get<Array>(); }
  [[nodiscard]] const Object& members() const { return get<Object>(); }

  // The member of that name, or null where there is none or this is not an object.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] Json* find(std::string_view key);
  // Replaces or appends a member, and returns this for chaining. REQUIRES: is_object().
  Json& set(std::string_view key, Json value);
  // Appends an item, and returns this for chaining. REQUIRES: is_array().
  Json& push_back(Json value);
  // Number of items or members; 0 for the other kinds.
  [[nodiscard]] size_t size() const;

  // JSON text. `indent` 0 is compact on one line, otherwise one item a line. Numbers are the
  // shortest text that reads back to the same value; NaN and infinities, which JSON does not have,
  // are written as null. Text that is not UTF-8 is made so (U+FFFD).
  [[nodiscard]] std::string dump(int indent = 0) const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  template <typename T>
  const T& get() const {
    const T* value = std::get_if<T>(&value_);
    HEADROOM_CHECK(value != nullptr, "JSON value of another kind");
    return *value;
  }
  template <typename T>
  static int64_t checked_integer(T value) {
    HEADROOM_CHECK(std::in_range<int64_t>(value), "JSON integer beyond int64");
    return static_cast<int64_t>(value);
  }

  // In the order of Kind.
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  Bytes bytes{64 * kMiB};
  int64_t values = 4'000'000;  // bounds memory: "[0,0,..." costs 20 times its text
  static constexpr int kDepth = 64;
};

// One JSON document. `file` is only used in errors, whose place is "file:line:column". Of members
// with the same name the last one counts, as in Python and JavaScript. Integers beyond int64 and
// numbers with a fraction or exponent become doubles; a number beyond double is an error.
Result<Json> parse_json(std::string_view text, const std::string& file,
                        const JsonLimits& limits = {});

// Reads a file ("-" is standard input, gzip is unpacked) and parses it.
Result<Json> read_json_file(const std::string& path, const JsonLimits& limits = {});

// A place in a JSON document, for reading input: every getter checks presence, kind and range, and
// its error says file and JSON pointer ("config.json#/rope_scaling/factor"). The document must
// outlive its views. A view costs one string; no getter throws or aborts.
class JsonView {
 public:
  JsonView(const Json& value, std::string file) : value_(&value), place_(std::move(file)) {
    place_ += '#';
  }

  // A value that was copied out of a file, at the place that it had there.
  [[nodiscard]] static JsonView at(const Json& value, std::string place) {
    return {At{}, value, std::move(place)};
  }

  [[nodiscard]] const Json& json() const { return *value_; }
  [[nodiscard]] const std::string& place() const { return place_; }
  // An Error at this place, or at its member `key`.
  [[nodiscard]] Error error(std::string message, std::string hint = {}) const;
  [[nodiscard]] Error error_at(std::string_view key, std::string message,
                               std::string hint = {}) const;

  // Whether the member is there and not null.
  [[nodiscard]] bool has(std::string_view key) const;

  // The member `key`. Missing or null is an error; so is another kind, and a number outside
  // [min, max]. An integer may be written as 4096.0 or 4.096e3 where it is exact below 2^53.
  [[nodiscard]] Result<int64_t> get_int(std::string_view key, int64_t min, int64_t max) const;
  [[nodiscard]] Result<double> get_double(std::string_view key, double min, double max) const;
  [[nodiscard]] Result<bool> get_bool(std::string_view key) const;
  [[nodiscard]] Result<std::string> get_string(std::string_view key) const;
  [[nodiscard]] Result<JsonView> get_object(std::string_view key) const;
  // The items of an array, of which there may be at most `max_items`.
  [[nodiscard]] Result<std::vector<JsonView>> get_array(std::string_view key,
                                                        size_t max_items = 1'000'000) const;
  // The members of this object, in order; an error where this is not an object.
  [[nodiscard]] Result<std::vector<std::pair<std::string, JsonView>>> get_members() const;

  // The same, with nothing where the member is missing or null.
  template <typename T>
  using Optional = Result<std::optional<T>>;
  [[nodiscard]] Optional<int64_t> optional_int(std::string_view key, int64_t min,
                                               int64_t max) const;
  [[nodiscard]] Optional<double> optional_double(std::string_view key, double min,
                                                 double max) const;
  [[nodiscard]] Optional<bool> optional_bool(std::string_view key) const;
  [[nodiscard]] Optional<std::string> optional_string(std::string_view key) const;
  [[nodiscard]] Optional<JsonView> optional_object(std::string_view key) const;
  [[nodiscard]] Optional<std::vector<JsonView>> optional_array(std::string_view key,
                                                               size_t max_items = 1'000'000) const;

  // This value itself, for the items of an array.
  [[nodiscard]] Result<int64_t> to_int(int64_t min, int64_t max) const;
  [[nodiscard]] Result<double> to_double(double min, double max) const;
  [[nodiscard]] Result<std::vector<JsonView>> to_array(size_t max_items) const;
  [[nodiscard]] Result<bool> to_bool() const;
  [[nodiscard]] Result<std::string> to_string() const;

 private:
  struct At {};
  JsonView(At, const Json& value, std::string place) : value_(&value), place_(std::move(place)) {}
  [[nodiscard]] Result<JsonView> member(std::string_view key) const;
  [[nodiscard]] Result<JsonView> as_object() const;
  [[nodiscard]] Error wrong_kind(const char* expected) const;

  const Json* value_;
  std::string place_;  // "file#/json/pointer"
};

// "null", "true or false", "an integer", ...: how a message names a kind.
[[nodiscard]] const char* kind_name(Json::Kind kind);

// `text` with quotation marks and escapes, as JSON writes it.
[[nodiscard]] std::string quote_json(std::string_view text);

}  // namespace headroom::text
