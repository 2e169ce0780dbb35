"""The property table: a closed vocabulary, and licences that can be taken away."""

from __future__ import annotations

import pytest

from ge2.compiler.ir import properties
from ge2.errors import GraphError


def test_licences_follow_declarations_and_come_back():
    properties.declare("TEST_OP", ["linear"])
    assert properties.licensed("TEST_OP", "linear")
    assert properties.licensed("TEST_OP", "deterministic")
    with properties.without("TEST_OP", "linear"):
        assert not properties.licensed("TEST_OP", "linear")
    assert properties.licensed("TEST_OP", "linear")


def test_unknown_operators_have_no_properties():
    assert not properties.licensed("NO_SUCH_OP", "deterministic")


def test_random_operators_are_not_deterministic():
    properties.declare("RANDOM_TEST", [])
    assert not properties.licensed("RANDOM_TEST", "deterministic")


@pytest.mark.parametrize("call", [
    lambda: properties.declare("TEST_OP", ["linaer"]),
    lambda: properties.licensed("MATMUL", "linaer"),
])
def test_a_misspelt_property_is_an_error(call):
    with pytest.raises(GraphError, match="Did you mean linear"):
        call()
