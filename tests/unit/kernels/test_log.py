"""GE2_LOG, and what ge2 says on a machine without a compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ge2 import log
from ge2.errors import EnvironmentUnusable, Invalid
from ge2.runtime import nvrtc


def test_a_named_topic_prints_to_stderr() -> None:
    script = ("from ge2 import log; log.topic('select').info('chosen %s', 1); "
              "log.topic('cache').info('silent'); log.topic('cache').warning('loud')")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          env={"GE2_LOG": "fuse, select", "PYTHONPATH": ":".join(sys.path)})
    assert done.stdout == "" and done.stderr == "ge2 select: chosen 1\nloud\n"


@pytest.mark.parametrize("name,wanted", [
    ("fuse", "ge2 fuse: fuse_gemm: 12 -> 7 nodes; made or changed: relu_5 (GEMM_BIAS_ACT)"),
    ("select", "ge2 select: node softmax_11 (SOFTMAX): row/row_"),
])
def test_topics_tell_what_happens_to_a_model(name: str, wanted: str) -> None:
    command = [sys.executable, "-m", "ge2", "explain", "examples/digits/model.json", "--arch",
               "sm_80", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True,
                          env={"GE2_LOG": name, "PYTHONPATH": ":".join(sys.path)})
    assert wanted in done.stderr and "ge2 " not in done.stdout


def test_an_unknown_topic_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_LOG", "cahce")
    log.topic.cache_clear()
    with pytest.raises(Invalid, match="Did you mean cache"):
        log.topic("cache")
    log.topic.cache_clear()


def test_a_machine_without_cupy_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (nvrtc._library, nvrtc.version, nvrtc.supported_archs):
        function.cache_clear()
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentUnusable, match=r"pip install \"ge2\[cuda13\]\""):
        nvrtc.target_for("sm_80")


def test_the_log_of_ptxas_is_read() -> None:
    log_text = """\
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine x.
ptxas info    : 4 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
ptxas         .     120 bytes stack frame, 176 bytes spill stores, 184 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 120 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compiling entry function 'b' for 'sm_90a'
ptxas info    : Function properties for b
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 80 registers, used 0 barriers
ptxas info    : Compile time = 25.686 ms
"""
    found = nvrtc.parse_log(log_text)
    assert (found.registers, found.spill_stores, found.spill_loads) == (80, 176, 184)
    assert (found.local_bytes, found.static_smem) == (120, 400)
    assert len(found.warnings) == 1 and "setmaxnreg" in found.warnings[0]
