// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan of docs/plan.md as an attribute, from the conversion to the runtime to
// the emission of entry points, which turns it into JSON.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPPLANATTRS_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPPLANATTRS_TD

include "ddphook/Dialect/DDP/IR/DDPAttrs.td"

def DDP_ArrayMemory
    : DDP_Enum<"ArrayMemory", "the memory that holds a module's arrays", [
    I32EnumAttrCase<"Host", 0, "host">,
    I32EnumAttrCase<"Device", 1, "device">
  ]>;
def DDP_ArrayMemoryAttr : EnumAttr<DDP_Dialect, DDP_ArrayMemory, "array_memory">;

/// A list in brackets, omitted from the text if it is empty.
class DDP_PlanList<string elementType>
    : OptionalArrayRefParameter<elementType> {
  let parser = "parsePlanList<" # elementType # ">($_parser)";
  let printer = "printPlanList<" # elementType # ">($_printer, $_self)";
}

/// An enum, printed as its keyword alone.
class DDP_PlanEnum<string enum>
    : AttrOrTypeParameter<"::mlir::ddp::" # enum # "Attr", ""> {
  let printer = "$_printer << stringify" # enum # "($_self.getValue())";
}
class DDP_PlanOptionalEnum<string enum>
    : OptionalParameter<"::mlir::ddp::" # enum # "Attr"> {
  let printer = "$_printer << stringify" # enum # "($_self.getValue())";
}

/// An object of the plan. `get<Name>()` returns the value of each of its fields in
/// plan_fields.inc: a parameter's, or one that follows from parameters.
class DDP_PlanPart<string name, string attrMnemonic>
    : DDP_Attr<name, attrMnemonic> {
  let assemblyFormat = "`<` struct(params) `>`";
}

/// How elements are sent, unless they are sent as they are.
defvar planWireFields = [{
    /// The name of the encoding, or an empty text, and its block.
    ::llvm::StringRef getEncoding() const;
    int64_t getBlock() const;
}];

/// The fields of the plan for the type of an argument or a result.
defvar planTypeFields = [{
    ::mlir::Type getDtype() const {
      return ::mlir::getElementTypeOrSelf(getType());
    }
    ::llvm::ArrayRef<int64_t> getShape() const {
      auto memref = ::llvm::dyn_cast<::mlir::MemRefType>(getType());
      return memref ? memref.getShape() : ::llvm::ArrayRef<int64_t>();
    }
}];

def DDP_PlanGroupAttr : DDP_PlanPart<"PlanGroup", "plan_group"> {
  let summary = "a process group of the plan";
  let description = [{
    The contents of a `ddp.process_group`.

    Example: `#ddp.plan_group<name = "node", placement = intra_node>`

    Constraints:
    - (C1) `ranks` are arrays of i64.
  }];
  let parameters = (ins "::mlir::StringAttr":$name,
                    DefaultValuedParameter<"int64_t", "0">:$size,
                    OptionalParameter<"::mlir::ArrayAttr">:$ranks,
                    DDP_PlanOptionalEnum<"Placement">:$placement,
                    OptionalParameter<"::mlir::StringAttr">:$parent,
                    DDP_PlanOptionalEnum<"Topology">:$topology);
  let genVerifyDecl = 1;
}

def DDP_PlanBucketAttr : DDP_PlanPart<"PlanBucket", "plan_bucket"> {
  let summary = "a bucket of the plan";
  let text = [{
    The contents of a `ddp.bucket_info`. The hook is text, so its dialect need no
    longer be known.
  }];
  let example = [{
    #ddp.plan_bucket<name = "b0", group = "dp", reduction = mean,
        type = <f32, [4x8, 8]>, gradients = ["w", "b"],
        hook = "#ddp.fp16", wire_type = f16, wire_bytes = 80>
  }];
  let constraints = [{
    - (C1) `wire_type` is f16, bf16, f32, f64 or a `!ddp.encoded`.
    - (C2) `gradients` are names.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::StringAttr":$group,
                    DDP_PlanEnum<"Reduction">:$reduction,
                    "::mlir::ddp::BucketType":$type,
                    OptionalParameter<"::mlir::ArrayAttr">:$gradients,
                    "::mlir::StringAttr":$hook,
                    "::mlir::Type":$wire_type,
                    DefaultValuedParameter<"int64_t", "0">:$wire_bytes,
                    DefaultValuedParameter<"int64_t", "0">:$state_bytes);
  let extraClassDeclaration = planWireFields # [{
    ::mlir::Type getDtype() const;
    ::llvm::ArrayRef<::mlir::DenseI64ArrayAttr> getShapes() const;
    /// The type in which elements are sent if it differs and is not encoded.
    ::mlir::Type getWireDtype() const;
  }];
  let genVerifyDecl = 1;
}

def DDP_PlanStateAttr : DDP_PlanPart<"PlanState", "plan_state"> {
  let summary = "a state of the plan";
  let text = [{
    The contents of a `ddp.state`, and the offset of the state in the state arena,
    in bytes.
  }];
  let example = [{
    #ddp.plan_state<name = "b0.error", type = !ddp.bucket<f32, [4x8]>,
        kind = error, placement = per_rank, init = zero, offset = 64>
  }];
  let constraints = [{
    - (C1) the type is a bucket, `i64` or a statically shaped tensor of i32.
    - (C2) `gradients` are lists of names.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::Type":$type,
                    DDP_PlanOptionalEnum<"StateKind">:$kind,
                    OptionalParameter<"::mlir::StringAttr">:$role,
                    OptionalParameter<"::mlir::ArrayAttr">:$gradients,
                    OptionalParameter<"::mlir::StringAttr">:$method,
                    DDP_PlanEnum<"StatePlacement">:$placement,
                    DDP_PlanEnum<"StateInit">:$init,
                    DefaultValuedParameter<"int64_t", "0">:$seed,
                    OptionalParameter<"::mlir::StringAttr">:$generator,
                    OptionalParameter<"::mlir::DenseI64ArrayAttr">:$draws,
                    "int64_t":$offset);
  let extraClassDeclaration = [{
    /// The element type, and the shapes of the bucket's members or the tensor.
    ::mlir::Type getElementType() const;
    ::llvm::SmallVector<::llvm::ArrayRef<int64_t>> getShapes() const;
    int64_t getNumBytes() const;
  }];
  let genVerifyDecl = 1;
}

def DDP_PlanMatrixListAttr : DDP_PlanPart<"PlanMatrixList", "plan_matrix_list"> {
  let summary = "the matrices of low-rank calls in the plan";
  let example = [{
    #ddp.plan_matrix_list<dtype = f32,
        layout = <0 to 11, [0, 0, 0, 2, 3, 2], [6, 0, 5]>>
  }];
  let constraints = [{
    - (C1) `dtype` is f16, bf16, f32 or f64.
  }];
  let parameters = (ins "::mlir::Type":$dtype,
                    "::mlir::ddp::MatrixListAttr":$layout,
                    OptionalParameter<"::mlir::ddp::AssignmentAttr">:$assignment);
  let extraClassDeclaration = [{
    int64_t getBegin() const { return getLayout().getBegin(); }
    int64_t getEnd() const { return getLayout().getEnd(); }
    auto getMatrices() const { return getLayout().getMatrices(); }
    auto getPieces() const { return getLayout().getPieces(); }
  }];
  let genVerifyDecl = 1;
}

def DDP_PlanCollectiveKind : EnumParameter<DDP_CollectiveKind> {
  let defaultValue = "::mlir::ddp::CollectiveKind::AllReduce";
}

def DDP_PlanCollectiveAttr : DDP_PlanPart<"PlanCollective", "plan_collective"> {
  let summary = "a collective of the plan";
  let text = [{
    A plan checks it (C5).
  }];
  let example = [{
    #ddp.plan_collective<bucket = "b0", group = 0, count = 40, dtype = f32,
        wire_dtype = f16, divide = true>
  }];
  let parameters = (ins DDP_PlanCollectiveKind:$kind,
                    OptionalParameter<"::mlir::StringAttr">:$bucket,
                    "int64_t":$group, "int64_t":$count, "::mlir::Type":$dtype,
                    OptionalParameter<"::mlir::Type">:$wire_dtype,
                    "bool":$divide,
                    DefaultValuedParameter<"int64_t", "0">:$root,
                    OptionalParameter<"::mlir::StringAttr">:$error,
                    OptionalParameter<"::mlir::ddp::AssignmentAttr">:$assignment);
  let extraClassDeclaration = planWireFields # [{
    /// The type in which elements are sent, if it is stated and not encoded.
    ::mlir::Type getPlainWireType() const;
    /// The random stream of stochastic rounding, or -1.
    int64_t getStream() const;
  }];
}

def DDP_PlanArgumentAttr : DDP_PlanPart<"PlanArgument", "plan_argument"> {
  let summary = "an argument of an entry point";
  let description = [{
    Example: `#ddp.plan_argument<type = memref<4x8xf32>, inout = true>`
  }];
  let parameters = (ins "::mlir::Type":$type,
                    DefaultValuedParameter<"bool", "false">:$inout);
  let extraClassDeclaration = planTypeFields # [{
    bool getScalar() const { return !::llvm::isa<::mlir::MemRefType>(getType()); }
  }];
}

def DDP_PlanResultAttr : DDP_PlanPart<"PlanResult", "plan_result"> {
  let summary = "a result of an entry point";
  let description = [{
    A result that is not in the memory of an argument is an out-parameter after the
    arguments, if it is a memref; otherwise the function returns it.

    Example: `#ddp.plan_result<type = memref<4x8xf32>, argument = 0>`
  }];
  let parameters = (ins "::mlir::Type":$type,
                    DefaultValuedParameter<"int64_t", "-1">:$argument);
  let extraClassDeclaration = planTypeFields;
}

def DDP_PlanEntryAttr : DDP_PlanPart<"PlanEntry", "plan_entry"> {
  let summary = "an entry point of the plan";
  let example = [{
    #ddp.plan_entry<name = "step",
        arguments = [<type = memref<4x8xf32>, inout = true>, <type = f32>],
        results = [<type = memref<4x8xf32>, argument = 0>]>
  }];
  let constraints = [{
    - (C1) types are element types of docs/plan.md, or memrefs of them with
      static shape and identity layout.
    - (C2) an argument that is `inout` is a memref.
    - (C3) `argument` is -1, or an `inout` argument of the result's type.
  }];
  let parameters = (ins "::mlir::StringAttr":$name,
                    DDP_PlanList<"::mlir::ddp::PlanArgumentAttr">:$arguments,
                    DDP_PlanList<"::mlir::ddp::PlanResultAttr">:$results);
  let genVerifyDecl = 1;
}

def DDP_PlanAttr : DDP_PlanPart<"Plan", "plan"> {
  let summary = "what ranks must agree on, and what a module needs to run";
  let text = [{
    The plan of a module (docs/plan.md), in its attribute `ddp.plan`.
    `convert-ddp-to-runtime` creates it, `ddp-launch-kernels` adds the kernels'
    names, and `ddp-emit-entry-points` turns it into JSON text. Empty lists are not
    printed.
  }];
  let example = [{
    #ddp.plan<abi = 10, memory = host,
        process_groups = [<name = "dp">],
        buckets = [<name = "b0", group = "dp", reduction = mean,
                    type = <f32, [4x8, 8]>, hook = "#ddp.fp16",
                    wire_type = f16, wire_bytes = 80>],
        collectives = [<bucket = "b0", group = 0, count = 40, dtype = f32,
                        wire_dtype = f16, divide = true>],
        arena_bytes = 160,
        entries = [<name = "step", arguments = [<type = memref<4x8xf32>>]>]>
  }];
  let constraints = [{
    - (C1) the `group` of a collective is the number of a process group.
    - (C2) there are kernels only if `memory` is `device`.
    - (C3) the names of buckets are distinct.
    - (C4) the `bucket` of a collective, if given, is the name of a bucket.
    - (C5) the `dtype` of a collective is f16, bf16, f32 or f64, its `wire_dtype`
      one of these or a `!ddp.encoded`.
  }];
  let parameters = (ins
    "int64_t":$abi, DDP_PlanEnum<"ArrayMemory">:$memory,
    DDP_PlanList<"::mlir::StringAttr">:$kernels,
    DDP_PlanList<"::mlir::ddp::PlanGroupAttr">:$process_groups,
    DDP_PlanList<"::mlir::ddp::PlanBucketAttr">:$buckets,
    DDP_PlanList<"::mlir::ddp::PlanStateAttr">:$states,
    DDP_PlanList<"::mlir::ddp::PlanMatrixListAttr">:$matrix_lists,
    DDP_PlanList<"::mlir::ddp::PlanCollectiveAttr">:$collectives,
    DefaultValuedParameter<"int64_t", "0">:$arena_bytes,
    DefaultValuedParameter<"int64_t", "0">:$state_arena_bytes,
    DDP_PlanList<"::mlir::ddp::PlanEntryAttr">:$entries);
  let extraClassDeclaration = [{
    /// The alignment of both arenas, in bytes: a cache line, which is enough for
    /// any vector load.
    static constexpr int64_t kArenaAlignment = 64;

    bool usesDeviceMemory() const {
      return getMemory().getValue() == ArrayMemory::Device;
    }
    /// Returns the same plan with other memory and kernels.
    PlanAttr cloneWith(ArrayMemory memory,
                       ::llvm::ArrayRef<::mlir::StringAttr> kernels) const;
  }];
  let genVerifyDecl = 1;
}

#endif // DDPHOOK_DIALECT_DDP_IR_DDPPLANATTRS_TD
