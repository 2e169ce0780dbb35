// What the compiler's instrumentation calls: every memory access, alignment, bounds, steps.
#include "emu.h"

using namespace emu;

namespace {

struct SourceLocation {
  const char* file;
  u32 line, column;
};

struct TypeDescriptor {
  u16 kind, info;
  char name[1];
};

struct TypeMismatch {
  SourceLocation where;
  const TypeDescriptor* type;
  u8 log_alignment;
  u8 check;
};

struct OutOfBounds {
  SourceLocation where;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

struct Overflow {
  SourceLocation where;
  const TypeDescriptor* type;
};

}  // namespace

namespace {

void volatile_access(void* p, u64 n, bool write, void* pc) {
  if (!L || !L->cur) return;
  const addr_t a = reinterpret_cast<addr_t>(p);
  if (!write && !is_stack(a)) spin(Site{pc, "a volatile read", 0});
  access(a, n, (write ? kWrite : kRead) | kAtomic, pc);
}

}  // namespace

#define GE2_PC __builtin_return_address(0)
#define GE2_ACCESS(NAME, SIZE)                                                     \
  extern "C" void __tsan_read##NAME(void* p) {                                     \
    access(reinterpret_cast<addr_t>(p), SIZE, kRead, GE2_PC);              \
  }                                                                                \
  extern "C" void __tsan_write##NAME(void* p) {                                    \
    access(reinterpret_cast<addr_t>(p), SIZE, kWrite, GE2_PC);             \
  }                                                                                \
  extern "C" void __tsan_unaligned_read##NAME(void* p) {                           \
    access(reinterpret_cast<addr_t>(p), SIZE, kRead, GE2_PC);              \
  }                                                                                \
  extern "C" void __tsan_unaligned_write##NAME(void* p) {                          \
    access(reinterpret_cast<addr_t>(p), SIZE, kWrite, GE2_PC);             \
  }                                                                                \
  extern "C" void __tsan_volatile_read##NAME(void* p) { volatile_access(p, SIZE, false, GE2_PC); } \
  extern "C" void __tsan_volatile_write##NAME(void* p) { volatile_access(p, SIZE, true, GE2_PC); } \
  extern "C" void __tsan_unaligned_volatile_read##NAME(void* p) {                  \
    volatile_access(p, SIZE, false, GE2_PC);                                       \
  }                                                                                \
  extern "C" void __tsan_unaligned_volatile_write##NAME(void* p) {                 \
    volatile_access(p, SIZE, true, GE2_PC);                                        \
  }                                                                                \
  extern "C" void __tsan_read##NAME##_pc(void* p, void* pc) {                      \
    access(reinterpret_cast<addr_t>(p), SIZE, kRead, pc);                  \
  }                                                                                \
  extern "C" void __tsan_write##NAME##_pc(void* p, void* pc) {                     \
    access(reinterpret_cast<addr_t>(p), SIZE, kWrite, pc);                 \
  }

GE2_ACCESS(1, 1)
GE2_ACCESS(2, 2)
GE2_ACCESS(4, 4)
GE2_ACCESS(8, 8)
GE2_ACCESS(16, 16)

extern "C" void __tsan_read_range(void* p, unsigned long n) {
  access(reinterpret_cast<addr_t>(p), n, kRead, GE2_PC);
}
extern "C" void __tsan_write_range(void* p, unsigned long n) {
  access(reinterpret_cast<addr_t>(p), n, kWrite, GE2_PC);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

extern "C" void ge2emu_copy(void* to, const void* from, unsigned long n, void* pc) {
  access(reinterpret_cast<addr_t>(from), n, kRead, pc);
  access(reinterpret_cast<addr_t>(to), n, kWrite, pc);
  __builtin_memmove(to, from, n);
}
extern "C" void ge2emu_fill(void* to, int value, unsigned long n, void* pc) {
  access(reinterpret_cast<addr_t>(to), n, kWrite, pc);
  __builtin_memset(to, value, n);
}
extern "C" void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  ge2emu_copy(to, from, n, GE2_PC);
  return to;
}
extern "C" void* __tsan_memset(void* to, int value, unsigned long n) {
  ge2emu_fill(to, value, n, GE2_PC);
  return to;
}

extern "C" void __sanitizer_cov_trace_pc() {
  Launch* l = L;
  if (!l || !l->cur) return;
  if (++l->steps > l->step_limit)
    fail("step limit", format("the launch ran %llu basic blocks without ending",
                              static_cast<unsigned long long>(l->step_limit)), 0, GE2_PC);
}

extern "C" void __ubsan_handle_type_mismatch_v1(TypeMismatch* d, void* p) {
  if (!L || !L->cur) return;
  const addr_t a = reinterpret_cast<addr_t>(p);
  fail("misaligned access",
       format("an access of type %s needs an address that is a multiple of %u", d->type->name,
              1u << d->log_alignment), a, GE2_PC);
}
extern "C" void __ubsan_handle_out_of_bounds(OutOfBounds* d, void* index) {
  if (!L || !L->cur) return;
  fail("out of bounds",
       format("index %lld is outside the local array of type %s",
              static_cast<long long>(reinterpret_cast<addr_t>(index)), d->array->name), 0, GE2_PC);
}
extern "C" void __ubsan_handle_divrem_overflow(Overflow* d, void*, void*) {
  if (!L || !L->cur) return;
  fail("division by zero", format("integer division of type %s", d->type->name), 0, GE2_PC);
}
