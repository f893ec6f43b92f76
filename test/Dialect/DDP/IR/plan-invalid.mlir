// RUN: ddphook-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{expected 'ddp.plan' to be a #ddp.plan on a module}}
module attributes {ddp.plan = "{}"} {
}

// -----

// expected-error @below {{expected 'ddp.plan' to be a #ddp.plan on a module}}
func.func @step() attributes {ddp.plan = #ddp.plan<abi = 10, memory = host>} {
  return
}

// -----

// expected-error @below {{struct is missing required parameter: memory}}
module attributes {ddp.plan = #ddp.plan<abi = 10>} {
}

// -----

// expected-error @below {{duplicate or unknown struct parameter name: bytes}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, bytes = 4>} {
}

// -----

// Plan, C1: there are two groups, 0 and 1.
// expected-error @below {{expected collective 0 to have the number of one of 2 process groups, but got 2}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, process_groups = [<name = "a">, <name = "b">], collectives = [<group = 2, count = 4, dtype = f32, divide = true>]>} {
}

// -----

// expected-error @below {{expected collective 0 to have the number of one of 1 process groups, but got -1}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, process_groups = [<name = "a">], collectives = [<group = -1, count = 4, dtype = f32, divide = true>]>} {
}

// -----

// Plan, C2.
// expected-error @below {{expected no kernels in a plan for memory of the host, but got "k"}}
module attributes {ddp.plan = #ddp.plan<abi = 10, memory = host, kernels = ["k"]>} {
}

// -----

// Bucket, C1.
// expected-error @below {{expected 'wire_type' to be f16, bf16, f32 or f64, but got 'i8'}}
#bucket = #ddp.plan_bucket<name = "b0", group = "dp", reduction = mean, type = !ddp.bucket<f32, [4]>, hook = "#ddp.fp16", wire_type = i8>

// -----

// State, C1.
// expected-error @below {{expected 'type' to be a bucket, i64 or a statically shaped tensor of i32, but got 'tensor<?xi32>'}}
#state = #ddp.plan_state<name = "s", type = tensor<?xi32>, placement = replicated, init = zero, offset = 0>

// -----

// expected-error @below {{expected 'type' to be a bucket, i64 or a statically shaped tensor of i32, but got 'f32'}}
#state = #ddp.plan_state<name = "s", type = f32, placement = replicated, init = zero, offset = 0>

// -----

// Matrix list, C1.
// expected-error @below {{expected 'dtype' to be f16, bf16, f32 or f64, but got 'f8E4M3FN'}}
#list = #ddp.plan_matrix_list<dtype = f8E4M3FN, layout = <0 to 0, [], []>>

// -----

// Plan, C5.
// expected-error @below {{expected 'dtype' to be f16, bf16, f32 or f64, but got 'i32'}}
#plan = #ddp.plan<abi = 10, memory = host, process_groups = [<name = "dp">], collectives = [<group = 0, count = 4, dtype = i32, divide = true>]>

// -----

// expected-error @below {{expected 'wire_dtype' to be f16, bf16, f32 or f64, but got 'f80'}}
#plan = #ddp.plan<abi = 10, memory = host, process_groups = [<name = "dp">], collectives = [<group = 0, count = 4, dtype = f32, wire_dtype = f80, divide = true>]>

// -----

// Entry, C1.
// expected-error @below {{expected argument 1 to be a memref or scalar of integers or floats, but got 'memref<4xi5>'}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = f32>, <type = memref<4xi5>>]>

// -----

// expected-error @below {{expected argument 0 to be a memref or scalar of integers or floats, but got 'si32'}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = si32>]>

// -----

// expected-error @below {{expected result 0 of static shape and identity layout, but got 'memref<?xf32>'}}
#entry = #ddp.plan_entry<name = "e", results = [<type = memref<?xf32>>]>

// -----

// expected-error @below {{expected result 0 of static shape and identity layout, but got 'memref<4xf32, strided<[2]>>'}}
#entry = #ddp.plan_entry<name = "e", results = [<type = memref<4xf32, strided<[2]>>>]>

// -----

// Entry, C2.
// expected-error @below {{expected argument 0, which is 'inout', to be a memref, but got 'f32'}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = f32, inout = true>]>

// -----

// Entry, C3: there is no such argument, it is only read, it has another type.
// expected-error @below {{expected result 0 to be an 'inout' argument of its type, but got argument 1}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = memref<4xf32>, inout = true>], results = [<type = memref<4xf32>, argument = 1>]>

// -----

// expected-error @below {{expected result 0 to be an 'inout' argument of its type, but got argument -2}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = memref<4xf32>, inout = true>], results = [<type = memref<4xf32>, argument = -2>]>

// -----

// expected-error @below {{expected result 0 to be an 'inout' argument of its type, but got argument 0}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = memref<4xf32>>], results = [<type = memref<4xf32>, argument = 0>]>

// -----

// expected-error @below {{expected result 1 to be an 'inout' argument of its type, but got argument 0}}
#entry = #ddp.plan_entry<name = "e", arguments = [<type = memref<4xf32>, inout = true>], results = [<type = memref<4xf32>, argument = 0>, <type = memref<5xf32>, argument = 0>]>

// -----

// Plan, C3.
// expected-error @below {{expected unique bucket names, but two buckets are called "b0"}}
#plan = #ddp.plan<abi = 10, memory = host, process_groups = [<name = "dp">], buckets = [<name = "b0", group = "dp", reduction = mean, type = <f32, [4]>, hook = "#ddp.fp16", wire_type = f16>, <name = "b0", group = "dp", reduction = sum, type = <f32, [4]>, hook = "#ddp.fp16", wire_type = f16>]>

// -----

// Plan, C4.
// expected-error @below {{expected collective 0 to have the name of a bucket, but got "b1"}}
#plan = #ddp.plan<abi = 10, memory = host, process_groups = [<name = "dp">], buckets = [<name = "b0", group = "dp", reduction = mean, type = <f32, [4]>, hook = "#ddp.fp16", wire_type = f16>], collectives = [<bucket = "b1", group = 0, count = 4, dtype = f32, divide = true>]>

// -----

// Group, C1.
// expected-error @below {{expected 'ranks' to be arrays of i64, but got [0, 1]}}
#group = #ddp.plan_group<name = "g", ranks = [0, 1]>

// -----

// Bucket, C2.
// expected-error @below {{expected 'gradients' to be names, but got [unit]}}
#bucket = #ddp.plan_bucket<name = "b0", group = "dp", reduction = mean, type = !ddp.bucket<f32, [4]>, gradients = [unit], hook = "#ddp.fp16", wire_type = f16>

// -----

// State, C2.
// expected-error @below {{expected 'gradients' to be lists of names, but got ["w"]}}
#state = #ddp.plan_state<name = "s", type = i64, gradients = ["w"], placement = replicated, init = zero, offset = 0>

// -----

// expected-error @below {{expected 'gradients' to be lists of names, but got [unit]}}
#state = #ddp.plan_state<name = "s", type = i64, gradients = [[unit]], placement = replicated, init = zero, offset = 0>
