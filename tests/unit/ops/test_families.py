"""The random nodes that a GPU compares with torch need few kernels, which can be compiled ahead."""

from __future__ import annotations

from ge2.evidence.device import profile_for

from ...cases.drawn import draws
from ...cases.families import FAMILIES, family_sources


def test_the_same_nodes_are_drawn_each_time() -> None:
    family = FAMILIES["slices"]
    first = draws(family.examples, family.count)
    assert first == draws(family.examples, family.count)
    assert len({example.label for example in first}) > family.count // 2


def test_many_nodes_share_few_kernels() -> None:
    assert sum(family.count for family in FAMILIES.values()) > 500
    assert len(family_sources(profile_for("sm_90a"))) <= 120
