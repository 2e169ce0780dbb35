// CUDA's mathematical and bit functions on top of the host's libm.
#pragma once

extern "C" {
double exp(double) noexcept; float expf(float) noexcept;
double exp2(double) noexcept; float exp2f(float) noexcept;
double exp10(double) noexcept; float exp10f(float) noexcept;
double expm1(double) noexcept; float expm1f(float) noexcept;
double log(double) noexcept; float logf(float) noexcept;
double log2(double) noexcept; float log2f(float) noexcept;
double log10(double) noexcept; float log10f(float) noexcept;
double log1p(double) noexcept; float log1pf(float) noexcept;
double sin(double) noexcept; float sinf(float) noexcept;
double cos(double) noexcept; float cosf(float) noexcept;
double tan(double) noexcept; float tanf(float) noexcept;
double asin(double) noexcept; float asinf(float) noexcept;
double acos(double) noexcept; float acosf(float) noexcept;
double atan(double) noexcept; float atanf(float) noexcept;
double sinh(double) noexcept; float sinhf(float) noexcept;
double cosh(double) noexcept; float coshf(float) noexcept;
double tanh(double) noexcept; float tanhf(float) noexcept;
double asinh(double) noexcept; float asinhf(float) noexcept;
double acosh(double) noexcept; float acoshf(float) noexcept;
double atanh(double) noexcept; float atanhf(float) noexcept;
double sqrt(double) noexcept; float sqrtf(float) noexcept;
double cbrt(double) noexcept; float cbrtf(float) noexcept;
double erf(double) noexcept; float erff(float) noexcept;
double erfc(double) noexcept; float erfcf(float) noexcept;
double tgamma(double) noexcept; float tgammaf(float) noexcept;
double lgamma(double) noexcept; float lgammaf(float) noexcept;
double floor(double) noexcept; float floorf(float) noexcept;
double ceil(double) noexcept; float ceilf(float) noexcept;
double trunc(double) noexcept; float truncf(float) noexcept;
double round(double) noexcept; float roundf(float) noexcept;
double rint(double) noexcept; float rintf(float) noexcept;
double nearbyint(double) noexcept; float nearbyintf(float) noexcept;
double fabs(double) noexcept; float fabsf(float) noexcept;
double pow(double, double) noexcept; float powf(float, float) noexcept;
double fmod(double, double) noexcept; float fmodf(float, float) noexcept;
double atan2(double, double) noexcept; float atan2f(float, float) noexcept;
double fmin(double, double) noexcept; float fminf(float, float) noexcept;
double fmax(double, double) noexcept; float fmaxf(float, float) noexcept;
double copysign(double, double) noexcept; float copysignf(float, float) noexcept;
double hypot(double, double) noexcept; float hypotf(float, float) noexcept;
double fdim(double, double) noexcept; float fdimf(float, float) noexcept;
double remainder(double, double) noexcept; float remainderf(float, float) noexcept;
double nextafter(double, double) noexcept; float nextafterf(float, float) noexcept;
double fma(double, double, double) noexcept; float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept; float ldexpf(float, int) noexcept;
double frexp(double, int*) noexcept; float frexpf(float, int*) noexcept;
int abs(int) noexcept; long long llabs(long long) noexcept;
long long llrint(double) noexcept; long long llrintf(float) noexcept;
long lrint(double) noexcept; long lrintf(float) noexcept;
}

// CUDA overloads the double names for float.
GE2_INLINE float exp(float x) { return expf(x); }
GE2_INLINE float exp2(float x) { return exp2f(x); }
GE2_INLINE float exp10(float x) { return exp10f(x); }
GE2_INLINE float expm1(float x) { return expm1f(x); }
GE2_INLINE float log(float x) { return logf(x); }
GE2_INLINE float log2(float x) { return log2f(x); }
GE2_INLINE float log10(float x) { return log10f(x); }
GE2_INLINE float log1p(float x) { return log1pf(x); }
GE2_INLINE float sin(float x) { return sinf(x); }
GE2_INLINE float cos(float x) { return cosf(x); }
GE2_INLINE float tan(float x) { return tanf(x); }
GE2_INLINE float asin(float x) { return asinf(x); }
GE2_INLINE float acos(float x) { return acosf(x); }
GE2_INLINE float atan(float x) { return atanf(x); }
GE2_INLINE float sinh(float x) { return sinhf(x); }
GE2_INLINE float cosh(float x) { return coshf(x); }
GE2_INLINE float tanh(float x) { return tanhf(x); }
GE2_INLINE float asinh(float x) { return asinhf(x); }
GE2_INLINE float acosh(float x) { return acoshf(x); }
GE2_INLINE float atanh(float x) { return atanhf(x); }
GE2_INLINE float sqrt(float x) { return sqrtf(x); }
GE2_INLINE float cbrt(float x) { return cbrtf(x); }
GE2_INLINE float erf(float x) { return erff(x); }
GE2_INLINE float erfc(float x) { return erfcf(x); }
GE2_INLINE float tgamma(float x) { return tgammaf(x); }
GE2_INLINE float lgamma(float x) { return lgammaf(x); }
GE2_INLINE float floor(float x) { return floorf(x); }
GE2_INLINE float ceil(float x) { return ceilf(x); }
GE2_INLINE float trunc(float x) { return truncf(x); }
GE2_INLINE float round(float x) { return roundf(x); }
GE2_INLINE float rint(float x) { return rintf(x); }
GE2_INLINE float nearbyint(float x) { return nearbyintf(x); }
GE2_INLINE float fabs(float x) { return fabsf(x); }
GE2_INLINE float pow(float x, float y) { return powf(x, y); }
GE2_INLINE float fmod(float x, float y) { return fmodf(x, y); }
GE2_INLINE float atan2(float x, float y) { return atan2f(x, y); }
GE2_INLINE float fmin(float x, float y) { return fminf(x, y); }
GE2_INLINE float fmax(float x, float y) { return fmaxf(x, y); }
GE2_INLINE float copysign(float x, float y) { return copysignf(x, y); }
GE2_INLINE float hypot(float x, float y) { return hypotf(x, y); }
GE2_INLINE float fdim(float x, float y) { return fdimf(x, y); }
GE2_INLINE float remainder(float x, float y) { return remainderf(x, y); }
GE2_INLINE float nextafter(float x, float y) { return nextafterf(x, y); }
GE2_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
GE2_INLINE float ldexp(float x, int e) { return ldexpf(x, e); }
GE2_INLINE float abs(float x) { return fabsf(x); }
GE2_INLINE double abs(double x) { return fabs(x); }
GE2_INLINE long long abs(long long x) { return x < 0 ? -x : x; }

#define GE2_MINMAX(T)                                          \
  GE2_INLINE T min(T a, T b) { return b < a ? b : a; }         \
  GE2_INLINE T max(T a, T b) { return a < b ? b : a; }
GE2_MINMAX(int)
GE2_MINMAX(unsigned)
GE2_MINMAX(long)
GE2_MINMAX(unsigned long)
GE2_MINMAX(long long)
GE2_MINMAX(unsigned long long)
#undef GE2_MINMAX
GE2_INLINE unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
GE2_INLINE unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
GE2_INLINE unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
GE2_INLINE unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
GE2_INLINE float min(float a, float b) { return fminf(a, b); }
GE2_INLINE float max(float a, float b) { return fmaxf(a, b); }
GE2_INLINE double min(double a, double b) { return fmin(a, b); }
GE2_INLINE double max(double a, double b) { return fmax(a, b); }

// The approximations of the GPU are replaced by correctly rounded functions.
GE2_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
GE2_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
GE2_INLINE float rsqrt(float x) { return rsqrtf(x); }
GE2_INLINE float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
GE2_INLINE double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }
GE2_INLINE float __expf(float x) { return expf(x); }
GE2_INLINE float __exp10f(float x) { return exp10f(x); }
GE2_INLINE float __logf(float x) { return logf(x); }
GE2_INLINE float __log2f(float x) { return log2f(x); }
GE2_INLINE float __log10f(float x) { return log10f(x); }
GE2_INLINE float __sinf(float x) { return sinf(x); }
GE2_INLINE float __cosf(float x) { return cosf(x); }
GE2_INLINE float __tanf(float x) { return tanf(x); }
GE2_INLINE float __powf(float x, float y) { return powf(x, y); }
GE2_INLINE float __fdividef(float x, float y) { return x / y; }
GE2_INLINE float __frcp_rn(float x) { return 1.0f / x; }
GE2_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
GE2_INLINE float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
GE2_INLINE float __fadd_rn(float x, float y) { return x + y; }
GE2_INLINE float __fsub_rn(float x, float y) { return x - y; }
GE2_INLINE float __fmul_rn(float x, float y) { return x * y; }
GE2_INLINE float __fdiv_rn(float x, float y) { return x / y; }
GE2_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
GE2_INLINE double __dadd_rn(double x, double y) { return x + y; }
GE2_INLINE double __dmul_rn(double x, double y) { return x * y; }
GE2_INLINE double __ddiv_rn(double x, double y) { return x / y; }
GE2_INLINE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
GE2_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
GE2_INLINE void sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
GE2_INLINE void sincos(double x, double* s, double* c) { *s = sin(x); *c = cos(x); }

template <class T>
GE2_INLINE bool isnan(T x) { return __builtin_isnan(x); }
template <class T>
GE2_INLINE bool isinf(T x) { return __builtin_isinf(x); }
template <class T>
GE2_INLINE bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T>
GE2_INLINE bool signbit(T x) { return __builtin_signbit(x); }

#define GE2_BITCAST(NAME, TO, FROM)                   \
  GE2_INLINE TO NAME(FROM v) {                        \
    TO r;                                             \
    static_assert(sizeof(TO) == sizeof(FROM), "");    \
    __builtin_memcpy(&r, &v, sizeof r);               \
    return r;                                         \
  }
GE2_BITCAST(__float_as_int, int, float)
GE2_BITCAST(__float_as_uint, unsigned, float)
GE2_BITCAST(__int_as_float, float, int)
GE2_BITCAST(__uint_as_float, float, unsigned)
GE2_BITCAST(__double_as_longlong, long long, double)
GE2_BITCAST(__longlong_as_double, double, long long)
#undef GE2_BITCAST

// Conversions saturate and map NaN to 0, as the GPU's cvt does.
template <class To, class From>
GE2_INLINE To ge2emu_saturate(From x, double lo, double hi, To least, To most) {
  return __builtin_isnan(x) ? To{0} : x <= lo ? least : x >= hi ? most : (To)x;
}
GE2_INLINE int __float2int_rz(float x) {
  return ge2emu_saturate<int>(x, -2147483648.0, 2147483648.0, -2147483647 - 1, 2147483647);
}
GE2_INLINE int __float2int_rn(float x) { return __float2int_rz(rintf(x)); }
GE2_INLINE int __float2int_rd(float x) { return __float2int_rz(floorf(x)); }
GE2_INLINE int __float2int_ru(float x) { return __float2int_rz(ceilf(x)); }
GE2_INLINE unsigned __float2uint_rz(float x) {
  return ge2emu_saturate<unsigned>(x, 0.0, 4294967296.0, 0u, 0xffffffffu);
}
GE2_INLINE unsigned __float2uint_rn(float x) { return __float2uint_rz(rintf(x)); }
GE2_INLINE long long __double2ll_rz(double x) {
  return ge2emu_saturate<long long>(x, -9223372036854775808.0, 9223372036854775808.0,
                                    -9223372036854775807ll - 1, 9223372036854775807ll);
}
GE2_INLINE long long __float2ll_rz(float x) { return __double2ll_rz((double)x); }
GE2_INLINE int __double2int_rz(double x) {
  return ge2emu_saturate<int>(x, -2147483648.0, 2147483647.0, -2147483647 - 1, 2147483647);
}
GE2_INLINE int __double2int_rn(double x) { return __double2int_rz(rint(x)); }
GE2_INLINE float __int2float_rn(int x) { return (float)x; }
GE2_INLINE float __uint2float_rn(unsigned x) { return (float)x; }
GE2_INLINE float __double2float_rn(double x) { return (float)x; }

GE2_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
GE2_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
GE2_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
GE2_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
GE2_INLINE int __ffs(int x) { return __builtin_ffs(x); }
GE2_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
GE2_INLINE unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
GE2_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
GE2_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
GE2_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
GE2_INLINE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return n % 32 ? hi << n % 32 | lo >> (32 - n % 32) : hi;
}
GE2_INLINE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return n % 32 ? lo >> n % 32 | hi << (32 - n % 32) : lo;
}
GE2_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned sel = s >> (4 * i) & 15;
    unsigned byte = (unsigned)(both >> (8 * (sel & 7))) & 255;
    if (sel & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}
