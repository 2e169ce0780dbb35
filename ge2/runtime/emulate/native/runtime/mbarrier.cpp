// mbarriers and the copies that complete on them, as late as they may.
#include <algorithm>
#include <cstring>

#include "emu.h"

namespace emu {

namespace {

MBarrier& find_mbarrier(u32 address, const char* what, void* pc) {
  auto it = L->mbarriers.find(address);
  if (it == L->mbarriers.end())
    fail("bad mbarrier",
         format("%s on shared address 0x%x (offset %d), which is no initialised mbarrier", what,
                address, static_cast<int>(shared_offset(address))), address, pc);
  MBarrier& bar = *it->second;
  if (!happened(bar.init_tid, bar.init_clock))
    fail("data race",
         format("%s on an mbarrier that %s has initialised without synchronisation in between",
                what, thread_name(L->threads[bar.init_tid]).c_str()), address, pc);
  return bar;
}

void try_complete(MBarrier& bar) {
  if (bar.pending || bar.tx) return;
  ++bar.phase;
  bar.pending = bar.expected;
  bar.completed = bar.arriving;
  L->idle_spins = 0;
  for (u32 tid : bar.waiting) make_ready(tid);
  bar.waiting.clear();
}

// To the nearest of 10 mantissa bits, ties away from zero; infinities and NaN stay.
void round_to_tf32(u8* to, u32 bytes) {
  for (u32 i = 0; i < bytes; i += 4) {
    u32 bits;
    std::memcpy(&bits, to + i, 4);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
    std::memcpy(to + i, &bits, 4);
  }
}

// Writes what the copy brings, and counts it on its mbarrier.
void land(const BulkOp& op) {
  MBarrier& bar = *op.bar;
  const u32 slot = L->group_threads + bar.index % kAsyncSlots;
  const u64 epoch = make_epoch(slot, ++bar.async_clock);
  for (const Span& s : op.spans) {
    u8* to = shared_pointer(s.smem);
    if (s.global) std::memcpy(to, s.global, s.bytes);
    else std::memset(to, 0, s.bytes);
    if (s.global) mark_source(s.global, s.bytes, 0, kPendingRead);
    if (op.tf32) round_to_tf32(to, s.bytes);
  }
  if (!op.data.empty()) std::memcpy(shared_pointer(op.smem), op.data.data(), op.bytes);
  Region& r = L->blocks[op.smem / kSharedWindow].shared;
  land_write(r, shared_offset(op.smem), op.bytes, epoch, op.pc, true);
  if (!bar.arriving) bar.arriving = L->threads[bar.init_tid].clock;
  if (op.sender) bar.arriving = join(bar.arriving, op.sender);
  bar.arriving = with_entry(bar.arriving, slot, bar.async_clock);
  bar.tx -= op.bytes;
  if (bar.tx < 0 && bar.pending == 0) {
    report("bad mbarrier",
           format("copies brought %lld bytes more than mbarrier_arrive_expect_tx announced",
                  -bar.tx), bar.address, reinterpret_cast<void*>(L->image.lo + op.pc));
    L->aborted = true;
  }
  try_complete(bar);
}

void arrive_on(MBarrier& bar, u32 count, long long tx, void* pc) {
  Thread& t = *L->cur;
  if (count > bar.pending)
    fail("bad mbarrier", format("%u arrivals are more than the %u that the phase still expects",
                                count, bar.pending), bar.address, pc);
  auto known = std::make_shared<Clock>(*join(bar.arriving, t.clock));
  if (t.own > known->v[t.tid]) known->v[t.tid] = t.own;
  ++t.own;
  bar.arriving = known;
  bar.tx += tx;
  bar.pending -= count;
  try_complete(bar);
}

bool passed(MBarrier& bar, u32 parity) {
  if ((bar.phase & 1) == parity) return false;
  L->cur->clock = join(L->cur->clock, bar.completed);
  return true;
}

}  // namespace

void issue_load(BulkOp op, u32 address, void* pc) {
  interleave();
  MBarrier& bar = find_mbarrier(address, "an asynchronous copy", pc);
  if (!bar.fenced)
    report("missing fence",
           format("an asynchronous copy uses the mbarrier at shared offset %u, whose init was not "
                  "followed by fence_mbarrier_init or fence_proxy_async_shared",
                  shared_offset(address)), address, pc);
  Region* r = shared_region(op.smem, op.bytes, "an asynchronous copy writes", pc);
  const u64 off = shared_offset(op.smem);
  for (const Span& s : op.spans) {
    if (!s.global) continue;
    access(reinterpret_cast<addr_t>(s.global), s.bytes, kRead, pc);
    mark_source(s.global, s.bytes, kPendingRead, 0);
  }
  touch(*r, off, op.bytes, kWrite, pc);
  mark(*r, off, op.bytes, kPendingWrite, 0);
  op.pc = pc32(pc);
  op.bar = L->mbarriers[address];
  L->in_flight.push_back(std::move(op));
}

void complete_copy(std::size_t i) {
  const BulkOp op = std::move(L->in_flight[i]);
  L->in_flight.erase(L->in_flight.begin() + static_cast<std::ptrdiff_t>(i));
  land(op);
}

bool complete_awaited_copy() {
  const auto& all = L->in_flight;
  const auto next = std::find_if(all.begin(), all.end(),
                                 [](const BulkOp& op) { return !op.bar->waiting.empty(); });
  if (next == all.end()) return false;
  complete_copy(static_cast<std::size_t>(next - all.begin()));
  return true;
}

}  // namespace emu

using namespace emu;

extern "C" void ge2emu_mbarrier_init(u32 address, u32 count) {
  void* pc = __builtin_return_address(0);
  if (address % 8) fail("misaligned access", "mbarrier address is no multiple of 8", address, pc);
  if (count == 0) fail("bad mbarrier", "mbarrier count 0", address, pc);
  Thread& t = *L->cur;
  Region* r = shared_region(address, 8, "an mbarrier takes", pc);
  touch(*r, shared_offset(address), 8, kWrite, pc);
  auto bar = std::make_shared<MBarrier>();
  bar->address = address;
  bar->index = static_cast<u32>(L->mbarriers.size());
  auto old = L->mbarriers.find(address);
  if (old != L->mbarriers.end()) {
    bar->index = old->second->index;
    bar->async_clock = old->second->async_clock;
  }
  bar->expected = bar->pending = count;
  bar->init_tid = t.tid;
  bar->init_clock = t.own;
  L->mbarriers[address] = bar;
}

extern "C" void ge2emu_mbarrier_inval(u32 address) {
  find_mbarrier(address, "mbarrier_inval", __builtin_return_address(0));
  L->mbarriers.erase(address);
}

extern "C" void ge2emu_mbarrier_arrive(u32 address, u32 count, u32 bytes) {
  void* pc = __builtin_return_address(0);
  interleave();
  arrive_on(find_mbarrier(address, "an arrival", pc), count, bytes, pc);
}

extern "C" void ge2emu_mbarrier_expect_tx(u32 address, u32 bytes) {
  find_mbarrier(address, "expect_tx", __builtin_return_address(0)).tx += bytes;
}

extern "C" void ge2emu_mbarrier_wait(u32 address, u32 parity, const char* file, int line) {
  void* pc = __builtin_return_address(0);
  interleave();
  MBarrier& bar = find_mbarrier(address, "a wait", pc);
  while (!passed(bar, parity)) {
    Thread& t = *L->cur;
    bar.waiting.push_back(t.tid);
    t.wait = Wait{Kind::kMbarrier, Site{pc, file, line}, 0, address, parity};
    block_current();
  }
}
