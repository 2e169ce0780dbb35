// The library's entry points for Python, and bank conflict statistics.
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emu.h"

namespace emu {

namespace {

struct BankKey {
  u32 pc, warp, nth;
  bool operator<(const BankKey& o) const {
    return pc != o.pc ? pc < o.pc : warp != o.warp ? warp < o.warp : nth < o.nth;
  }
};

struct BankGroup {
  u32 bytes = 0;
  std::vector<u32> offsets;
};

std::map<BankKey, BankGroup> g_banks;
std::map<std::pair<u32, u32>, u32> g_counts;  // (thread, pc) -> executions

// Wavefronts of one warp-wide access: 4-byte banks, 128 bytes a cycle, wide accesses in parts.
u32 wavefronts(const BankGroup& g) {
  const u32 lanes_per_part = g.bytes <= 4 ? 32 : g.bytes <= 8 ? 16 : 8;
  u32 total = 0;
  for (std::size_t first = 0; first < g.offsets.size(); first += lanes_per_part) {
    std::vector<u32> words;
    const std::size_t end = std::min(first + lanes_per_part, g.offsets.size());
    for (std::size_t i = first; i < end; ++i)
      for (u32 b = 0; b < std::max(g.bytes, 4u); b += 4) words.push_back((g.offsets[i] + b) / 4);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    u32 per_bank[32] = {}, worst = 0;
    for (u32 w : words) worst = std::max(worst, ++per_bank[w % 32]);
    total += worst;
  }
  return total;
}

void* map_zero(u64 bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

bool make_shadow(Region& r) {
  r.state = static_cast<u8*>(map_zero(r.size + 16));
  r.cells = static_cast<Cell*>(map_zero((r.size / 2 + 2) * sizeof(Cell)));
  return r.state && r.cells;
}

void free_shadow(Region& r) {
  munmap(r.state, r.size + 16);
  munmap(r.cells, (r.size / 2 + 2) * sizeof(Cell));
}

int find_image(dl_phdr_info* info, size_t, void* data) {
  auto* query = static_cast<std::pair<addr_t, Image>*>(data);
  Image image{~addr_t{0}, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const addr_t lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    image.lo = std::min(image.lo, lo);
    image.hi = std::max(image.hi, lo + info->dlpi_phdr[i].p_memsz);
  }
  if (query->first - image.lo >= image.hi - image.lo) return 0;
  query->second = {info->dlpi_addr, image.hi};
  return 1;
}

void quote(std::string& out, const std::string& s) {
  out += '"';
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' ? ' ' : c;
  }
  out += '"';
}

void list(std::string& out, const std::vector<addr_t>& pcs) {
  out += '[';
  for (std::size_t i = 0; i < pcs.size(); ++i)
    out += format("%s%llu", i ? "," : "", static_cast<unsigned long long>(pcs[i] - L->image.lo));
  out += ']';
}

std::string to_json() {
  std::string out = format("{\"steps\":%llu,\"findings\":[",
                           static_cast<unsigned long long>(L->steps));
  bool first = true;
  for (const Finding& f : L->findings) {
    out += first ? "{\"kind\":" : ",{\"kind\":";
    first = false;
    quote(out, f.kind);
    out += ",\"message\":";
    quote(out, f.message);
    out += format(",\"address\":%llu,\"pcs\":", static_cast<unsigned long long>(f.address));
    list(out, f.pcs);
    out += ",\"other_pcs\":";
    list(out, f.other_pcs);
    if (f.has_thread)
      out += format(",\"block\":[%u,%u,%u],\"thread\":[%u,%u,%u]", f.block.x, f.block.y,
                    f.block.z, f.thread.x, f.thread.y, f.thread.z);
    out += '}';
  }
  out += "],\"banks\":[";
  first = true;
  for (const auto& [pc, site] : L->bank_sites) {
    out += format("%s[%u,%llu,%llu,%llu]", first ? "" : ",", pc,
                  static_cast<unsigned long long>(site.accesses),
                  static_cast<unsigned long long>(site.wavefronts),
                  static_cast<unsigned long long>(site.ideal));
    first = false;
  }
  return out + "]}";
}

}  // namespace

void bank_access(addr_t a, u32 n, void* pc) {
  const Thread& t = *L->cur;
  const u32 nth = g_counts[{t.tid, pc32(pc)}]++;
  BankGroup& g = g_banks[{pc32(pc), t.warp, nth}];
  g.bytes = n;
  g.offsets.push_back(static_cast<u32>(a - reinterpret_cast<addr_t>(L->shared_base)));
}

void finish_banks() {
  for (const auto& [key, group] : g_banks) {
    BankSite& site = L->bank_sites[key.pc];
    ++site.accesses;
    site.wavefronts += wavefronts(group);
    const u32 per_part = group.bytes <= 4 ? 32 : group.bytes <= 8 ? 16 : 8;
    site.ideal += (static_cast<u32>(group.offsets.size()) + per_part - 1) / per_part;
  }
  g_banks.clear();
  g_counts.clear();
}

}  // namespace emu

using namespace emu;

extern "C" {

struct LaunchArgs {
  u32 grid[3], block[3], cluster[3];
  u32 shared_bytes;
  u32 want_banks;
  u32 overlaps;
  u32 seed;
  u64 step_limit;
  void (*entry)(const void*);
  const void* args;
  Arena* arena;
};

Arena* ge2emu_arena_new() { return new Arena; }

void ge2emu_arena_free(Arena* arena) { delete arena; }

int ge2emu_arena_add(Arena* arena, void* base, u64 size, const char* name, u32 writable,
                     u32 initialised, u32 late) {
  auto r = std::make_unique<Region>();
  r->name = name;
  r->base = static_cast<u8*>(base);
  r->size = size;
  r->writable = writable != 0;
  r->late = late != 0;
  if (!make_shadow(*r)) return -1;
  if (initialised) std::memset(r->state, kInit, size);
  arena->regions[reinterpret_cast<addr_t>(base)] = r.get();
  arena->owned.push_back(r.release());
  return 0;
}

// Copies the state bytes of a buffer (bit 0: holds a value) out or in.
int ge2emu_arena_get_state(Arena* arena, void* base, u8* to) {
  auto it = arena->regions.find(reinterpret_cast<addr_t>(base));
  if (it == arena->regions.end()) return -1;
  std::memcpy(to, it->second->state, it->second->size);
  return 0;
}

int ge2emu_arena_set_state(Arena* arena, void* base, const u8* from) {
  auto it = arena->regions.find(reinterpret_cast<addr_t>(base));
  if (it == arena->regions.end()) return -1;
  std::memcpy(it->second->state, from, it->second->size);
  return 0;
}

// Runs one launch; returns the JSON report, to be freed with ge2emu_free_text.
char* ge2emu_launch(const LaunchArgs* in) {
  Launch launch;
  launch.grid = {in->grid[0], in->grid[1], in->grid[2]};
  launch.block = {in->block[0], in->block[1], in->block[2]};
  launch.cluster = {in->cluster[0], in->cluster[1], in->cluster[2]};
  launch.shared_bytes = in->shared_bytes;
  launch.want_banks = in->want_banks != 0;
  launch.overlaps = in->overlaps != 0;
  launch.seed = in->seed;
  launch.step_limit = in->step_limit;
  launch.entry = in->entry;
  launch.args = in->args;
  launch.arena = in->arena;
  std::pair<addr_t, Image> query{reinterpret_cast<addr_t>(in->entry), {}};
  dl_iterate_phdr(find_image, &query);
  launch.image = query.second;
  launch.threads_per_block = launch.block.count();
  launch.group_blocks = launch.cluster.count();
  launch.group_threads = launch.threads_per_block * launch.group_blocks;
  const u64 groups = static_cast<u64>(launch.grid.count()) / launch.group_blocks;
  if (in->arena->next_serial + groups + 1 >= 1u << 18) {
    for (auto& [base, r] : in->arena->regions)
      std::memset(static_cast<void*>(r->cells), 0, (r->size / 2 + 2) * sizeof(Cell));
    in->arena->next_serial = 1;
  }
  launch.first_serial = launch.serial = in->arena->next_serial;
  launch.threads.resize(launch.group_threads);
  launch.blocks.resize(launch.group_blocks);
  const u32 warps_per_block = (launch.threads_per_block + 31) / 32;
  for (u32 b = 0; b < launch.group_blocks; ++b)
    for (u32 w = 0; w < warps_per_block; ++w)
      launch.warps.push_back({b * launch.threads_per_block + w * 32,
                              std::min(32u, launch.threads_per_block - w * 32)});
  launch.shared_base = static_cast<u8*>(map_zero(kSharedSpan));
  for (u32 b = 0; b < launch.group_blocks; ++b) {
    Region& r = launch.blocks[b].shared;
    r.name = "shared memory";
    r.base = launch.shared_base + b * kSharedWindow + kSharedBase;
    r.size = launch.shared_bytes > kSharedSlack ? launch.shared_bytes - kSharedSlack : 0;
    r.shared = true;
    make_shadow(r);
  }
  std::string json;
  if (launch.shared_base && stacks(launch.group_threads)) {
    L = &launch;
    g_banks.clear();  // of a launch that was aborted
    g_counts.clear();
    run_grid();
    json = to_json();
    L = nullptr;
  }
  for (Block& b : launch.blocks) free_shadow(b.shared);
  munmap(launch.shared_base, kSharedSpan);
  in->arena->next_serial = launch.serial + 1;
  return json.empty() ? nullptr : strdup(json.c_str());
}

void ge2emu_free_text(char* text) { std::free(text); }

}  // extern "C"
