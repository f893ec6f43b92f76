// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The safetensors container: eight bytes with the header's length (little
// endian), a JSON header, and the tensors' bytes back to back. Files may come
// from anywhere, so a reader checks everything before it uses a byte of data. A
// file is written whole or not at all. Callers know the meaning of the tensors.

#pragma once

#include "files/open_file.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddphook {

/// The element types of the format that ddphook uses.
enum class TensorType { F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool };

/// Returns the type as the header spells it: "F32".
const char *tensorTypeName(TensorType type);
uint64_t tensorTypeSize(TensorType type);
/// Returns false if `name` is not in this list.
bool parseTensorType(std::string_view name, TensorType &type);

/// Returns a text such as "[300, 200]".
std::string printShape(const std::vector<int64_t> &shape);
/// Returns a name from a file in quotes, for a one-line message: a long name is
/// cut, and control characters become '?'.
std::string printName(std::string_view name);

/// Computes the elements of `shape` times `elementSize`. Returns false if the
/// result does not fit into 63 bits.
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

/// The longest header that is read, the format's own limit.
constexpr uint64_t maxHeaderBytes = 100000000;

/// Parses the JSON header of a file in which `dataBytes` bytes follow it.
/// Ensures that tensors lie inside the data, neither overlap nor leave gaps,
/// and are as long as their shape and type say. Uses memory proportional to
/// `json`. On failure returns DATA_LOSS and leaves `header` unspecified.
Status parseSafetensorsHeader(std::string_view json, uint64_t dataBytes,
                              SafetensorsHeader &header);

/// A file opened for reading, its header parsed and checked.
class SafetensorsReader {
public:
  /// Opens the file. All messages name `path`. May be called once.
  Status open(const std::string &path);

  const SafetensorsHeader &header() const { return parsed; }
  /// Returns null if no tensor has that name.
  const TensorInfo *find(std::string_view name) const;
  /// Copies a tensor of this file; `data` has space for end − begin bytes.
  Status read(const TensorInfo &tensor, void *data) const;
  /// Copies `size` bytes of a tensor, beginning at its byte `offset`.
  Status readPart(const TensorInfo &tensor, uint64_t offset, void *data,
                  uint64_t size) const;

private:
  OpenFile file;
  uint64_t dataOffset = 0;
  SafetensorsHeader parsed;
};

/// A tensor to be written; the caller owns `data`.
struct TensorView {
  std::string name;
  TensorType type = TensorType::U8;
  std::vector<int64_t> shape;
  const void *data = nullptr;
};

/// The positions of the tensors in a file to be written.
struct SafetensorsLayout {
  std::vector<uint64_t> bytes; ///< The bytes of each tensor.
  std::vector<size_t> order;   ///< The numbers of the tensors, in the order of
                               ///< their data.
};

/// The key of the metadata in the header; no tensor has this name.
constexpr char metadataName[] = "__metadata__";

/// Lays out `tensors`, whose data may be null. INVALID_ARGUMENT for duplicate
/// or reserved names and for sizes that no file can have.
Status layOutSafetensors(const std::vector<TensorView> &tensors,
                         SafetensorsLayout &layout);

/// Returns everything in the file before the data. Its length depends only on
/// names, shapes and the lengths of the metadata. INVALID_ARGUMENT if it is
/// longer than any reader accepts.
Status makeSafetensorsHeader(const std::vector<TensorView> &tensors,
                             const SafetensorsLayout &layout,
                             const std::map<std::string, std::string> &metadata,
                             std::string *header);

/// Writes a file that holds `tensors`, replacing an older one. In every case
/// `path` is afterwards either the old file or the whole new one.
Status writeSafetensors(const std::string &path,
                        const std::vector<TensorView> &tensors);

} // namespace ddphook
