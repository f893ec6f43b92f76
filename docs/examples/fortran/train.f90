! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
!
! ../linear/main.c in Fortran: joins the job, finds four weights from samples that
! differ from rank to rank, and prints them.

! What ddphook-cc says of the step in linear.h. A C array [8, 4] is a Fortran
! array (4, 8): the last dimension of C is the first one of Fortran.
module linear
  use, intrinsic :: iso_c_binding
  use ddphook
  implicit none

  type(ddphook_compiled_module_t), bind(c), protected :: linear_module

  interface
    integer(c_int) function linear_step(x, y, w) bind(c)
      import
      real(c_float), intent(in) :: x(4, 8), y(8)
      real(c_float), intent(inout) :: w(4)
    end function
  end interface
end module

program train
  use, intrinsic :: iso_c_binding
  use ddphook
  use linear
  implicit none

  real(c_float), parameter :: wanted(4) = [1.0, -2.0, 3.0, 0.5]
  real(c_float) :: x(4, 8), y(8), w(4)
  type(c_ptr) :: context
  integer :: step, rank, seed_size

  call ddphook_check(ddphook_context_create(c_null_ptr, context))
  call ddphook_check(ddphook_module_load(context, linear_module))
  rank = ddphook_context_rank(context)

  ! Parameters begin with what rank 0 drew; samples differ from rank to rank.
  call random_seed(size=seed_size)
  call random_seed(put=spread(1 + rank, 1, seed_size))
  call random_number(w)
  call ddphook_check(ddphook_broadcast(context, w, c_sizeof(w), 0))

  do step = 1, 500
    call random_number(x)
    x = 2*x - 1
    y = matmul(wanted, x)
    call ddphook_check(linear_step(x, y, w))
  end do
  print '(a, i0, a, i0, a, 4f7.3)', 'rank ', rank, ' of ', &
    ddphook_context_world_size(context), ':', w

  call ddphook_check(ddphook_module_unload(linear_module))
  call ddphook_context_destroy(context)
end program
