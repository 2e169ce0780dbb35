// Fibers: stacks, the context switch, the scheduler of one group of blocks.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emu.h"

// Saves the callee-saved registers on the stack, stores the stack pointer, loads another one.
#if defined(__x86_64__)
asm(R"(
.text
.globl ge2emu_switch
.type ge2emu_switch, @function
ge2emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size ge2emu_switch, .-ge2emu_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl ge2emu_switch
.type ge2emu_switch, %function
ge2emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size ge2emu_switch, .-ge2emu_switch
)");
#else
#error "the emulate backend needs an x86-64 or aarch64 host"
#endif

namespace emu {

Launch* L = nullptr;

namespace {

u8* g_stacks = nullptr;
u32 g_stack_count = 0;

void fiber_main() {
  Launch& l = *L;
  l.entry(l.args);
  on_exit(*l.cur);
  l.cur->run = Run::kDone;
  void* unused;
  ge2emu_switch(&unused, l.scheduler_sp);
  std::abort();
}

}  // namespace

u8* stacks(u32 count) {
  if (count > g_stack_count) {
    if (g_stacks) munmap(g_stacks, g_stack_count * kStackSize);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* p = mmap(nullptr, count * kStackSize, PROT_READ | PROT_WRITE, flags, -1, 0);
    g_stacks = p == MAP_FAILED ? nullptr : static_cast<u8*>(p);
    g_stack_count = g_stacks ? count : 0;
    for (u32 i = 0; i < g_stack_count; ++i) mprotect(g_stacks + i * kStackSize, 4096, PROT_NONE);
  }
  return g_stacks;
}

bool is_stack(addr_t a) {
  const addr_t lo = reinterpret_cast<addr_t>(g_stacks);
  return a - lo < g_stack_count * kStackSize;
}

void prepare_fiber(Thread& t, void (*start)()) {
  u8* top = t.stack + kStackSize;
#if defined(__x86_64__)
  void** sp = reinterpret_cast<void**>(top) - 3;  // `ret` leaves it as a call does: 8 mod 16
  *--sp = reinterpret_cast<void*>(start);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  t.sp = sp;
#else
  void** sp = reinterpret_cast<void**>(top - 176);
  std::memset(sp, 0, 176);
  sp[11] = reinterpret_cast<void*>(start);  // x30
  t.sp = sp;
#endif
}

void make_ready(u32 tid) {
  Thread& t = L->threads[tid];
  if (t.run != Run::kBlocked) return;
  t.run = Run::kReady;
  t.wait = Wait{};
  L->ready.push_back(tid);
}

void block_current() {
  Thread& t = *L->cur;
  t.run = Run::kBlocked;
  ge2emu_switch(&t.sp, L->scheduler_sp);
}

void yield_current() {
  Thread& t = *L->cur;
  L->ready.push_back(t.tid);
  ge2emu_switch(&t.sp, L->scheduler_sp);
}

void interleave() {
  if (L->seed) yield_current();
}

void abort_launch() {
  L->aborted = true;
  void* unused;
  ge2emu_switch(&unused, L->scheduler_sp);
  std::abort();
}

namespace {

// The thread that is ready for the longest time. In a random schedule: one of the warp with the highest
// priority, and now and then a warp gets another one. Strict priorities hold some warps back for long,
// which drawing every thread at random does not.
u32 next_ready() {
  Launch& l = *L;
  auto next = l.ready.begin();
  if (l.seed) {
    if (l.random() % 32 == 0) l.warps[l.random() % l.warps.size()].priority = l.random();
    const auto priority = [&](u32 tid) { return l.warps[l.threads[tid].warp].priority; };
    next = std::max_element(l.ready.begin(), l.ready.end(),
                            [&](u32 a, u32 b) { return priority(a) < priority(b); });
  }
  const u32 tid = *next;
  l.ready.erase(next);
  return tid;
}

void start_random() {
  Launch& l = *L;
  l.random.seed(l.seed + l.serial - l.first_serial);
  for (Warp& w : l.warps) w.priority = l.random();
  l.copies_in = 1u << l.random() % 10;
}

}  // namespace

void run_group() {
  Launch& l = *L;
  if (l.seed) start_random();
  for (Thread& t : l.threads) {
    prepare_fiber(t, fiber_main);
    l.ready.push_back(t.tid);
  }
  while (!l.aborted) {
    if (l.seed && !l.in_flight.empty() && l.random() % l.copies_in == 0) {
      complete_copy(l.random() % l.in_flight.size());
      continue;
    }
    if (l.ready.empty()) {
      if (complete_awaited_copy()) continue;
      bool all_done = true;
      for (Thread& t : l.threads) all_done = all_done && t.run == Run::kDone;
      if (!all_done) on_deadlock();
      return;
    }
    Thread& t = l.threads[next_ready()];
    l.cur = &t;
    ge2emu_switch(&l.scheduler_sp, t.sp);
    l.cur = nullptr;
  }
}

void run_grid() {
  Launch& l = *L;
  const Dim3 c = l.cluster;
  for (u32 z = 0; z < l.grid.z && !l.aborted; z += c.z)
    for (u32 y = 0; y < l.grid.y && !l.aborted; y += c.y)
      for (u32 x = 0; x < l.grid.x && !l.aborted; x += c.x) {
        l.ready.clear();
        l.mbarriers.clear();
        l.in_flight.clear();
        l.warp_groups.clear();
        l.cluster_barrier = Barrier{};
        l.cluster_phase = 0;
        auto start = std::make_shared<Clock>();
        start->serial = l.serial;
        start->v.assign(l.group_threads + kAsyncSlots, 0);
        for (u32 b = 0; b < l.group_blocks; ++b) {
          Block& block = l.blocks[b];
          block.rank = b;
          block.index = {x + b % c.x, y + b / c.x % c.y, z + b / (c.x * c.y)};
          block.first_tid = b * l.threads_per_block;
          block.done = 0;
          block.waited = false;
          for (Barrier& barrier : block.barriers) barrier = Barrier{};
          if (block.shared.size) {
            std::memset(block.shared.base, 0xFF, block.shared.size);  // NaN, -1
            std::memset(block.shared.state, 0, block.shared.size);
          }
        }
        for (u32 i = 0; i < l.group_threads; ++i) {
          Thread fresh;
          fresh.tid = i;
          fresh.stack = stacks(l.group_threads) + i * kStackSize;
          fresh.cta = i / l.threads_per_block;
          const u32 k = i % l.threads_per_block;
          fresh.index = {k % l.block.x, k / l.block.x % l.block.y, k / (l.block.x * l.block.y)};
          const u32 warps_per_block = (l.threads_per_block + 31) / 32;
          fresh.warp = fresh.cta * warps_per_block + k / 32;
          fresh.lane = k % 32;
          fresh.clock = start;
          l.threads[i] = std::move(fresh);
        }
        run_group();
        if (!l.aborted) finish_async();
        if (l.want_banks) finish_banks();
        ++l.serial;
      }
}

}  // namespace emu
