// Rendezvous: block and named barriers, warp collectives, deadlock and divergence reports.
#include <algorithm>

#include "emu.h"

namespace emu {

namespace {

std::string at(const Site& s) { return format("%s:%d", s.file, s.line); }

// Lists which threads wait where, at most 8 groups.
std::string who_waits() {
  struct Group {
    std::string what;
    u32 first, last, count;
  };
  std::vector<Group> groups;
  for (Thread& t : L->threads) {
    if (t.run != Run::kBlocked) continue;
    std::string what = format("%s at %s", kind_name(t.wait.kind), at(t.wait.site).c_str());
    if (t.wait.kind == Kind::kMbarrier) {
      const auto it = L->mbarriers.find(t.wait.object);
      what += format(" (mbarrier at shared offset %u, parity %u",
                     shared_offset(t.wait.object), t.wait.detail);
      if (it != L->mbarriers.end())
        what += format(", %u of %u arrivals missing, %lld bytes missing", it->second->pending,
                       it->second->expected, it->second->tx);
      what += ")";
    }
    if (t.wait.kind == Kind::kNamedBarrier) {
      const Barrier& b = L->blocks[t.cta].barriers[t.wait.object];
      what += format(" (barrier %u, %u of %u arrived)", t.wait.object, b.arrived, b.expected);
    }
    auto g = std::find_if(groups.begin(), groups.end(),
                          [&](const Group& o) { return o.what == what; });
    if (g == groups.end()) groups.push_back({what, t.tid, t.tid, 1});
    else g->last = t.tid, ++g->count;
  }
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < 8; ++i)
    text += format("%s%u threads (%u..%u) in %s", i ? "; " : "", groups[i].count, groups[i].first,
                   groups[i].last, groups[i].what.c_str());
  u32 done = 0;
  for (Thread& t : L->threads) done += t.run == Run::kDone;
  if (done) text += format("; %u threads have exited", done);
  return text;
}

}  // namespace

u32 live_mask(const Warp& w) {
  u32 mask = 0;
  for (u32 i = 0; i < w.lanes; ++i)
    if (L->threads[w.first_tid + i].run != Run::kDone) mask |= 1u << i;
  return mask;
}

void arrive(Barrier& b, Thread& t) {
  if (b.last_joined != t.clock) {
    b.clock = join(b.clock, t.clock);
    b.last_joined = t.clock;
  }
  b.acquired = join(b.acquired, t.acquired);
  b.arrivals.emplace_back(t.tid, t.own++);
  ++b.arrived;
}

void release_barrier(Barrier& b) {
  auto all = std::make_shared<Clock>(*b.clock);
  for (auto [tid, own] : b.arrivals)
    if (own > all->v[tid]) all->v[tid] = own;
  const ClockRef acquired = b.acquired;
  const std::vector<u32> waiting = std::move(b.waiting);
  b = Barrier{};
  L->idle_spins = 0;
  for (u32 tid : waiting) {
    L->threads[tid].clock = all;
    L->threads[tid].acquired = acquired;
    if (&L->threads[tid] != L->cur) make_ready(tid);
  }
}

void spin(Site site) {
  Launch& l = *L;
  if (++l.idle_spins > 2000ull * l.group_threads + 100000) {
    l.cur->wait.kind = Kind::kSpin;
    fail("deadlock",
         format("the thread polls memory at %s that no running thread writes; blocks run one after "
                "another, so waiting for a later block never ends", at(site).c_str()),
         0, site.pc);
  }
  if (l.seed) l.warps[l.cur->warp].priority = l.random() % 1024;  // others must get on
  // All that can run polls, also for what waits for a copy.
  if (l.idle_spins > 4 * (l.ready.size() + 8)) complete_awaited_copy();
  yield_current();
}

// Makes everything that the given threads did happen before whatever they do next.
void sync_clocks(const std::vector<u32>& tids) {
  ClockRef all, acquired;
  const Clock* last = nullptr;
  for (u32 tid : tids) {
    Thread& t = L->threads[tid];
    if (t.clock.get() != last) all = join(all, t.clock);
    last = t.clock.get();
    acquired = join(acquired, t.acquired);
  }
  auto out = std::make_shared<Clock>(*all);
  for (u32 tid : tids) out->v[tid] = std::max(out->v[tid], L->threads[tid].own);
  ClockRef shared = out;
  for (u32 tid : tids) {
    Thread& t = L->threads[tid];
    t.clock = shared;
    t.acquired = acquired;
    ++t.own;
  }
}

void block_barrier(Kind kind, u32 id, u32 count, bool wait, Site site) {
  Thread& t = *L->cur;
  Block& block = L->blocks[t.cta];
  if (id >= 16) fail("bad barrier", format("barrier %u; there are 16", id), 0, site.pc);
  Barrier& b = block.barriers[id];
  if (kind == Kind::kSyncthreads) {
    if (block.done)
      fail("barrier divergence",
           format("__syncthreads cannot complete: %u threads of the block have exited",
                  block.done), 0, site.pc);
    if (b.arrived && (b.site.line != site.line || b.site.file != site.file) &&
        at(b.site) != at(site)) {
      Finding* f = report("barrier divergence",
                          format("__syncthreads at %s while %u threads wait in the one at %s",
                                 at(site).c_str(), b.arrived, at(b.site).c_str()), 0, site.pc);
      if (f) f->other_pcs.push_back(reinterpret_cast<addr_t>(b.site.pc));
      abort_launch();
    }
  } else if (count == 0 || count % 32 || count > L->threads_per_block) {
    fail("bad barrier", format("named barrier %u for %u threads; wanted a multiple of 32 up to %u",
                               id, count, L->threads_per_block), 0, site.pc);
  }
  if (b.arrived && b.expected != count)
    fail("bad barrier", format("named barrier %u is used for %u and for %u threads", id,
                               b.expected, count), 0, site.pc);
  b.expected = count;
  b.site = site;
  arrive(b, t);
  if (wait) b.waiting.push_back(t.tid);
  if (b.arrived == b.expected) {
    release_barrier(b);
    return;
  }
  if (!wait) return;
  t.wait = Wait{kind, site, 0, id, count};
  block_current();
}

namespace {

// Lanes of mask that wait in the same collective as t.
u32 same_collective(const Warp& w, const Wait& wait) {
  u32 found = 0;
  for (u32 i = 0; i < w.lanes; ++i) {
    const Thread& o = L->threads[w.first_tid + i];
    if (o.run == Run::kBlocked && o.wait.kind == wait.kind && o.wait.mask == wait.mask &&
        o.wait.detail == wait.detail && o.wait.site.line == wait.site.line)
      found |= 1u << i;
  }
  return found;
}

void release_warp(Warp& w, u32 mask, Kind kind) {
  std::vector<u32> tids;
  for (u32 i = 0; i < w.lanes; ++i)
    if (mask >> i & 1) tids.push_back(w.first_tid + i);
  if (kind == Kind::kSyncwarp) sync_clocks(tids);
  for (u32 tid : tids)
    if (&L->threads[tid] != L->cur) make_ready(tid);
}

void check_divergence(const Warp& w, const Thread& t, const Wait& mine) {
  for (u32 i = 0; i < w.lanes; ++i) {
    const Thread& o = L->threads[w.first_tid + i];
    if (o.run != Run::kBlocked || !o.wait.mask || &o == &t) continue;
    const bool meets = (mine.mask >> i & 1) && (o.wait.mask >> t.lane & 1);
    const bool same = o.wait.kind == mine.kind && o.wait.mask == mine.mask &&
                      o.wait.detail == mine.detail && o.wait.site.line == mine.site.line;
    if (!meets || same) continue;
    Finding* f = report(
        "barrier divergence",
        format("%s (mask 0x%08x) at %s, but lane %u of the mask waits in %s (mask 0x%08x) at %s",
               kind_name(mine.kind), mine.mask, at(mine.site).c_str(), i, kind_name(o.wait.kind),
               o.wait.mask, at(o.wait.site).c_str()), 0, mine.site.pc);
    if (f) f->other_pcs.push_back(reinterpret_cast<addr_t>(o.wait.site.pc));
    abort_launch();
  }
}

void (*g_finish[64])(Warp&, u32);

}  // namespace

void warp_collective(Kind kind, u32 mask, u32 detail, Site site, void* slot,
                     void (*finish)(Warp&, u32 mask)) {
  Thread& t = *L->cur;
  Warp& w = L->warps[t.warp];
  if (!(mask >> t.lane & 1))
    fail("bad mask", format("%s with mask 0x%08x by lane %u, which is not in it", kind_name(kind),
                            mask, t.lane), 0, site.pc);
  const Wait mine{kind, site, mask, 0, detail};
  t.slot = slot;
  check_divergence(w, t, mine);
  const u32 needed = mask & live_mask(w);
  const u32 arrived = (same_collective(w, mine) & mask) | 1u << t.lane;
  if (arrived == needed) {
    if (finish) finish(w, needed);
    release_warp(w, needed, kind);
    return;
  }
  g_finish[static_cast<int>(kind)] = finish;
  t.wait = mine;
  block_current();
}

void on_exit(Thread& t) {
  exit_wgmma(t);
  exit_async(t);
  Block& block = L->blocks[t.cta];
  if (++block.done == L->threads_per_block) exit_cluster(block);
  Barrier& b = block.barriers[0];
  if (b.arrived && b.expected == L->threads_per_block && !b.waiting.empty() &&
      L->threads[b.waiting.front()].wait.kind == Kind::kSyncthreads) {
    Finding* f = report("barrier divergence",
                        format("the thread exits while %u threads wait in __syncthreads at %s",
                               b.arrived, at(b.site).c_str()), 0, b.site.pc);
    if (f) f->other_pcs.push_back(reinterpret_cast<addr_t>(b.site.pc));
    abort_launch();
  }
  t.run = Run::kDone;
  Warp& w = L->warps[t.warp];
  for (u32 i = 0; i < w.lanes; ++i) {
    Thread& o = L->threads[w.first_tid + i];
    if (o.run != Run::kBlocked || !(o.wait.mask >> t.lane & 1)) continue;
    const Wait wait = o.wait;
    const u32 needed = wait.mask & live_mask(w);
    if ((same_collective(w, wait) & needed) != needed) continue;
    auto finish = g_finish[static_cast<int>(wait.kind)];
    if (finish) finish(w, needed);
    release_warp(w, needed, wait.kind);
  }
}

void on_deadlock() {
  L->aborted = true;
  addr_t pc = 0;
  for (Thread& t : L->threads)
    if (t.run == Run::kBlocked && !pc) {
      pc = reinterpret_cast<addr_t>(t.wait.site.pc);
      L->cur = &t;
    }
  Launch& l = *L;
  Finding f;
  f.kind = "deadlock";
  f.message = "no thread can go on: " + who_waits();
  f.pcs.push_back(pc);
  f.has_thread = true;
  f.block = l.blocks[l.cur->cta].index;
  f.thread = l.cur->index;
  l.findings.push_back(f);
  l.cur = nullptr;
}

}  // namespace emu
