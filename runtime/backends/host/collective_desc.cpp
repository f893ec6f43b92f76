//===- collective_desc.cpp - description of one collective ----------------===//
//
// Part of the ddphook project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts the backend ABI's description of a collective.
//
//===----------------------------------------------------------------------===//
#include "collective_desc.h"

using namespace ddphook;
using namespace ddphook::host;

CollectiveDesc CollectiveDesc::of(const ddphook_collective_t &operation,
                                  int ranks) {
  CollectiveDesc desc;
  desc.kind = *collectiveKindFromAbi(operation.kind);
  desc.root = operation.root;
  desc.count = operation.count;
  desc.dtype = static_cast<Dtype>(operation.dtype);
  desc.wire = dtypeFromAbi(operation.wire_dtype);
  desc.divide = operation.divide != 0;
  desc.encoding = encodingFromAbi(operation.encoding, operation.block);
  desc.partEnds = operation.part_ends;
  if (const ddphook_rounding_t &rounding = operation.rounding;
      rounding.is_stochastic)
    desc.rounding =
        Rounding::ofSum(rounding.stream, rounding.step, rounding.share, ranks);
  return desc;
}
