// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Declares the passes from other dialects to ddp's, and from it to others.

include "ddphook/Conversion/DDPToRuntime.td"
include "ddphook/Conversion/DDPToStableHLO.td"
include "ddphook/Conversion/FXToDDP.td"
include "ddphook/Conversion/MPIToDDP.td"
include "ddphook/Conversion/ShardToDDP.td"
include "ddphook/Conversion/StableHLOToDDP.td"
