// Every access of a kernel: bounds, initialisation, pending copies, races.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "emu.h"

namespace emu {

namespace {

u32 serial_of(u64 e) { return static_cast<u32>(e >> 46); }
u32 tid_of(u64 e) { return static_cast<u32>(e >> 32) & 0x3fff; }
u32 clock_of(u64 e) { return static_cast<u32>(e >> 3) & 0x1fffffff; }

// Whether the access of epoch e happens before what the current thread does now. Shared memory of
// earlier groups was another memory.
bool ordered(u64 e, const Thread& t, const Region& r) {
  const u32 serial = serial_of(e);
  if (serial < L->first_serial || (r.shared && serial != L->serial)) return true;
  if (serial == L->serial) {
    const u32 tid = tid_of(e);
    return tid == t.tid || t.clock->v[tid] >= clock_of(e);
  }
  const auto& foreign = t.clock->foreign;
  if (!foreign) return false;
  auto it = foreign->find(serial);
  return it != foreign->end() && (*it->second)[tid_of(e)] >= clock_of(e);
}

std::string owner_name(u64 e) {
  const u32 group = serial_of(e) - L->first_serial, tid = tid_of(e);
  if (tid >= L->group_threads) return "an asynchronous copy";
  const Dim3 c = L->cluster, b = L->block;
  const u32 gx = L->grid.x / c.x, gy = L->grid.y / c.y;
  const u32 cta = tid / L->threads_per_block, k = tid % L->threads_per_block;
  return format("block (%u,%u,%u) thread (%u,%u,%u)", group % gx * c.x + cta % c.x,
                group / gx % gy * c.y + cta / c.x % c.y,
                group / (gx * gy) * c.z + cta / (c.x * c.y), k % b.x, k / b.x % b.y,
                k / (b.x * b.y));
}

std::string place(const Region& r, u64 off) {
  return format("%s + %llu of %llu bytes", r.name.c_str(), static_cast<unsigned long long>(off),
                static_cast<unsigned long long>(r.size));
}

void race(Region& r, u64 off, const char* mine, const char* theirs, u64 e, u32 other, void* pc) {
  Finding* f = report(
      "data race",
      format("%s %s, which %s has %s without synchronisation in between", mine,
             place(r, off).c_str(), owner_name(e).c_str(), theirs),
      reinterpret_cast<addr_t>(r.base) + off, pc);
  if (f) f->other_pcs.push_back(L->image.lo + other);
}

// Slow checks of the state bytes; called when not all of [off, off + n) is plainly initialised.
void check_state(Region& r, u64 off, u64 n, u32 what, void* pc) {
  for (u64 i = off; i < off + n; ++i) {
    const u8 s = r.state[i];
    const addr_t at = reinterpret_cast<addr_t>(r.base) + i;
    if (s & kPendingWrite) {
      const char* verb = !(what & kWrite) ? "reads" : "writes";
      fail("missing wait",
           format("%s %s while an asynchronous copy to it is in flight", verb,
                  place(r, i).c_str()), at, pc);
    }
    if ((s & kPendingRead) && (what & kWrite))
      fail("missing wait",
           format("writes %s while an asynchronous copy still reads it", place(r, i).c_str()), at,
           pc);
    if ((what & kRead) && !(s & kInit)) {
      report("uninitialised read", format("reads %s, never written", place(r, i).c_str()), at, pc);
      return;
    }
  }
}

// Whether the thread may count on the launch before this one, which it may overlap.
bool after_predecessor(const Thread& t) {
  const Block& b = L->blocks[t.cta];
  return b.waited && happened(b.waited_tid, b.waited_clock);
}

}  // namespace

Arena::~Arena() {
  for (Region* r : owned) {
    munmap(r->state, r->size + 16);
    munmap(r->cells, (r->size / 2 + 2) * sizeof(Cell));
    delete r;
  }
}

u64 make_epoch(u32 tid, u32 clock) {
  return static_cast<u64>(L->serial) << 46 | static_cast<u64>(tid) << 32 |
         static_cast<u64>(clock) << 3;
}

u64 epoch_of(const Thread& t) { return make_epoch(t.tid, t.own); }

u32 pc32(void* pc) { return static_cast<u32>(reinterpret_cast<addr_t>(pc) - L->image.lo); }

bool is_shared(addr_t a) {
  return a - reinterpret_cast<addr_t>(L->shared_base) < kSharedSpan;
}

u8* shared_pointer(u32 smem) { return L->shared_base + smem; }

Region* shared_region(u32 smem, u64 n, const char* what, void* pc) {
  const u32 rank = smem / kSharedWindow, at = smem % kSharedWindow;
  if (rank < L->group_blocks) {
    Region& r = L->blocks[rank].shared;
    if (at >= kSharedBase && at - kSharedBase + n <= r.size) return &r;
  }
  fail("out of bounds",
       format("%s %llu bytes at offset %lld of shared memory, which has %llu (the launch asks for "
              "%u, of which %u are for the alignment)",
              what, static_cast<unsigned long long>(n), static_cast<long long>(at) - kSharedBase,
              static_cast<unsigned long long>(L->blocks[0].shared.size), L->shared_bytes,
              kSharedSlack), smem, pc);
}

Region* find_region(addr_t a, u64 n, u32 what, void* pc) {
  if (is_shared(a)) {
    const u64 at = a - reinterpret_cast<addr_t>(L->shared_base);
    const char* verb = !(what & kWrite) ? "reads" : "writes";
    return shared_region(static_cast<u32>(at), n, verb, pc);
  }
  Region* last = L->last_region;
  if (last && a - reinterpret_cast<addr_t>(last->base) + n <= last->size &&
      a >= reinterpret_cast<addr_t>(last->base))
    return last;
  auto& regions = L->arena->regions;
  auto it = regions.upper_bound(a);
  Region* r = nullptr;
  if (it != regions.begin()) {
    r = std::prev(it)->second;
    const u64 off = a - reinterpret_cast<addr_t>(r->base);
    if (off + n <= r->size) return L->last_region = r;
  }
  const char* verb = !(what & kWrite) ? "reads" : "writes";
  std::string near = "no buffer is near";
  if (r) {
    const long long off = static_cast<long long>(a - reinterpret_cast<addr_t>(r->base));
    near = format("%s + %lld of %llu bytes", r->name.c_str(), off,
                  static_cast<unsigned long long>(r->size));
  }
  if (it != regions.end() && reinterpret_cast<addr_t>(it->second->base) - a < 4096)
    near = format("%s - %llu", it->second->name.c_str(),
                  static_cast<unsigned long long>(
                      reinterpret_cast<addr_t>(it->second->base) - a));
  fail("out of bounds",
       format("%s %llu bytes of global memory: %s", verb, static_cast<unsigned long long>(n),
              near.c_str()), a, pc);
}

void touch(Region& r, u64 off, u64 n, u32 what, void* pc) {
  Thread& t = *L->cur;
  bool plain = true;
  for (u64 i = off; i < off + n; ++i) plain = plain && (r.state[i] & 7) == kInit;
  if (!plain) {
    check_state(r, off, n, what, pc);
    if ((what & kWrite))
      for (u64 i = off; i < off + n; ++i) r.state[i] |= kInit;
  }
  if ((what & kWrite) && r.shared)
    for (u64 i = off; i < off + n; ++i) r.state[i] &= static_cast<u8>(~kAsyncWritten);
  if ((what & kWrite) && !r.writable)
    fail("write to input", format("writes %s", place(r, off).c_str()),
         reinterpret_cast<addr_t>(r.base) + off, pc);
  const bool atomic = what & kAtomic;
  const bool write = what & kWrite;
  if (write) L->idle_spins = 0;
  const u64 mine = epoch_of(t) | (atomic ? kEpochAtomic : 0);
  const u32 here = pc32(pc);
  for (u64 g = off / 2; g * 2 < off + n; ++g) {
    Cell& c = r.cells[g];
    const u64 mask = (g * 2 >= off ? 1 : 0) | (g * 2 + 1 < off + n && g * 2 + 1 >= off ? 2 : 0);
    const u64 e = mine | mask;
    if (c.write && c.write != e && (c.write & mask) && !(atomic && (c.write & kEpochAtomic)) &&
        !ordered(c.write, t, r))
      race(r, g * 2, !write ? "reads" : "writes", "written", c.write, c.write_pc,
           pc);
    if (L->overlaps && !r.shared && !after_predecessor(t) &&
        (write || r.late || (c.write && serial_of(c.write) < L->first_serial)))
      report("missing wait",
             format("%s %s, which the launch before this one may still %s, without griddep_wait",
                    write ? "writes" : "reads", place(r, g * 2).c_str(), write ? "use" : "write"),
             reinterpret_cast<addr_t>(r.base) + g * 2, pc);
    if (!write) {
      if (c.read0 == e) continue;
      if (c.read0 && tid_of(c.read0) != t.tid) {
        c.read1 = c.read0;
        c.read1_pc = c.read0_pc;
      }
      c.read0 = e;
      c.read0_pc = here;
      continue;
    }
    if (c.read0 && (c.read0 & mask) && !(atomic && (c.read0 & kEpochAtomic)) &&
        !ordered(c.read0, t, r))
      race(r, g * 2, "writes", "read", c.read0, c.read0_pc, pc);
    else if (c.read1 && (c.read1 & mask) && !(atomic && (c.read1 & kEpochAtomic)) &&
             !ordered(c.read1, t, r))
      race(r, g * 2, "writes", "read", c.read1, c.read1_pc, pc);
    c.write = e;
    c.write_pc = here;
  }
}

void land_write(Region& r, u64 off, u64 n, u64 epoch, u32 pc, bool async) {
  for (u64 i = off; i < off + n; ++i)
    r.state[i] = static_cast<u8>(kInit | (async ? kAsyncWritten : 0));
  for (u64 g = off / 2; g * 2 < off + n; ++g) {
    const u64 mask = (g * 2 >= off ? 1 : 0) | (g * 2 + 1 < off + n && g * 2 + 1 >= off ? 2 : 0);
    r.cells[g].write = epoch | mask;
    r.cells[g].write_pc = pc;
  }
}

void access(addr_t a, u64 n, u32 what, void* pc) {
  Launch* l = L;
  if (!l || !l->cur) return;
  Thread& t = *l->cur;
  const addr_t own = a - reinterpret_cast<addr_t>(t.stack);
  if (own < kStackSize) {
    if (own < 8192) fail("stack overflow", "local arrays need more than 248 KiB", a, pc);
    if (!t.open_wgmma.empty() || !t.wgmma_groups.empty()) check_accumulators(t, a, n, what, pc);
    return;
  }
  if (n == 0) return;
  if (is_stack(a)) fail("out of bounds", "uses local memory of another thread", a, pc);
  if (a - l->image.lo < l->image.hi - l->image.lo) return;  // constant tables of the kernel
  Region* r = find_region(a, n, what, pc);
  if (l->want_banks && r->shared && !(what & kAtomic))
    bank_access(a, static_cast<u32>(n), pc);
  touch(*r, a - reinterpret_cast<addr_t>(r->base), n, what, pc);
}

}  // namespace emu
