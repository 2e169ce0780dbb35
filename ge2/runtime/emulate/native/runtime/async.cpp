// Asynchronous copies without mbarriers: cp.async, bulk and tensor stores, proxy fences.
#include <algorithm>
#include <cstring>

#include "emu.h"

namespace emu {

bool happened(u32 tid, u32 clock) {
  const Thread& t = *L->cur;
  return tid == t.tid || t.clock->v[tid] >= clock;
}

void mark(Region& r, u64 off, u64 n, u8 set, u8 clear) {
  for (u64 i = off; i < off + n; ++i) r.state[i] = static_cast<u8>((r.state[i] | set) & ~clear);
}

void mark_source(const u8* from, u64 n, u8 set, u8 clear) {
  if (n == 0) return;
  Region& r = *find_region(reinterpret_cast<addr_t>(from), n, kRead, nullptr);
  if (r.writable) mark(r, static_cast<u64>(from - r.base), n, set, clear);
}

void check_proxy(Region& r, u64 off, u64 n, const char* what, void* pc) {
  for (u64 g = off / 2; g * 2 < off + n; ++g) {
    const Cell& c = r.cells[g];
    if (!c.write || (r.state[g * 2] & kAsyncWritten)) continue;
    const u32 tid = static_cast<u32>(c.write >> 32) & 0x3fff;
    const u32 clock = static_cast<u32>(c.write >> 3) & 0x1fffffff;
    if (static_cast<u32>(c.write >> 46) != L->serial || tid >= L->group_threads) continue;
    const Vector& fences = L->threads[tid].async_fences;
    auto it = std::lower_bound(fences.begin(), fences.end(), clock);
    if (it != fences.end() && happened(tid, *it)) continue;
    Finding* f = report(
        "missing fence",
        format("%s reads %s + %llu, which %s has written without fence_proxy_async_shared before "
               "the synchronisation", what, r.name.c_str(),
               static_cast<unsigned long long>(g * 2), thread_name(L->threads[tid]).c_str()),
        reinterpret_cast<addr_t>(r.base) + g * 2, pc);
    if (f) f->other_pcs.push_back(L->image.lo + c.write_pc);
    return;
  }
}

namespace {

void land_copies(Thread& t, std::size_t keep) {
  while (t.copy_groups.size() > keep) {
    for (CopyOp& op : t.copy_groups.front()) {
      u8* to = op.dst_region->base + op.dst_off;
      if (op.src_bytes) std::memcpy(to, op.src, op.src_bytes);
      std::memset(to + op.src_bytes, 0, op.bytes - op.src_bytes);
      land_write(*op.dst_region, op.dst_off, op.bytes, epoch_of(t), op.pc, false);
    }
    t.copy_groups.pop_front();
  }
}

void capture(StoreOp& op) {
  if (op.captured) return;
  for (const Span& s : op.spans) {
    const u8* from = shared_pointer(s.smem);
    op.data.insert(op.data.end(), from, from + s.bytes);
  }
  Region* r = shared_region(op.smem, op.bytes, "a bulk store reads", op.pc);
  mark(*r, shared_offset(op.smem), op.bytes, 0, kPendingRead);
  op.captured = true;
}

void land_store(StoreOp& op) {
  capture(op);
  const u8* from = op.data.data();
  for (const Span& s : op.spans) {
    if (s.global) {
      const u32 kind = op.add ? kRead | kWrite | kAtomic : kWrite;
      access(reinterpret_cast<addr_t>(s.global), s.bytes, kind, op.pc);
      if (!op.add) {
        std::memcpy(s.global, from, s.bytes);
      } else {
        for (u32 i = 0; i < s.bytes; i += 4) {
          float a, b;
          std::memcpy(&a, s.global + i, 4);
          std::memcpy(&b, from + i, 4);
          a += b;
          std::memcpy(s.global + i, &a, 4);
        }
      }
    }
    from += s.bytes;
  }
}

}  // namespace

void issue_store(StoreOp op) {
  Region* r = shared_region(op.smem, op.bytes, "a bulk store reads", op.pc);
  const u64 off = shared_offset(op.smem);
  touch(*r, off, op.bytes, kRead, op.pc);
  check_proxy(*r, off, op.bytes, "a bulk store", op.pc);
  mark(*r, off, op.bytes, kPendingRead, 0);
  for (const Span& s : op.spans)
    if (s.global) find_region(reinterpret_cast<addr_t>(s.global), s.bytes, kWrite, op.pc);
  L->cur->open_stores.push_back(std::move(op));
}

void exit_async(Thread& t) {
  auto check = [](const StoreOp& op) {
    if (!op.captured)
      fail("missing wait", "the thread exits while its bulk store still reads shared memory; "
           "bulk_wait_read<0>() is missing", op.smem, op.pc);
  };
  for (const StoreOp& op : t.open_stores) check(op);
  for (auto& group : t.store_groups)
    for (StoreOp& op : group) {
      check(op);
      land_store(op);
    }
}

void finish_async() {
  for (const BulkOp& op : L->in_flight) {
    L->cur = &L->threads[op.bar->init_tid];
    report("missing wait",
           format("an asynchronous copy on the mbarrier at shared offset %u was never waited for",
                  shared_offset(op.bar->address)), op.bar->address,
           reinterpret_cast<void*>(L->image.lo + op.pc));
    L->cur = nullptr;
  }
}

}  // namespace emu

using namespace emu;

extern "C" void ge2emu_cp_async(u32 smem, const void* gmem, u32 bytes, u32 src_bytes) {
  void* pc = __builtin_return_address(0);
  Thread& t = *L->cur;
  const addr_t from = reinterpret_cast<addr_t>(gmem);
  if (smem % bytes || (src_bytes && from % bytes))
    fail("misaligned access", format("cp.async of %u bytes from 0x%llx to shared 0x%x", bytes,
                                     static_cast<unsigned long long>(from), smem), from, pc);
  if (src_bytes > bytes)
    fail("bad copy", format("cp.async copies %u of %u bytes", src_bytes, bytes), from, pc);
  if (src_bytes) access(from, src_bytes, kRead, pc);
  Region* r = shared_region(smem, bytes, "cp.async writes", pc);
  const u64 off = shared_offset(smem);
  if (L->want_banks) bank_access(reinterpret_cast<addr_t>(r->base + off), bytes, pc);
  touch(*r, off, bytes, kWrite, pc);
  mark(*r, off, bytes, kPendingWrite, 0);
  t.open_copies.push_back({r, off, static_cast<const u8*>(gmem), src_bytes, bytes, pc32(pc)});
}

extern "C" void ge2emu_cp_async_commit() {
  Thread& t = *L->cur;
  t.copy_groups.push_back(std::move(t.open_copies));
  t.open_copies.clear();
}

extern "C" void ge2emu_cp_async_wait(u32 keep) { land_copies(*L->cur, keep); }

extern "C" void ge2emu_bulk_commit() {
  Thread& t = *L->cur;
  t.store_groups.push_back(std::move(t.open_stores));
  t.open_stores.clear();
}

extern "C" void ge2emu_bulk_wait(u32 keep, u32 read_only) {
  Thread& t = *L->cur;
  if (read_only) {
    for (std::size_t i = 0; i + keep < t.store_groups.size(); ++i)
      for (StoreOp& op : t.store_groups[i]) capture(op);
    return;
  }
  while (t.store_groups.size() > keep) {
    for (StoreOp& op : t.store_groups.front()) land_store(op);
    t.store_groups.pop_front();
  }
}

extern "C" void ge2emu_fence_async() {
  Thread& t = *L->cur;
  t.async_fences.push_back(t.own++);
  for (auto& [address, bar] : L->mbarriers)
    if (bar->init_tid == t.tid) bar->fenced = true;
}

extern "C" void ge2emu_fence_mbarrier_init() {
  for (auto& [address, bar] : L->mbarriers)
    if (bar->init_tid == L->cur->tid) bar->fenced = true;
}
