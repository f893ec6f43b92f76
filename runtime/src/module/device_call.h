// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes calls from compiled code to a backend: checks arguments by their roles
// in functions.inc, and replaces the plan's numbers by the device's objects.

#pragma once

#include "base/floating_point.h"
#include "job/context.h"
#include "module/module.h"

#include <type_traits>

namespace ddphook {

/// The roles of functions.inc, each with its type in compiled.h.
#define DDPHOOK_ROLES(ROLE)                                                    \
  ROLE(In, const void *)                                                       \
  ROLE(Out, void *)                                                            \
  ROLE(OptionalIn, const void *)                                               \
  ROLE(OptionalOut, void *)                                                    \
  ROLE(Rest, const void *)                                                     \
  ROLE(RestOut, void *)                                                        \
  ROLE(Count, int64_t)                                                         \
  ROLE(ElementType, int32_t)                                                   \
  ROLE(CastType, int32_t)                                                      \
  ROLE(EncodingType, int32_t)                                                  \
  ROLE(Block, int64_t)                                                         \
  ROLE(Group, int32_t)                                                         \
  ROLE(OptionalGroup, int32_t)                                                 \
  ROLE(OptionalRank, int32_t)                                                  \
  ROLE(Matrices, int32_t)                                                      \
  ROLE(Product, int32_t)                                                       \
  ROLE(Factor, int32_t)                                                        \
  ROLE(Integer, int64_t)                                                       \
  ROLE(Number, double)

enum class Role {
#define DDPHOOK_ROLE(name, type) name,
  DDPHOOK_ROLES(DDPHOOK_ROLE)
#undef DDPHOOK_ROLE
};

namespace role {
template <Role R, typename T>
struct Argument {
  using Type = T;
  T value;
  const char *name;
};
#define DDPHOOK_ROLE(name, type) using name = Argument<Role::name, type>;
DDPHOOK_ROLES(DDPHOOK_ROLE)
#undef DDPHOOK_ROLE
} // namespace role

/// Checks the arguments of one call; it must see all of them first.
class ArgumentCheck {
public:
  explicit ArgumentCheck(const ddphook_module &module) : module(module) {}

  void see(const role::Count &count) { elements = count.value; }
  void see(const role::EncodingType &type) { encoding = type.value; }
  void see(const role::Matrices &number) { list = number.value; }
  void see(const role::Product &kind) { product = kind.value; }
  void see(const role::OptionalIn &array) { seeOptional(array.value); }
  void see(const role::OptionalOut &array) { seeOptional(array.value); }
  template <typename T>
  void see(const T &) {}

  /// True if the arrays have elements that are assigned to this rank.
  bool hasElements() const {
    return elements != 0 && (list < 0 || module.matricesOf(list, product));
  }

  template <Role R, typename T>
  Status check(const role::Argument<R, T> &argument) const {
    if constexpr (R == Role::Number)
      return Status::ok();
    else if constexpr (std::is_pointer_v<T>)
      return check(R, argument.name, argument.value, /*number=*/0);
    else
      return check(R, argument.name, /*array=*/nullptr, argument.value);
  }
  /// Arguments without a role have no wrong values.
  template <typename T>
  Status check(const T &) const {
    return Status::ok();
  }

  int64_t onDevice(const role::Group &group) const {
    return module.groups[group.value].size();
  }
  int64_t onDevice(const role::OptionalGroup &group) const {
    return group.value < 0 ? 1 : onDevice(role::Group{group.value, group.name});
  }
  int32_t onDevice(const role::OptionalRank &group) const {
    return group.value < 0 ? -1 : module.groups[group.value].rank();
  }
  ddphook_matrices_t *onDevice(const role::Matrices &number) const {
    return module.matricesOf(number.value, product);
  }
  template <Role R, typename T>
  T onDevice(const role::Argument<R, T> &argument) const {
    return argument.value;
  }
  /// Arguments without a role are passed to the backend unchanged.
  template <typename T>
  T *onDevice(T *pointer) const {
    return pointer;
  }
  int64_t onDevice(int64_t value) const { return value; }

private:
  Status check(Role role, const char *name, const void *array,
               int64_t number) const;
  void seeOptional(const void *array) {
    (array ? hasOptional : lacksOptional) = true;
  }

  const ddphook_module &module;
  /// The elements of every array; not 0 if there is no count.
  int64_t elements = 1;
  int32_t list = -1;
  int32_t product = -1;
  int32_t encoding = DDPHOOK_ENCODING_NONE;
  bool hasOptional = false, lacksOptional = false;
};

/// True if `call` may run now with these arguments; otherwise fails the step.
template <typename... Arguments>
bool checkCall(ddphook_module &module, const char *call,
               const Arguments &...arguments) {
  if (!module.canRun(call))
    return false;
  ArgumentCheck all(module);
  (all.see(arguments), ...);
  Status status;
  if (((status = all.check(arguments)).isOk() && ...))
    return true;
  module.failStep(withContext(std::move(status), call));
  return false;
}

/// Checks the arguments, and calls the function with the device's objects.
template <typename... Parameters, typename... Arguments>
void callDevice(ddphook_module &module, const char *call,
                ddphook_status_t (*ddphook_backend_t::*function)(
                    ddphook_device_t *, Parameters...),
                const Arguments &...arguments) {
  if (!checkCall(module, call, arguments...))
    return;
  DefaultFloatingPoint environment;
  ArgumentCheck all(module);
  (all.see(arguments), ...);
  // Arrays without elements may have any address, even an invalid one.
  if (all.hasElements())
    module.failStep(module.context.call(function, all.onDevice(arguments)...));
}

} // namespace ddphook
