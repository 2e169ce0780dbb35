"""Kernel-level operators: what a params block for each op_type holds, and in which order.

These are fewer than the IR's operators: lowering turns SOFTMAX, LAYER_NORM and the reductions into
ROW, every elementwise operator into ELEMENTWISE, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..contract import F32_MODES, REQUIRED, ROW_VALUES, ActKind, AttrSpec
from ..errors import Unsupported, near_matches

_ACTS = tuple(kind.name.lower() for kind in ActKind)  # the index of a choice is its ActKind


@dataclass(frozen=True, slots=True)
class KernelOp:
    """The call shape of one op_type.

    Attributes:
        name: "GEMM_BIAS_ACT".
        inputs: input names in buffer order; "bias?" may be absent, "xs*" repeats and is last.
        attrs: in params-block order.
        max_outputs: how many outputs a problem may have.
        doc: one line for docs/contract.md.
    """

    name: str
    inputs: tuple[str, ...]
    attrs: tuple[AttrSpec, ...]
    max_outputs: int = 1
    doc: str = ""

    def input_name(self, slot: int) -> str:
        """Return the name of input slot; repeated inputs are numbered ("xs[2]")."""
        last = len(self.inputs) - 1
        if slot >= last and self.inputs[last].endswith("*"):
            return f"{self.inputs[last][:-1]}[{slot - last}]"
        return self.inputs[slot].rstrip("?") if slot <= last else f"input {slot}"

    def is_optional(self, slot: int) -> bool:
        """Whether input slot may be absent."""
        return slot < len(self.inputs) and self.inputs[slot].endswith("?")

    def accepts_inputs(self, n: int) -> bool:
        """Whether a problem may have n input slots (absent ones counted)."""
        required = sum(not name.endswith(("?", "*")) for name in self.inputs)
        return n >= required and (n <= len(self.inputs) or self.inputs[-1].endswith("*"))


_WINDOW = (
    AttrSpec("strides", "ints", (1, 1), doc="step along height and width"),
    AttrSpec("pads", "ints", (0, 0, 0, 0), doc="begins of all axes, then ends"),
    AttrSpec("dilations", "ints", (1, 1), doc="gap between window elements"),
)
_ACT = (
    AttrSpec("act", "str", "none", _ACTS, "activation code"),
    AttrSpec("leaky_slope", "float", 0.01, doc="slope of leaky_relu below zero"),
)

KERNEL_OPS: dict[str, KernelOp] = {
    op.name: op
    for op in (
        KernelOp("ELEMENTWISE", ("xs*",), (AttrSpec("expr", "expr", REQUIRED),), 8,
                 "outputs = expr(inputs); inputs are expanded to the output shape by stride 0"),
        KernelOp("GEMM_BIAS_ACT", ("A", "B", "bias?", "C?", "extras*"), (
            AttrSpec("trans_a", "bool", False),
            AttrSpec("trans_b", "bool", False),
            AttrSpec("alpha", "float", 1.0),
            AttrSpec("beta", "float", 1.0),
            *_ACT,
            AttrSpec("epilogue", "expr", None,
                     doc="0: built from alpha, beta and act; its scalars 0 and 1 are alpha, beta"),
            AttrSpec("f32", "str", "ieee", F32_MODES, "how products of f32 are computed"),
            AttrSpec("rows", "str", "none", ROW_VALUES,
                     "of each row of the first output: a last output [..., m, 1]"),
        ), 2, "act(alpha * op(A) op(B) + beta * C + bias), or epilogue(acc, bias, C, extras); a "
           "second output is the epilogue's second result"),
        KernelOp("ATTENTION", ("q", "k", "v", "mask?", "kv_len?", "q_starts?", "k_starts?",
                               "extras*"), (
            AttrSpec("scale", "float", REQUIRED, doc="factor of the products"),
            AttrSpec("query_offset", "int", 0, doc="place of query 0 among the keys; with kv_len, "
                     "kv_len - Q; of packed sequences K - Q"),
            AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
            AttrSpec("right_window_size", "int", -1,
                     doc="keys seen after a query; -1 = all, 0 = causal"),
            AttrSpec("score", "expr", None, doc="0: none; else a formula over input 0 = product * "
                     "scale and the extras at coordinates (sample, head, query, key); a second "
                     "result tells whether the key is allowed"),
        ), 2, "q [B, H, Q, D], k [B, G, K, D], v [B, G, K, V] with neighbours along the last axis; "
           "mask and extras expanded to [B, H, Q, K] by stride 0; outputs [B, H, Q, V] and "
           "log-sum-exps [B, H, Q]; with starts B is 1, and sequence i has rows starts[i] to "
           "starts[i + 1]"),
        KernelOp("NORM_GEMM", ("x", "scale", "B", "shift?", "bias?", "C?", "extras*"), (
            AttrSpec("norm", "str", REQUIRED, ("LAYER_NORM", "RMS_NORM")),
            AttrSpec("epsilon", "float", 1e-5, doc="added to the variance"),
            AttrSpec("trans_b", "bool", False),
            AttrSpec("alpha", "float", 1.0),
            AttrSpec("beta", "float", 1.0),
            *_ACT,
            AttrSpec("epilogue", "expr", None, doc="as GEMM_BIAS_ACT's"),
        ), 2, "matrices: the epilogue of norm(x) op(B), whose rows are normalised and rounded "
           "before the product; a second output is those rows; scale and shift are [k]"),
        KernelOp("MATMUL_NBITS", ("A", "B", "scales", "zero_points?", "bias?"), (
            AttrSpec("block_size", "int", REQUIRED, doc="weights along K that share a scale"),
            *_ACT,
        ), doc="act(A W + bias); B [N, blocks, block_size / 2] has two codes of W in a byte, the "
               "even one in the low half: W = (code - zero_point) * scale; scales [N, blocks], "
               "zero_points [N, (blocks + 1) / 2] as B, 8 where absent"),
        KernelOp("PAGED_ATTENTION", ("q", "k", "v", "block_table", "kv_len", "mask?"), (
            AttrSpec("scale", "float", REQUIRED, doc="factor of the products"),
            AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
            AttrSpec("right_window_size", "int", -1,
                     doc="keys seen after a query; -1 = all, 0 = causal"),
            AttrSpec("score", "expr", None, doc="as of ATTENTION, without extras"),
        ), 2, "ATTENTION with keys and values in pages [P, G, R, D] of R keys, which block_table "
           "[B, N] names; query 0 stands at key kv_len - Q"),
        KernelOp("ATTENTION_GRAD", ("q", "k", "v", "y", "lse", "grad_y", "mask?", "kv_len?"), (
            AttrSpec("scale", "float", REQUIRED, doc="factor of the products"),
            AttrSpec("query_offset", "int", 0, doc="as of ATTENTION"),
            AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
            AttrSpec("right_window_size", "int", -1,
                     doc="keys seen after a query; -1 = all, 0 = causal"),
        ), 3, "gradients of q, k and v of an ATTENTION from its result y [B, H, Q, V], its "
           "log-sum-exps [B, H, Q] and the gradient of y"),
        KernelOp("ROW", ("x", "more*"), (AttrSpec("row", "expr", REQUIRED),), 8,
                 doc="a row operator over the last axis of x; more broadcast to x [*rows, n]"),
        KernelOp("SCAN", ("x",), (
            AttrSpec("combine", "str", "sum", ("sum", "prod")),
            AttrSpec("exclusive", "bool", False, doc="leave the element itself out"),
            AttrSpec("reverse", "bool", False, doc="run from the end"),
        ), doc="running sums or products along the last axis of x"),
        KernelOp("CONCAT", ("xs*",), (AttrSpec("axis", "int", REQUIRED),),
                 doc="inputs side by side along axis"),
        KernelOp("GATHER", ("x", "indices"), (AttrSpec("axis", "int", 0),),
                 doc="slices of x along axis; a negative index counts from the end"),
        KernelOp("PAD", ("x",), (
            AttrSpec("pads", "ints", REQUIRED, doc="begins of all axes, then ends; may crop"),
            AttrSpec("mode", "str", "constant", ("constant", "reflect", "edge", "wrap")),
            AttrSpec("value", "float", 0.0, doc="fill of constant"),
        ), doc="x extended at both ends of every axis"),
        KernelOp("RESAMPLE", ("x", "places_a", "weights_a?", "places_b?", "weights_b?"),
                 (AttrSpec("axes", "ints", REQUIRED, doc="one or two axes, in order"),),
                 doc="sums of picked elements along axes; tables [out, taps], places i32, "
                     "weights f32 (f64 for f64); without weights one element is picked"),
        KernelOp("CONV2D", ("x", "w", "bias?", "residual?"),
                 (*_WINDOW, AttrSpec("group", "int", 1), *_ACT),
                 doc="x NCHW, w OIHW"),
        KernelOp("POOL2D", ("x",), (
            AttrSpec("kind", "str", "max", ("max", "avg")),
            AttrSpec("kernel_shape", "ints", REQUIRED),
            *_WINDOW,
            AttrSpec("count_include_pad", "bool", False),
        ), doc="windows over the last two axes of x NCHW"),
        KernelOp("LAB_NORMALIZE_SUM", ("x",), (),
                 doc="x / sum(x) in two launches: workspace, semaphores and a tensor map"),
        KernelOp("LAB_REDUCE", ("x",), (AttrSpec("row", "expr", REQUIRED),),
                 doc="a row operator with one value per row, for the reductions of the lab"),
        KernelOp("LAB_STREAM", ("scores", "values"), (),
                 doc="sum(softmax(scores) * values) of each row"),
        KernelOp("LAB_STAGE", ("x", "weights"), (),
                 doc="weighted sums over a sliding window: y[i] = sum_j weights[j] * x[i + j]"),
        KernelOp("LAB_COMPOSE_ROWS", ("x", "more*"), (AttrSpec("row", "expr", REQUIRED),), 8,
                 doc="a row operator like ROW, by a kernel composed of the lab's realizations"),
        KernelOp("LAB_COMPOSE_PRODUCT", ("A", "B", "more*"), (
            AttrSpec("row", "expr", REQUIRED, doc="over rows of prologue(A) times B transposed"),
            AttrSpec("prologue", "expr", None, doc="of an element of A; 0: none"),
        ), 8, "a row operator over the rows of a product that is not stored"),
        KernelOp("LAB_REMAT", ("x", "dy"), (), 2,
                 doc="gelu of the normalised rows of x, and its gradient for dy"),
        KernelOp("LAB_FUSE", ("x", "bias", "scale", "residual"), (),
                 doc="rms_norm(gelu(x + bias)) * scale + residual"),
    )
}


def kernel_op(name: str) -> KernelOp:
    """Return the schema of an op_type.

    Raises:
        Unsupported: there is no such kernel-level operator.
    """
    if name not in KERNEL_OPS:
        raise Unsupported("no such kernel-level operator", argument="op_type", found=repr(name),
                          wanted=", ".join(KERNEL_OPS), hint=near_matches(name, KERNEL_OPS))
    return KERNEL_OPS[name]
