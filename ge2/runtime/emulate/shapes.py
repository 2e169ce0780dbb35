"""Example problems of a kernel in sizes that the user names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...compiler.kernels.facts import problem_dims
from ...errors import Invalid
from ...launch.rule import LAUNCH_RULES
from ...problem import Problem, TensorSpec, dense_strides

if TYPE_CHECKING:
    from ...compiler.kernels.metadata import Variant
    from ...evidence.device import DeviceProfile

# What --shape lists, by operator; an operator that is not here takes the shape of its output.
EXTENTS: dict[str, tuple[str, ...]] = {
    "GEMM_BIAS_ACT": ("M", "N", "K"),
    "NORM_GEMM": ("M", "N", "K"),
    "ROW": ("ROWS", "N"),
}
_ELEMENTWISE = ("ELEMENTWISE", "LAB_NORMALIZE_SUM")


def with_shape(problem: Problem, extents: Sequence[int]) -> Problem:
    """Return the problem with other extents: dense tensors, broadcast axes as before.

    Args:
        problem: an example, without batch.
        extents: M, N, K of a product; rows and length of a row operator; else the output's shape.

    Raises:
        Invalid: wrong number of extents, or an operator whose shapes hang together otherwise.
    """
    names = EXTENTS.get(problem.op_type)
    if names is None and problem.op_type not in _ELEMENTWISE:
        raise Invalid(f"{problem.op_type} takes no shape", argument="shape",
                      wanted=", ".join((*EXTENTS, *_ELEMENTWISE)))
    if names is None:
        return _resized(problem, lambda spec, slot: tuple(extents))
    if len(extents) != len(names):
        raise Invalid("wrong number of extents", argument="shape", found=tuple(extents),
                      wanted=", ".join(names))
    dims = problem_dims(problem)
    if problem.op_type == "GEMM_BIAS_ACT":
        return _product(problem, dict(zip(names, extents, strict=True)))
    if len({dims[name] for name in names}) != len(names):
        raise Invalid("the example's extents are not distinct", argument="shape", found=dims)
    swap = {dims[name]: extent for name, extent in zip(names, extents, strict=True)}
    return _resized(problem, lambda spec, slot: tuple(swap.get(n, n) for n in spec.shape))


def _product(problem: Problem, extents: dict[str, int]) -> Problem:
    """Return a product in another size; by place, since an example's N and K may be equal."""
    def matrix(spec: TensorSpec, slot: int) -> tuple[int, ...]:
        places = ("M", "K") if slot == 0 else ("K", "N") if slot == 1 else ("M", "N")
        if slot < 2 and problem.attr_map[("trans_a", "trans_b")[slot]]:
            places = places[::-1]
        last = [extents[name] for name in places[2 - len(spec.shape[-2:]):]]
        if slot not in (0, 1, len(problem.inputs)):  # of the epilogue: 1 where it broadcasts
            last = [1 if old == 1 else new
                    for old, new in zip(spec.shape[-2:], last, strict=True)]
        return (*spec.shape[:-2], *last)

    return _resized(problem, matrix)


def _resized(problem: Problem, shape_of: Callable[[TensorSpec, int], tuple[int, ...]]) -> Problem:
    def one(spec: TensorSpec | None, slot: int) -> TensorSpec | None:
        if spec is None:
            return None
        shape = shape_of(spec, slot)
        strides = dense_strides(shape)
        if len(shape) == len(spec.shape):
            strides = tuple(0 if old == 0 and extent > 1 else new for old, new, extent
                            in zip(spec.strides, strides, spec.shape, strict=True))
        return TensorSpec(spec.dtype, shape, strides, spec.align)

    tensors = [one(spec, slot) for slot, spec in enumerate(problem.tensors)]
    inputs = len(problem.inputs)
    outputs = tuple(s for s in tensors[inputs:] if s is not None)
    return replace(problem, inputs=tuple(tensors[:inputs]), outputs=outputs)


def shaped_examples(variant: Variant, device: DeviceProfile,
                    extents: Sequence[int]) -> Iterator[Problem]:
    """Yield the launch rule's examples in this shape, each once, as far as the variant serves them.

    Raises:
        Invalid: see with_shape.
    """
    from ...compiler.kernels import selector

    seen: set[Problem] = set()
    for example in LAUNCH_RULES[variant.kernel.launch].examples(variant):
        problem = with_shape(example, extents)
        reports = selector.rank(problem, device, kernels=[variant.kernel])
        fits = any(r.variant_id == variant.id and r.score is not None for r in reports)
        if fits and problem not in seen:
            seen.add(problem)
            yield problem
