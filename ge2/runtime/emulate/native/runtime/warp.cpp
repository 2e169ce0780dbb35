// Warp collectives that exchange values: shuffles, votes; and the block barriers.
#include <cstring>

#include "emu.h"

using namespace emu;

namespace {

struct ShuffleSlot {
  u64 value, result;
  u32 lane_arg, width, mode;
  bool bad;
};

struct VoteSlot {
  u32 predicate, result, mode;
  u64 value;
};

// The lane that `lane` reads from; -1 keeps the own value.
int source_lane(const ShuffleSlot& s, u32 lane) {
  const u32 width = s.width, base = lane / width * width, in = lane % width;
  switch (s.mode) {
    case 0: return static_cast<int>(base + s.lane_arg % width);
    case 1: return in >= s.lane_arg ? static_cast<int>(lane - s.lane_arg) : -1;
    case 2: return in + s.lane_arg < width ? static_cast<int>(lane + s.lane_arg) : -1;
    default: {
      const u32 to = in ^ s.lane_arg;
      return to < width ? static_cast<int>(base + to) : -1;
    }
  }
}

void finish_shuffle(Warp& w, u32 mask) {
  for (u32 i = 0; i < w.lanes; ++i) {
    if (!(mask >> i & 1)) continue;
    ShuffleSlot* s = &slot_of<ShuffleSlot>(w, i);
    const int from = source_lane(*s, i);
    s->bad = from >= 0 && !(mask >> from & 1);
    if (from < 0) s->result = s->value;
    else if (!s->bad) s->result = slot_of<ShuffleSlot>(w, static_cast<u32>(from)).value;
    else s->result = ~0ull;
  }
}

void finish_vote(Warp& w, u32 mask) {
  u32 ballot = 0;
  for (u32 i = 0; i < w.lanes; ++i)
    if ((mask >> i & 1) && slot_of<VoteSlot>(w, i).predicate) ballot |= 1u << i;
  for (u32 i = 0; i < w.lanes; ++i) {
    if (!(mask >> i & 1)) continue;
    VoteSlot* s = &slot_of<VoteSlot>(w, i);
    switch (s->mode) {
      case 0: s->result = ballot; break;
      case 1: s->result = ballot != 0; break;
      case 2: s->result = ballot == mask; break;
      case 3: {
        u32 same = 0;
        for (u32 j = 0; j < w.lanes; ++j)
          if ((mask >> j & 1) && slot_of<VoteSlot>(w, j).value == s->value) same |= 1u << j;
        s->result = same;
        break;
      }
      default: {  // integer reductions: 4 add, 5 min, 6 max, 7 and, 8 or, 9 xor, 10/11 signed
        bool first = true;
        u32 r = 0;
        for (u32 j = 0; j < w.lanes; ++j) {
          if (!(mask >> j & 1)) continue;
          const u32 v = static_cast<u32>(slot_of<VoteSlot>(w, j).value);
          const auto sv = static_cast<std::int32_t>(v), sr = static_cast<std::int32_t>(r);
          if (first) r = v;
          else switch (s->mode) {
            case 4: r += v; break;
            case 5: r = v < r ? v : r; break;
            case 6: r = v > r ? v : r; break;
            case 7: r &= v; break;
            case 8: r |= v; break;
            case 9: r ^= v; break;
            case 10: r = sv < sr ? v : r; break;
            default: r = sv > sr ? v : r; break;
          }
          first = false;
        }
        s->result = r;
      }
    }
  }
}

}  // namespace

extern "C" u64 ge2emu_shuffle(u32 mask, u64 value, u32 lane_arg, u32 width, u32 mode,
                              const char* file, int line) {
  void* pc = __builtin_return_address(0);
  if (width == 0 || width > 32 || (width & (width - 1)))
    fail("bad shuffle", format("width %u; wanted a power of two up to 32", width), 0, pc);
  ShuffleSlot s{value, 0, lane_arg, width, mode, false};
  warp_collective(Kind::kShuffle, mask, mode << 8 | width, Site{pc, file, line}, &s,
                  finish_shuffle);
  if (s.bad)
    report("bad shuffle",
           format("reads lane %d, which is not in the mask 0x%08x or has exited",
                  source_lane(s, L->cur->lane), mask), 0, pc);
  return s.result;
}

extern "C" u32 ge2emu_vote(u32 mask, u32 predicate, u64 value, u32 mode, const char* file,
                           int line) {
  VoteSlot s{predicate, 0, mode, value};
  warp_collective(Kind::kVote, mask, mode, Site{__builtin_return_address(0), file, line}, &s,
                  finish_vote);
  return s.result;
}

extern "C" void ge2emu_syncwarp(u32 mask, const char* file, int line) {
  warp_collective(Kind::kSyncwarp, mask, 0, Site{__builtin_return_address(0), file, line}, nullptr,
                  nullptr);
}

extern "C" u32 ge2emu_activemask() { return live_mask(L->warps[L->cur->warp]); }

extern "C" void ge2emu_syncthreads(const char* file, int line) {
  block_barrier(Kind::kSyncthreads, 0, L->threads_per_block, true,
                Site{__builtin_return_address(0), file, line});
}

extern "C" void ge2emu_named_barrier(u32 id, u32 count, u32 wait, const char* file, int line) {
  block_barrier(Kind::kNamedBarrier, id, count, wait != 0,
                Site{__builtin_return_address(0), file, line});
}

// which: 0 threadIdx, 1 blockIdx, 2 blockDim, 3 gridDim, 4 cluster rank and size.
extern "C" u32 ge2emu_special(u32 which, u32 axis) {
  const Thread& t = *L->cur;
  const Block& b = L->blocks[t.cta];
  const Dim3 table[5] = {t.index, b.index, L->block, L->grid, {b.rank, L->group_blocks, t.lane}};
  const Dim3& d = table[which];
  return axis == 0 ? d.x : axis == 1 ? d.y : d.z;
}

extern "C" unsigned char* ge2emu_shared_memory() {
  return L->blocks[L->cur->cta].shared.base;
}

extern "C" u32 ge2emu_smem_address(const void* p) {
  const u64 at = reinterpret_cast<addr_t>(p) - reinterpret_cast<addr_t>(L->shared_base);
  if (at >= kSharedSpan)
    fail("bad address", "smem_address of a pointer that is not to shared memory",
         reinterpret_cast<addr_t>(p), __builtin_return_address(0));
  return static_cast<u32>(at);
}

extern "C" void ge2emu_griddep_wait() {
  Thread& t = *L->cur;
  Block& b = L->blocks[t.cta];
  if (b.waited) {
    if (!happened(b.waited_tid, b.waited_clock))
      t.clock = with_entry(t.clock, b.waited_tid, b.waited_clock);
    return;
  }
  b.waited = true;
  b.waited_tid = t.tid;
  b.waited_clock = t.own++;
}

extern "C" void ge2emu_trap(const char* what) {
  fail("trap", what, 0, __builtin_return_address(0));
}
