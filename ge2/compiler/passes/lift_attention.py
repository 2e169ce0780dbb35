"""softmax(q k^T * scale + mask) v becomes ATTENTION, whose kernels never store the scores.

1. The scale may stand behind the scores, before them on q or k (or both), as product or quotient.
2. A mask is added, or chosen by WHERE with a number of -10000 or less where it forbids. An added
   WHERE(flags, 0, such a number) is the flags.
3. NaN rows that a mask of -inf leaves may be replaced by zeros: ATTENTION gives zeros there.
4. A constant mask of zeros with -inf (or such a number) above a diagonal is causal.
5. cap * tanh(scores / cap) before the mask is a soft cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.nodes import Graph, Node
from ..opdefs.movement import permutation
from ..opdefs.shapes import broadcasts_to
from .chains import read_only_by
from .decompose import MOST_HEAD
from .editor import Editor, has_any, is_float
from .fuse_gemm import scaled_by
from .pass_manager import PassResult

FORBIDDEN = -1e4


@dataclass(frozen=True, slots=True)
class LiftAttentionPass:
    """Finds attention at the product of a softmax with the values."""

    name: str = "lift_attention"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, ("SOFTMAX",)):
            return PassResult(graph, False)
        editor = Editor(graph)
        for node in editor.sweep():
            if node.op == "MATMUL":
                found = _attention(editor, node)
                if found is not None:
                    _lift(editor, found)
        return editor.finish()


@dataclass(slots=True)
class _Attention:
    """What one attention is made of; nodes are in reverse order."""

    nodes: list[Node]
    v: str
    q: str = ""
    keys: str = ""
    mask: str = ""
    scale: float = 1.0
    softcap: float = 0.0


def _attention(editor: Editor, product: Node) -> _Attention | None:
    weights, v = product.inputs
    if editor.only_reader(weights) is not product or weights == v:
        return None
    guard = _nan_guard(editor, weights)
    softmax = editor.made_by(guard[0].inputs[0] if guard else weights, "SOFTMAX")
    if softmax is None:
        return None
    kind = editor.type(weights)
    last = editor.attrs(softmax)["axis"] in (-1, kind.rank - 1)
    if kind.rank != 4 or not last or not is_float(kind) or not editor.licensed(
            softmax, "mergeable"):
        return None
    found = _Attention([product, *guard, softmax], v)
    if not _scores(editor, found, softmax) or not _fits(editor, found):
        return None
    # Without a mask the guard would hide NaN that the scores bring along.
    return None if guard and not found.mask else found


def _nan_guard(editor: Editor, weights: str) -> list[Node]:
    """Return [ISNAN, WHERE] where a value is x with 0 in the place of NaN, else []."""
    where = editor.made_by(weights, "WHERE")
    if where is None or editor.number(where.inputs[1]) != 0.0:
        return []
    test = editor.made_by(where.inputs[0], "ISNAN")
    x = where.inputs[2]
    if test is None or test.inputs[0] != x or not read_only_by(editor, x, [test, where]) or (
            not read_only_by(editor, where.inputs[0], [where])):
        return []
    return [test, where]


def _scores(editor: Editor, found: _Attention, reader: Node) -> bool:
    """Walk from the softmax back to q k^T; False where the way leads elsewhere."""
    value = reader.inputs[0]
    while True:
        node = editor.producer(value)
        if node is None or editor.only_reader(value) is not reader:
            return False
        found.nodes.append(node)
        if node.op == "MATMUL":
            return _operands(editor, found, node)
        step = (_scaled(editor, found, node) or _masked(editor, found, node)
                or _capped(found, node))
        if step is None:
            return False
        value, reader = step, node


def _scaled(editor: Editor, found: _Attention, node: Node) -> str | None:
    factor = scaled_by(editor, node) if node.op in ("MUL", "DIV") else None
    if factor is None:
        return None
    found.scale *= factor[1]
    return factor[0]


def _masked(editor: Editor, found: _Attention, node: Node) -> str | None:
    # A factor between the mask and the softmax would scale the mask too.
    if found.mask or found.scale != 1.0 or found.softcap:
        return None
    kind = editor.type(node.outputs[0])
    if node.op == "WHERE":
        allowed, scores, other = node.inputs
        number = editor.number(other)
        if number is None or number > FORBIDDEN or editor.type(scores) != kind:
            return None
        found.mask = allowed
        return scores
    if node.op != "ADD":
        return None
    for scores, mask in (node.inputs, node.inputs[::-1]):
        maker = editor.made_by(scores, "MATMUL", "MUL", "DIV", "TANH")
        if maker is not None and editor.type(scores) == kind and scores != mask:
            found.mask = _flags(editor, mask) or mask
            return scores
    return None


def _capped(found: _Attention, node: Node) -> str | None:
    """Take the factor behind a tanh for its cap; what stands before it is the scale."""
    if node.op != "TANH" or found.softcap or found.scale <= 0:
        return None
    found.softcap, found.scale = found.scale, 1.0
    return node.inputs[0]


def _flags(editor: Editor, mask: str) -> str | None:
    """Return the flags where a mask is WHERE(flags, 0, a number that forbids)."""
    where = editor.made_by(mask, "WHERE")
    if where is None:
        return None
    flags, yes, no = where.inputs
    number = editor.number(no)
    forbids = number is not None and number <= FORBIDDEN and editor.number(yes) == 0.0
    return flags if forbids and editor.type(flags).shape == editor.type(mask).shape else None


def _operands(editor: Editor, found: _Attention, node: Node) -> bool:
    found.q, found.keys = node.inputs
    if found.q == found.keys:
        return False
    for name in ("q", "keys"):
        maker = editor.made_by(getattr(found, name), "MUL", "DIV")
        factor = scaled_by(editor, maker) if maker is not None else None
        if maker is not None and factor is not None and (
                editor.only_reader(maker.outputs[0]) is node):
            setattr(found, name, factor[0])
            found.scale *= factor[1]
            found.nodes.append(maker)
    return True


def _fits(editor: Editor, found: _Attention) -> bool:
    q, keys, v = (editor.type(x) for x in (found.q, found.keys, found.v))
    if not q.rank == keys.rank == v.rank == 4 or not q.shape[:2] == keys.shape[:2] == v.shape[:2]:
        return False
    if any(isinstance(t.shape[3], int) and t.shape[3] > MOST_HEAD for t in (q, v)):
        return False
    if not found.mask:
        return True
    mask = editor.type(found.mask)
    scores = (*q.shape[:3], keys.shape[3])
    return broadcasts_to(mask.shape, scores) and mask.dtype in ("bool", q.dtype)


def _lift(editor: Editor, found: _Attention) -> None:
    product = found.nodes[0]
    new: list[Node] = []
    k = _untransposed(editor, found.keys)
    if k is None:
        k = editor.fresh(f"{product.name}.k")
        new.append(editor.node("TRANSPOSE", [found.keys], [k], {"perm": (0, 1, 3, 2)}))
    attrs: dict[str, Any] = {"scale": found.scale}
    if found.softcap:
        attrs = {"scale": found.scale * found.softcap, "softcap": found.softcap}
    offset = _causal_offset(editor, found)
    if offset is not None:
        found.mask = ""
        attrs |= {"is_causal": True, "query_offset": offset}
    inputs = [found.q, k, found.v, *([found.mask] if found.mask else [])]
    new.append(editor.node("ATTENTION", inputs, product.outputs, attrs, product.name))
    editor.replace(sorted(found.nodes, key=editor.position), new)


def _untransposed(editor: Editor, value: str) -> str | None:
    maker = editor.made_by(value, "TRANSPOSE")
    if maker is None or permutation(editor.attrs(maker), 4) != (0, 1, 3, 2):
        return None
    return maker.inputs[0]


def _causal_offset(editor: Editor, found: _Attention) -> int | None:
    """Return where query 0 stands among the keys if the mask is the causal one."""
    array = editor.constant(found.mask) if found.mask else None
    queries, keys = editor.type(found.q).shape[2], editor.type(found.keys).shape[3]
    if array is None or array.ndim < 2 or array.shape[-2:] != (queries, keys):
        return None
    if array.size != array.shape[-1] * array.shape[-2]:
        return None
    rows, columns = array.shape[-2:]
    plane = array.reshape(rows, columns)
    allowed = plane if plane.dtype == bool else np.equal(plane, 0)
    if plane.dtype != bool and not np.all(allowed | (plane <= FORBIDDEN)):
        return None
    offset = int(allowed[0].sum()) - 1
    return offset if offset >= 0 and np.array_equal(
        allowed, np.tri(rows, columns, offset, dtype=bool)) else None
