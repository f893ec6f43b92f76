/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * In the style of MLIR's C API. Operations and attributes of the dialect are
 * created with MLIR's generic functions (mlirOperationCreate,
 * mlirAttributeParseGet); docs/generated/DDPDialect.md lists them. */

#ifndef DDPHOOK_C_DDP_H
#define DDPHOOK_C_DDP_H

#include "mlir-c/IR.h"

#ifdef __cplusplus
extern "C" {
#endif

/* mlirGetDialectHandle__ddp__() returns the dialect alone. */
MLIR_DECLARE_CAPI_DIALECT_REGISTRATION(DDP, ddp);

/* Adds the dialect, and all of upstream's with their extensions: those that a
 * module may contain while it is compiled. */
MLIR_CAPI_EXPORTED void ddphookRegisterDialects(MlirDialectRegistry registry);

/* Adds stand-ins for the dialects of JAX programs (sdy, stablehlo, mhlo and
 * chlo), unless the registry has one of that name. Call it last. */
MLIR_CAPI_EXPORTED void
ddphookRegisterOpaqueDialects(MlirDialectRegistry registry);

/* Parses a module as mlirModuleCreateParse(), and reports an error if it is
 * bytecode of dialects that only have stand-ins, such as a portable artifact of
 * StableHLO, which MLIR could misread. */
MLIR_CAPI_EXPORTED MlirModule ddphookModuleCreateParse(MlirContext context,
                                                       MlirStringRef source);

/* Registers ddphook's and MLIR's passes and pipelines by name, for
 * mlirParsePassPipeline(). Must not be called while other threads use MLIR's
 * pass registry. */
MLIR_CAPI_EXPORTED void ddphookRegisterPasses(void);

#ifdef __cplusplus
}
#endif

#endif /* DDPHOOK_C_DDP_H */
