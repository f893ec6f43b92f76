// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens, reads and writes the files; safetensors_header.cpp checks them.

#include "files/safetensors.h"

#include "base/packed_texts.h"
#include "files/atomic_file.h"
#include "files/json.h"

#include <algorithm>
#include <fcntl.h>
#include <set>

using namespace ddphook;

static Status malformed(const std::string &path, const std::string &what) {
  return dataLoss("'" + path + "': " + what);
}

Status SafetensorsReader::open(const std::string &path) {
  DDPHOOK_TRY(file.open(path, O_RDONLY, NamedBy::User));
  const uint64_t fileBytes = file.size();
  if (fileBytes < 8)
    return malformed(path, concat("expected a safetensors file, but got only ",
                                  fileBytes, " bytes"));
  char length[8];
  DDPHOOK_TRY(file.read(length, 8, 0));
  const auto headerBytes = takeNumber<uint64_t>({length, 8});
  if (headerBytes > fileBytes - 8)
    return malformed(path, concat("expected a header of ", headerBytes,
                                  " bytes, but got a file of ", fileBytes));
  if (headerBytes > maxHeaderBytes)
    return malformed(path, concat("header of ", headerBytes,
                                  " bytes is longer than the format allows"));

  std::string text(headerBytes, '\0');
  DDPHOOK_TRY(file.read(text.data(), headerBytes, 8));
  dataOffset = 8 + headerBytes;
  return withContext(
      parseSafetensorsHeader(text, fileBytes - dataOffset, parsed),
      "'" + path + "'");
}

const TensorInfo *SafetensorsReader::find(std::string_view name) const {
  auto found = parsed.tensors.find(name);
  return found == parsed.tensors.end() ? nullptr : &found->second;
}

Status SafetensorsReader::read(const TensorInfo &tensor, void *data) const {
  return readPart(tensor, 0, data, tensor.end - tensor.begin);
}

Status SafetensorsReader::readPart(const TensorInfo &tensor, uint64_t offset,
                                   void *data, uint64_t size) const {
  return file.read(data, size, dataOffset + tensor.begin + offset);
}

Status ddphook::layOutSafetensors(const std::vector<TensorView> &tensors,
                                  SafetensorsLayout &layout) {
  std::set<std::string_view> names;
  for (const TensorView &tensor : tensors) {
    if (tensor.name == metadataName)
      return invalid("expected a name of a tensor, but got '" + tensor.name +
                     "', which is reserved for metadata");
    if (!names.insert(tensor.name).second)
      return invalid("tensor '" + tensor.name + "' is given twice");
    uint64_t size;
    if (!tensorBytes(tensor.shape, tensorTypeSize(tensor.type), size))
      return invalid("tensor '" + tensor.name + "' has more than 2^63 bytes");
    layout.order.push_back(layout.bytes.size());
    layout.bytes.push_back(size);
  }
  // The widest elements come first, so that every tensor is aligned to its
  // element size. Readers that map the file rely on that.
  std::sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    uint64_t sizeA = tensorTypeSize(tensors[a].type);
    uint64_t sizeB = tensorTypeSize(tensors[b].type);
    return sizeA != sizeB ? sizeA > sizeB : a < b;
  });
  return Status::ok();
}

/// The header includes its length, and data begins at a multiple of eight.
Status ddphook::makeSafetensorsHeader(
    const std::vector<TensorView> &tensors, const SafetensorsLayout &layout,
    const std::map<std::string, std::string> &metadata, std::string *header) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += '"';
    text += metadataName;
    text += "\":";
    for (const auto &[key, value] : metadata) {
      text += text.back() == ':' ? '{' : ',';
      appendJsonText(&text, key);
      text += ':';
      appendJsonText(&text, value);
    }
    text += '}';
  }
  uint64_t offset = 0;
  for (size_t i : layout.order) {
    const TensorView &tensor = tensors[i];
    if (text.size() > 1)
      text += ',';
    appendJsonText(&text, tensor.name);
    std::string shape;
    for (int64_t size : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    text += concat(":{\"dtype\":\"", tensorTypeName(tensor.type),
                   "\",\"shape\":[", shape, "],\"data_offsets\":[", offset, ",",
                   offset + layout.bytes[i], "]}");
    offset += layout.bytes[i];
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > maxHeaderBytes)
    return invalid(
        concat("expected tensor names that fit into a header of at most ",
               maxHeaderBytes, " bytes, but got ", text.size()));
  std::string length;
  putNumber<uint64_t>(length, text.size());
  *header = length + text;
  return Status::ok();
}

Status ddphook::writeSafetensors(const std::string &path,
                                 const std::vector<TensorView> &tensors) {
  SafetensorsLayout layout;
  DDPHOOK_TRY(layOutSafetensors(tensors, layout));
  std::string header;
  DDPHOOK_TRY(makeSafetensorsHeader(tensors, layout, /*metadata=*/{}, &header));
  AtomicFile out(path);
  DDPHOOK_TRY(out.open());
  DDPHOOK_TRY(out.write(header.data(), header.size()));
  for (size_t i : layout.order)
    DDPHOOK_TRY(out.write(tensors[i].data, layout.bytes[i]));
  return out.commit();
}
