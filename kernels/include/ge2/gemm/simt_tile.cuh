// f32 operand tiles for products on CUDA cores: global memory to registers to shared memory.
#pragma once

namespace ge2 {

// A tile of EXTENT rows (of A or B; indexed i) by BK of k lies in shared memory as [k][i], so that
// a thread's rows of one k are neighbours whatever the layout in global memory. Columns are moved
// by swizzle(k): a warp transposes BK / 4 quads of k by 128 / BK rows, to 32 banks.
template <int EXTENT, int BK, int THREADS, bool K_MAJOR, int VEC>
struct SimtTile {
    static constexpr int QUADS = EXTENT * BK / 4 / THREADS;
    static_assert(QUADS * 4 * THREADS == EXTENT * BK, "the threads share a tile evenly");
    static_assert(EXTENT % 32 == 0 && BK <= 16, "the swizzle permutes within blocks of 32");

    float quads[QUADS][4];

    static int swizzle(int k) { return k / 4 % (BK / 4) * (128 / BK); }

    static int quad_i(int q) { return K_MAJOR ? q / (BK / 4) : q % (EXTENT / 4) * 4; }
    static int quad_k(int q) { return K_MAJOR ? q % (BK / 4) * 4 : q / (EXTENT / 4); }

    // Reads this thread's part of the tile whose first element is at origin; i_left and k_left say
    // how much of the matrix is there, the rest becomes zero.
    void load(const float* origin, long long stride_i, long long stride_k, int i_left, int k_left) {
#pragma unroll
        for (int j = 0; j < QUADS; ++j) {
            const int q = static_cast<int>(threadIdx.x) + j * THREADS;
            const int i = quad_i(q);
            const int k = quad_k(q);
            const int inside = K_MAJOR ? (i < i_left ? k_left - k : 0)
                                       : (k < k_left ? i_left - i : 0);
            load_quad(quads[j], origin + i * stride_i + k * stride_k,
                      K_MAJOR ? stride_k : stride_i, inside);
        }
    }

    void store(float* tile) const {
#pragma unroll
        for (int j = 0; j < QUADS; ++j) {
            const int q = static_cast<int>(threadIdx.x) + j * THREADS;
            const int k = quad_k(q);
            float* target = tile + k * EXTENT + (quad_i(q) ^ swizzle(k));
            if constexpr (K_MAJOR) {
#pragma unroll
                for (int e = 0; e < 4; ++e) target[e * EXTENT] = quads[j][e];
            } else {
                *reinterpret_cast<float4*>(target) =
                    make_float4(quads[j][0], quads[j][1], quads[j][2], quads[j][3]);
            }
        }
    }

    // Four neighbours from i (a multiple of 4) on.
    static void read(float (&values)[4], const float* tile, int k, int i) {
        const float4 v = *reinterpret_cast<const float4*>(tile + k * EXTENT + (i ^ swizzle(k)));
        values[0] = v.x;
        values[1] = v.y;
        values[2] = v.z;
        values[3] = v.w;
    }

private:
    static void load_quad(float (&quad)[4], const float* source, long long stride, int inside) {
        if (VEC == 4 && inside >= 4) {
            const float4 v = *reinterpret_cast<const float4*>(source);
            quad[0] = v.x;
            quad[1] = v.y;
            quad[2] = v.z;
            quad[3] = v.w;
            return;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) quad[e] = e < inside ? source[VEC == 4 ? e : e * stride] : 0.f;
    }
};

}  // namespace ge2
