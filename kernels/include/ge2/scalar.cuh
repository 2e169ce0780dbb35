// Scalar primitives that rendered expressions call: one overload per compute type (float, double,
// int, long long, bool). Plain C++ over the CUDA math built-ins, so that it also compiles as host
// code. f32 is IEEE: denormals kept, NaN propagates through max and min.
#pragma once

#include <ge2/ptx/minmax.cuh>

namespace ge2 {

inline float bits_to_f32(unsigned bits) {
  union { unsigned u; float f; } pun;
  pun.u = bits;
  return pun.f;
}

inline unsigned f32_to_bits(float value) {
  union { unsigned u; float f; } pun;
  pun.f = value;
  return pun.u;
}

inline double bits_to_f64(unsigned long long bits) {
  union { unsigned long long u; double f; } pun;
  pun.u = bits;
  return pun.f;
}

inline float inf_f32() { return bits_to_f32(0x7f800000u); }
inline float nan_f32() { return bits_to_f32(0x7fc00000u); }
inline double inf_f64() { return bits_to_f64(0x7ff0000000000000ull); }
inline double nan_f64() { return bits_to_f64(0x7ff8000000000000ull); }

#define GE2_FLOAT_FUNCTION(name, function)                     \
  inline float name(float x) { return ::function##f(x); }      \
  inline double name(double x) { return ::function(x); }

GE2_FLOAT_FUNCTION(exp, exp)
GE2_FLOAT_FUNCTION(exp2, exp2)
GE2_FLOAT_FUNCTION(expm1, expm1)
GE2_FLOAT_FUNCTION(log, log)
GE2_FLOAT_FUNCTION(log2, log2)
GE2_FLOAT_FUNCTION(log10, log10)
GE2_FLOAT_FUNCTION(log1p, log1p)
GE2_FLOAT_FUNCTION(sqrt, sqrt)
GE2_FLOAT_FUNCTION(rsqrt, rsqrt)
GE2_FLOAT_FUNCTION(sin, sin)
GE2_FLOAT_FUNCTION(cos, cos)
GE2_FLOAT_FUNCTION(tan, tan)
GE2_FLOAT_FUNCTION(asin, asin)
GE2_FLOAT_FUNCTION(acos, acos)
GE2_FLOAT_FUNCTION(atan, atan)
GE2_FLOAT_FUNCTION(sinh, sinh)
GE2_FLOAT_FUNCTION(cosh, cosh)
GE2_FLOAT_FUNCTION(tanh, tanh)
GE2_FLOAT_FUNCTION(asinh, asinh)
GE2_FLOAT_FUNCTION(acosh, acosh)
GE2_FLOAT_FUNCTION(atanh, atanh)
GE2_FLOAT_FUNCTION(erf, erf)
GE2_FLOAT_FUNCTION(floor, floor)
GE2_FLOAT_FUNCTION(ceil, ceil)
GE2_FLOAT_FUNCTION(round, rint)
GE2_FLOAT_FUNCTION(trunc, trunc)
GE2_FLOAT_FUNCTION(abs, fabs)
#undef GE2_FLOAT_FUNCTION

inline float reciprocal(float x) { return 1.0f / x; }
inline double reciprocal(double x) { return 1.0 / x; }
// Of numbers that are 1 at least.
inline float reciprocal_from_one(float x) { return 1.0f / x; }
inline float neg(float x) { return -x; }
inline double neg(double x) { return -x; }
inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }
inline bool is_inf(float x) { return ::fabsf(x) == inf_f32(); }
inline bool is_inf(double x) { return ::fabs(x) == inf_f64(); }
inline bool logical_not(bool x) { return !x; }

inline float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
inline double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x; }

inline float max_nan(float a, float b) { return ptx::max_nan(a, b); }
inline double max_nan(double a, double b) { return a > b || a != a ? a : b; }
inline float min_nan(float a, float b) { return ptx::min_nan(a, b); }
inline double min_nan(double a, double b) { return a < b || a != a ? a : b; }

inline float pow(float a, float b) { return ::powf(a, b); }
inline double pow(double a, double b) { return ::pow(a, b); }
inline float fmod(float a, float b) { return ::fmodf(a, b); }
inline double fmod(double a, double b) { return ::fmod(a, b); }
inline float atan2(float a, float b) { return ::atan2f(a, b); }
inline double atan2(double a, double b) { return ::atan2(a, b); }

// The remainder with the sign of the divisor, as Python and ONNX (fmod = 0) define it.
inline float mod(float a, float b) {
  const float r = ::fmodf(a, b);
  if (r == 0.0f) return ::copysignf(0.0f, b);
  return (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
inline double mod(double a, double b) {
  const double r = ::fmod(a, b);
  if (r == 0.0) return ::copysign(0.0, b);
  return (r < 0.0) != (b < 0.0) ? r + b : r;
}

// Integer arithmetic wraps (through unsigned, where overflow is defined); x / 0 and x % 0 are 0.
#define GE2_INTEGER_FUNCTIONS(T, U)                                                            \
  inline T add(T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }     \
  inline T sub(T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); }     \
  inline T mul(T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); }     \
  inline T neg(T a) { return static_cast<T>(~static_cast<U>(a) + 1); }                       \
  inline T abs(T a) { return a < 0 ? neg(a) : a; }                                             \
  inline T sign(T a) { return a > 0 ? 1 : a < 0 ? -1 : 0; }                                    \
  inline T max_nan(T a, T b) { return a > b ? a : b; }                                         \
  inline T min_nan(T a, T b) { return a < b ? a : b; }                                         \
  inline T div(T a, T b) { return b == 0 ? 0 : b == -1 ? neg(a) : a / b; }                     \
  inline T fmod(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; }                            \
  inline T mod(T a, T b) {                                                                     \
    const T r = fmod(a, b);                                                                    \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                           \
  }                                                                                            \
  inline T pow(T a, T b) {                                                                     \
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;                        \
    T result = 1;                                                                              \
    for (; b > 0; b >>= 1) {                                                                   \
      if (b & 1) result = mul(result, a);                                                      \
      a = mul(a, a);                                                                           \
    }                                                                                          \
    return result;                                                                             \
  }                                                                                            \
  inline T bit_and(T a, T b) { return a & b; }                                                 \
  inline T bit_or(T a, T b) { return a | b; }                                                  \
  inline T bit_xor(T a, T b) { return a ^ b; }                                                 \
  inline T bit_not(T a) { return ~a; }                                                         \
  inline T shift_left(T a, T b) {                                                              \
    return static_cast<T>(static_cast<U>(a) << (b & static_cast<T>(8 * sizeof(T) - 1)));                    \
  }                                                                                            \
  inline T shift_right(T a, T b) { return a >> (b & static_cast<T>(8 * sizeof(T) - 1)); }

GE2_INTEGER_FUNCTIONS(int, unsigned)
GE2_INTEGER_FUNCTIONS(long long, unsigned long long)
#undef GE2_INTEGER_FUNCTIONS

// Rounding points: to the nearest f16 or bf16, ties to even, and back to float.
inline float cast_f16(float x) {
  const unsigned bits = f32_to_bits(x);
  const unsigned sign_bit = bits & 0x80000000u;
  unsigned magnitude = bits ^ sign_bit;
  if (magnitude >= 0x7f800000u) return x;                                          // inf, NaN
  if (magnitude >= 0x477ff000u) return bits_to_f32(sign_bit | 0x7f800000u);        // overflow
  if (magnitude < 0x38800000u) {
    // A subnormal f16 is a multiple of 2^-24, the spacing of floats just above 0.5.
    return ::copysignf((::fabsf(x) + 0.5f) - 0.5f, x);
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return bits_to_f32(sign_bit | (magnitude & 0xffffe000u));
}

inline float cast_bf16(float x) {
  const unsigned bits = f32_to_bits(x);
  if (x != x) return x;
  return bits_to_f32((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

// Rounds to odd, so that a second rounding to a narrower type cannot round twice.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x || is_inf(x)) return nearest;
  unsigned bits = f32_to_bits(nearest);
  if ((bits & 1u) == 0) bits += (::fabs(back) > ::fabs(x)) ? -1u : 1u;
  return bits_to_f32(bits);
}

inline float cast_f16(double x) { return cast_f16(round_to_odd(x)); }
inline float cast_bf16(double x) { return cast_bf16(round_to_odd(x)); }

// To an 8-bit float and back: to the nearest, ties to even, saturated at `most`. Below `least`
// numbers are multiples of the spacing of floats just above `grid`, elsewhere `dropped` bits go.
inline float cast_f8(float x, float most, float least, float grid, int dropped) {
  if (x != x) return x;
  float size = ::fabsf(x);
  size = size > most ? most : size;
  if (size < least) return ::copysignf((size + grid) - grid, x);
  const unsigned bits = f32_to_bits(size);
  const unsigned half = (1u << (dropped - 1)) - 1u + ((bits >> dropped) & 1u);
  return ::copysignf(bits_to_f32((bits + half) >> dropped << dropped), x);
}
inline float cast_f8e4m3(float x) { return cast_f8(x, 448.0f, 0x1p-6f, 16384.0f, 20); }
inline float cast_f8e5m2(float x) { return cast_f8(x, 57344.0f, 0x1p-14f, 128.0f, 21); }

// Float to integer truncates and saturates; NaN becomes 0.
inline int cast_i32(float x) {
  if (x != x) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  return x < -2147483648.0f ? -2147483647 - 1 : static_cast<int>(x);
}
inline int cast_i32(double x) {
  if (x != x) return 0;
  if (x >= 2147483647.0) return 2147483647;
  return x <= -2147483648.0 ? -2147483647 - 1 : static_cast<int>(x);
}
inline long long cast_i64(double x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0) return 9223372036854775807LL;
  return x < -9223372036854775808.0 ? -9223372036854775807LL - 1 : static_cast<long long>(x);
}
inline long long cast_i64(float x) { return cast_i64(static_cast<double>(x)); }

template <typename T> inline float cast_f32(T x) { return static_cast<float>(x); }
template <typename T> inline double cast_f64(T x) { return static_cast<double>(x); }
template <typename T> inline bool cast_bool(T x) { return x != T(0); }
template <typename T> inline int cast_i32(T x) { return static_cast<int>(x); }
template <typename T> inline long long cast_i64(T x) { return static_cast<long long>(x); }
template <typename T> inline float cast_f16(T x) { return cast_f16(static_cast<double>(x)); }
template <typename T> inline float cast_bf16(T x) { return cast_bf16(static_cast<double>(x)); }

template <typename T> inline float cast_f8e4m3(T x) { return cast_f8e4m3(static_cast<float>(x)); }
template <typename T> inline float cast_f8e5m2(T x) { return cast_f8e5m2(static_cast<float>(x)); }

// Narrow integers wrap and go on as int.
template <typename T> inline int cast_u8(T x) { return static_cast<unsigned char>(cast_i32(x)); }
template <typename T> inline int cast_i8(T x) { return static_cast<signed char>(cast_i32(x)); }

}  // namespace ge2
