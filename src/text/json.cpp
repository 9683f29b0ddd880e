#include "text/json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace headroom::text {
namespace {

void append_quoted(std::string& out, std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const DecodedCharacter next = decode_utf8(text);
    const std::string_view bytes = text.substr(0, next.length);
    text.remove_prefix(next.length);
    if (!next.valid) {
      out += "\xEF\xBF\xBD";
    } else if (next.code == '"' || next.code == '\\') {
      out += '\\';
      out += bytes;
    } else if (next.code == '\n') {
      out += "\\n";
    } else if (next.code == '\t') {
      out += "\\t";
    } else if (next.code < 0x20 || next.code == 0x7F) {
      out += "\\u00";
      out += kHex[next.code >> 4];
      out += kHex[next.code & 15];
    } else {
      out += bytes;
    }
  }
  out += '"';
}

void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  const std::string_view digits(text.data(), static_cast<size_t>(result.ptr - text.data()));
  out += digits;
  // Keeps 1.0 a number with a fraction when it is read back.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const Json& value) {
    switch (value.kind()) {
      case Json::Kind::null:
        out_ += "null";
        break;
      case Json::Kind::boolean:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Json::Kind::integer:
        out_ += std::to_string(value.as_int());
        break;
      case Json::Kind::number:
        append_double(out_, value.as_double());
        break;
      case Json::Kind::string:
        append_quoted(out_, value.as_string());
        break;
      case Json::Kind::array:
        write_array(value.items());
        break;
      case Json::Kind::object:
        write_object(value.members());
        break;
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void write_array(const Json::Array& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      start_item(i);
      write(items[i]);
    }
    --depth_;
    new_line();
    out_ += ']';
  }

  void write_object(const Json::Object& members) {
    if (members.empty()) {
      out_ += "{}";
      return;
    }
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < members.size(); ++i) {
      start_item(i);
      append_quoted(out_, members[i].first);
      out_ += indent_ > 0 ? ": " : ":";
      write(members[i].second);
    }
    --depth_;
    new_line();
    out_ += '}';
  }

  void start_item(size_t index) {
    if (index > 0) out_ += ',';
    new_line();
  }
  void new_line() {
    if (indent_ <= 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(indent_) * static_cast<size_t>(depth_), ' ');
  }

  int indent_;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

Json Json::array(Array values) {
  Json json;
  json.value_ = std::move(values);
  return json;
}

Json Json::object(Object members) {
  Json json;
  json.value_ = std::move(members);
  return json;
}

double Json::as_double() const {
  return is_integer() ? static_cast<double>(as_int()) : get<double>();
}

const Json* Json::find(std::string_view key) const {
  const Object* members = std::get_if<Object>(&value_);
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

Json& Json::set(std::string_view key, Json value) {
  HEADROOM_CHECK(is_object(), "set() on JSON that is not an object");
  if (Json* found = find(key)) {
    *found = std::move(value);
  } else {
    std::get_if<Object>(&value_)->emplace_back(std::string(key), std::move(value));
  }
  return *this;
}

Json& Json::push_back(Json value) {
  HEADROOM_CHECK(is_array(), "push_back() on JSON that is not an array");
  std::get_if<Array>(&value_)->push_back(std::move(value));
  return *this;
}

size_t Json::size() const {
  if (const Array* items = std::get_if<Array>(&value_)) return items->size();
  if (const Object* members = std::get_if<Object>(&value_)) return members->size();
  return 0;
}

std::string Json::dump(int indent) const {
  Writer writer(indent);
  writer.write(*this);
  return writer.take();
}

std::string quote_json(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

const char* kind_name(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return "true or false";
    case Json::Kind::integer:
      return "an integer";
    case Json::Kind::number:
      return "a number";
    case Json::Kind::string:
      return "a string";
    case Json::Kind::array:
      return "an array";
    case Json::Kind::object:
      return "an object";
  }
  return "a value";
}

}  // namespace headroom::text
