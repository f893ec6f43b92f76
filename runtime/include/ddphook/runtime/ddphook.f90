! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
!
! The functions of ddphook/runtime/runtime.h that a training program needs, for
! Fortran. The contracts stand in that header; names and arguments are the same.

module ddphook
  use, intrinsic :: iso_fortran_env, only: error_unit
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int), parameter, public :: DDPHOOK_OK = 0

  ! A compiled module, as ddphook-cc writes it: `NAME_module`. Its fields are the
  ! runtime's business.
  type, bind(c), public :: ddphook_compiled_module_t
    integer(c_int32_t) :: struct_size, abi_version
    type(c_ptr) :: plan
    integer(c_int64_t) :: plan_size, plan_hash
    type(c_ptr) :: handle
    integer(c_int64_t) :: entry_count
    type(c_ptr) :: entries, device_code
    integer(c_int64_t) :: device_code_size
  end type

  public :: ddphook_context_create, ddphook_context_destroy, &
            ddphook_context_rank, ddphook_context_world_size, &
            ddphook_broadcast, ddphook_module_load, ddphook_module_unload, &
            ddphook_state_save, ddphook_state_load, ddphook_error_text, &
            ddphook_check

  interface
    ! `options` is c_null_ptr for the environment's values.
    integer(c_int) function ddphook_context_create(options, context) bind(c)
      import
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: context
    end function

    subroutine ddphook_context_destroy(context) bind(c)
      import
      type(c_ptr), value :: context
    end subroutine

    integer(c_int32_t) function ddphook_context_rank(context) bind(c)
      import
      type(c_ptr), value :: context
    end function

    integer(c_int32_t) function ddphook_context_world_size(context) bind(c)
      import
      type(c_ptr), value :: context
    end function

    integer(c_int) function ddphook_broadcast(context, data, bytes, root) bind(c)
      import
      type(c_ptr), value :: context
      type(*), intent(inout) :: data(*)
      integer(c_size_t), value :: bytes
      integer(c_int32_t), value :: root
    end function

    integer(c_int) function ddphook_module_load(context, module) bind(c)
      import
      type(c_ptr), value :: context
      type(ddphook_compiled_module_t), intent(in) :: module
    end function

    integer(c_int) function ddphook_module_unload(module) bind(c)
      import
      type(ddphook_compiled_module_t), intent(in) :: module
    end function

    ! `pattern` ends with c_null_char.
    integer(c_int) function ddphook_state_save(module, pattern, flags) bind(c)
      import
      type(ddphook_compiled_module_t), intent(in) :: module
      character(kind=c_char), intent(in) :: pattern(*)
      integer(c_int32_t), value :: flags
    end function

    ! `info` is c_null_ptr, or the address of a ddphook_state_info_t.
    integer(c_int) function ddphook_state_load(module, pattern, flags, info) bind(c)
      import
      type(ddphook_compiled_module_t), intent(in) :: module
      character(kind=c_char), intent(in) :: pattern(*)
      integer(c_int32_t), value :: flags
      type(c_ptr), value :: info
    end function

    type(c_ptr) function ddphook_status_name(status) bind(c)
      import
      integer(c_int), value :: status
    end function

    type(c_ptr) function ddphook_last_error() bind(c)
      import
    end function

    integer(c_size_t) function strlen(string) bind(c)
      import
      type(c_ptr), value :: string
    end function
  end interface

contains

  ! The name of a status, and the text of this thread's last error.
  function ddphook_error_text(status) result(text)
    integer(c_int), intent(in) :: status
    character(:), allocatable :: text
    text = copied(ddphook_status_name(status))//': '//copied(ddphook_last_error())
  end function

  ! Stops the program with the error's text unless the status is DDPHOOK_OK.
  subroutine ddphook_check(status)
    integer(c_int), intent(in) :: status
    if (status == DDPHOOK_OK) return
    write (error_unit, '(a)') ddphook_error_text(status)
    stop 1, quiet=.true.
  end subroutine

  function copied(string) result(text)
    type(c_ptr), intent(in) :: string
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i
    call c_f_pointer(string, characters, [strlen(string)])
    allocate (character(size(characters)) :: text)
    do i = 1, size(characters)
      text(i:i) = characters(i)
    end do
  end function
end module
