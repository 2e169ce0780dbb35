// Operands as tensor cores want them: along k, in rows of whole 16 bytes; f32 ones also as three bf16
// planes whose sum they are.
#pragma once

#include <ge2/gemm/operand.cuh>
#include <ge2/types.cuh>

namespace ge2 {

inline bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// The bf16 next to x, but never infinity: the largest values are cut instead.
inline float leading_bf16(float x) {
    const float near = to_compute(from_compute<bf16>(x));
    return is_finite(near) ? near : __uint_as_float(__float_as_uint(x) & 0xffff0000u);
}

// Four neighbours along k. x = planes[0] + planes[1] + planes[2] to the last bit but one, unless
// it is not finite: then all are zero, and the caller is told.
inline bool split(const float (&x)[4], Vec<bf16, 4> (&planes)[3]) {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        finite = finite && is_finite(x[i]);
        float rest = is_finite(x[i]) ? x[i] : 0.f;
#pragma unroll
        for (int plane = 0; plane < 3; ++plane) {
            const float part = leading_bf16(rest);
            planes[plane][i] = from_compute<bf16>(part);
            rest -= part;
        }
    }
    return finite;
}

// One block writes 64 rows (of A or B; i) by 64 of k; blockIdx = (tile of k, tile of i, matrix).
// Planes of a matrix lie behind each other, each extent rows of pitch elements, a multiple of 8.
class PlanesTile {
public:
    static constexpr int SIDE = 64;
    static constexpr int THREADS = 256;
    static constexpr int PER_THREAD = SIDE * SIDE / 4 / THREADS;
    static constexpr int PITCH = SIDE + 1;

    explicit PlanesTile(unsigned char* shared) : shared_(shared) {}

    // Source elements of type S become planes of type T: one that is the same, or three.
    template <typename S, typename T, bool K_MAJOR, int VEC, typename Args>
    void run(const Args& args) const {
        float x[PER_THREAD][4];
        if constexpr (K_MAJOR) {
            load_rows<S, VEC>(args, x);
        } else {
            load_turned<S>(args, x);
        }
        bool finite = true;
#pragma unroll
        for (int part = 0; part < PER_THREAD; ++part) {
            finite = store<S, T>(args, x[part], row(part), depth()) && finite;
        }
        if constexpr (sizeof(S) > sizeof(T)) publish(args, finite);
    }

private:
    static int row(int part) { return static_cast<int>(threadIdx.x) / 16 + part * 16; }
    static int depth() { return static_cast<int>(threadIdx.x) % 16 * 4; }

    template <typename S, typename Args>
    static const S* origin(const Args& args) {
        return static_cast<const S*>(args.source.pointer) +
               blockIdx.z * args.source.batch[2];
    }

    template <typename S, int VEC, typename Args>
    static void load_rows(const Args& args, float (&x)[PER_THREAD][4]) {
        const S* matrix = origin<S>(args);
        const long long k = blockIdx.x * 64ll + depth();
#pragma unroll
        for (int part = 0; part < PER_THREAD; ++part) {
            const long long i = blockIdx.y * 64ll + row(part);
            const S* from = matrix + i * args.source.row + k * args.source.column;
            const bool inside = i < args.extent;
            if (VEC == 4 && inside && k + 4 <= args.k) {
                const Vec<S, 4> v = *reinterpret_cast<const Vec<S, 4>*>(from);
#pragma unroll
                for (int e = 0; e < 4; ++e) x[part][e] = to_compute(v[e]);
                continue;
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                x[part][e] = 0.f;
                if (inside && k + e < args.k) {
                    x[part][e] = to_compute(read_only(from + e * args.source.column));
                }
            }
        }
    }

    template <typename S, typename Args>
    void load_turned(const Args& args, float (&x)[PER_THREAD][4]) const {
        const S* matrix = origin<S>(args);
        float* tile = reinterpret_cast<float*>(shared_);
        const int i = threadIdx.x % SIDE;
        const long long row0 = blockIdx.y * 64ll + i;
#pragma unroll
        for (int part = 0; part < PER_THREAD * 4; ++part) {
            const int step = threadIdx.x / SIDE + part * (THREADS / SIDE);
            const long long k = blockIdx.x * 64ll + step;
            const bool inside = row0 < args.extent && k < args.k;
            tile[step * PITCH + i] =
                inside ? to_compute(read_only(matrix + row0 * args.source.row +
                                              k * args.source.column))
                       : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int part = 0; part < PER_THREAD; ++part) {
#pragma unroll
            for (int e = 0; e < 4; ++e) x[part][e] = tile[(depth() + e) * PITCH + row(part)];
        }
    }

    template <typename S, typename T, typename Args>
    static bool store(const Args& args, const float (&x)[4], int row, int depth) {
        const long long i = blockIdx.y * 64ll + row, k = blockIdx.x * 64ll + depth;
        const bool inside = i < args.extent && k < args.pitch;
        const long long plane = args.extent * args.pitch;
        if constexpr (sizeof(S) == sizeof(T)) {
            Vec<T, 4> v;
#pragma unroll
            for (int e = 0; e < 4; ++e) v[e] = from_compute<T>(x[e]);
            T* to = static_cast<T*>(args.planes) + blockIdx.z * plane + i * args.pitch + k;
            if (inside) *reinterpret_cast<Vec<T, 4>*>(to) = v;
            return true;
        } else {
            Vec<T, 4> planes[3];
            const bool finite = split(x, planes);
            T* to = static_cast<T*>(args.planes) + blockIdx.z * 3 * plane + i * args.pitch + k;
#pragma unroll
            for (int p = 0; p < 3; ++p) {
                if (inside) *reinterpret_cast<Vec<T, 4>*>(to + p * plane) = planes[p];
            }
            return finite;
        }
    }

    // Says whether the tile holds an infinity or NaN.
    template <typename Args>
    void publish(const Args& args, bool finite) const {
        int* found = reinterpret_cast<int*>(shared_ + SIDE * PITCH * 4);
        const bool any = __any_sync(0xffffffffu, !finite);
        if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = any;
        __syncthreads();
        if (threadIdx.x != 0) return;
        int sum = 0;
        for (int warp = 0; warp < THREADS / 32; ++warp) sum |= found[warp];
        args.flags[(static_cast<long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
                   blockIdx.x] = sum;
    }

    unsigned char* shared_;
};

// Whether one of `count` flags from flags on is set; the whole warp asks.
inline bool any_flag(const unsigned* flags, int count, int lane) {
    unsigned found = 0;
    for (int i = lane; i < count; i += 32) found |= __ldg(flags + i);
    return __any_sync(0xffffffffu, found != 0);
}

// One sum of products as plain f32 arithmetic gives it.
inline float plain_dot(const float* a, const float* b, long long step_a, long long step_b,
                       long long k) {
    float sum = 0.f;
    for (long long i = 0; i < k; ++i) sum = ::fmaf(__ldg(a + i * step_a), __ldg(b + i * step_b), sum);
    return sum;
}

}  // namespace ge2
