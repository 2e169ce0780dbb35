"""Extents written as text and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ge2.compiler.ir.dim import symbol
from ge2.compiler.ir.dim_text import parse_extent
from ge2.errors import GraphError

EXTENTS = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from([symbol("a"), symbol("b_1"), symbol("_seq")])),
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner), st.builds(lambda x, y: x - y, inner, inner),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(lambda x, n: x // n, inner, st.integers(1, 7)),
        st.builds(lambda x, n: x % n, inner, st.integers(1, 7))), max_leaves=8)


@given(EXTENTS)
def test_what_an_extent_prints_reads_back(extent):
    assert parse_extent(str(extent)) == extent


@pytest.mark.parametrize("text", ["", "a b", "2 *", "(a", "a)", "a + + b", "a // b", "a // 0",
                                  "__import__('os')", "a.b", "1.5", "a ** 99", "(" * 1000,
                                  "a ** b"])
def test_other_texts_are_refused(text):
    with pytest.raises(GraphError):
        parse_extent(text)
