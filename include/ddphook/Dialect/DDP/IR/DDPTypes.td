// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bucket type, and the type constraints of the operations.

#ifndef DDPHOOK_DIALECT_DDP_IR_DDPTYPES_TD
#define DDPHOOK_DIALECT_DDP_IR_DDPTYPES_TD

include "ddphook/Dialect/DDP/IR/DDPDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinTypes.td"

class DDP_Type<string name, string typeMnemonic, list<Trait> traits = []>
    : TypeDef<DDP_Dialect, name, traits>, DDP_Page {
  let mnemonic = typeMnemonic;
  let description = page;
}

def DDP_BucketType : DDP_Type<"Bucket", "bucket"> {
  let summary = "one contiguous buffer that holds several tensors";
  let text = [{
    A bucket holds the listed tensors, row-major, back to back without padding, in
    one contiguous buffer. The layout is a function of the type: member *i* starts
    at element `getOffset(i)`. Shapes are static. A 0-D member is written
    `scalar`; a member may have no elements, and a bucket may have no members.
  }];
  let example = [{
    !ddp.bucket<f32, [1024x512, 512, scalar]>
  }];
  let constraints = [{
    - (C1) the element type is f16, bf16, f32 or f64.
    - (C2) every dimension is static.
    - (C3) there are at most 2^56 elements, without counting dimensions of size 0.
      This also holds for tensors and memrefs in the dialect's operations.
  }];
  let parameters = (ins "::mlir::Type":$elementType,
                    ArrayRefParameter<"::mlir::DenseI64ArrayAttr",
                                      "shapes of the members">:$shapes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    unsigned getNumMembers() const { return getShapes().size(); }
    ::llvm::ArrayRef<int64_t> getShape(unsigned member) const {
      return getShapes()[member].asArrayRef();
    }
    /// Returns the number of elements of a member, or of all members.
    int64_t getNumElements(unsigned member) const;
    int64_t getNumElements() const;
    /// Returns the offset of a member, in elements.
    int64_t getOffset(unsigned member) const;
    /// Returns the shape of a member as a matrix: its first dimension by the
    /// product of all others, like PyTorch's `view(shape[0], -1)`; 1 x 1 if 0-D.
    std::pair<int64_t, int64_t> getMatrixShape(unsigned member) const;
    int64_t getElementBytes() const {
      return getElementType().getIntOrFloatBitWidth() / 8;
    }
    int64_t getNumBytes() const { return getNumElements() * getElementBytes(); }

    /// Returns a bucket with the same members in another element type.
    BucketType cloneWith(::mlir::Type elementType) const;
    /// Returns the type that `ddp-flatten` replaces it by.
    ::mlir::RankedTensorType getFlatType() const;
    /// Returns the tensor type of a member.
    ::mlir::RankedTensorType getMemberType(unsigned member) const;
    /// Returns a bucket of these tensors, which have one element type.
    static BucketType getFromTensors(::mlir::MLIRContext *context,
                                     ::mlir::Type elementType,
                                     ::mlir::TypeRange tensors);
  }];
}

def DDP_EncodedType : DDP_Type<"Encoded", "encoded"> {
  let summary = "the encoding in which a collective sends elements";
  let description = [{
    A wire type that can replace f16 and bf16; no value has this type. Every element
    is encoded as a code of the given type, decoded again, and added in f32 in the
    order of the ranks; docs/quantization.md defines all bits.

    - f16, bf16: elements are rounded to the type.
    - i8, i4, f8E4M3FN, f8E5M2: each block of elements has a bf16 scale; a code is
      an element divided by the scale, rounded.
    - ui8: each block has a scale and a zero point, as in PyTorch's quantization
      hooks; without a block size all elements are one block.
    - ui1: the signs; each block has its mean magnitude, which a code decodes to.

    The sum is encoded once more, and all ranks decode the same codes, except with
    ui8 and ui1, where every rank adds the data that all ranks have sent.

    An element becomes the nearest code. With `stochastic` it becomes one of the two
    nearest codes, chosen by random numbers; each bucket has the number of its own
    stream, and operations take the training step as an operand.

    Example:

    ```mlir
    !ddp.encoded<i8, 256>
    ```

    ```mlir
    !ddp.encoded<i8, 256 stochastic 17>
    ```

    Constraints:
    - (C1) the code is f16, bf16, i8, i4, f8E4M3FN, f8E5M2, ui8 or ui1.
    - (C2) a block of i8, i4, f8E4M3FN or f8E5M2 is a multiple of 32 from 32 to
      4096; that of ui8 is positive or missing; that of ui1 is a positive multiple
      of 8 or missing; f16 and bf16 have none.
    - (C3) `stochastic` is for i8, i4, f8E4M3FN and f8E5M2; streams are not
      negative.
  }];
  let parameters = (ins "::mlir::Type":$code,
                    DefaultValuedParameter<"int64_t", "0",
                                           "elements of a block">:$block,
                    DefaultValuedParameter<"int64_t", "-1",
                        "random numbers that round; below 0: none">:$stream);
  let builders = [
    /// With codes that are rounded to nearest.
    TypeBuilder<(ins "::mlir::Type":$code, "int64_t":$block), [{
      return $_get($_ctxt, code, block, /*stream=*/-1);
    }]>
  ];
  let assemblyFormat = "`<` $code (`,` $block^)? (`stochastic` $stream^)? `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Returns its ddphook_encoding_t.
    int32_t getEncoding() const;
    /// Returns true if codes have a zero point; they are then sent to all ranks.
    bool isAffine() const;
    /// Returns true if codes are rounded stochastically.
    bool isStochastic() const { return getStream() >= 0; }
    /// Returns the bytes that one rank sends for these elements and their scales.
    int64_t getNumBytes(int64_t numElements) const;
  }];
}

def DDP_FutureType : DDP_Type<"Future", "future"> {
  let summary = "the future result of a collective in flight";
  let text = [{
    The result of `ddp.all_reduce_start` and `ddp.exchange_start`. Exactly one
    `ddp.wait` in the same block uses it: it cannot be stored, returned, or passed
    to a call or a branch. `ddp-flatten` removes the type.
  }];
  let example = [{
    !ddp.future<!ddp.bucket<f32, [4x8, 8]>>
  }];
  let constraints = [{
    - (C1) the value is a bucket, or a statically shaped tensor of f16, bf16,
      f32 or f64.
  }];
  let parameters = (ins "::mlir::Type":$valueType);
  let assemblyFormat = "`<` $valueType `>`";
  let genVerifyDecl = 1;
}

/// Element types of gradients.
def DDP_Element : AnyTypeOf<[F16, BF16, F32, F64]>;

def DDP_Gradient
    : Type<And<[RankedTensorOf<[DDP_Element]>.predicate,
                HasStaticShapePred]>,
           "statically shaped tensor of f16, bf16, f32 or f64",
           "::mlir::RankedTensorType">;

def DDP_FlatBucket
    : Type<And<[DDP_Gradient.predicate, HasAnyRankOfPred<[1]>]>,
           "1-D statically shaped tensor of f16, bf16, f32 or f64",
           "::mlir::RankedTensorType">;

def DDP_Buffer
    : Type<And<[MemRefOf<[DDP_Element]>.predicate, HasStaticShapePred]>,
           "statically shaped memref of f16, bf16, f32 or f64",
           "::mlir::MemRefType">;

/// A bucket. It is not DDP_BucketType itself and does not name its C++ class,
/// because assembly formats would then print only the parameters.
def DDP_Bucket : Type<DDP_BucketType.predicate, "bucket">;

/// A future; like DDP_Bucket, it does not name the C++ class.
def DDP_Future : Type<DDP_FutureType.predicate, "future">;

/// A bucket, before or after `ddp-flatten`.
def DDP_BucketLike : AnyTypeOf<[DDP_Bucket, DDP_FlatBucket]>;

/// The array of a flat operation, before or after bufferization.
def DDP_FlatArray : AnyTypeOf<[DDP_Gradient, DDP_Buffer]>;

/// A value to compute with that is not an array yet.
def DDP_Value : AnyTypeOf<[DDP_Bucket, DDP_Gradient]>;

/// The operand of a reduction: a bucket, a gradient, or a gradient in memory.
def DDP_Reducible : AnyTypeOf<[DDP_Bucket, DDP_Gradient, DDP_Buffer]>;

/// A value of a state: a bucket, a counter or a random generator.
def DDP_StateValue : AnyTypeOf<[DDP_BucketLike, I64, 1DTensorOf<[I32]>]>;

#endif // DDPHOOK_DIALECT_DDP_IR_DDPTYPES_TD
