"""An ATTENTION problem in the form its kernels take it in: strides by role, one band of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..compiler.ir.expr import Expr, ExprBundle, cast, input, render_c, where
from ..compiler.ir.expr.narrow import narrow_coordinates
from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.ir.size import at_most, larger, smaller
from ..compiler.opdefs.attention_shapes import EXTRAS, K_STARTS, LENGTH, MASK, Q_STARTS
from ..contract import DTYPES
from ..errors import StrideMismatch, Unsupported
from ..problem import Problem, TensorSpec
from .attention_args import Field, Fields, Heads, args_context, args_layout
from .elementwise import fast_math
from .gemm_args import Operand
from .record import KernelSource, Reloc

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant

FAR = 1 << 29  # a window as wide as all keys; sums of three such numbers fit 32 bits


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One attention, ready to be packed.

    Attributes:
        batch: samples, or packed sequences.
        heads, groups: query heads, and key heads that they share.
        queries, keys: rows of q and k; of all sequences together where they are packed.
        size, value_size: elements of a head of q and k, and of v.
        q, k, v, y: the tensors.
        lse: where the log-sum-exp of each row goes; None where it is not asked for.
        mask: None, or an operand over (query, key): bool, or added to the scores.
        kv_len, starts: element types of the lengths of keys and of the starts of packed
            sequences; empty where absent.
        extras: further operands over (query, key) that the formula reads, with their C++ names.
        score: makes the score of input 0 = product * scale and of the extras; None = input 0.
        scale: factor of the products.
        offset: place of query 0 among the keys, where neither kv_len nor starts say it.
        left, right: keys seen before and after a query; FAR = all. Causal is a right of 0.
    """

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    size: int
    value_size: int
    q: Heads
    k: Heads
    v: Heads
    y: Heads
    lse: Heads | None
    mask: Operand | None
    kv_len: str
    starts: str
    extras: tuple[tuple[str, Operand], ...]
    score: ExprBundle | None
    scale: float
    offset: int
    left: int
    right: int

    @property
    def is_banded(self) -> bool:
        """Whether which keys a query sees depends on the query."""
        return self.left != FAR or self.right != FAR

    @property
    def is_masked(self) -> bool:
        """Whether there may be rows without a key, which become 0."""
        return (self.is_banded or self.mask is not None or bool(self.kv_len) or bool(self.starts)
                or (self.score is not None and len(self.score.outputs) > 1))

    @property
    def is_plain(self) -> bool:
        """Whether a score is its product times a positive number."""
        return self.score is None and self.mask is None and self.scale > 0

    def tiles(self, rows: int) -> int:
        """Return the blocks of one grid that take `rows` queries of one head each.

        place_of() of <ge2/attention/place.cuh> finds a block's queries. Each packed sequence may
        end in a partly filled block.
        """
        if self.starts:
            return (-(-self.queries // rows) + self.batch) * self.heads
        return -(-self.queries // rows) * self.heads * self.batch

    def context(self, maps: Sequence[str] = (), more: Sequence[Field] = ()) -> dict[str, Any]:
        """Return what attention/arguments.j2 is rendered with.

        Args:
            maps: tensor maps at the head of Args.
            more: members at its end.
        """
        operands = [*self.extras, *([("mask", self.mask)] if self.mask else [])]
        described = tuple((name, x.dtype, x.spread) for name, x in operands)
        return {
            "TYPE": DTYPES[self.q.dtype].c_type,
            "COMPUTE": C_TYPES[DTYPES[self.q.dtype].compute],
            "HEAD": self.size, "VALUE": self.value_size,
            "LENGTH": DTYPES[self.kv_len].c_type if self.kv_len else "void",
            "STARTS": DTYPES[self.starts].c_type if self.starts else "void",
            "BANDED": self.is_banded, "MASKED": self.is_masked, "PLAIN": self.is_plain,
            "LSE": self.lse is not None, "MAPS": tuple(maps),
            "MORE": tuple((kind, name) for kind, name, _ in more),
            **args_context(tuple(name for name, _ in self.extras), tuple(maps), tuple(more)),
            "PAIRS": tuple(name for name, x in operands if self._comes_in_pairs(x)),
            **_score_context(self.score, described, self.q.dtype),
        }

    def _comes_in_pairs(self, x: Operand) -> bool:
        """Whether an operand's values of an even key and the next lie together and aligned."""
        return not self.starts and self.keys % 2 == 0 and x.vector(False, (2,)) == 2

    def source(self, variant: Variant, classes: Mapping[str, Any], maps: Sequence[str] = (),
               more: Sequence[Field] = ()) -> KernelSource:
        """Return the source of a variant for the class of this call.

        Args:
            variant: its params join the context.
            classes: further context.
            maps, more: as for context().
        """
        context = {**self.context(maps, more), **variant.param_map, **classes}
        kernel = variant.kernel
        return KernelSource(kernel.template, tuple(sorted(context.items())), kernel.entries[0])

    def pack(self, maps: Sequence[str] = (), more: Sequence[Field] = (),
             values: Mapping[str, Any] | None = None,
             addresses: Mapping[str, tuple[int, int]] | None = None,
             ) -> tuple[bytes, tuple[Reloc, ...]]:
        """Return the bytes of Args and its holes; tensor maps are holes that the caller lists.

        Args:
            maps, more: as for context().
            values, addresses: of the members in more.
        """
        packed, holes = Fields({}, {}), {"q": self.q, "k": self.k, "v": self.v, "y": self.y}
        for name, heads in holes.items():
            packed.add_heads(name, heads)
        if self.lse is not None:
            packed.add_heads("lse", self.lse)
        if self.mask is not None:
            packed.add_operand("mask", self.mask)
        for name, operand in self.extras:
            packed.add_operand(name, operand)
        slots = {"kv_len": LENGTH} if self.kv_len else {}
        slots |= {"q_starts": Q_STARTS, "k_starts": K_STARTS} if self.starts else {}
        packed.holes.update({name: (slot, 0) for name, slot in slots.items()})
        packed.values.update(
            batch=self.batch, heads=self.heads, group=self.heads // self.groups,
            queries=self.queries, keys=self.keys, offset=self.offset, left=self.left,
            right=self.right, scale=self.scale, **(values or {}))
        packed.holes.update(addresses or {})
        return packed.pack(args_layout([n for n, _ in self.extras], maps, more))


@lru_cache(maxsize=1024)
def _score_context(score: ExprBundle | None, operands: tuple[tuple[str, str, str], ...],
                   dtype: str) -> dict[str, Any]:
    """Return the text of the scores' formula and its operands: the extras, then the mask."""
    result = modified_score(score, DTYPES[dtype].compute,
                            next((d for name, d, _ in operands if name == "mask"), ""))
    names = ["score", *(f"{_extra_name(i)}_value" for i in range(_n_extras(score))), "mask_value"]
    rendered = render_c(narrow_coordinates((result,), FAR), names,
                        ("batch", "head", "query", "key"))
    is_narrow = dtype in ("f16", "bf16")
    return {
        "OPERANDS": tuple((n, DTYPES[d].c_type, spread) for n, d, spread in operands),
        "SCORE_LINES": tuple(fast_math(line) if is_narrow else line for line in rendered.lines),
        "SCORE_RESULT": rendered.results[0],
    }


def _n_extras(score: ExprBundle | None) -> int:
    return 0 if score is None else max(score.n_inputs - 1, 0)


def modified_score(score: ExprBundle | None, compute: str, mask: str) -> Expr:
    """Return the score that counts, -inf for a forbidden key, as one expression.

    Args:
        score: the formula over input 0 = product * scale and the extras.
        compute: dtype of scores.
        mask: element type of the mask, which is the input behind the extras; empty without one.
    """
    result, *allowed = (input(0, compute),) if score is None else score.outputs
    if mask == "bool":
        allowed.append(input(1 + _n_extras(score), "bool"))
    elif mask:
        result = result + cast(input(1 + _n_extras(score), DTYPES[mask].compute), compute)
    for condition in allowed:
        result = where(condition, result, float("-inf"))
    return result


def _extra_name(index: int) -> str:
    return f"extra{index}"


@lru_cache(maxsize=4096)
def attention_call(problem: Problem) -> AttentionCall:
    """Return the normal form of an ATTENTION problem.

    Raises:
        StrideMismatch: the elements of a head are not neighbours in memory.
        Unsupported: a tensor is too long for 32-bit positions.
    """
    q, k, v = (_present(problem.inputs[i]) for i in range(3))
    y, attrs = problem.outputs[0], problem.attr_map
    given = [*problem.inputs, *[None] * (EXTRAS - len(problem.inputs))]
    n_in = len(problem.inputs)
    starts, length, mask = given[Q_STARTS], given[LENGTH], given[MASK]
    if max(at_most(q.shape[2]), at_most(k.shape[2])) >= FAR:
        raise Unsupported("too many rows for 32-bit positions", argument="q", found=q.shape,
                          wanted=f"below {FAR}")
    score = attrs.get("score")
    assert score is None or isinstance(score, ExprBundle)
    read = () if score is None else score.input_dtypes[1:]
    extras = tuple((_extra_name(i), _operand(_present(problem.inputs[EXTRAS + i]), EXTRAS + i))
                   for i, dtype in enumerate(read) if dtype is not None)
    return AttentionCall(
        batch=starts.shape[0] - 1 if starts else q.shape[0], heads=q.shape[1], groups=k.shape[1],
        queries=q.shape[2], keys=k.shape[2], size=q.shape[3], value_size=v.shape[3],
        q=heads_spec(q, 0, "q"), k=heads_spec(k, 1, "k"), v=heads_spec(v, 2, "v"),
        y=heads_spec(y, n_in, "output 0"),
        lse=_statistics(problem.outputs[1], n_in + 1) if len(problem.outputs) > 1 else None,
        mask=_operand(mask, MASK) if mask else None, kv_len=length.dtype if length else "",
        starts=starts.dtype if starts else "", extras=extras, score=score,
        scale=float(attrs["scale"]),  # type: ignore[arg-type]
        offset=_limited(attrs["query_offset"]), left=_window(attrs["left_window_size"]),
        right=_window(attrs["right_window_size"]))


def _present(spec: TensorSpec | None) -> TensorSpec:
    assert spec is not None
    return spec


def _limited(value: Any) -> int:
    return larger(smaller(value, FAR), -FAR)


def _window(value: Any) -> int:
    return FAR if value < 0 else smaller(value, FAR)


def heads_spec(spec: TensorSpec, slot: int, name: str) -> Heads:
    """Return a tensor [batch, head, row, element] as kernels take it.

    Raises:
        StrideMismatch: the elements of a head are not neighbours in memory.
    """
    if spec.shape[3] != 1 and spec.strides[3] != 1 and spec.size:
        raise StrideMismatch("attention reads heads whose elements are neighbours", argument=name,
                             found=spec.strides, wanted="a last stride of 1")
    return Heads(slot, spec.dtype, spec.align, *_steps(spec))


def _statistics(spec: TensorSpec, slot: int) -> Heads:
    return Heads(slot, spec.dtype, spec.align, *_steps(spec))


def _steps(spec: TensorSpec) -> tuple[int, int, int]:
    """Return the first three strides; along an extent of 1 nothing steps."""
    batch, head, row = (s if n != 1 else 0
                        for n, s in zip(spec.shape[:3], spec.strides, strict=False))
    return batch, head, row


def _operand(spec: TensorSpec, slot: int) -> Operand:
    """Return an operand over the scores [batch, head, query, key]."""
    batch, head, row, column = spec.strides
    return Operand(slot, spec.dtype, spec.align, row, column, (0, batch, head))
