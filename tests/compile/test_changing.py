"""docs/changing.md: a new contract version refuses what was compiled against the old one."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import registry
from ge2.contract import GE2_API_VERSION
from ge2.errors import ApiVersionMismatch
from ge2.evidence.device import profile_for
from ge2.launch.rule import LAUNCH_RULES
from ge2.runtime import disk_cache, jit

pytest.importorskip("cupy")


def test_old_cubin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = registry.get("elementwise_strided").variants[0]
    rule = LAUNCH_RULES[variant.kernel.launch]
    record = rule.bind(rule.examples(variant)[0], variant, profile_for("sm_80"))[0]
    compiled = jit.compile([record.kernel], "sm_80")[record.kernel]
    code = compiled.path.read_bytes()
    jit.check_api(code, "kernel.cubin")
    monkeypatch.setattr(jit, "GE2_API_VERSION", GE2_API_VERSION + 1)
    both = rf"kernel\.cubin .*found {GE2_API_VERSION}; wanted {GE2_API_VERSION + 1}"
    with pytest.raises(ApiVersionMismatch, match=both):
        jit.check_api(code, "kernel.cubin")


def test_a_new_version_changes_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = disk_cache.make_key("text", "sm_80", (), (13, 0))
    monkeypatch.setattr(disk_cache, "GE2_API_VERSION", GE2_API_VERSION + 1)
    assert disk_cache.make_key("text", "sm_80", (), (13, 0)) != before
