//===- safetensors.h - read and write safetensors files ---------*- C++ -*-===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The safetensors container: eight bytes with the header's length (little
// endian), a JSON header, and the tensors' bytes back to back. Files come from
// anywhere, so reading checks everything before a byte of data is used; a file
// is written whole or not at all. The callers know what tensors mean (their
// names, the arguments to which they belong).
//
//===----------------------------------------------------------------------===//
#ifndef DDPHOOK_RUNTIME_SRC_FILES_SAFETENSORS_H
#define DDPHOOK_RUNTIME_SRC_FILES_SAFETENSORS_H

#include "files/open_file.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

/// The element types of the format that ddphook has a use for.
enum class TensorType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool };

/// "F32", as the header spells it.
const char *tensorTypeName(TensorType type);
/// Bytes per element.
uint64_t tensorTypeSize(TensorType type);
/// False when `name` is no type of this list.
bool parseTensorType(std::string_view name, TensorType &type);

/// "[300, 200]".
std::string printShape(const std::vector<int64_t> &shape);

/// Elements of `shape` times `elementSize`; false when that does not fit into
/// 63 bits.
bool tensorBytes(const std::vector<int64_t> &shape, uint64_t elementSize,
                 uint64_t &bytes);

struct TensorInfo {
  TensorType type = TensorType::U8;
  std::vector<int64_t> shape;
  uint64_t begin = 0; ///< Bytes from the start of the data.
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// Longest header that is read, the format's own limit.
constexpr uint64_t maxHeaderBytes = 100000000;

/// Parses the JSON header of a file that has `dataBytes` bytes behind it.
/// Guarantees that tensors lie inside the data, do not overlap, leave no gap,
/// and are as long as their shape and type say. Memory used is proportional to
/// `json`. DATA_LOSS otherwise; `header` is then unspecified.
Status parseSafetensorsHeader(std::string_view json, uint64_t dataBytes,
                              SafetensorsHeader &header);

/// A file opened for reading, its header parsed and checked.
class SafetensorsReader {
public:
  /// All messages name `path`. To be called once.
  Status open(const std::string &path);

  const SafetensorsHeader &header() const { return parsed; }
  /// Null when there is no tensor of that name.
  const TensorInfo *find(std::string_view name) const;
  /// Copies a tensor of this file; `data` has room for end − begin bytes.
  Status read(const TensorInfo &tensor, void *data) const;
  /// Copies `size` bytes of it, from its byte `offset` on.
  Status readPart(const TensorInfo &tensor, uint64_t offset, void *data,
                  uint64_t size) const;

private:
  OpenFile file;
  uint64_t dataOffset = 0;
  SafetensorsHeader parsed;
};

/// A tensor to be written; `data` stays the caller's.
struct TensorView {
  std::string name;
  TensorType type = TensorType::U8;
  std::vector<int64_t> shape;
  const void *data = nullptr;
};

/// The positions of the tensors in a file to be written.
struct SafetensorsLayout {
  std::vector<uint64_t> bytes; ///< Of each tensor.
  std::vector<size_t> order;   ///< Numbers of tensors, as their data follow.
};

/// The key of metadata in the header; no tensor has this name.
constexpr char metadataName[] = "__metadata__";

/// Lays out `tensors`, whose data may be null. INVALID_ARGUMENT for two of one
/// name, for a name that is none of a tensor and for sizes that no file has.
Status layOutSafetensors(const std::vector<TensorView> &tensors,
                         SafetensorsLayout &layout);

/// All of the file in front of the data. Its length depends on names, shapes
/// and the lengths of metadata only. INVALID_ARGUMENT when that is more than
/// any reader takes.
Status makeSafetensorsHeader(const std::vector<TensorView> &tensors,
                             const SafetensorsLayout &layout,
                             const std::map<std::string, std::string> &metadata,
                             std::string *header);

/// Writes a file that holds `tensors`, replacing an older one. Whatever
/// happens, `path` is afterwards the old file or the whole new one.
Status writeSafetensors(const std::string &path,
                        const std::vector<TensorView> &tensors);

} // namespace ddphook

#endif // DDPHOOK_RUNTIME_SRC_FILES_SAFETENSORS_H
