// Clusters: the cluster barrier and each other's shared memory.
#include <cstring>

#include "emu.h"

using namespace emu;

namespace {

Region& remote_region(u32 remote, u32 bytes, const char* what, void* pc) {
  Region* r = shared_region(remote, bytes, "an access to another block touches", pc);
  const Block& b = L->blocks[remote / kSharedWindow];
  if (b.done == L->threads_per_block)
    fail("out of bounds",
         format("%s of the shared memory of block rank %u, which has exited", what, b.rank),
         remote, pc);
  if (remote % bytes)
    fail("misaligned access", format("%s of %u bytes at shared 0x%x", what, bytes, remote), remote,
         pc);
  return *r;
}

void touch_remote(Region& r, u32 remote, u32 bytes, u32 what, void* pc) {
  touch(r, shared_offset(remote), bytes, what, pc);
  const Thread& t = *L->cur;
  if (remote / kSharedWindow != t.cta)
    L->blocks[remote / kSharedWindow].remote[t.tid] = RemoteAccess{t.own, pc};
}

}  // namespace

// Whatever order the threads ran in: somebody of the block must know that others are done with it.
void emu::exit_cluster(const Block& block) {
  for (const auto& [tid, last] : block.remote) {
    bool known = false;
    for (u32 i = 0; i < L->threads_per_block && !known; ++i)
      known = L->threads[block.first_tid + i].clock->v[tid] >= last.clock;
    if (!known)
      fail("out of bounds",
           format("the block exits, and with it its shared memory, without knowing that %s is done "
                  "with it: a cluster barrier is missing",
                  thread_name(L->threads[tid]).c_str()), 0, last.pc);
  }
}

extern "C" void ge2emu_cluster_arrive() {
  Thread& t = *L->cur;
  Barrier& b = L->cluster_barrier;
  t.cluster_phase = L->cluster_phase + 1;
  arrive(b, t);
  if (b.arrived < L->group_threads) return;
  ++L->cluster_phase;
  auto all = std::make_shared<Clock>(*b.clock);
  for (auto [tid, own] : b.arrivals)
    if (own > all->v[tid]) all->v[tid] = own;
  L->cluster_clock = all;
  const std::vector<u32> waiting = std::move(b.waiting);
  b = Barrier{};
  for (u32 tid : waiting) make_ready(tid);
}

extern "C" void ge2emu_cluster_wait(const char* file, int line) {
  Thread& t = *L->cur;
  void* pc = __builtin_return_address(0);
  if (t.cluster_phase == 0) fail("bad barrier", "cluster_wait without cluster_arrive", 0, pc);
  if (L->cluster_phase < t.cluster_phase) {
    L->cluster_barrier.waiting.push_back(t.tid);
    t.wait = Wait{Kind::kCluster, Site{pc, file, line}, 0, 0, 0};
    block_current();
  }
  t.clock = join(t.clock, L->cluster_clock);
  t.cluster_phase = 0;
}

extern "C" u32 ge2emu_map_shared(u32 smem, u32 rank) {
  if (rank >= L->group_blocks)
    fail("out of bounds", format("block rank %u of a cluster of %u", rank, L->group_blocks), smem,
         __builtin_return_address(0));
  return smem % kSharedWindow + rank * kSharedWindow;
}

extern "C" u8* ge2emu_shared_pointer(u32 smem) { return shared_pointer(smem); }

extern "C" void ge2emu_cluster_load(u32 remote, void* to, u32 bytes) {
  void* pc = __builtin_return_address(0);
  Region& r = remote_region(remote, bytes, "a load", pc);
  touch_remote(r, remote, bytes, kRead, pc);
  std::memcpy(to, shared_pointer(remote), bytes);
}

extern "C" void ge2emu_cluster_store(u32 remote, const void* from, u32 bytes) {
  void* pc = __builtin_return_address(0);
  Region& r = remote_region(remote, bytes, "a store", pc);
  touch_remote(r, remote, bytes, kWrite, pc);
  std::memcpy(shared_pointer(remote), from, bytes);
}

extern "C" void ge2emu_store_async(u32 remote, const void* from, u32 bytes, u32 remote_bar) {
  void* pc = __builtin_return_address(0);
  remote_region(remote, bytes, "an asynchronous store", pc);
  if (remote / kSharedWindow != remote_bar / kSharedWindow)
    fail("bad mbarrier", "an asynchronous store and its mbarrier lie in two blocks", remote_bar, pc);
  Thread& t = *L->cur;
  BulkOp op;
  const u8* bytes_from = static_cast<const u8*>(from);
  op.data.assign(bytes_from, bytes_from + bytes);
  op.smem = remote;
  op.bytes = bytes;
  auto known = std::make_shared<Clock>(*t.clock);
  known->v[t.tid] = t.own++;
  op.sender = known;
  issue_load(std::move(op), remote_bar, pc);
}
