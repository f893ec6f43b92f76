// Programs in which one flat argument is not simply a bucket that is reduced in
// place: executed, and compared bit by bit with the same programs on arguments
// that may not be written. Each would go wrong if a value took the place of
// another that is still needed.

// RUN: rm -rf %t && mkdir %t && sed 's/{bufferization.writable = true}//' %s > %t/plain.mlir
// DEFINE: %{entry} = swap
// DEFINE: %{run} = --entry=%{entry} --ranks=2 --steps=2 --inputs=random:5
// DEFINE: %{compare} = ddphook-run %s %{run} --outputs=%t/flat.{rank}.{step} \
// DEFINE:   && ddphook-run %t/plain.mlir %{run} --outputs=%t/plain.{rank}.{step} \
// DEFINE:   && cmp %t/flat.0.0 %t/plain.0.0 && cmp %t/flat.1.1 %t/plain.1.1
// RUN: %{compare}
// REDEFINE: %{entry} = slice_returned
// RUN: %{compare}
// REDEFINE: %{entry} = read_after
// RUN: %{compare}
// REDEFINE: %{entry} = same_place
// RUN: %{compare}
// REDEFINE: %{entry} = elsewhere
// RUN: %{compare}
// REDEFINE: %{entry} = old_returned
// RUN: %{compare}
// REDEFINE: %{entry} = slice_overwritten
// RUN: %{compare}
// REDEFINE: %{entry} = swap_own
// RUN: %{compare}
// REDEFINE: %{entry} = old_to_other
// RUN: %{compare}
// REDEFINE: %{entry} = halves
// RUN: %{compare}
// REDEFINE: %{run} = --entry=%{entry} --ranks=2 --steps=2 --inputs=random:5 --ddp-pipeline=bucket-cap-mb=0
// RUN: %{compare}

ddp.process_group @dp
!t = tensor<6xf32>
!h = tensor<3xf32>

// Each argument gets what was reduced out of the other.
func.func @swap(%a: !t {bufferization.writable = true},
                %b: !t {bufferization.writable = true}) -> (!t, !t) {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %b0 = tensor.extract_slice %b[0] [3] [1] : !t to !h
  %b1 = tensor.extract_slice %b[3] [3] [1] : !t to !h
  %ra0 = ddp.all_reduce mean %a0 on @dp : !h
  %ra1 = ddp.all_reduce mean %a1 on @dp : !h
  %rb0 = ddp.all_reduce sum %b0 on @dp : !h
  %rb1 = ddp.all_reduce sum %b1 on @dp : !h
  %x0 = tensor.insert_slice %rb0 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %rb1 into %x0[3] [3] [1] : !h into !t
  %y0 = tensor.insert_slice %ra0 into %b[0] [3] [1] : !h into !t
  %y = tensor.insert_slice %ra1 into %y0[3] [3] [1] : !h into !t
  return %x, %y : !t, !t
}

func.func @slice_returned(%a: !t {bufferization.writable = true}) -> (!t, !h, !h) {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %r0 = ddp.all_reduce mean %a0 on @dp : !h
  %r1 = ddp.all_reduce mean %a1 on @dp : !h
  %x0 = tensor.insert_slice %r0 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %r1 into %x0[3] [3] [1] : !h into !t
  return %x, %a1, %r0 : !t, !h, !h
}

// Both what was there and what was reduced is read, behind the reduction.
func.func @read_after(%a: !t {bufferization.writable = true}) -> (!t, !t, !h) {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %r0 = ddp.all_reduce mean %a0 on @dp : !h
  %r1 = ddp.all_reduce mean %a1 on @dp : !h
  %x0 = tensor.insert_slice %r0 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %r1 into %x0[3] [3] [1] : !h into !t
  %e = tensor.empty() : !t
  %y = linalg.mul ins(%a, %x : !t, !t) outs(%e : !t) -> !t
  // In the place of the average, which the argument is to hold.
  %z = linalg.add ins(%a0, %a1 : !h, !h) outs(%r1 : !h) -> !h
  return %x, %y, %z : !t, !t, !h
}

// Two reductions of the same elements, the second of which stays.
func.func @same_place(%a: !t {bufferization.writable = true}) -> !t {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[2] [3] [1] : !t to !h
  %r0 = ddp.all_reduce mean %a0 on @dp : !h
  %r1 = ddp.all_reduce sum %a1 on @dp : !h
  %x0 = tensor.insert_slice %r0 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %r1 into %x0[2] [3] [1] : !h into !t
  return %x : !t
}

// The halves change places.
func.func @elsewhere(%a: !t {bufferization.writable = true}) -> !t {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %r0 = ddp.all_reduce mean %a0 on @dp : !h
  %r1 = ddp.all_reduce sum %a1 on @dp : !h
  %x0 = tensor.insert_slice %r1 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %r0 into %x0[3] [3] [1] : !h into !t
  return %x : !t
}

func.func @old_returned(%a: !t {bufferization.writable = true}) -> (!t, !t) {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %r0 = ddp.all_reduce mean %a0 on @dp : !h
  %r1 = ddp.all_reduce mean %a1 on @dp : !h
  %x0 = tensor.insert_slice %r0 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %r1 into %x0[3] [3] [1] : !h into !t
  return %a, %x : !t, !t
}

// A slice is overwritten that is in no bucket, and that the argument keeps.
func.func @slice_overwritten(%a: !t {bufferization.writable = true}) -> (!t, !h) {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %r0 = ddp.all_reduce mean %a0 on @dp : !h
  %y = linalg.exp ins(%a1 : !h) outs(%a1 : !h) -> !h
  %x = tensor.insert_slice %r0 into %a[0] [3] [1] : !h into !t
  return %x, %y : !t, !h
}

// Each rank keeps its own, in the other argument.
func.func @swap_own(%a: !t {bufferization.writable = true},
                    %b: !t {bufferization.writable = true}) -> (!t, !t) {
  %ra = ddp.all_reduce mean %a on @dp {ddp.hook = #ddp.noop} : !t
  %rb = ddp.all_reduce sum %b on @dp {ddp.hook = #ddp.noop} : !t
  %x = tensor.insert_slice %rb into %a[0] [6] [1] : !t into !t
  %y = tensor.insert_slice %ra into %b[0] [6] [1] : !t into !t
  return %x, %y : !t, !t
}

// One argument gets what the other held.
func.func @old_to_other(%a: !t {bufferization.writable = true},
                        %b: !t {bufferization.writable = true}) -> (!t, !t) {
  %r = ddp.all_reduce mean %a on @dp : !t
  %x = tensor.insert_slice %r into %a[0] [6] [1] : !t into !t
  %y = tensor.insert_slice %a into %b[0] [6] [1] : !t into !t
  return %x, %y : !t, !t
}

// Both arguments have parts of the same types, and only the first's are free
// before the second's are computed: but they are what it is to hold.
func.func @halves(%a: !t {bufferization.writable = true},
                  %b: !t {bufferization.writable = true}) -> (!t, !t, !h) {
  %a0 = tensor.extract_slice %a[0] [3] [1] : !t to !h
  %a1 = tensor.extract_slice %a[3] [3] [1] : !t to !h
  %ra0 = ddp.all_reduce mean %a0 on @dp : !h
  %ra1 = ddp.all_reduce mean %a1 on @dp : !h
  %x0 = tensor.insert_slice %ra0 into %a[0] [3] [1] : !h into !t
  %x = tensor.insert_slice %ra1 into %x0[3] [3] [1] : !h into !t
  %b0 = tensor.extract_slice %b[0] [3] [1] : !t to !h
  %b1 = tensor.extract_slice %b[3] [3] [1] : !t to !h
  %rb0 = ddp.all_reduce sum %b0 on @dp : !h
  %rb1 = ddp.all_reduce sum %b1 on @dp : !h
  %y0 = tensor.insert_slice %rb0 into %b[0] [3] [1] : !h into !t
  %y = tensor.insert_slice %rb1 into %y0[3] [3] [1] : !h into !t
  return %x, %y, %b0 : !t, !t, !h
}
