// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options of passes that analyses need, too.

#pragma once

namespace mlir::ddp {

/// The order in which `ddp-bucketize` packs gradients.
enum class BucketOrder { Ready, Forward, Reverse };

/// The properties of a module's collectives that a pass preserves: nothing, the
/// tensors that they reduce, these tensors as in the buckets' records, the
/// elements that they send, or all collectives in their order.
enum class OrderAcrossPass { Nothing, Members, Recorded, Elements, Everything };

} // namespace mlir::ddp
