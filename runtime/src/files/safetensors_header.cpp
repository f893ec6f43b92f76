// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses and checks the JSON header. It reads a stream of events instead of a
// JSON tree. So memory is proportional to the header, the depth is bounded, and
// duplicate keys are visible.

#include "files/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <set>
#include <utility>

using namespace ddphook;
using nlohmann::json;

namespace {

struct TypeEntry {
  TensorType type;
  const char *name;
  uint64_t size;
};

constexpr TypeEntry types[] = {
    {TensorType::F64, "F64", 8}, {TensorType::F32, "F32", 4},
    {TensorType::F16, "F16", 2}, {TensorType::BF16, "BF16", 2},
    {TensorType::I64, "I64", 8}, {TensorType::I32, "I32", 4},
    {TensorType::I16, "I16", 2}, {TensorType::I8, "I8", 1},
    {TensorType::U8, "U8", 1},   {TensorType::Bool, "BOOL", 1},
};

Status malformed(const std::string &what) { return dataLoss(what); }

/// Receives events; to stop, a function sets `failure` and returns false.
class HeaderEvents : public nlohmann::json_sax<json> {
public:
  explicit HeaderEvents(SafetensorsHeader &header) : header(header) {}

  Status failure;

  bool start_object(size_t) override {
    return move({{Position::Outside, Position::Header},
                 {Position::TensorValue, Position::Tensor},
                 {Position::MetadataValue, Position::Metadata}},
                "an object");
  }

  bool key(std::string &text) override {
    if (place == Position::Tensor)
      return tensorKey(text);
    if (place == Position::Metadata) {
      if (header.metadata.count(text))
        return fail("metadata has key " + printName(text) + " twice");
      place = Position::MetadataText;
    } else if (text == metadataName) {
      if (std::exchange(hasMetadata, true))
        return fail("header has __metadata__ twice");
      place = Position::MetadataValue;
    } else {
      if (header.tensors.count(text))
        return fail("header has tensor " + printName(text) + " twice");
      current = TensorInfo();
      seen.clear();
      place = Position::TensorValue;
    }
    name = text;
    return true;
  }

  bool string(std::string &text) override {
    if (place == Position::MetadataText) {
      header.metadata.emplace(name, text);
      place = Position::Metadata;
      return true;
    }
    if (place != Position::Type)
      return unexpected("a string");
    if (!parseTensorType(text, current.type))
      return failTensor(" has unsupported type " + printName(text) +
                        ", expected F64, F32, F16, BF16, I64, I32, I16, I8, U8 "
                        "or BOOL");
    place = Position::Tensor;
    return true;
  }

  bool start_array(size_t) override {
    return move({{Position::Shape, Position::ShapeItems},
                 {Position::Offsets, Position::OffsetItems}},
                "an array");
  }

  bool number_unsigned(json::number_unsigned_t value) override {
    if (place != Position::ShapeItems && place != Position::OffsetItems)
      return unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return failTensor(" has a number above 2^63");
    if (place == Position::ShapeItems) {
      current.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (offsetCount < 2)
      (offsetCount == 0 ? current.begin : current.end) = value;
    ++offsetCount;
    return true;
  }

  bool end_array() override {
    if (place == Position::OffsetItems && offsetCount != 2)
      return failTensor(" has data_offsets of expected length 2, but got " +
                        std::to_string(offsetCount));
    place = Position::Tensor;
    return true;
  }

  bool end_object() override {
    if (place == Position::Tensor) {
      for (const auto &[text, position] : tensorKeys)
        if (!seen.count(position))
          return failTensor(std::string(" lacks ") + text);
      header.tensors.emplace(name, std::move(current));
    }
    place = place == Position::Header ? Position::Outside : Position::Header;
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(json::number_integer_t) override {
    return unexpected("a negative number");
  }
  bool number_float(json::number_float_t, const std::string &) override {
    return unexpected("a number that is not an integer");
  }
  bool binary(json::binary_t &) override { return unexpected("binary data"); }

  bool parse_error(size_t position, const std::string &,
                   const json::exception &) override {
    return fail(concat("header is not valid JSON (near byte ", position, ")"));
  }

private:
  enum class Position {
    Outside,
    Header,
    TensorValue,
    Tensor,
    Type,
    Shape,
    ShapeItems,
    Offsets,
    OffsetItems,
    MetadataValue,
    Metadata,
    MetadataText
  };
  static constexpr std::pair<const char *, Position> tensorKeys[] = {
      {"dtype", Position::Type},
      {"shape", Position::Shape},
      {"data_offsets", Position::Offsets}};

  bool fail(const std::string &what) {
    failure = malformed(what);
    return false;
  }
  bool failTensor(const std::string &what) {
    return fail("tensor " + printName(name) + what);
  }

  /// Moves from the present position to the next one.
  bool move(std::initializer_list<std::pair<Position, Position>> moves,
            const char *got) {
    for (const auto &[from, to] : moves)
      if (place == from) {
        place = to;
        return true;
      }
    return unexpected(got);
  }

  bool unexpected(const char *got) {
    switch (place) {
    case Position::Outside:
      return fail(std::string("expected the header to be an object, but got ") +
                  got);
    case Position::MetadataValue:
    case Position::MetadataText:
      return fail("expected __metadata__ to map names to strings, but got " +
                  std::string(got));
    case Position::TensorValue:
      return fail("expected tensor " + printName(name) +
                  " to be an object, but got " + got);
    case Position::Type:
      return failTensor(
          std::string(": expected dtype to be a string, but got ") + got);
    default:
      return failTensor(
          std::string(": expected ") +
          (place == Position::Shape || place == Position::ShapeItems
               ? "shape"
               : "data_offsets") +
          " to be an array of non-negative integers, but got " + got);
    }
  }

  bool tensorKey(const std::string &text) {
    for (const auto &[known, position] : tensorKeys)
      if (text == known) {
        place = position;
        offsetCount = 0;
        return seen.insert(position).second ||
               failTensor(" has " + text + " twice");
      }
    return failTensor(" has unknown key " + printName(text));
  }

  SafetensorsHeader &header;
  Position place = Position::Outside;
  std::string name;
  TensorInfo current;
  std::set<Position> seen; ///< The keys of the tensor so far.
  unsigned offsetCount = 0;
  bool hasMetadata = false;
};

} // namespace

std::string ddphook::printName(std::string_view name) {
  constexpr size_t longest = 80;
  std::string text = "'";
  for (char c : name.substr(0, longest))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (name.size() > longest ? "…'" : "'");
}

const char *ddphook::tensorTypeName(TensorType type) {
  return types[static_cast<size_t>(type)].name;
}

uint64_t ddphook::tensorTypeSize(TensorType type) {
  return types[static_cast<size_t>(type)].size;
}

bool ddphook::parseTensorType(std::string_view name, TensorType &type) {
  for (const TypeEntry &entry : types) {
    if (name == entry.name) {
      type = entry.type;
      return true;
    }
  }
  return false;
}

std::string ddphook::printShape(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool ddphook::tensorBytes(const std::vector<int64_t> &shape,
                          uint64_t elementSize, uint64_t &bytes) {
  bytes = 0;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return true;
  int64_t product = static_cast<int64_t>(elementSize);
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(product, size, &product))
      return false;
  bytes = static_cast<uint64_t>(product);
  return true;
}

/// Tensors must be as long as their shape says and fill the data exactly.
static Status checkLayout(const SafetensorsHeader &header, uint64_t dataBytes) {
  using Item = std::pair<const std::string, TensorInfo>;
  std::vector<const Item *> order;
  order.reserve(header.tensors.size());
  for (const Item &item : header.tensors) {
    const auto &[name, tensor] = item;
    if (tensor.begin > tensor.end || tensor.end > dataBytes)
      return malformed(concat("tensor ", printName(name), " has data_offsets [",
                              tensor.begin, ", ", tensor.end, "] outside the ",
                              dataBytes, " bytes of data"));
    uint64_t bytes;
    if (!tensorBytes(tensor.shape, tensorTypeSize(tensor.type), bytes))
      return malformed("tensor " + printName(name) +
                       " has more than 2^63 bytes");
    if (bytes != tensor.end - tensor.begin)
      return malformed(concat("tensor ", printName(name), ": expected ", bytes,
                              " bytes for its type and shape, but got ",
                              tensor.end - tensor.begin));
    order.push_back(&item);
  }
  std::sort(order.begin(), order.end(), [](const Item *a, const Item *b) {
    return std::pair(a->second.begin, a->second.end) <
           std::pair(b->second.begin, b->second.end);
  });
  uint64_t position = 0;
  for (const Item *item : order) {
    if (item->second.begin != position)
      return malformed(concat("tensor ", printName(item->first),
                              " begins at byte ", item->second.begin,
                              " of the data, but the one before it ends at ",
                              position));
    position = item->second.end;
  }
  if (position != dataBytes)
    return malformed(
        concat("expected ", position, " bytes of data, but got ", dataBytes));
  return Status::ok();
}

Status ddphook::parseSafetensorsHeader(std::string_view text,
                                       uint64_t dataBytes,
                                       SafetensorsHeader &header) {
  header = SafetensorsHeader();
  if (text.empty() || text.front() != '{')
    return malformed("expected the header to begin with '{'");
  // JSON has no zero bytes; the library would take one for the end of the text.
  if (size_t zero = text.find('\0'); zero != std::string_view::npos)
    return malformed(
        concat("header is not valid JSON (a zero byte at byte ", zero, ")"));
  HeaderEvents events(header);
  if (!json::sax_parse(text.begin(), text.end(), &events))
    return events.failure;
  return checkLayout(header, dataBytes);
}
