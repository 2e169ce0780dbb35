"""Every operator on the emulator against its NumPy reference, in two dtypes that it takes."""

from __future__ import annotations

import zlib

import pytest

from ge2.compiler.opdefs import OPS

from ..cases.nodes import INTERNAL, examples, main_dtypes, run_example


@pytest.mark.parametrize("op", sorted(set(OPS) - INTERNAL))
def test_an_operator_agrees_with_numpy(op):
    for example in examples(op):
        dtypes = main_dtypes(example)
        other = dtypes[zlib.crc32(op.encode()) % len(dtypes)]
        for dtype in dict.fromkeys((dtypes[0], other)):
            run_example(example, dtype, "emulate")
