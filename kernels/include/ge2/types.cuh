// Storage types, their conversion to and from the types that arithmetic is done in, and vectors.
#pragma once

#include <ge2/ptx/cvt.cuh>
#include <ge2/ptx/cvt_f8.cuh>

// NVRTC before 13.1 has no __builtin_offsetof.
#if !defined(offsetof) && defined(__CUDACC_RTC__)
#define offsetof(type, member) __INTADDR__(&((static_cast<type*>(0))->member))
#elif !defined(offsetof)
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif

namespace ge2 {

struct f16 {
    unsigned short bits;
};

struct bf16 {
    unsigned short bits;
};

struct f8e4m3 {
    unsigned char bits;
};

struct f8e5m2 {
    unsigned char bits;
};

// One byte, 0 or 1.
struct b8 {
    unsigned char bits;
};

// N elements that are loaded and stored at once; aligned to their size, a power of two up to 16.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vec {
    T v[N];
    T& operator[](int i) { return v[i]; }
    const T& operator[](int i) const { return v[i]; }
};

// The type that a stored value is computed in.
template <typename T>
struct ComputeOf {
    using type = T;
};
template <>
struct ComputeOf<f16> {
    using type = float;
};
template <>
struct ComputeOf<bf16> {
    using type = float;
};
template <>
struct ComputeOf<f8e4m3> {
    using type = float;
};
template <>
struct ComputeOf<f8e5m2> {
    using type = float;
};
template <>
struct ComputeOf<b8> {
    using type = bool;
};
template <>
struct ComputeOf<signed char> {
    using type = int;
};
template <>
struct ComputeOf<unsigned char> {
    using type = int;
};
template <typename T>
using compute_t = typename ComputeOf<T>::type;

inline float to_compute(f16 x) { return ptx::f16_to_f32(x.bits); }
inline float to_compute(bf16 x) { return ptx::bf16_to_f32(x.bits); }
inline float to_compute(f8e4m3 x) { return ptx::e4m3_to_f32(x.bits); }
inline float to_compute(f8e5m2 x) { return ptx::e5m2_to_f32(x.bits); }
inline float to_compute(float x) { return x; }
inline double to_compute(double x) { return x; }
inline bool to_compute(b8 x) { return x.bits != 0; }
inline int to_compute(signed char x) { return x; }
inline int to_compute(unsigned char x) { return x; }
inline int to_compute(int x) { return x; }
inline long long to_compute(long long x) { return x; }

// The value of one lane of a vector. bf16 elements come out of the words that hold two of them, by a
// shift or a mask: taking halves apart first costs an instruction more for each.
template <typename T, int V>
inline compute_t<T> lane_value(const Vec<T, V>& from, int lane) {
    return to_compute(from.v[lane]);
}
template <int V>
inline float lane_value(const Vec<bf16, V>& from, int lane) {
    if constexpr (V % 2 == 0) {
        union Words {
            Vec<bf16, V> vec;
            unsigned word[V / 2];
        };
        const unsigned word = Words{from}.word[lane / 2];
        return __uint_as_float(lane % 2 ? word & 0xffff0000u : word << 16);
    } else {
        return to_compute(from.v[lane]);
    }
}

// How one storage type is made from a computed value; f16 and bf16 round to nearest even, once.
// 8-bit floats are made from floats, and saturate.
template <typename T>
struct Store {
    template <typename V>
    static T from(V v) {
        return static_cast<T>(v);
    }
};
template <>
struct Store<f16> {
    template <typename V>
    static f16 from(V v) {
        return f16{ptx::f32_to_f16(static_cast<float>(v))};
    }
    static f16 from(double v) { return f16{ptx::f64_to_f16(v)}; }
};
template <>
struct Store<bf16> {
    template <typename V>
    static bf16 from(V v) {
        return bf16{ptx::f32_to_bf16(static_cast<float>(v))};
    }
};
template <>
struct Store<f8e4m3> {
    template <typename V>
    static f8e4m3 from(V v) {
        return f8e4m3{ptx::f32_to_e4m3(static_cast<float>(v))};
    }
};
template <>
struct Store<f8e5m2> {
    template <typename V>
    static f8e5m2 from(V v) {
        return f8e5m2{ptx::f32_to_e5m2(static_cast<float>(v))};
    }
};
template <>
struct Store<b8> {
    template <typename V>
    static b8 from(V v) {
        return b8{static_cast<unsigned char>(v != V(0) ? 1 : 0)};
    }
};

template <typename T, typename V>
inline T from_compute(V v) {
    return Store<T>::from(v);
}

// Two neighbours of a 16-bit type in one register, the first in the low half.
template <typename T>
inline unsigned pack2(float lo, float hi);
template <>
inline unsigned pack2<f16>(float lo, float hi) {
    return ptx::pack_f16x2(lo, hi);
}
template <>
inline unsigned pack2<bf16>(float lo, float hi) {
    return ptx::pack_bf16x2(lo, hi);
}

template <typename T>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<f16> = true;
template <>
constexpr bool kIsHalf<bf16> = true;

// Computed values as stored. Two neighbours of a 16-bit type are rounded by one instruction, also
// where they may be stored one by one.
template <typename T, int V, typename C>
inline Vec<T, V> pack_lanes(const C (&from)[V]) {
    Vec<T, V> to;
#pragma unroll
    for (int e = 0; e < V; ++e) to.v[e] = from_compute<T>(from[e]);
    return to;
}
template <typename T, int V>
inline Vec<T, V> pack_lanes(const float (&from)[V]) {
    if constexpr (kIsHalf<T> && V % 2 == 0) {
        union Words {
            unsigned word[V / 2];
            Vec<T, V> vec;
        };
        Words words;
#pragma unroll
        for (int e = 0; e < V; e += 2) words.word[e / 2] = pack2<T>(from[e], from[e + 1]);
        return words.vec;
    } else {
        return pack_lanes<T, V, float>(from);
    }
}

}  // namespace ge2
