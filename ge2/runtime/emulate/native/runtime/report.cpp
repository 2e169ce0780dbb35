// Findings: what a detector saw, where, and in which thread.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "emu.h"

namespace emu {

std::string format(const char* fmt, ...) {
  char buffer[1024];
  va_list args;
  va_start(args, fmt);
  std::vsnprintf(buffer, sizeof buffer, fmt, args);
  va_end(args);
  return buffer;
}

std::string thread_name(const Thread& t) {
  const Dim3 b = L->blocks[t.cta].index;
  return format("block (%u,%u,%u) thread (%u,%u,%u)", b.x, b.y, b.z, t.index.x, t.index.y,
                t.index.z);
}

namespace {

// Follows saved frame pointers on the current fiber's stack.
void walk_frames(std::vector<addr_t>& pcs) {
  const Thread& t = *L->cur;
  auto* fp = static_cast<addr_t*>(__builtin_frame_address(0));
  const addr_t lo = reinterpret_cast<addr_t>(t.stack), hi = lo + kStackSize - 32;
  for (int depth = 0; depth < 24; ++depth) {
    const addr_t at = reinterpret_cast<addr_t>(fp);
    if (at < lo || at >= hi || at % 8) break;
    const addr_t pc = fp[1];
    if (pc - L->image.lo < L->image.hi - L->image.lo &&
        std::find(pcs.begin(), pcs.end(), pc) == pcs.end())
      pcs.push_back(pc);
    auto* next = reinterpret_cast<addr_t*>(fp[0]);
    if (next <= fp) break;
    fp = next;
  }
}

}  // namespace

Finding* report(const char* kind, std::string message, addr_t address, void* pc) {
  Launch& l = *L;
  const std::string key = format("%s %p", kind, pc);
  if (l.seen[key]++ || l.findings.size() >= kMaxFindings) return nullptr;
  Finding f;
  f.kind = kind;
  f.message = std::move(message);
  f.address = address;
  if (pc) f.pcs.push_back(reinterpret_cast<addr_t>(pc));
  if (l.cur) {
    f.has_thread = true;
    f.block = l.blocks[l.cur->cta].index;
    f.thread = l.cur->index;
    walk_frames(f.pcs);
  }
  l.findings.push_back(std::move(f));
  return &l.findings.back();
}

void fail(const char* kind, std::string message, addr_t address, void* pc) {
  report(kind, std::move(message), address, pc);
  abort_launch();
}

const char* kind_name(Kind kind) {
  static const char* const names[] = {
      "nothing", "__syncthreads", "named barrier", "__syncwarp", "shuffle", "vote", "ldmatrix",
      "stmatrix", "mma", "mbarrier_wait", "cluster barrier", "spin wait", "wgmma",
      "warp instruction"};
  return names[static_cast<int>(kind)];
}

}  // namespace emu
