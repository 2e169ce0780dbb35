// wgmma: one warp group's product of two tiles in shared memory, or of one in registers and one
// there; results reach registers at the wait.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "emu.h"
#include "half.h"

namespace emu {

constexpr u32 kTf32 = 2;  // types: 0 f16, 1 bf16, then bytes: s8, u8, e4m3, e5m2
constexpr u32 kBytes = 3;

struct Operand {
  u32 start, leading, stride, rows;
  u32 pitch;        // bytes of a row: the swizzle's width
  bool transposed;  // the tile's rows run along M or N
};

struct WgmmaOp {
  u32 n = 0, type = 0, first_tid = 0;
  bool accumulate = false;
  Operand a{}, b{};
  std::vector<std::array<u32, 4>> registers;  // A of each thread, where it is not in shared memory
  void* pc = nullptr;
  u32 arrived = 0;
  bool done = false;
  std::vector<std::vector<double>> in, out;  // [128][n / 2]
  std::vector<std::shared_ptr<WgmmaOp>> previous;  // in flight on the same registers
};

namespace {

u32 element_address(const Operand& o, u32 row, u32 k) {
  const u32 across = o.pitch / 2;
  u32 at = o.start;
  if (o.transposed)
    at += row / across * o.leading + k / 8 * o.stride + k % 8 * o.pitch + row % across * 2;
  else
    at += row / 8 * o.stride + row % 8 * o.pitch + k * 2;
  return at ^ ((at >> 7 & (o.pitch / 16 - 1)) << 4);
}

Operand decode(u64 descriptor, u32 rows, bool transposed, u32 cta, const char* which, void* pc) {
  Operand o{};
  o.start = static_cast<u32>(descriptor & 0x3fff) << 4;
  o.leading = static_cast<u32>(descriptor >> 16 & 0x3fff) << 4;
  o.stride = static_cast<u32>(descriptor >> 32 & 0x3fff) << 4;
  o.rows = rows;
  o.transposed = transposed;
  if (descriptor >> 62 != 1 && descriptor >> 62 != 2)
    fail("bad descriptor",
         format("wgmma operand %s: only swizzles of 64 and 128 bytes are modelled", which),
         o.start, pc);
  o.pitch = descriptor >> 62 == 1 ? 128 : 64;
  o.start += cta * kSharedWindow;
  return o;
}

// Calls f(shared address) for every 16-byte chunk of the operand.
template <typename F>
void each_chunk(const Operand& o, F f) {
  if (o.transposed) {
    for (u32 row = 0; row < o.rows; row += 8)
      for (u32 k = 0; k < 16; ++k) f(element_address(o, row, k));
  } else {
    for (u32 row = 0; row < o.rows; ++row)
      for (u32 k = 0; k < 16; k += 8) f(element_address(o, row, k));
  }
}

void check_operand(const Operand& o, const char* which, void* pc) {
  each_chunk(o, [&](u32 at) {
    Region* r = shared_region(at, 16, which, pc);
    const u64 off = shared_offset(at);
    touch(*r, off, 16, kRead, pc);
    check_proxy(*r, off, 16, "wgmma", pc);
    mark(*r, off, 16, kPendingRead, 0);
  });
}

void unmark(const Operand& o) {
  each_chunk(o, [&](u32 at) {
    Region& r = L->blocks[at / kSharedWindow].shared;
    mark(r, shared_offset(at), 16, 0, kPendingRead);
  });
}

constexpr u32 kDepth = 32;  // elements of k that an operand is given; those behind the last are 0

bool sums_integers(u32 type) { return type == kBytes || type == kBytes + 1; }

std::vector<float> load_operand(const Operand& o, u32 type) {
  std::vector<float> out(o.rows * kDepth);
  if (type >= kBytes) {
    for (u32 row = 0; row < o.rows; ++row)
      for (u32 k = 0; k < 32; ++k) {
        const u8 bits = *shared_pointer(element_address(o, row, k / 2) + k % 2);
        out[row * kDepth + k] = byte_value(bits, type - kBytes);
      }
    return out;
  }
  if (type == kTf32) {  // 8 of k; the lowest 13 bits are not looked at
    for (u32 row = 0; row < o.rows; ++row)
      for (u32 k = 0; k < 8; ++k) {
        u32 bits;
        std::memcpy(&bits, shared_pointer(element_address(o, row, 2 * k)), 4);
        bits &= ~0x1fffu;
        std::memcpy(&out[row * kDepth + k], &bits, 4);
      }
    return out;
  }
  for (u32 row = 0; row < o.rows; ++row)
    for (u32 k = 0; k < 16; ++k) {
      u16 bits;
      std::memcpy(&bits, shared_pointer(element_address(o, row, k)), 2);
      out[row * kDepth + k] = type ? bf16_value(bits) : f16_value(bits);
    }
  return out;
}

float half_value(u32 bits, u32 type) {
  return type ? bf16_value(static_cast<u16>(bits)) : f16_value(static_cast<u16>(bits));
}

// A as a matrix of 64 rows, from the fragments of 128 threads.
std::vector<float> load_registers(const WgmmaOp& op) {
  std::vector<float> out(64 * kDepth);
  for (u32 t = 0; t < 128; ++t)
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8, k = t % 4 * 2 + i / 2 * 8;
      out[row * kDepth + k] = half_value(op.registers[t][i] & 0xffff, op.type);
      out[row * kDepth + k + 1] = half_value(op.registers[t][i] >> 16, op.type);
    }
  return out;
}

void compute(WgmmaOp& op) {
  if (op.done) return;
  op.done = true;
  const std::vector<float> a =
      op.registers.empty() ? load_operand(op.a, op.type) : load_registers(op);
  const std::vector<float> b = load_operand(op.b, op.type);
  op.out.assign(128, std::vector<double>(op.n / 2));
  for (u32 t = 0; t < 128; ++t) {
    const auto& previous = op.previous[t];
    if (previous) compute(*previous);
    const std::vector<double>& in = previous ? previous->out[t] : op.in[t];
    for (u32 i = 0; i < op.n / 2; ++i) {
      const float* x = &a[(t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2)) * kDepth];
      const float* y = &b[(i / 4 * 8 + t % 4 * 2 + i % 2) * kDepth];
      double sum = op.accumulate ? in[i] : 0.0;
      for (u32 k = 0; k < kDepth; ++k) sum += static_cast<double>(x[k]) * y[k];
      op.out[t][i] = sums_integers(op.type)
                         ? static_cast<int>(static_cast<u32>(static_cast<long long>(sum)))
                         : static_cast<float>(sum);
    }
  }
  op.previous.assign(128, nullptr);
  if (op.registers.empty()) unmark(op.a);
  unmark(op.b);
}

std::shared_ptr<WgmmaOp> in_flight(const Thread& t, const float* d) {
  for (auto it = t.open_wgmma.rbegin(); it != t.open_wgmma.rend(); ++it)
    if (it->d == d) return it->op;
  for (auto g = t.wgmma_groups.rbegin(); g != t.wgmma_groups.rend(); ++g)
    for (auto it = g->rbegin(); it != g->rend(); ++it)
      if (it->d == d) return it->op;
  return nullptr;
}

}  // namespace

void check_accumulators(const Thread& t, addr_t a, u64 n, u32 what, void* pc) {
  auto check = [&](const std::vector<WgmmaRef>& refs) {
    for (const WgmmaRef& ref : refs) {
      const addr_t d = reinterpret_cast<addr_t>(ref.d);
      if (a + n <= d || a >= d + ref.op->n / 2 * sizeof(float)) continue;
      Finding* f = report(
          "missing wait",
          format("%s accumulator %llu of a wgmma that is in flight; wgmma_wait is missing or "
                 "keeps too many groups", what & kWrite ? "writes" : "reads",
                 static_cast<unsigned long long>((a - d) / sizeof(float))), a, pc);
      if (f) f->other_pcs.push_back(reinterpret_cast<addr_t>(ref.op->pc));
      return;
    }
  };
  check(t.open_wgmma);
  for (const auto& group : t.wgmma_groups) check(group);
}

void exit_wgmma(const Thread& t) {
  const auto* refs = !t.open_wgmma.empty() ? &t.open_wgmma
                     : t.wgmma_groups.empty() ? nullptr : &t.wgmma_groups.front();
  if (refs && !refs->empty())
    fail("missing wait", "the thread exits while its wgmma is in flight; wgmma_wait<0>() is missing",
         0, refs->front().op->pc);
}

}  // namespace emu

using namespace emu;

extern "C" void ge2emu_wgmma_fence() { L->cur->wgmma_fenced = true; }

namespace {

// One thread's part; d holds integers where those are summed. A by descriptor, or of four registers where those are given.
void issue(float* d, u32 n, u64 a, const u32* registers, u64 b, u32 accumulate, u32 type,
           u32 trans_a, u32 trans_b, const char* file, int line, void* pc) {
  Thread& t = *L->cur;
  const u32 in_block = t.tid % L->threads_per_block;
  const u32 first = t.tid - in_block % 128;
  if (in_block / 128 * 128 + 128 > L->threads_per_block)
    fail("barrier divergence", "wgmma needs a whole warp group of 128 threads", 0, pc);
  WgmmaGroup& group = L->warp_groups[first];
  if (!group.op) {
    group.op = std::make_shared<WgmmaOp>();
    WgmmaOp& op = *group.op;
    op.n = n;
    op.type = type;
    op.first_tid = first;
    op.accumulate = accumulate;
    if (registers) op.registers.resize(128);
    else op.a = decode(a, 64, trans_a, t.cta, "A", pc);
    op.b = decode(b, n, trans_b, t.cta, "B", pc);
    op.pc = pc;
    op.in.resize(128);
    op.previous.resize(128);
  }
  const std::shared_ptr<WgmmaOp> op = group.op;
  const Operand mine_a = registers ? Operand{} : decode(a, 64, trans_a, t.cta, "A", pc);
  const Operand mine_b = decode(b, n, trans_b, t.cta, "B", pc);
  if (op->n != n || op->a.start != mine_a.start || op->b.start != mine_b.start ||
      op->accumulate != (accumulate != 0))
    fail("barrier divergence", "threads of a warp group give different operands to one wgmma", 0,
         pc);
  const u32 k = t.tid - first;
  if (registers) std::copy_n(registers, 4, op->registers[k].begin());
  op->previous[k] = in_flight(t, d);
  if (!op->previous[k]) {
    const int* whole = reinterpret_cast<const int*>(d);
    if (sums_integers(type)) op->in[k].assign(whole, whole + n / 2);
    else op->in[k].assign(d, d + n / 2);
    if (!t.wgmma_fenced)
      report("missing fence", "wgmma without wgmma_fence after other accesses to its registers", 0,
             pc);
  }
  std::fill(d, d + n / 2, std::numeric_limits<float>::quiet_NaN());
  t.open_wgmma.push_back({op, d, registers});
  if (t.lane == 0) {
    if (!registers) check_operand(op->a, "wgmma (operand A) reads", pc);
    check_operand(op->b, "wgmma (operand B) reads", pc);
  }
  if (++op->arrived == 128) {
    const std::vector<u32> waiting = std::move(group.waiting);
    group = WgmmaGroup{};
    for (u32 tid : waiting) make_ready(tid);
    return;
  }
  group.waiting.push_back(t.tid);
  t.wait = Wait{Kind::kWgmma, Site{pc, file, line}, 0, 0, 0};
  block_current();
}

// Registers of A are read while the instruction runs: they still hold what they held at its issue.
void check_registers(const WgmmaRef& ref, u32 tid) {
  if (!ref.a) return;
  const std::array<u32, 4>& issued = ref.op->registers[tid - ref.op->first_tid];
  if (!std::equal(issued.begin(), issued.end(), ref.a))
    report("missing wait", "registers of operand A are written before wgmma_wait", 0, ref.op->pc);
}

}  // namespace

extern "C" void ge2emu_wgmma(void* sums, u32 n, u64 a, u64 b, u32 accumulate, u32 type, u32 trans_a,
                             u32 trans_b, const char* file, int line) {
  issue(static_cast<float*>(sums), n, a, nullptr, b, accumulate, type, trans_a, trans_b, file, line,
        __builtin_return_address(0));
}

extern "C" void ge2emu_wgmma_registers(float* d, u32 n, const u32* a, u64 b, u32 accumulate,
                                       u32 type, u32 trans_b, const char* file, int line) {
  issue(d, n, 0, a, b, accumulate, type, 0, trans_b, file, line, __builtin_return_address(0));
}

extern "C" void ge2emu_wgmma_commit() {
  Thread& t = *L->cur;
  t.wgmma_groups.push_back(std::move(t.open_wgmma));
  t.open_wgmma.clear();
}

extern "C" void ge2emu_wgmma_wait(u32 keep) {
  Thread& t = *L->cur;
  while (t.wgmma_groups.size() > keep) {
    const std::vector<WgmmaRef> refs = std::move(t.wgmma_groups.front());
    t.wgmma_groups.pop_front();
    for (std::size_t i = 0; i < refs.size(); ++i) {
      check_registers(refs[i], t.tid);
      compute(*refs[i].op);
      const auto later = in_flight(t, refs[i].d);
      bool last = !later;
      for (std::size_t j = i + 1; j < refs.size(); ++j) last = last && refs[j].d != refs[i].d;
      if (!last) continue;
      const std::vector<double>& out = refs[i].op->out[t.tid - refs[i].op->first_tid];
      if (sums_integers(refs[i].op->type))
        for (std::size_t j = 0; j < out.size(); ++j)
          reinterpret_cast<int*>(refs[i].d)[j] = static_cast<int>(out[j]);
      else
        for (std::size_t j = 0; j < out.size(); ++j) refs[i].d[j] = static_cast<float>(out[j]);
    }
    t.wgmma_fenced = false;
  }
}
