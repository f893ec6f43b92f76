// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instructions of PTX as C++ functions, for what ptx_to_cpp.py writes. A
// register holds bits: a function's template argument says how to read them.
// See NVIDIA's "PTX ISA", whose names these functions have.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ptx {

/// The interface by which threads wait for each other and access memory. The
/// emulated device implements it. `line` is the instruction's line in the PTX.
class Block {
public:
  /// The lanes that took part in an operation of a warp, and their values.
  struct Lanes {
    unsigned mask;
    const unsigned long long *values;
  };

  virtual void barrier(int line) = 0;
  virtual void warpBarrier(unsigned mask, int line) = 0;
  /// Waits for the other lanes of `mask`. The result stays valid until the
  /// thread waits again.
  virtual Lanes exchange(unsigned mask, uint64_t value, const char *instruction,
                         int line) = 0;
  virtual void copyAsync(char *shared, const char *global, unsigned bytes,
                         unsigned zeros, int line) = 0;
  virtual void commitCopies() = 0;
  virtual void waitForCopies(unsigned prior) = 0;

  enum class Access { Load, Store, Atomic };
  /// Ends the process if the access is not aligned or leaves the memory of the
  /// device; told before every access.
  virtual void access(uint64_t address, unsigned bytes, Access kind,
                      int line) = 0;

protected:
  ~Block() = default;
};

/// A thread, on the stack of its fiber.
struct Thread {
  Block &block;
  char *shared;
  unsigned tid[3], ntid[3], ctaid[3], nctaid[3];
  unsigned laneid;
  uint64_t *instructions;

  void count(unsigned number) { *instructions += number; }

  /// Loads kCount values that lie next to each other.
  template <typename T, unsigned kCount>
  void load(uint64_t address, T (&values)[kCount], int line) const {
    block.access(address, sizeof(values), Block::Access::Load, line);
    std::memcpy(values, reinterpret_cast<const void *>(address),
                sizeof(values));
  }
  template <typename T, unsigned kCount>
  void store(uint64_t address, const T (&values)[kCount], int line) const {
    block.access(address, sizeof(values), Block::Access::Store, line);
    std::memcpy(reinterpret_cast<void *>(address), values, sizeof(values));
  }
  /// Returns the generic address of an offset in shared memory.
  uint64_t sharedAddress(uint32_t offset) const {
    return reinterpret_cast<uint64_t>(shared) + offset;
  }
};

/// A kernel. `parameters` points to its arguments, as cudaLaunchKernelExC()
/// takes them.
struct Kernel {
  const char *name;
  void (*run)(Thread &thread, const void *const *parameters);
  unsigned parameterCount;
  const unsigned *parameterBytes;
  /// Zero: any.
  unsigned requiredThreads[3];
  unsigned mostThreads;
};

/// A variable in global or constant memory.
struct Variable {
  const void *begin;
  uint64_t bytes;
};

/// The kernels of a PTX file.
struct Module {
  const Kernel *kernels;
  unsigned count;
  const Variable *variables;
  unsigned variableCount;
  /// The file that lines refer to.
  const char *file;
};

struct Half {
  _Float16 value;
};
struct Bfloat16 {
  uint16_t bits;
};

template <typename T>
using Bits = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t,
                       std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <typename T, typename From>
T as(From from) {
  auto bits = static_cast<Bits<T>>(from);
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Returns a result's bits. The device gives the same NaN everywhere.
template <typename T>
Bits<T> bitsOf(T value) {
  if constexpr (std::is_same_v<T, float>) {
    if (std::isnan(value))
      return 0x7fffffff;
  } else if constexpr (std::is_same_v<T, double>) {
    if (std::isnan(value))
      return 0x7fffffffffffffff;
  } else if constexpr (std::is_same_v<T, Half>) {
    if (std::isnan(static_cast<float>(value.value)))
      return 0x7fff;
  }
  Bits<T> bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <typename T>
constexpr bool isFloat = !std::is_integral_v<T>;
template <typename T>
constexpr unsigned width = sizeof(T) * 8;

// Arithmetic. Integers wrap.

/// Computes with floating-point numbers as such, and with integers as unsigned
/// ones.
template <typename T, typename Fn>
Bits<T> compute(Bits<T> a, Bits<T> b, Fn fn) {
  if constexpr (std::is_same_v<T, Half>)
    return bitsOf<T>(
        {static_cast<_Float16>(fn(static_cast<float>(as<T>(a).value),
                                  static_cast<float>(as<T>(b).value)))});
  else if constexpr (isFloat<T>)
    return bitsOf<T>(fn(as<T>(a), as<T>(b)));
  else
    return static_cast<Bits<T>>(
        fn(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

template <typename T>
Bits<T> add(Bits<T> a, Bits<T> b) {
  return compute<T>(a, b, [](auto x, auto y) { return x + y; });
}
template <typename T>
Bits<T> sub(Bits<T> a, Bits<T> b) {
  return compute<T>(a, b, [](auto x, auto y) { return x - y; });
}
template <typename T>
Bits<T> mul(Bits<T> a, Bits<T> b) {
  return compute<T>(a, b, [](auto x, auto y) { return x * y; });
}
template <typename T>
Bits<T> fma(Bits<T> a, Bits<T> b, Bits<T> c) {
  return bitsOf<T>(std::fma(as<T>(a), as<T>(b), as<T>(c)));
}
template <typename T>
Bits<T> rcp(Bits<T> a) {
  return bitsOf<T>(1 / as<T>(a));
}
template <typename T>
Bits<T> sqrt(Bits<T> a) {
  return bitsOf<T>(std::sqrt(as<T>(a)));
}
template <typename T>
Bits<T> div(Bits<T> a, Bits<T> b) {
  if constexpr (isFloat<T>)
    return bitsOf<T>(as<T>(a) / as<T>(b));
  // The device divides by zero, too: the quotient has all bits.
  else if (b == 0)
    return static_cast<Bits<T>>(~0ull);
  else if (std::is_signed_v<T> && as<T>(b) == static_cast<T>(-1))
    return static_cast<Bits<T>>(0 - a);
  else
    return static_cast<Bits<T>>(as<T>(a) / as<T>(b));
}
template <typename T>
Bits<T> rem(Bits<T> a, Bits<T> b) {
  if (b == 0)
    return a;
  if (std::is_signed_v<T> && as<T>(b) == static_cast<T>(-1))
    return 0;
  return static_cast<Bits<T>>(as<T>(a) % as<T>(b));
}
template <typename T>
Bits<T> mad(Bits<T> a, Bits<T> b, Bits<T> c) {
  return add<T>(mul<T>(a, b), c);
}

/// The integer type of twice the width.
template <typename T>
using Wide = std::conditional_t<
    sizeof(T) == 8,
    std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
    std::conditional_t<
        sizeof(T) == 4,
        std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
        std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>>;
template <typename T>
Wide<T> product(Bits<T> a, Bits<T> b) {
  return static_cast<Wide<T>>(as<T>(a)) * static_cast<Wide<T>>(as<T>(b));
}
template <typename T>
auto mulWide(Bits<T> a, Bits<T> b) {
  return static_cast<Bits<Wide<T>>>(product<T>(a, b));
}
template <typename T>
auto madWide(Bits<T> a, Bits<T> b, Bits<Wide<T>> c) {
  return static_cast<Bits<Wide<T>>>(mulWide<T>(a, b) + c);
}
template <typename T>
Bits<T> mulHi(Bits<T> a, Bits<T> b) {
  return static_cast<Bits<T>>(product<T>(a, b) >> width<T>);
}

template <typename T>
constexpr Bits<T> signBit = static_cast<Bits<T>>(Bits<T>(1) << (width<T> - 1));

template <typename T>
Bits<T> neg(Bits<T> a) {
  return static_cast<Bits<T>>(isFloat<T> ? a ^ signBit<T> : 0 - a);
}
template <typename T>
Bits<T> abs(Bits<T> a) {
  if (isFloat<T>)
    return static_cast<Bits<T>>(a & ~signBit<T>);
  return static_cast<Bits<T>>(a & signBit<T> ? 0 - a : a);
}
/// The first operand's sign with the second one's magnitude.
template <typename T>
Bits<T> copysign(Bits<T> sign, Bits<T> magnitude) {
  return static_cast<Bits<T>>((sign & signBit<T>) | (magnitude & ~signBit<T>));
}

/// kMax: the greater one. -0 is less than +0. A NaN loses unless kNaN.
template <typename T, bool kMax, bool kNaN>
Bits<T> extreme(Bits<T> a, Bits<T> b) {
  T x = as<T>(a), y = as<T>(b);
  if constexpr (isFloat<T>) {
    if (x != x || y != y)
      return bitsOf<T>(kNaN || (x != x && y != y) ? x + y : x != x ? y : x);
    if (x == y)
      return ((a & signBit<T>) != 0) == kMax ? b : a;
  }
  return (x > y) == kMax ? a : b;
}
template <typename T>
Bits<T> max(Bits<T> a, Bits<T> b) {
  return extreme<T, true, false>(a, b);
}
template <typename T>
Bits<T> min(Bits<T> a, Bits<T> b) {
  return extreme<T, false, false>(a, b);
}
template <typename T>
Bits<T> maxNaN(Bits<T> a, Bits<T> b) {
  return extreme<T, true, true>(a, b);
}
template <typename T>
Bits<T> minNaN(Bits<T> a, Bits<T> b) {
  return extreme<T, false, true>(a, b);
}

// Comparisons: lo to hs are those of unsigned numbers; with u, true for a NaN.
#define PTX_COMPARISON(name, ordered, forNaN)                                  \
  template <typename T>                                                        \
  bool name(Bits<T> a, Bits<T> b) {                                            \
    const T x = as<T>(a), y = as<T>(b);                                        \
    return x != x || y != y ? forNaN : ordered;                                \
  }
PTX_COMPARISON(eq, x == y, false)
PTX_COMPARISON(ne, x != y, false)
PTX_COMPARISON(lt, x < y, false)
PTX_COMPARISON(le, x <= y, false)
PTX_COMPARISON(gt, x > y, false)
PTX_COMPARISON(ge, x >= y, false)
PTX_COMPARISON(equ, x == y, true)
PTX_COMPARISON(neu, x != y, true)
PTX_COMPARISON(ltu, x < y, true)
PTX_COMPARISON(leu, x <= y, true)
PTX_COMPARISON(gtu, x > y, true)
PTX_COMPARISON(geu, x >= y, true)
PTX_COMPARISON(num, true, false)
PTX_COMPARISON(nan, false, true)
#undef PTX_COMPARISON

// Bits.

template <typename T>
Bits<T> shl(Bits<T> a, uint32_t by) {
  return by >= width<T> ? 0 : static_cast<Bits<T>>(a << by);
}
template <typename T>
Bits<T> shr(Bits<T> a, uint32_t by) {
  const uint32_t most = width<T> - 1;
  if (std::is_signed_v<T>)
    return static_cast<Bits<T>>(as<T>(a) >> (by > most ? most : by));
  return by > most ? 0 : static_cast<Bits<T>>(a >> by);
}
template <typename T>
uint32_t clz(Bits<T> a) {
  return a == 0 ? width<T>
                : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - width<T>);
}
template <typename T>
Bits<T> lowBits(uint32_t count) {
  return count >= width<T> ? static_cast<Bits<T>>(~0ull)
                           : static_cast<Bits<T>>((Bits<T>(1) << count) - 1);
}
/// Inserts `length` bits of `a` into `b`.
template <typename T>
Bits<T> bfi(Bits<T> a, Bits<T> b, uint32_t at, uint32_t length) {
  const Bits<T> mask = shl<T>(lowBits<T>(length & 255), at & 255);
  return static_cast<Bits<T>>((b & ~mask) | (shl<T>(a, at & 255) & mask));
}
/// Extracts `length` bits.
template <typename T>
Bits<T> bfe(Bits<T> a, uint32_t at, uint32_t length) {
  at &= 255, length &= 255;
  const Bits<T> field = shr<Bits<T>>(a, at) & lowBits<T>(length);
  if (!std::is_signed_v<T> || length == 0)
    return field;
  // The sign is the field's last bit, or the number's.
  const uint32_t last = at + length > width<T> ? width<T> - 1 : at + length - 1;
  const bool isNegative = shr<Bits<T>>(a, last) & 1;
  const uint32_t present = at >= width<T> ? 0 : last - at + 1;
  return isNegative ? static_cast<Bits<T>>(field | ~lowBits<T>(present))
                    : field;
}
/// Each half byte of `selector` chooses a byte of `b:a`, or eight times its
/// sign.
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint32_t choice = selector >> 4 * i & 15;
    auto byte = static_cast<uint8_t>(bytes >> 8 * (choice & 7));
    if (choice & 8)
      byte = byte & 0x80 ? 0xff : 0;
    result |= uint32_t(byte) << 8 * i;
  }
  return result;
}

// Conversions.

enum class Rounding { None, Nearest, Zero, Down, Up };

template <Rounding kRounding, typename T>
T toInteger(T value) {
  switch (kRounding) {
  case Rounding::None:
    return value;
  case Rounding::Nearest:
    return std::nearbyint(value);
  case Rounding::Zero:
    return std::trunc(value);
  case Rounding::Down:
    return std::floor(value);
  case Rounding::Up:
    return std::ceil(value);
  }
}

/// kRounding: to a whole number, where both types are floating point or the
/// result is an integer; else to the nearest number of the type.
template <typename To, typename From, Rounding kRounding>
Bits<To> cvt(Bits<From> from) {
  if constexpr (std::is_same_v<From, Half>) {
    return cvt<To, float, kRounding>(
        bitsOf<float>(static_cast<float>(as<Half>(from).value)));
  } else if constexpr (std::is_same_v<From, Bfloat16>) {
    return cvt<To, float, kRounding>(static_cast<uint32_t>(from) << 16);
  } else if constexpr (!isFloat<From> && !isFloat<To>) {
    return static_cast<Bits<To>>(static_cast<To>(as<From>(from)));
  } else if constexpr (!isFloat<From>) {
    static_assert(std::is_same_v<To, float> || std::is_same_v<To, double>);
    return bitsOf<To>(static_cast<To>(as<From>(from)));
  } else if constexpr (std::is_same_v<To, Half>) {
    return bitsOf<Half>({static_cast<_Float16>(as<From>(from))});
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    static_assert(std::is_same_v<From, float>);
    if (std::isnan(as<float>(from)))
      return 0x7fff;
    return static_cast<uint16_t>((from + 0x7fff + (from >> 16 & 1)) >> 16);
  } else if constexpr (isFloat<To>) {
    const From value = as<From>(from);
    return std::is_same_v<To, From>
               ? bitsOf<To>(static_cast<To>(toInteger<kRounding>(value)))
               : bitsOf<To>(static_cast<To>(value));
  } else {
    // Saturates.
    using Limits = std::numeric_limits<To>;
    const From value = toInteger<kRounding>(as<From>(from));
    if (std::isnan(value))
      return sizeof(From) == 8 && sizeof(To) >= 4 ? signBit<To> : 0;
    if (value >= std::ldexp(From(1), Limits::digits))
      return static_cast<Bits<To>>(Limits::max());
    if (value <= static_cast<From>(Limits::min()))
      return static_cast<Bits<To>>(Limits::min());
    return static_cast<Bits<To>>(static_cast<To>(value));
  }
}

// Operations of a warp.

enum class Shuffle { Up, Down, Butterfly, Index };

/// `bounds` has the lanes' segment in bits 8 to 12 and the last lane in bits 0
/// to
/// 4. `*isInside`, unless null: whether the lane that was asked for is in the
/// segment; if not, a lane gets its own value.
template <Shuffle kKind>
uint32_t shfl(const Thread &thread, uint32_t value, uint32_t by,
              uint32_t bounds, uint32_t mask, bool *isInside, int line) {
  const Block::Lanes lanes = thread.block.exchange(mask, value, "shfl", line);
  const uint32_t lane = thread.laneid, segment = bounds >> 8 & 31;
  const uint32_t last = (lane & segment) | (bounds & 31 & ~segment);
  uint32_t source = 0;
  bool inside = false;
  by &= 31;
  switch (kKind) {
  case Shuffle::Up:
    source = lane - by;
    inside = static_cast<int>(source) >= static_cast<int>(last);
    break;
  case Shuffle::Down:
    source = lane + by;
    inside = source <= last;
    break;
  case Shuffle::Butterfly:
    source = lane ^ by;
    inside = source <= last;
    break;
  case Shuffle::Index:
    source = (lane & segment) | (by & ~segment);
    inside = source <= last;
    break;
  }
  if (!inside)
    source = lane;
  if (isInside)
    *isInside = inside;
  // The value of a lane that does not take part is undefined.
  return lanes.mask >> source & 1 ? static_cast<uint32_t>(lanes.values[source])
                                  : 0xdeadbeef;
}

/// Returns the lanes of `mask` for which `predicate` is true.
inline uint32_t voteBallot(const Thread &thread, bool predicate, uint32_t mask,
                           int line) {
  const Block::Lanes lanes =
      thread.block.exchange(mask, predicate, "vote", line);
  uint32_t result = 0;
  for (unsigned i = 0; i < 32; ++i)
    if (lanes.mask >> i & 1 && lanes.values[i])
      result |= 1u << i;
  return result;
}
inline bool voteAll(const Thread &thread, bool predicate, uint32_t mask,
                    int line) {
  return voteBallot(thread, !predicate, mask, line) == 0;
}
inline bool voteAny(const Thread &thread, bool predicate, uint32_t mask,
                    int line) {
  return voteBallot(thread, predicate, mask, line) != 0;
}

/// Applies fn(old, value) to what is at `address` and returns the old value.
template <typename T, typename Fn>
Bits<T> atomic(const Thread &thread, uint64_t address, Bits<T> value, Fn fn,
               int line) {
  thread.block.access(address, sizeof(T), Block::Access::Atomic, line);
  auto *memory = reinterpret_cast<Bits<T> *>(address);
  Bits<T> old = __atomic_load_n(memory, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(memory, &old, fn(old, value), true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <typename T>
Bits<T> atomAdd(const Thread &thread, uint64_t address, Bits<T> value,
                int line) {
  return atomic<T>(thread, address, value, add<T>, line);
}
template <typename T>
Bits<T> atomOr(const Thread &thread, uint64_t address, Bits<T> value,
               int line) {
  return atomic<T>(
      thread, address, value,
      [](Bits<T> a, Bits<T> b) { return static_cast<Bits<T>>(a | b); }, line);
}
} // namespace ptx
