// Tensor and bulk copies: from a tensor map and coordinates to contiguous pieces.
#include <cstring>

#include "emu.h"

using namespace emu;

namespace {

// What encode_tensor_map packs (ge2/runtime/emulate/tensor_map.py); 128 bytes.
struct TensorMap {
  u32 magic;
  u8 rank, itemsize, swizzle_log2, tf32;  // swizzle span as a power of two, 0 = none
  u64 address;
  u64 strides[4];  // bytes, of dims 1..4
  u32 dims[5];
  u32 box[5];
  u32 check;
};
static_assert(sizeof(TensorMap) <= 128, "tensor maps take 128 bytes");
constexpr u32 kMagic = 0x47453254;

TensorMap read_map(const void* p, u32 rank, void* pc) {
  TensorMap map;
  std::memcpy(&map, p, sizeof map);
  const addr_t a = reinterpret_cast<addr_t>(p);
  if (map.magic != kMagic)
    fail("bad tensor map", "the tensor map was not encoded by encode_tensor_map", a, pc);
  if (a % 64)
    fail("misaligned access", "a tensor map lies at a multiple of 64 bytes", a, pc);
  if (map.rank != rank)
    fail("bad tensor map", format("a %uD copy with a map of rank %u", rank, map.rank), a, pc);
  return map;
}

// The shared address where the swizzle puts the 16-byte chunk at `smem`.
u32 swizzled(u32 smem, u32 log2) {
  if (log2 == 0) return smem;
  const u32 bits = log2 - 4;  // 32 -> 1, 64 -> 2, 128 -> 3
  const u32 mask = (1u << bits) - 1;
  return smem ^ ((smem >> 7 & mask) << 4);
}

// The pieces of the box at coordinates `at`, in shared-memory order.
std::vector<Span> box_spans(const TensorMap& m, const int* at, u32 smem) {
  std::vector<Span> spans;
  const u32 row = m.box[0] * m.itemsize;
  u64 rows = 1;
  for (u32 i = 1; i < m.rank; ++i) rows *= m.box[i];
  for (u64 r = 0; r < rows; ++r) {
    u64 rest = r;
    bool inside = true;
    u64 offset = 0;
    for (u32 i = 1; i < m.rank; ++i) {
      const long long c = at[i] + static_cast<long long>(rest % m.box[i]);
      rest /= m.box[i];
      inside = inside && c >= 0 && c < static_cast<long long>(m.dims[i]);
      offset += static_cast<u64>(c) * m.strides[i - 1];
    }
    const u32 to = smem + static_cast<u32>(r) * row;
    for (u32 b = 0; b < row;) {
      const long long x = at[0] + static_cast<long long>(b / m.itemsize);
      const bool in = inside && x >= 0 && x < static_cast<long long>(m.dims[0]);
      // As far as the next chunk, or the next border of the tensor.
      u32 end = m.swizzle_log2 ? (b / 16 + 1) * 16 : row;
      if (end > row) end = row;
      if (inside && x < 0) {
        const u32 border = b + static_cast<u32>(-x) * m.itemsize;
        if (border < end) end = border;
      } else if (in) {
        const u64 border = b + (m.dims[0] - static_cast<u64>(x)) * m.itemsize;
        if (border < end) end = static_cast<u32>(border);
      }
      u8* global = nullptr;
      if (in) global = reinterpret_cast<u8*>(m.address + offset + static_cast<u64>(x) * m.itemsize);
      spans.push_back({global, swizzled(to + b, m.swizzle_log2), end - b});
      b = end;
    }
  }
  return spans;
}

u32 box_bytes(const TensorMap& m) {
  u32 bytes = m.itemsize;
  for (u32 i = 0; i < m.rank; ++i) bytes *= m.box[i];
  return bytes;
}

void check_smem(const TensorMap& m, u32 smem, void* pc) {
  const u32 align = m.swizzle_log2 == 0 ? 128 : 8u << m.swizzle_log2;
  if (smem % align)
    fail("misaligned access",
         format("a tensor copy with this swizzle needs a shared address that is a multiple of %u; "
                "it is at offset %u", align, shared_offset(smem)), smem, pc);
}

}  // namespace

extern "C" void ge2emu_tma_load(u32 smem, const void* p, const int* at, u32 rank, u32 bar,
                                u32 blocks) {
  void* pc = __builtin_return_address(0);
  const TensorMap m = read_map(p, rank, pc);
  check_smem(m, smem, pc);
  const u32 own = L->cur->cta;
  const u32 targets = blocks ? blocks & 0xffff : 1u << own;
  for (u32 b = 0; b < L->group_blocks; ++b) {
    if (!(targets >> b & 1)) continue;
    BulkOp op;
    op.smem = smem % kSharedWindow + b * kSharedWindow;
    op.bytes = box_bytes(m);
    op.spans = box_spans(m, at, op.smem);
    op.tf32 = m.tf32;
    issue_load(std::move(op), bar % kSharedWindow + b * kSharedWindow, pc);
  }
}

extern "C" void ge2emu_tma_store(const void* p, u32 smem, const int* at, u32 rank) {
  void* pc = __builtin_return_address(0);
  const TensorMap m = read_map(p, rank, pc);
  check_smem(m, smem, pc);
  StoreOp op;
  op.smem = smem;
  op.bytes = box_bytes(m);
  op.spans = box_spans(m, at, smem);
  op.pc = pc;
  issue_store(std::move(op));
}

namespace {

void check_bulk(addr_t gmem, u32 smem, u32 bytes, void* pc) {
  if (gmem % 16 || smem % 16 || bytes % 16 || bytes == 0)
    fail("misaligned access",
         format("a bulk copy of %u bytes between global 0x%llx and shared 0x%x; all three are "
                "multiples of 16", bytes, static_cast<unsigned long long>(gmem), smem), gmem, pc);
}

}  // namespace

extern "C" void ge2emu_bulk_load(u32 smem, const void* gmem, u32 bytes, u32 bar) {
  void* pc = __builtin_return_address(0);
  check_bulk(reinterpret_cast<addr_t>(gmem), smem, bytes, pc);
  BulkOp op;
  op.smem = smem;
  op.bytes = bytes;
  op.spans = {{static_cast<u8*>(const_cast<void*>(gmem)), smem, bytes}};
  issue_load(std::move(op), bar, pc);
}

extern "C" void ge2emu_bulk_store(void* gmem, u32 smem, u32 bytes) {
  void* pc = __builtin_return_address(0);
  check_bulk(reinterpret_cast<addr_t>(gmem), smem, bytes, pc);
  StoreOp op;
  op.smem = smem;
  op.bytes = bytes;
  op.spans = {{static_cast<u8*>(gmem), smem, bytes}};
  op.pc = pc;
  issue_store(std::move(op));
}
