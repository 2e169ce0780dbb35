"""The operator table as data: every row is complete, generated texts are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from ge2.compiler.ir import properties
from ge2.compiler.opdefs import OPS
from ge2.compiler.opdefs.doc import render_markdown, render_table
from ge2.compiler.opdefs.features import FEATURES, features

ROOT = Path(__file__).resolve().parents[3]


def test_the_operator_page_is_current():
    page = (ROOT / "docs" / "operators.md").read_text("utf-8")
    assert page == render_markdown(), "write it again: python docs/generate.py"


def test_there_are_enough_operators_and_each_row_says_what_it_does():
    assert len(OPS) >= 90
    for name, *_, doc in render_table():
        assert doc.endswith("."), name
        assert len(doc) < 120, name


@pytest.mark.parametrize("name", sorted(OPS))
def test_definitions_are_complete(name):
    op = OPS[name]
    assert op.name == name == name.upper()
    assert op.properties <= set(properties.PROPERTIES)
    assert not [i for i in op.inputs[:-1] if i.endswith("*")]
    assert set(op.other) <= set(op.input_names)
    assert all(spec.doc or spec.kind == "float" for spec in op.attrs)
    assert set(features(name)) == set(FEATURES)
    # An operator without a formula, a kernel family or a composition could never run on a GPU.
    assert op.expr is not None or op.decompose is not None or op.family != "composite"


def test_features_follow_properties():
    assert features("SOFTMAX")["mergeable"]
    with properties.without("SOFTMAX", "mergeable"):
        assert not features("SOFTMAX")["mergeable"]
    assert not features("CUMSUM")["blockwise"]
