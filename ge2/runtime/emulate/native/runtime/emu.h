// State of one emulated launch: threads as fibers, shared and global memory with shadow cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

namespace emu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using addr_t = std::uintptr_t;

constexpr u64 kStackSize = 256 * 1024;
constexpr u32 kSharedWindow = 1u << 20;  // address distance between the blocks of a group
constexpr unsigned long long kSharedSpan = 64ull * kSharedWindow;  // a group has up to 64 blocks
constexpr u32 kSharedBase = 1024;        // first dynamic shared byte, as on sm_90
constexpr u32 kSharedSlack = 1024;       // launches ask for this much more, for the alignment
constexpr u32 kAsyncSlots = 64;          // clock entries of asynchronous engines, by mbarrier
constexpr u32 kMaxFindings = 16;

struct Dim3 {
  u32 x = 1, y = 1, z = 1;
  u32 count() const { return x * y * z; }
};

// ---- clocks ------------------------------------------------------------------------------------
// A clock says which accesses of which threads happen before now: v[tid] for the threads of one
// group (the blocks of a cluster), `foreign` for finished groups. Clocks are immutable and shared:
// after a block barrier all threads point to the same one.

using Vector = std::vector<u32>;
using Foreign = std::map<u32, std::shared_ptr<const Vector>>;

struct Clock {
  u32 serial = 0;
  Vector v;
  std::shared_ptr<const Foreign> foreign;
};
using ClockRef = std::shared_ptr<const Clock>;

ClockRef join(const ClockRef& a, const ClockRef& b);
ClockRef with_entry(const ClockRef& a, u32 tid, u32 clock);

// ---- memory ------------------------------------------------------------------------------------

enum State : u8 {
  kInit = 1,           // holds a value
  kPendingWrite = 2,   // an asynchronous copy to here has not been waited for
  kPendingRead = 4,    // an asynchronous copy from here has not been waited for
  kAsyncWritten = 8,   // last written by the async proxy
};

// An access epoch: serial 18 bits | tid 14 | clock 29 | atomic 1 | byte mask 2. Zero = none.
constexpr u64 kEpochAtomic = 4;

struct Cell {  // of two bytes
  u64 write = 0, read0 = 0, read1 = 0;
  u32 write_pc = 0, read0_pc = 0, read1_pc = 0, pad = 0;
};

struct Region {
  std::string name;
  u8* base = nullptr;
  u64 size = 0;
  bool writable = true;
  bool shared = false;
  bool late = false;  // the launch before may still write it
  u8* state = nullptr;   // one State per byte
  Cell* cells = nullptr; // one per two bytes
};

struct Image {  // a loaded kernel library
  addr_t lo = 0, hi = 0;
};

// ---- threads -----------------------------------------------------------------------------------

enum class Run : u8 { kReady, kBlocked, kDone };

enum class Kind : u8 {
  kNone, kSyncthreads, kNamedBarrier, kSyncwarp, kShuffle, kVote, kLdmatrix, kStmatrix, kMma,
  kMbarrier, kCluster, kSpin, kWgmma, kWarpOther,
};
const char* kind_name(Kind kind);

struct Site {
  void* pc = nullptr;
  const char* file = "";
  int line = 0;
};

struct Wait {
  Kind kind = Kind::kNone;
  Site site;
  u32 mask = 0;      // warp collectives: participating lanes; barriers: id
  u32 object = 0;    // mbarrier address
  u32 detail = 0;    // parity, thread count, variant
};

struct CopyOp {  // cp.async: one per call
  Region* dst_region;
  u64 dst_off;
  const u8* src;
  u32 src_bytes, bytes;
  u32 pc;
};

struct Span {  // one contiguous piece of a bulk or tensor copy
  u8* global;  // null: filled with zeros
  u32 smem;    // 32-bit shared address
  u32 bytes;
};

struct StoreOp {  // bulk or tensor store: shared -> global, by the async proxy
  std::vector<Span> spans;
  std::vector<u8> data;
  u32 smem = 0, bytes = 0;
  bool captured = false;
  u32 add = 0;  // 0 store, 1 add f32
  void* pc = nullptr;
};

struct MBarrier;

struct BulkOp {  // bulk or tensor load or st.async: completes on an mbarrier
  std::shared_ptr<MBarrier> bar;
  std::vector<Span> spans;
  std::vector<u8> data;  // of st.async
  ClockRef sender;       // of st.async: what its issuer knows travels along
  u32 smem = 0, bytes = 0;
  u32 pc = 0;
  bool tf32 = false;  // f32 elements are rounded to tf32
};

struct WgmmaOp;

struct WgmmaRef {  // one thread's part of a wgmma
  std::shared_ptr<WgmmaOp> op;
  float* d;
  const u32* a;  // registers of the first operand, if it has some
};

struct WgmmaGroup {  // threads of one warp group on their way into the same wgmma
  std::shared_ptr<WgmmaOp> op;
  std::vector<u32> waiting;
};

struct Thread {
  void* sp = nullptr;
  u8* stack = nullptr;
  u32 tid = 0;    // in the group
  u32 cta = 0;    // rank in the cluster
  u32 warp = 0;   // index in the group
  u32 lane = 0;
  Dim3 index{0, 0, 0};
  Run run = Run::kReady;
  Wait wait;
  void* slot = nullptr;  // operands of the collective it waits in

  u32 own = 1;           // own clock
  ClockRef clock;        // what happens before now
  ClockRef acquired;     // read from atomics, effective after the next fence
  ClockRef fenced;       // clock at the last __threadfence, released by later atomics
  u32 fence_gpu = 0;     // own clock at the last __threadfence
  Vector async_fences;   // own clock at each async proxy fence, ascending

  std::vector<CopyOp> open_copies;
  std::deque<std::vector<CopyOp>> copy_groups;
  std::vector<StoreOp> open_stores;
  std::deque<std::vector<StoreOp>> store_groups;
  std::vector<WgmmaRef> open_wgmma;
  std::deque<std::vector<WgmmaRef>> wgmma_groups;
  bool wgmma_fenced = false;
  u32 cluster_phase = 0;  // of the cluster barrier that it arrived at
};

struct Barrier {
  std::vector<u32> waiting;
  std::vector<std::pair<u32, u32>> arrivals;  // thread, own clock
  u32 arrived = 0, expected = 0;
  Site site;
  ClockRef clock, last_joined, acquired;
};

struct MBarrier {
  u32 address = 0, index = 0;
  u32 expected = 0, pending = 0;
  long long tx = 0;
  u32 phase = 0;
  u32 init_tid = 0, init_clock = 0;
  bool fenced = false;  // the init was made visible to the async proxy
  u32 async_clock = 0;
  ClockRef arriving, completed;
  std::vector<u32> waiting;
};

struct RemoteAccess {  // a thread's last access to another block's shared memory
  u32 clock = 0;
  void* pc = nullptr;
};

struct Block {
  Dim3 index;
  u32 rank = 0;
  Region shared;
  Barrier barriers[16];
  u32 first_tid = 0;
  u32 done = 0;
  bool waited = false;  // a thread has executed griddep_wait: which, and when
  u32 waited_tid = 0, waited_clock = 0;
  std::map<u32, RemoteAccess> remote;  // by thread of another block
};

struct Warp {
  u32 first_tid = 0, lanes = 0;
  u32 priority = 0;  // of a random schedule
};

struct SyncLoc {  // a word used by atomics
  ClockRef clock;
};

// ---- findings ----------------------------------------------------------------------------------

struct Finding {
  std::string kind, message;
  addr_t address = 0;
  std::vector<addr_t> pcs;        // innermost first
  std::vector<addr_t> other_pcs;
  bool has_thread = false;
  Dim3 block, thread;
};

struct Arena {
  std::map<addr_t, Region*> regions;  // by base
  std::vector<Region*> owned;
  u32 next_serial = 1;
  ~Arena();
};

struct BankSite {
  u64 accesses = 0, wavefronts = 0, ideal = 0;
};

struct Launch {
  Dim3 grid, block, cluster;
  u32 shared_bytes = 0;
  void (*entry)(const void*) = nullptr;
  const void* args = nullptr;
  Image image;
  Arena* arena = nullptr;
  bool want_banks = false;
  bool overlaps = false;  // may start before the launch ahead of it has finished (PDL)
  u64 step_limit = 0, steps = 0;
  u32 seed = 0;  // of a random schedule; 0: a fixed one, in which copies complete late
  std::mt19937 random;
  u32 copies_in = 1;  // a random schedule completes a copy in one of so many steps

  u32 first_serial = 1, serial = 1;
  u32 threads_per_block = 0, group_threads = 0, group_blocks = 1;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Block> blocks;
  std::deque<u32> ready;
  std::unordered_map<u32, std::shared_ptr<MBarrier>> mbarriers;
  std::vector<BulkOp> in_flight;  // copies that have not completed, oldest first
  std::map<u32, WgmmaGroup> warp_groups;  // by first thread
  Barrier cluster_barrier;
  u32 cluster_phase = 0;
  ClockRef cluster_clock;
  std::unordered_map<addr_t, SyncLoc> sync_locs;
  std::vector<Finding> findings;
  std::map<std::string, u32> seen;
  std::map<u32, BankSite> bank_sites;
  Thread* cur = nullptr;
  void* scheduler_sp = nullptr;
  bool aborted = false;
  u64 idle_spins = 0;    // polls since the last write or barrier
  u8* shared_base = nullptr;  // a window for each block of the group
  Region* last_region = nullptr;
};

extern Launch* L;  // null outside a launch

// ---- fibers ------------------------------------------------------------------------------------
u8* stacks(u32 count);           // lowest byte of `count` consecutive stacks
bool is_stack(addr_t a);
void prepare_fiber(Thread& t, void (*start)());
extern "C" void ge2emu_switch(void** save_sp, void* load_sp);
void block_current();            // back to the scheduler until made ready
void yield_current();
void interleave();               // a place where a random schedule may run others first
void make_ready(u32 tid);
[[noreturn]] void abort_launch();
void run_group();
void run_grid();

// ---- reports -----------------------------------------------------------------------------------
std::string format(const char* fmt, ...) __attribute__((format(printf, 1, 2)));
std::string thread_name(const Thread& t);
// Records a finding of the current thread; returns it, or null when it repeats an earlier one.
Finding* report(const char* kind, std::string message, addr_t address, void* pc);
[[noreturn]] void fail(const char* kind, std::string message, addr_t address, void* pc);

// ---- memory access -----------------------------------------------------------------------------
enum Access : u8 { kRead = 1, kWrite = 2, kAtomic = 4 };  // kAtomic: a relaxed atomic
void access(addr_t a, u64 n, u32 what, void* pc);
Region* find_region(addr_t a, u64 n, u32 what, void* pc);  // fails when out of bounds
bool is_shared(addr_t a);
Region* shared_region(u32 smem, u64 n, const char* what, void* pc);  // 32-bit shared address
u8* shared_pointer(u32 smem);
inline u32 shared_offset(u32 smem) { return smem % kSharedWindow - kSharedBase; }
void touch(Region& r, u64 off, u64 n, u32 what, void* pc);
void land_write(Region& r, u64 off, u64 n, u64 epoch, u32 pc, bool async);
u64 epoch_of(const Thread& t);
u64 make_epoch(u32 tid, u32 clock);
void bank_access(addr_t a, u32 n, void* pc);
void finish_banks();
u32 pc32(void* pc);

// ---- synchronisation ---------------------------------------------------------------------------
// Waits until every live lane of mask is in the same collective, then one lane runs finish.
void warp_collective(Kind kind, u32 mask, u32 detail, Site site, void* slot,
                     void (*finish)(Warp&, u32 mask));
u32 live_mask(const Warp& w);
template <typename S>
S& slot_of(const Warp& w, u32 lane) {
  return *static_cast<S*>(L->threads[w.first_tid + lane].slot);
}
void on_exit(Thread& t);
void block_barrier(Kind kind, u32 id, u32 count, bool wait, Site site);
void sync_clocks(const std::vector<u32>& tids);
void arrive(Barrier& b, Thread& t);
void release_barrier(Barrier& b);
void spin(Site site);  // called after each poll of memory: lets other threads run
void on_deadlock();
// Fails unless every generic write to the bytes was fenced for the async proxy by its writer.
void check_proxy(Region& r, u64 off, u64 n, const char* what, void* pc);
bool happened(u32 tid, u32 clock);  // whether that access of this group is ordered before now
void mark(Region& r, u64 off, u64 n, u8 set, u8 clear);
void mark_source(const u8* from, u64 n, u8 set, u8 clear);  // global memory that a copy reads
void issue_load(BulkOp op, u32 bar, void* pc);
bool complete_awaited_copy();  // the oldest one that a thread waits for; false without
void complete_copy(std::size_t i);
void issue_store(StoreOp op);
void exit_async(Thread& t);
void exit_cluster(const Block& block);  // all threads of the block are done
// Fails when the thread's own memory at a is a wgmma's accumulator before its wait.
void check_accumulators(const Thread& t, addr_t a, u64 n, u32 what, void* pc);
void exit_wgmma(const Thread& t);
void finish_async();

}  // namespace emu
