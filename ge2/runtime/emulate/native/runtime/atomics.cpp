// Atomics, fences, and the order they create between threads and between blocks.
#include <cstring>

#include "emu.h"

namespace emu {

namespace {

// What a relaxed atomic write of t publishes: all that happens before its last fence, and what
// other threads wrote before a fence of their own.
ClockRef published(const Thread& t) {
  if (!t.fenced) return nullptr;
  auto out = std::make_shared<Clock>(*t.fenced);
  for (const Thread& o : L->threads) {
    const u32 known = o.tid == t.tid ? t.own : t.clock->v[o.tid];
    const u32 fenced = known < o.fence_gpu ? known : o.fence_gpu;
    if (fenced > out->v[o.tid]) out->v[o.tid] = fenced;
  }
  return out;
}

}  // namespace

void fence_gpu() {
  Thread& t = *L->cur;
  if (t.acquired) {
    t.clock = join(t.clock, t.acquired);
    t.acquired = nullptr;
  }
  t.fence_gpu = t.own;
  auto seen = std::make_shared<Clock>(*t.clock);
  seen->v[t.tid] = t.own++;
  t.fenced = seen;
}

// Bookkeeping of one atomic access; the caller does the arithmetic.
void atomic_access(void* p, u32 n, bool reads, bool writes, bool acquire, bool release, void* pc) {
  Thread& t = *L->cur;
  const addr_t a = reinterpret_cast<addr_t>(p);
  if (a % n)
    fail("misaligned access", format("an atomic of %u bytes needs an aligned address", n), a, pc);
  if (release) fence_gpu();
  access(a, n, (reads ? kRead : 0) | (writes ? kWrite : 0) | kAtomic, pc);
  SyncLoc& loc = L->sync_locs[a];
  if (reads && loc.clock) t.acquired = join(t.acquired, loc.clock);
  if (writes) {
    const ClockRef out = published(t);
    if (out) loc.clock = join(loc.clock, out);
  }
  if (acquire) fence_gpu();
}

}  // namespace emu

using namespace emu;

namespace {

template <typename T, typename F>
T atomic_op(void* p, bool acquire, bool release, void* pc, F f) {
  atomic_access(p, sizeof(T), true, true, acquire, release, pc);
  T old;
  std::memcpy(&old, p, sizeof old);
  const T now = f(old);
  std::memcpy(p, &now, sizeof now);
  return old;
}

template <typename T>
T apply(u32 op, T old, T v, T other) {
  switch (op) {
    case 0: return static_cast<T>(old + v);
    case 1: return v;
    case 2: return old == other ? v : old;
    case 3: return old < v ? v : old;
    case 4: return v < old ? v : old;
    default: return old;
  }
}

template <typename T>
T bitwise(u32 op, T old, T v) {
  return op == 5 ? old & v : op == 6 ? old | v : old ^ v;
}

constexpr bool acquires(u32 order) { return order & 1; }
constexpr bool releases(u32 order) { return order & 2; }

}  // namespace

// op: 0 add, 1 exchange, 2 compare-and-swap, 3 max, 4 min, 5 and, 6 or, 7 xor, 8 inc, 9 dec.
// order: bit 0 acquire, bit 1 release.
#define GE2_ATOMIC(NAME, T)                                                                       \
  extern "C" T ge2emu_atomic_##NAME(void* p, u32 op, T v, T other, u32 order) {                   \
    return atomic_op<T>(p, acquires(order), releases(order), __builtin_return_address(0),         \
                        [&](T old) { return apply<T>(op, old, v, other); });                      \
  }
#define GE2_ATOMIC_BITS(NAME, T)                                                                  \
  extern "C" T ge2emu_atomic_##NAME(void* p, u32 op, T v, T other, u32 order) {                   \
    return atomic_op<T>(p, acquires(order), releases(order), __builtin_return_address(0),         \
                        [&](T old) -> T {                                                         \
                          if (op == 8) return old >= v ? 0 : old + 1;                             \
                          if (op == 9) return old == 0 || old > v ? v : old - 1;                  \
                          return op >= 5 ? bitwise<T>(op, old, v) : apply<T>(op, old, v, other);  \
                        });                                                                       \
  }
GE2_ATOMIC_BITS(u32, u32)
GE2_ATOMIC_BITS(i32, std::int32_t)
GE2_ATOMIC_BITS(u64, unsigned long long)
GE2_ATOMIC(f32, float)
GE2_ATOMIC(f64, double)

extern "C" void ge2emu_threadfence() { fence_gpu(); }

// A polling load or an ordered store of n bytes.
extern "C" void ge2emu_atomic_load(void* to, const void* p, u32 n, u32 order) {
  void* pc = __builtin_return_address(0);
  spin(Site{pc, "an atomic load", 0});
  atomic_access(const_cast<void*>(p), n, true, false, acquires(order), false, pc);
  std::memcpy(to, p, n);
}
extern "C" void ge2emu_atomic_store(void* p, const void* from, u32 n, u32 order) {
  atomic_access(p, n, false, true, false, releases(order), __builtin_return_address(0));
  std::memcpy(p, from, n);
}
