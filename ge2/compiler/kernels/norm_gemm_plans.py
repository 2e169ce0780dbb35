"""Products that normalise their rows: how they are spread over a device, and when they pay.

One launch saves the norm's own and a trip of the rows through memory, but its product is not the
fastest one that there is. Shares of the peak of the products are those of an H200; those of the
kernels of NORM_GEMM are estimates.
"""

from __future__ import annotations

from math import floor, inf, log2
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...problem import Problem
from ..ir.size import larger, smaller
from .metadata import Variant

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

STREAM = 48 << 10  # bytes of shared memory beside the rows, about
NORM_COLUMNS, NORM_COLUMNS_MMA = 6, 60  # of the product in the time that a row's norm takes
RESERVED = 1024  # bytes of shared memory that the system takes for each block

START = 3.0  # microseconds of a launch, as of a product
LAUNCH = 2.3  # of a further one that may begin early
SURE = 1.1  # a prediction that is closer than this decides nothing: then one launch is better

# Share of the arithmetic peak, alone and with the norm inside.
_WGMMA, _WGMMA_NORM = 0.70, 0.60
_MMA = 0.27  # on a device that has wgmma
_F32, _F32_NORM = 0.75, 0.67


def block_groups(rows: int, columns: int, smem: int, device: DeviceProfile) -> int:
    """Return how many blocks share the rows of a tile: as many as find room on the device.

    Each normalises the rows for itself and takes every so manieth of their tiles.

    Args:
        rows, columns: tiles of the output along both axes.
        smem: bytes of a block.
    """
    resident = max(1, min(8, device.smem_per_sm // (smem + RESERVED)))
    groups = smaller(columns, larger(1, resident * device.sm_count // rows))
    share = -(-columns // groups)
    return -(-columns // share)  # no block without a tile


def norm_gemm_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return six points less for each factor of two beyond a perfect split over the device.

    Normalising a row takes as long as a few columns of its product.
    """
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    if y.size == 0:
        return 0.0
    (m, n), k = y.shape, x.shape[1]
    bm, bn = int(variant.param("BM")), int(variant.param("BN"))
    smem = device.smem_per_sm
    if "wgmma" not in variant.kernel.flags:
        smem = k * bm * DTYPES[x.dtype].itemsize + STREAM
    rows, columns = -(-m // bm), -(-n // bn)
    groups = block_groups(rows, columns, smem, device)
    busiest = -(-rows * groups // device.sm_count)  # blocks of one multiprocessor
    norm = NORM_COLUMNS_MMA if "tensor_core" in variant.kernel.flags else NORM_COLUMNS
    share = -(-columns // groups) * bn * (1 + 16 / bm + 16 / bn) + norm
    return -6.0 * log2(busiest * bm * share * device.sm_count / (m * n))


def runs_apart(problem: Problem, variant: Variant, device: DeviceProfile) -> bool:
    """Return whether a norm and its product take clearly less time as two launches.

    Args:
        problem: a NORM_GEMM; where its number of rows is a size, the answer is a condition on it.
        variant: the kernel that it would be.
    """
    return problem.outputs[0].shape[0] > most_rows(problem, variant, device)


def most_rows(problem: Problem, variant: Variant, device: DeviceProfile) -> int:
    """Return up to how many rows one launch is better than two."""
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    n, k = y.shape[1], x.shape[1]
    inside, alone = _rates(variant, device)
    together = 2.0 * n * k / inside
    apart = 2.0 * n * k / alone + 2.0 * k * DTYPES[x.dtype].itemsize / (device.copy_gbps * 1e3)
    lost = together - SURE * apart
    saved = SURE * (START + LAUNCH) - START
    return floor(min(saved / lost if lost > 0 else inf, 2**31 - 1))


def _rates(variant: Variant, device: DeviceProfile) -> tuple[float, float]:
    """Return the operations per microsecond of the kernel and of the product without a norm."""
    flags = variant.kernel.flags
    if "tensor_core" not in flags:
        return _F32_NORM * device.fp32_tflops * 1e6, _F32 * device.fp32_tflops * 1e6
    peak = device.tensor_tflops * 1e6
    if not device.caps["wgmma"]:
        return peak, peak
    return (_WGMMA_NORM if "wgmma" in flags else _MMA) * peak, _WGMMA * peak
