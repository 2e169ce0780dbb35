"""THE list of passes, in order."""

from __future__ import annotations

from .. import opdefs
from ..ir.nodes import Graph
from .canonicalize import CanonicalizePass
from .cse import CommonSubexpressionPass
from .dead_code import DeadCodePass
from .decompose import DecomposePass
from .fold_affine import FoldAffinePass
from .fold_constants import FoldConstantsPass
from .fold_heads import FoldHeadsPass
from .fold_reshapes import FoldReshapesPass
from .fold_transposes import FoldTransposesPass
from .fuse_add_norm import FuseAddNormPass
from .fuse_elementwise import FuseElementwisePass
from .fuse_epilogue import FuseEpiloguePass
from .fuse_gemm import FuseGemmPass
from .fuse_norm_gemm import FuseNormGemmPass
from .fuse_row_values import FuseRowValuesPass
from .fuse_rows import FuseRowsPass
from .lift_activations import LiftActivationsPass
from .lift_attention import LiftAttentionPass
from .lift_norms import LiftNormsPass
from .lift_softmax import LiftSoftmaxPass
from .merge_products import MergeProductsPass
from .pass_manager import Optimized, Pass, run_passes
from .split_reductions import SplitReductionsPass

__all__ = ["PASSES", "Optimized", "optimize"]

PASSES: tuple[Pass, ...] = (
    DecomposePass(),
    CanonicalizePass(),
    FoldConstantsPass(),
    CommonSubexpressionPass(),
    DeadCodePass(),
    LiftActivationsPass(),
    LiftNormsPass(),
    LiftSoftmaxPass(),
    LiftAttentionPass(),
    FoldHeadsPass(),
    DeadCodePass(),  # heads that nothing splits any more would keep their product from folding
    FoldReshapesPass(),
    SplitReductionsPass(),
    FoldTransposesPass(),
    FoldAffinePass(),
    FuseGemmPass(),
    FuseElementwisePass(),
    FuseEpiloguePass(),
    MergeProductsPass(),
    # A sum that no product could take stays with its norm; the other norms go into products.
    FuseAddNormPass(),
    FuseNormGemmPass(),
    FuseRowValuesPass(),
    FuseRowsPass(),
    DeadCodePass(),
)


# NumPy has every operator, often by a better algorithm than the composition that kernels run; but
# its einsum calls no BLAS where there are batch axes.
_CPU_COMPOSED = frozenset({"EINSUM"})
CPU_PASSES: tuple[Pass, ...] = tuple(
    DecomposePass(native=frozenset(opdefs.OPS) - _CPU_COMPOSED, most_head=2**31)
    if isinstance(p, DecomposePass) else p for p in PASSES)


def optimize(graph: Graph, check: bool = True, backend: str = "cuda") -> Optimized:
    """Return the graph after all passes, with the trace of what each did.

    Args:
        graph: left as it is; extents may be symbolic.
        check: verify after every pass what it changed.
        backend: "cpu" keeps operators that kernels would run as compositions.

    Raises:
        PassError: a pass failed or broke the graph.
    """
    return run_passes(graph, CPU_PASSES if backend == "cpu" else PASSES, check)
