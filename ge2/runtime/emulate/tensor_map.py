"""Tensor maps of emulated launches: ge2's own encoding in the 128 bytes of the driver's."""

from __future__ import annotations

import numpy as np

from ...contract import DTYPES
from ...errors import Invalid
from ...launch.record import TensorMapSpec

_MAGIC = 0x47453254
_LAYOUT = np.dtype([
    ("magic", "u4"), ("rank", "u1"), ("itemsize", "u1"), ("swizzle_log2", "u1"), ("tf32", "u1"),
    ("address", "u8"), ("strides", "u8", 4), ("dims", "u4", 5), ("box", "u4", 5), ("check", "u4"),
])
SWIZZLES = {0: 0, 32: 5, 64: 6, 128: 7}


def encode_tensor_map(spec: TensorMapSpec, address: int) -> bytes:
    """Return the 128 bytes that the host twins of TMA instructions understand.

    Args:
        spec: the descriptor; its slot and addend are not looked at.
        address: of element 0, addend included.

    Raises:
        Invalid: what the driver's encoder would refuse: alignment, strides, box.
    """
    rounds = spec.dtype == "tf32"
    info = DTYPES["f32" if rounds else spec.dtype]
    _check(spec, address, info.itemsize)
    block = np.zeros((), _LAYOUT)
    rank = len(spec.dims)
    block["magic"], block["rank"], block["itemsize"] = _MAGIC, rank, info.itemsize
    block["swizzle_log2"] = SWIZZLES[spec.swizzle]
    block["tf32"] = rounds
    block["address"] = address
    block["strides"][: rank - 1] = spec.strides
    block["dims"][:rank] = spec.dims
    block["box"][:rank] = spec.box
    return block.tobytes().ljust(128, b"\0")


def _check(spec: TensorMapSpec, address: int, itemsize: int) -> None:
    rank = len(spec.dims)
    inner = spec.box[0] * itemsize if spec.box else 0
    rules = (
        (1 <= rank <= 5, "rank", rank, "1 to 5"),
        (len(spec.box) == rank, "box", spec.box, f"{rank} extents"),
        (len(spec.strides) == rank - 1, "strides", spec.strides, f"{rank - 1} byte strides"),
        (address % 16 == 0, "address", hex(address), "a multiple of 16"),
        (all(s % 16 == 0 and 0 < s < 1 << 40 for s in spec.strides), "strides", spec.strides,
         "multiples of 16 bytes below 2**40"),
        (all(0 < d <= 1 << 32 for d in spec.dims), "dims", spec.dims, "1 to 2**32"),
        (all(0 < b <= 256 for b in spec.box), "box", spec.box, "1 to 256"),
        (inner % 16 == 0, "box", spec.box, "an inner extent of whole 16 bytes"),
        (spec.swizzle in SWIZZLES, "swizzle", spec.swizzle, "0, 32, 64 or 128"),
        (not spec.swizzle or inner <= spec.swizzle, "box", spec.box,
         f"an inner extent of at most {spec.swizzle} bytes"),
    )
    for holds, what, found, wanted in rules:
        if not holds:
            raise Invalid(f"tensor map {what} is not encodable", argument=what, found=found,
                          wanted=wanted)
