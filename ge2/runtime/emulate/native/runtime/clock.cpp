// Clocks: joining what two threads know.
#include "emu.h"

namespace emu {

namespace {

using ForeignRef = std::shared_ptr<const Foreign>;

std::shared_ptr<const Vector> max_of(const std::shared_ptr<const Vector>& a,
                                     const std::shared_ptr<const Vector>& b) {
  if (a == b) return a;
  auto out = std::make_shared<Vector>(*a);
  for (std::size_t i = 0; i < out->size(); ++i)
    if ((*b)[i] > (*out)[i]) (*out)[i] = (*b)[i];
  return out;
}

void add(Foreign& into, u32 serial, const std::shared_ptr<const Vector>& v) {
  auto it = into.find(serial);
  if (it == into.end()) into.emplace(serial, v);
  else it->second = max_of(it->second, v);
}

ForeignRef join_foreign(const ForeignRef& a, const ForeignRef& b) {
  if (a == b || !b) return a;
  if (!a) return b;
  auto out = std::make_shared<Foreign>(*a);
  for (const auto& [serial, v] : *b) add(*out, serial, v);
  return out;
}

bool covers(const Clock& a, const Clock& b) {
  if (a.serial != b.serial || (b.foreign && a.foreign != b.foreign)) return false;
  for (std::size_t i = 0; i < a.v.size(); ++i)
    if (b.v[i] > a.v[i]) return false;
  return true;
}

}  // namespace

ClockRef join(const ClockRef& a, const ClockRef& b) {
  if (a == b || !b) return a;
  if (!a) return b;
  if (covers(*a, *b)) return a;
  auto out = std::make_shared<Clock>(*a);
  if (a->serial == b->serial) {
    for (std::size_t i = 0; i < out->v.size(); ++i)
      if (b->v[i] > out->v[i]) out->v[i] = b->v[i];
    out->foreign = join_foreign(a->foreign, b->foreign);
    return out;
  }
  if (b->serial > a->serial) return join(b, a);
  auto foreign = std::make_shared<Foreign>();
  if (a->foreign) *foreign = *a->foreign;
  add(*foreign, b->serial, std::shared_ptr<const Vector>(b, &b->v));
  if (b->foreign)
    for (const auto& [serial, v] : *b->foreign)
      if (serial != a->serial) add(*foreign, serial, v);
  out->foreign = foreign;
  return out;
}

ClockRef with_entry(const ClockRef& a, u32 tid, u32 clock) {
  if (a->v[tid] >= clock) return a;
  auto out = std::make_shared<Clock>(*a);
  out->v[tid] = clock;
  return out;
}

}  // namespace emu
