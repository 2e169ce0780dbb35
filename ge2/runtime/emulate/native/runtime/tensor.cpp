// Warp-wide matrix instructions: ldmatrix, stmatrix, mma.sync; and the 16-bit conversions.
#include <cmath>
#include <cstring>

#include "emu.h"
#include "half.h"

using namespace emu;

namespace {

struct MatrixSlot {
  u32* r;
  u32 smem, tiles, transposed;
  void* pc;
};

struct MmaSlot {
  float* d;
  const u32 *a, *b;
  u32 type;
};

struct MmaBytesSlot {
  void* d;
  const u32 *a, *b;
  u32 type_a, type_b;
};

// Checks the 16 bytes of one row as an access of the lane that gave its address.
u8* row_bytes(const Warp& w, u32 lane, u32 smem, u32 access_kind, void* pc) {
  Thread* self = L->cur;
  L->cur = &L->threads[w.first_tid + lane];
  if (smem % 16)
    fail("misaligned access", format("a matrix row at shared offset %u; wanted a multiple of 16",
                                     shared_offset(smem)), smem, pc);
  Region* r = shared_region(smem, 16, access_kind == kRead ? "ldmatrix reads" : "stmatrix writes", pc);
  const u64 off = shared_offset(smem);
  if (L->want_banks) bank_access(reinterpret_cast<addr_t>(r->base + off), 16, pc);
  touch(*r, off, 16, access_kind, pc);
  L->cur = self;
  return r->base + off;
}

void finish_ldmatrix(Warp& w, u32) {
  const u32 tiles = slot_of<MatrixSlot>(w, 0).tiles;
  const bool transposed = slot_of<MatrixSlot>(w, 0).transposed;
  for (u32 tile = 0; tile < tiles; ++tile) {
    u16 rows[8][8];
    for (u32 j = 0; j < 8; ++j) {
      const MatrixSlot& s = slot_of<MatrixSlot>(w, tile * 8 + j);
      std::memcpy(rows[j], row_bytes(w, tile * 8 + j, s.smem, kRead, s.pc), 16);
    }
    for (u32 lane = 0; lane < 32; ++lane) {
      const u32 i = lane / 4, k = lane % 4 * 2;
      const u32 lo = transposed ? rows[k][i] : rows[i][k];
      const u32 hi = transposed ? rows[k + 1][i] : rows[i][k + 1];
      slot_of<MatrixSlot>(w, lane).r[tile] = lo | hi << 16;
    }
  }
}

void finish_stmatrix(Warp& w, u32) {
  const u32 tiles = slot_of<MatrixSlot>(w, 0).tiles;
  const bool transposed = slot_of<MatrixSlot>(w, 0).transposed;
  for (u32 tile = 0; tile < tiles; ++tile) {
    u16 rows[8][8];
    for (u32 lane = 0; lane < 32; ++lane) {
      const u32 i = lane / 4, k = lane % 4 * 2, v = slot_of<MatrixSlot>(w, lane).r[tile];
      (transposed ? rows[k][i] : rows[i][k]) = static_cast<u16>(v);
      (transposed ? rows[k + 1][i] : rows[i][k + 1]) = static_cast<u16>(v >> 16);
    }
    for (u32 j = 0; j < 8; ++j) {
      const MatrixSlot& s = slot_of<MatrixSlot>(w, tile * 8 + j);
      std::memcpy(row_bytes(w, tile * 8 + j, s.smem, kWrite, s.pc), rows[j], 16);
    }
  }
}

// Element types: 0 f16 k16, 1 bf16 k16, 2 f16 k8, 3 tf32 k8.
void unpack(u32 type, u32 word, float* lo, float* hi) {
  if (type == 1) {
    *lo = bf16_value(static_cast<u16>(word));
    *hi = bf16_value(static_cast<u16>(word >> 16));
  } else {
    *lo = f16_value(static_cast<u16>(word));
    *hi = f16_value(static_cast<u16>(word >> 16));
  }
}

float tf32_value(u32 word) {
  word &= 0xffffe000u;
  float f;
  std::memcpy(&f, &word, 4);
  return f;
}

void finish_mma(Warp& w, u32) {
  const u32 type = slot_of<MmaSlot>(w, 0).type;
  const u32 depth = type < 2 ? 16 : 8;
  float a[16][16] = {}, b[16][8] = {};
  for (u32 lane = 0; lane < 32; ++lane) {
    const MmaSlot& s = slot_of<MmaSlot>(w, lane);
    const u32 g = lane / 4, t = lane % 4;
    if (type == 3) {
      for (u32 i = 0; i < 4; ++i) a[g + 8 * (i & 1)][t + 4 * (i >> 1)] = tf32_value(s.a[i]);
      for (u32 i = 0; i < 2; ++i) b[t + 4 * i][g] = tf32_value(s.b[i]);
      continue;
    }
    for (u32 i = 0; i < depth / 4; ++i) {
      float* to = &a[g + 8 * (i & 1)][t * 2 + 8 * (i >> 1)];
      unpack(type, s.a[i], to, to + 1);
    }
    for (u32 i = 0; i < depth / 8; ++i)
      unpack(type, s.b[i], &b[t * 2 + 8 * i][g], &b[t * 2 + 8 * i + 1][g]);
  }
  for (u32 lane = 0; lane < 32; ++lane) {
    float* d = slot_of<MmaSlot>(w, lane).d;
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = lane / 4 + 8 * (i >> 1), col = lane % 4 * 2 + (i & 1);
      double sum = d[i];
      for (u32 k = 0; k < depth; ++k) sum += static_cast<double>(a[row][k]) * b[k][col];
      d[i] = static_cast<float>(sum);
    }
  }
}

// Products of bytes: 16 x 8 x 32. Sums of integers wrap; those of 8-bit floats are rounded once.
void finish_mma_bytes(Warp& w, u32) {
  float a[16][32], b[32][8];
  const auto byte = [](u32 word, u32 i, u32 type) {
    return byte_value(static_cast<u8>(word >> i * 8), type);
  };
  for (u32 lane = 0; lane < 32; ++lane) {
    const MmaBytesSlot& s = slot_of<MmaBytesSlot>(w, lane);
    const u32 g = lane / 4, t = lane % 4;
    for (u32 e = 0; e < 4; ++e) {
      for (u32 i = 0; i < 4; ++i)
        a[g + 8 * (i & 1)][t * 4 + 16 * (i >> 1) + e] = byte(s.a[i], e, s.type_a);
      for (u32 i = 0; i < 2; ++i) b[t * 4 + 16 * i + e][g] = byte(s.b[i], e, s.type_b);
    }
  }
  for (u32 lane = 0; lane < 32; ++lane) {
    const MmaBytesSlot& s = slot_of<MmaBytesSlot>(w, lane);
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = lane / 4 + 8 * (i >> 1), col = lane % 4 * 2 + (i & 1);
      double sum = 0.0;
      for (u32 k = 0; k < 32; ++k) sum += static_cast<double>(a[row][k]) * b[k][col];
      if (s.type_a < 2) static_cast<u32*>(s.d)[i] += static_cast<u32>(static_cast<int>(sum));
      else static_cast<float*>(s.d)[i] = static_cast<float>(static_cast<float*>(s.d)[i] + sum);
    }
  }
}

void need_whole_warp(const char* what, void* pc) {
  const Warp& w = L->warps[L->cur->warp];
  if (live_mask(w) != 0xffffffffu)
    fail("barrier divergence",
         format("%s needs all 32 lanes of the warp; 0x%08x are there", what, live_mask(w)), 0, pc);
}

}  // namespace

extern "C" void ge2emu_ldmatrix(u32* r, u32 smem, u32 tiles, u32 transposed, const char* file,
                                int line) {
  void* pc = __builtin_return_address(0);
  need_whole_warp("ldmatrix", pc);
  MatrixSlot s{r, smem, tiles, transposed, pc};
  warp_collective(Kind::kLdmatrix, 0xffffffffu, tiles << 1 | transposed, Site{pc, file, line}, &s,
                  finish_ldmatrix);
}

extern "C" void ge2emu_stmatrix(u32 smem, const u32* r, u32 tiles, u32 transposed,
                                const char* file, int line) {
  void* pc = __builtin_return_address(0);
  need_whole_warp("stmatrix", pc);
  MatrixSlot s{const_cast<u32*>(r), smem, tiles, transposed, pc};
  warp_collective(Kind::kStmatrix, 0xffffffffu, tiles << 1 | transposed, Site{pc, file, line}, &s,
                  finish_stmatrix);
}

extern "C" void ge2emu_mma(float* d, const u32* a, const u32* b, u32 type, const char* file,
                           int line) {
  void* pc = __builtin_return_address(0);
  need_whole_warp("mma", pc);
  MmaSlot s{d, a, b, type};
  warp_collective(Kind::kMma, 0xffffffffu, type, Site{pc, file, line}, &s, finish_mma);
}

extern "C" void ge2emu_mma_bytes(void* d, const u32* a, const u32* b, u32 type_a, u32 type_b,
                                 const char* file, int line) {
  void* pc = __builtin_return_address(0);
  need_whole_warp("mma", pc);
  MmaBytesSlot s{d, a, b, type_a, type_b};
  warp_collective(Kind::kMma, 0xffffffffu, 16 + type_a * 4 + type_b, Site{pc, file, line}, &s,
                  finish_mma_bytes);
}

extern "C" float ge2emu_f16_to_f32(u16 bits) { return f16_value(bits); }

extern "C" u16 ge2emu_f64_to_f16(double value) {
  if (value != value) return 0x7fff;
  const u16 sign = std::signbit(value) ? 0x8000 : 0;
  const double x = std::fabs(value);
  if (x >= 65520.0) return sign | 0x7c00;
  if (x < std::ldexp(1.0, -14)) return sign | static_cast<u16>(std::nearbyint(std::ldexp(x, 24)));
  const int e = std::ilogb(x);
  const auto mantissa = static_cast<u32>(std::nearbyint(std::ldexp(x, 10 - e)));  // 1024..2048
  return sign | static_cast<u16>(((static_cast<u32>(e) + 14) << 10) + mantissa);
}
