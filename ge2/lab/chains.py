"""Computations of several operators that can be cut in several ways, as graphs.

A treatment of a chain's boundaries is a choice of passes, or an operator that does more in one
launch; a treatment of its intermediates is which of them the backward part reads again and which
it computes anew. Nothing here is a kernel: plans are made of those that models run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from ..compiler.ir.expr import ExprBundle, input, sigmoid
from ..compiler.ir.row import RowOp, row_op
from ..compiler.kernels import registry
from ..compiler.opdefs.activations import gelu
from ..compiler.passes.canonicalize import CanonicalizePass
from ..compiler.passes.dead_code import DeadCodePass
from ..compiler.passes.decompose import DecomposePass
from ..compiler.passes.fuse_elementwise import FuseElementwisePass
from ..compiler.passes.fuse_epilogue import FuseEpiloguePass
from ..compiler.passes.fuse_gemm import FuseGemmPass
from ..compiler.passes.fuse_rows import FuseRowsPass
from ..compiler.passes.pass_manager import Pass
from ..problem import Problem, TensorSpec

Dims = tuple[int, ...]
COMPOSED_DTYPES = ("f32", "f16", "bf16")  # that a composed product multiplies


@dataclass(frozen=True, slots=True)
class Treatment:
    """One way of running a chain.

    Attributes:
        text: the graph; {t} is the element type and {0}, {1}, ... are the dims.
        passes: run over it.
        kept: values that live from the forward part to the backward part.
        needs: an operator that must have kernels of its own, "" for none.
        composed: the row operator and prologue of one composed kernel that does everything.
    """

    text: str
    passes: tuple[Pass, ...] = ()
    kept: tuple[str, ...] = ()
    needs: str = ""
    composed: tuple[RowOp, ExprBundle] | None = None

    def graph_text(self, dims: tuple[int | str, ...], dtype: str) -> str:
        """Return the graph at some extents."""
        return self.text.format(*dims, t=dtype)

    def serves(self, dtype: str) -> bool:
        """Whether this ge2 can run it on an element type."""
        return self.is_there and (self.composed is None or dtype in COMPOSED_DTYPES)

    @property
    def is_there(self) -> bool:
        """Whether this ge2 has the kernels for it."""
        return not self.needs or bool(registry.kernels_for(self.needs))


@dataclass(frozen=True)
class Chain:
    """A computation and its treatments.

    Attributes:
        name: "gemm_chain". family: of the lab. param: what a treatment is a choice of.
        treatments: by name; the graph of the first one is the reference.
        flops: multiplications and additions of its products.
        terms: length of its longest sum.
    """

    name: str
    family: str
    param: str
    treatments: Mapping[str, Treatment]
    flops: Callable[[Dims], int] = field(default=lambda dims: 0)
    terms: Callable[[Dims], int] = field(default=lambda dims: dims[-1])

    def problem(self, *dims: int, dtype: str = "f32") -> Problem:
        """Return the chain on dense operands of these extents."""
        from ..compiler import opdefs
        from ..compiler.ir.text import parse_graph

        first = next(iter(self.treatments.values()))
        graph = parse_graph(first.graph_text(dims, dtype), infer=opdefs.infer)
        # The reference may be shown fewer rows: what repeats has the symbol for its first extent.
        text = first.graph_text(("R", *dims[1:]), "f64")
        rows = parse_graph(text, infer=opdefs.infer).types
        values = (*graph.inputs, *graph.outputs)
        specs = [TensorSpec.dense(graph.types[v].dtype, graph.types[v].shape)  # type: ignore[arg-type]
                 for v in values]
        repeats = tuple(None if isinstance(rows[v].shape[0], int) else 0 for v in values)
        facts = (("chain", self.name), ("dims", dims), ("text", text), ("repeats", repeats),
                 ("roundings", len(graph.nodes)),  # every node stores its result once
                 ("terms", self.terms(dims)), ("flops", self.flops(dims)))
        count = len(graph.inputs)
        return Problem("LAB_GRAPH", tuple(specs[:count]), tuple(specs[count:]), facts)


_UNFUSED: tuple[Pass, ...] = (DecomposePass(), CanonicalizePass(), DeadCodePass())
_NEIGHBOURS = FuseElementwisePass()
_KEEP = (*_UNFUSED, _NEIGHBOURS, FuseRowsPass())

# -- boundaries: {0} rows, {1} columns, {2} depth -------------------------------------------------

_GEMM_CHAIN = """
input x: {t}[{0}, {2}]
input w: {t}[{1}, {2}]
input bias: {t}[{1}]
input residual: {t}[{0}, {1}]
a = SIGMOID(x)
b = MUL(x, a)
c = GEMM_BIAS_ACT(b, w, trans_b=True)
d = ADD(c, bias)
e = GELU(d)
y = ADD(e, residual)
output y
"""
_GEMM_CHAIN_COMPOSED = (
    row_op("gelu_and_add", state={}, update=lambda s, r: (), merge=lambda a, b: (), extras=2,
           finish=lambda s, r: gelu(r.x + r.extras[0]) + r.extras[1]),
    ExprBundle((input(0, "f32") * sigmoid(input(0, "f32")),)))

_NORM_INPUTS = """
input x: {t}[{0}, {2}]
input residual: {t}[{0}, {2}]
input scale: {t}[{2}]
input w: {t}[{2}, {1}]
input bias: {t}[{1}]
a = ADD(x, residual)
"""
_NORM_GEMM = _NORM_INPUTS + """
b = RMS_NORM(a, scale)
c = MATMUL(b, w)
d = ADD(c, bias)
y = GELU(d)
output y
"""
_NORM_GEMM_ONE = _NORM_INPUTS + """
y = NORM_GEMM(a, scale, w, None, bias, norm="RMS_NORM", act="gelu", rows=False)
output y
"""

# {0} batch, {1} heads, {2} tokens, {3} head size; two addends of the scores, as relative places
# and a mask are.
_ATTENTION_INPUTS = """
input q: {t}[{0}, {1}, {2}, {3}]
input k: {t}[{0}, {1}, {2}, {3}]
input v: {t}[{0}, {1}, {2}, {3}]
input places: {t}[{2}, {2}]
input mask: {t}[{2}, {2}]
"""
_ATTENTION = _ATTENTION_INPUTS + """
a = GEMM_BIAS_ACT(q, k, trans_b=True, alpha=0.125)
b = ADD(a, places)
c = ADD(b, mask)
d = SOFTMAX(c)
y = MATMUL(d, v)
output y
"""
_ATTENTION_ONE = _ATTENTION_INPUTS + """
a = ADD(places, mask)
y = ATTENTION(q, k, v, a, scale=0.125)
output y
"""

# -- intermediates: what the part behind the forward results reads -------------------------------

_SOFTMAX_INPUTS = """
input x: {t}[{0}, {1}]
input v: {t}[{0}, {1}]
input dy: {t}[{0}, 1]
"""
# The gradient of sum(softmax(x) * v) for x, from p = softmax(x) however it came by it.
_SOFTMAX_BACK = """
g = MUL(v, dy)
h = MUL({p}, g)
i = REDUCE_SUM(h, axes=[1])
j = SUB(g, i)
dx = MUL({p2}, j)
output y, dx
"""
_SOFTMAX_KEPT = _SOFTMAX_INPUTS + """
p = SOFTMAX(x)
o = MUL(p, v)
y = REDUCE_SUM(o, axes=[1])
""" + _SOFTMAX_BACK.replace("{p}", "p").replace("{p2}", "p")


def _softmax_again(sums: str) -> str:
    """Return a text that makes p from x and the rows' log-sum-exp, each time anew."""
    return _SOFTMAX_INPUTS + """
l = REDUCE_LOGSUMEXP(x, axes=[1])
m = SUB(x, l)
p = EXP(m)
o = MUL(p, v)
y = REDUCE_SUM(o, axes=[1])
""" + sums + """
m2 = SUB(x, l2)
p2 = EXP(m2)
m3 = SUB(x, l2)
p3 = EXP(m3)
""".replace("l2", "l2" if sums else "l") + _SOFTMAX_BACK.replace("{p}", "p2").replace("{p2}", "p3")


_NORM_FORWARD = """
input x: {t}[{0}, {1}]
input gamma: {t}[{1}]
input dy: {t}[{0}, {1}]
const epsilon: {t}[] = 1e-5
m = REDUCE_MEAN(x, axes=[1])
c = SUB(x, m)
q = MUL(c, c)
s = REDUCE_MEAN(q, axes=[1])
s1 = ADD(s, epsilon)
r = RSQRT(s1)
c1 = SUB(x, m)
z = MUL(c1, r)
y = MUL(z, gamma)
"""
_NORM_STATISTICS = """
m2 = REDUCE_MEAN(x, axes=[1])
e = SUB(x, m2)
e2 = MUL(e, e)
s2 = REDUCE_MEAN(e2, axes=[1])
s3 = ADD(s2, epsilon)
r2 = RSQRT(s3)
"""
# Backward, from the normalised rows: three readers of z, each of which may compute it anew.
_NORM_BACK = """
g = MUL(dy, gamma)
u = REDUCE_MEAN(g, axes=[1])
g1 = MUL(dy, gamma)
h = MUL(g1, Z1)
w = REDUCE_MEAN(h, axes=[1])
g2 = MUL(dy, gamma)
j = SUB(g2, u)
k = MUL(Z2, w)
l = SUB(j, k)
dx = MUL(l, R)
output y, dx
"""


def _norm_again(statistics: str, mean: str, inverse: str) -> str:
    again = "".join(f"d{i} = SUB(x, {mean})\nz{i} = MUL(d{i}, {inverse})\n" for i in (1, 2))
    back = _NORM_BACK.replace("Z1", "z1").replace("Z2", "z2").replace("R)", f"{inverse})")
    return _NORM_FORWARD + statistics + again + back


_ACT_FORWARD = """
input x: {t}[{0}, {2}]
input w: {t}[{2}, {1}]
input dy: {t}[{0}, {1}]
z = MATMUL(x, w)
y = TANH(z)
"""
# The gradient of tanh(x w) for x w is dy - dy * y * y.
_ACT_BACK = """
f = MUL(Y, Y)
g = MUL(dy, f)
dz = SUB(dy, g)
output y, dz
"""

CHAINS: dict[str, Chain] = {c.name: c for c in (
    Chain("gemm_chain", "boundary", "FUSE", {
        "unfused": Treatment(_GEMM_CHAIN, _UNFUSED),
        "elementwise": Treatment(_GEMM_CHAIN, (*_UNFUSED, _NEIGHBOURS)),
        "epilogue": Treatment(_GEMM_CHAIN, (*_UNFUSED, FuseGemmPass(), _NEIGHBOURS)),
        "accumulation": Treatment(_GEMM_CHAIN, (*_UNFUSED, FuseGemmPass(), _NEIGHBOURS,
                                                FuseEpiloguePass())),
        "everything": Treatment(_GEMM_CHAIN, composed=_GEMM_CHAIN_COMPOSED),
    }, lambda d: 2 * prod(d)),
    Chain("norm_gemm", "boundary", "FUSE", {
        "unfused": Treatment(_NORM_GEMM, _UNFUSED),
        "elementwise": Treatment(_NORM_GEMM, (*_UNFUSED, _NEIGHBOURS)),
        "epilogue": Treatment(_NORM_GEMM, (*_UNFUSED, FuseGemmPass(), _NEIGHBOURS)),
        "accumulation": Treatment(_NORM_GEMM, (*_UNFUSED, FuseGemmPass(), _NEIGHBOURS,
                                               FuseRowsPass())),
        "everything": Treatment(_NORM_GEMM_ONE, (CanonicalizePass(), DeadCodePass()),
                                needs="NORM_GEMM"),
    }, lambda d: 2 * prod(d)),
    Chain("attention", "boundary", "FUSE", {
        "unfused": Treatment(_ATTENTION, _UNFUSED),
        "elementwise": Treatment(_ATTENTION, (*_UNFUSED, _NEIGHBOURS)),
        "epilogue": Treatment(_ATTENTION, (*_UNFUSED, _NEIGHBOURS, FuseEpiloguePass())),
        "accumulation": Treatment(_ATTENTION, (*_UNFUSED, _NEIGHBOURS, FuseRowsPass())),
        "everything": Treatment(_ATTENTION_ONE, (CanonicalizePass(), DeadCodePass()),
                                needs="ATTENTION"),
    }, lambda d: 4 * prod(d) * d[2], lambda d: d[2]),
    Chain("softmax_backward", "rematerialization", "KEEP", {
        "values": Treatment(_SOFTMAX_KEPT, _KEEP, ("p",)),
        "statistics": Treatment(_softmax_again(""), _KEEP, ("l",)),
        "nothing": Treatment(_softmax_again("l2 = REDUCE_LOGSUMEXP(x, axes=[1])"), _KEEP),
    }),
    Chain("layer_norm_backward", "rematerialization", "KEEP", {
        "values": Treatment(_NORM_FORWARD + _NORM_BACK.replace("Z1", "z").replace("Z2", "z")
                            .replace("R)", "r)"), _KEEP, ("z", "r")),
        "statistics": Treatment(_norm_again("", "m", "r"), _KEEP, ("m", "r")),
        "nothing": Treatment(_norm_again(_NORM_STATISTICS, "m2", "r2"), _KEEP),
    }),
    Chain("gemm_backward", "rematerialization", "KEEP", {
        "values": Treatment(_ACT_FORWARD + "y2 = TANH(z)\n" + _ACT_BACK.replace("Y", "y2"),
                            (*_UNFUSED, _NEIGHBOURS), ("z",)),
        "statistics": Treatment(_ACT_FORWARD + _ACT_BACK.replace("Y", "y"),
                                (*_UNFUSED, FuseGemmPass(), _NEIGHBOURS)),
        "nothing": Treatment(_ACT_FORWARD + "z2 = MATMUL(x, w)\ny2 = TANH(z2)\n"
                             + _ACT_BACK.replace("Y", "y2"),
                             (*_UNFUSED, FuseGemmPass(), _NEIGHBOURS, FuseEpiloguePass())),
    }, lambda d: 2 * prod(d)),
)}
