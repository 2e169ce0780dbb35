"""Compiling: once per kernel whatever threads and processes do; errors point at a line."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from ge2 import paths
from ge2.errors import CompileFailed, Invalid, LaunchFailed, Unsupported
from ge2.launch.record import KernelSource
from ge2.runtime import compile_worker, disk_cache, failures, jit, nvrtc

pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")

TEMPLATE = """\
struct Args { float* p; };
{% if HEADER %}
#include <ge2/mine.cuh>
{% endif %}
constexpr int N = {{ N }};
extern "C" __global__ void k(const __grid_constant__ Args a) {
  {{ LINE }}
  a.p[threadIdx.x] += N;
}
"""
# Takes ptxas several seconds: long enough to be interrupted.
SLOW = "float v = a.p[0];\n" + "v = v * v + a.p[(int)v & 31]; a.p[(int)v & 15] = v;\n" * 4000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private cache and a searched folder with one template."""
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))
    mine = tmp_path / "kernels"
    mine.mkdir()
    (mine / "k.cu.j2").write_text(TEMPLATE)
    paths.add_kernel_dir(mine)
    forget_all()
    yield mine
    paths.remove_kernel_dirs()
    forget_all()


def forget_all() -> None:
    """Make this process as ignorant as a new one."""
    jit._table.futures.clear()
    disk_cache._open.cache_clear()
    compile_worker._cache.cache_clear()


def source(folder: Path, n: int = 1, line: str = "", header: bool = False) -> KernelSource:
    context = (("HEADER", header), ("LINE", line), ("N", n))
    return KernelSource(str(folder / "k.cu.j2"), context, "k")


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log names of every compile that this process does itself."""
    done: list[str] = []
    real = nvrtc.compile_text

    def count(text: str, name: str, *args: object) -> nvrtc.Binary:
        done.append(name)
        return real(text, name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(nvrtc, "compile_text", count)
    return done


def test_a_compile_is_kept_for_this_process_and_the_next(folder: Path, compiles: list[str]) -> None:
    first = jit.compile([source(folder)], "sm_90a")[source(folder)]
    assert not first.from_cache and first.path.read_bytes().startswith(b"\x7fELF")
    assert first.meta.arch == "sm_90a" and first.meta.resources.registers > 0
    assert jit.compile([source(folder)], "sm_90a")[source(folder)] is first
    forget_all()
    again = jit.compile([source(folder)], "sm_90a")[source(folder)]
    assert again.from_cache and again.meta == first.meta and compiles == ["k.cu"]


def test_each_arch_has_its_own_binary(folder: Path) -> None:
    found = {jit.compile([source(folder)], arch)[source(folder)].path
             for arch in ("sm_80", "sm_90", "sm_90a")}
    assert len(found) == 3


def test_a_gpu_newer_than_the_compiler_gets_ptx(folder: Path) -> None:
    compiled = jit.compile([source(folder)], "sm_130a")[source(folder)]
    assert compiled.meta.is_ptx and b".entry k" in compiled.path.read_bytes()
    assert compiled.meta.arch == f"compute_{nvrtc.supported_archs()[-1]}"


def test_a_gpu_older_than_the_compiler_is_an_error_that_names_both(folder: Path) -> None:
    with pytest.raises(Unsupported, match=r"NVRTC \d+\.\d+.*found sm_50; wanted sm_\d+ or newer"):
        jit.compile([source(folder)], "sm_50")


def test_f32_is_ieee(folder: Path) -> None:
    line = "a.p[1] = a.p[0] / a.p[2];"
    compiled = jit.compile([source(folder, line=line)], "sm_130a")[source(folder, line=line)]
    text = compiled.path.read_text()
    assert "div.rn.f32" in text and ".ftz" not in text


def test_a_failure_points_at_the_template_and_saves_the_source(folder: Path) -> None:
    bad = source(folder, line="int x = undeclared;", n=7)
    with pytest.raises(CompileFailed) as caught:
        jit.compile([bad], "sm_80")
    error = caught.value
    assert "k.cu.j2:7 (rendered line 5): error" in error.log
    assert "undeclared" in str(error) and "sm_80" in str(error) and "N=7" in str(error)
    assert "int x = undeclared;" in Path(error.source_path).read_text()
    assert str(Path(error.source_path).parent) in str(error)


def test_one_failure_does_not_cost_the_others(folder: Path) -> None:
    good, bad = source(folder), source(folder, line="nonsense")
    found = jit.try_compile([good, bad], "sm_80")
    assert isinstance(found[bad], CompileFailed) and isinstance(found[good], jit.Compiled)


def test_a_failure_is_tried_again(folder: Path) -> None:
    (folder / "k.cu.j2").write_text(TEMPLATE.replace("+= N", "+= M"))
    with pytest.raises(CompileFailed):
        jit.compile([source(folder)], "sm_80")
    (folder / "k.cu.j2").write_text(TEMPLATE)
    assert jit.compile([source(folder)], "sm_80")


def test_an_edited_header_is_compiled_again(folder: Path, compiles: list[str]) -> None:
    header = folder / "include" / "ge2" / "mine.cuh"
    header.parent.mkdir(parents=True)
    keys = []
    for text in ("// one\n", "// two\n", "// one\n"):
        header.write_text(text)
        forget_all()
        keys.append(jit.compile([source(folder, header=True)], "sm_80").popitem()[1].meta.key)
    assert keys[0] == keys[2] != keys[1] and len(compiles) == 2


def test_threads_that_want_the_same_kernel_share_one_compile(
        folder: Path, compiles: list[str]) -> None:
    found: list[jit.Compiled] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        found.extend(jit.compile([source(folder)], "sm_80").values())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(compiles) == 1


def test_an_interrupt_leaves_nobody_waiting(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "compile_text", interrupt)
        with pytest.raises(KeyboardInterrupt):
            jit.compile([source(folder)], "sm_80")
    assert jit._table.futures == {}
    assert jit.compile([source(folder)], "sm_80")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_its_parents_threads(folder: Path) -> None:
    pending: Future[jit.Compiled] = Future()
    jit._table.futures[source(folder), "sm_80"] = pending
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if jit.compile([source(folder)], "sm_80") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert jit._table.futures[source(folder), "sm_80"] is pending


def test_only_the_newest_failed_sources_are_kept(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "KEPT", 2)
    for n in range(4):
        outcome = jit.try_compile([source(folder, n, "nonsense")], "sm_80").popitem()[1]
        assert isinstance(outcome, CompileFailed) and Path(outcome.source_path).is_file()
    assert len(list((paths.cache_dir() / "failed").iterdir())) == 2


def test_a_failed_compile_is_kept_as_a_folder_that_compiles_it_again(folder: Path) -> None:
    (folder / "include/ge2").mkdir(parents=True)
    (folder / "include/ge2/mine.cuh").write_text("// a header\n")
    outcome = jit.try_compile([source(folder, 1, "nonsense", header=True)], "sm_80").popitem()[1]
    assert isinstance(outcome, CompileFailed)
    kept = Path(outcome.source_path).parent
    assert f"python {kept}/run.py compiles it again" in str(outcome)
    assert "nonsense" in (kept / "log.txt").read_text()
    assert (kept / "include/ge2/mine.cuh").is_file()
    command = [sys.executable, str(kept / "run.py")]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and "kernel.cu(" in again.stderr and "nonsense" in again.stderr
    assert "Traceback" not in again.stderr
    text = (kept / "kernel.cu").read_text()
    (kept / "kernel.cu").write_text(text.replace("nonsense", ""))
    assert subprocess.run(command, capture_output=True, check=False).stdout == b"it compiles\n"


def test_line_information_is_of_the_template(folder: Path, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    monkeypatch.setenv("GE2_LINEINFO", "1")
    wanted = source(folder)
    compiled = jit.compile([wanted], "sm_80")[wanted]
    assert "-lineinfo" in compiled.meta.options
    assert Path(wanted.template).name.encode() in compiled.path.read_bytes()


def test_many_kernels_are_compiled_by_workers(folder: Path, compiles: list[str]) -> None:
    wanted = [source(folder, n) for n in range(4)]
    found = jit.compile(wanted, "sm_80")
    assert list(found) == wanted and compiles == []
    assert all(not c.from_cache and c.path.is_file() for c in found.values())
    forget_all()
    assert all(c.from_cache for c in jit.compile(wanted, "sm_80").values()) and compiles == []


def test_two_kernels_are_compiled_here(folder: Path, compiles: list[str]) -> None:
    jit.compile([source(folder, n) for n in range(2)], "sm_80")
    assert len(compiles) == 2


def test_dying_workers_are_replaced_by_this_process(
        folder: Path, compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert len(jit.compile([source(folder, n) for n in range(3)], "sm_80")) == 3
    assert len(compiles) == 3


def test_workers_that_cannot_start_are_replaced_by_this_process(
        folder: Path, compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert len(jit.compile([source(folder, n) for n in range(3)], "sm_80")) == 3
    assert len(compiles) == 3


def test_a_time_limit_ends_a_slow_compile(folder: Path) -> None:
    slow, quick = source(folder, line=SLOW), source(folder)
    start = time.monotonic()
    found = jit.try_compile([slow], "sm_90a", seconds=1.5)
    assert time.monotonic() - start < 20
    assert isinstance(found[slow], CompileFailed) and "within 1.5 s" in str(found[slow])
    assert isinstance(jit.try_compile([quick], "sm_90a", seconds=60)[quick], jit.Compiled)


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_bad_number_of_jobs_is_refused(folder: Path, jobs: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_JOBS", jobs)
    with pytest.raises(Invalid, match="GE2_JOBS"):
        jit.compile([source(folder, n) for n in range(3)], "sm_80")


@pytest.mark.parametrize("count", [1, 4], ids=["here", "workers"])
def test_an_unusable_cache_costs_one_warning_and_nothing_else(
        folder: Path, count: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture,
        ) -> None:
    root = paths.cache_dir()
    root.mkdir(mode=0o700)
    (root / f"kernels-v{disk_cache.SCHEMA}").write_text("a file where a folder should be")
    found = jit.compile([source(folder, n) for n in range(count)], "sm_80")
    assert all(c.path.read_bytes().startswith(b"\x7fELF") for c in found.values())
    warned = [r for r in caplog.records
              if r.name == "ge2.cache" and r.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert "cannot be written" not in capfd.readouterr().err, "workers stay silent"


def test_a_miss_says_what_differs(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ge2.cache")
    jit.compile([source(folder)], "sm_80")
    assert "no entry of this template" in caplog.text
    jit.compile([source(folder)], "sm_86")
    assert "arch sm_80 -> sm_86" in caplog.text.splitlines()[-1]
    jit.compile([source(folder, 2)], "sm_86")
    assert "source_sha256" in caplog.text.splitlines()[-1]


def test_always_compile_ignores_the_cache(folder: Path, compiles: list[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    jit.compile([source(folder)], "sm_80")
    monkeypatch.setenv("GE2_ALWAYS_COMPILE", "1")
    forget_all()
    assert not jit.compile([source(folder)], "sm_80")[source(folder)].from_cache
    assert len(compiles) == 2


def test_a_cubin_that_the_driver_refuses_is_built_once_more(
        folder: Path, compiles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Path] = []

    def load_file(path: Path, entry: str, device_index: int) -> int:
        tries.append(path)
        if len(tries) == 1:
            raise LaunchFailed("device kernel image is invalid")
        return 4711

    monkeypatch.setattr(jit, "load_file", load_file)
    monkeypatch.setattr(jit, "device_arch", lambda index: "sm_80")
    monkeypatch.setattr(jit._table, "functions", {})
    assert jit.load(source(folder), 0) == 4711
    assert len(tries) == 2 and len(compiles) == 2
    assert jit.load(source(folder), 0) == 4711 and len(tries) == 2


CHILD = """\
import json, sys
from pathlib import Path
from ge2.launch.record import KernelSource
from ge2.runtime import jit
folder, count = Path(sys.argv[1]), int(sys.argv[2])
line = (folder / "line.txt").read_text()
print("started", flush=True)
sources = [KernelSource(str(folder / "k.cu.j2"), (("HEADER", False), ("LINE", line), ("N", n)), "k")
           for n in range(count)]
found = jit.compile(sources, "sm_80")
print(json.dumps([[c.from_cache, c.meta.cubin_sha256] for c in found.values()]))
"""


def start_child(folder: Path, line: str = "", count: int = 2) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GE2_JOBS": "2"}
    (folder / "line.txt").write_text(line)
    return subprocess.Popen([sys.executable, "-c", CHILD, str(folder), str(count)], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen[str]) -> list[tuple[bool, str]]:
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0 and err == "", err
    assert out.count("started") == 1, "a worker ran the user's script again"
    return [tuple(item) for item in json.loads(out.splitlines()[-1])]


@pytest.mark.parametrize(("processes", "count"), [(8, 2), (3, 3)], ids=["here", "workers"])
def test_processes_on_a_cold_cache_compile_each_kernel_once(
        folder: Path, processes: int, count: int) -> None:
    children = [start_child(folder, count=count) for _ in range(processes)]
    results = [finish(child) for child in children]
    assert len({tuple(digest for _, digest in found) for found in results}) == 1
    compiled = sum(not cached for found in results for cached, _ in found)
    assert compiled == count, "each kernel once, all others from the cache"


def test_a_killed_compile_leaves_nothing_that_disturbs(folder: Path) -> None:
    child = start_child(folder, SLOW, 1)
    with child:
        cache = disk_cache.default_cache()
        wait_for(lambda: any(cache.root.glob("??/*/.lock")) if cache.root else False)
        time.sleep(0.3)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert cache.usage() == []
    start = time.monotonic()
    key = next(cache.root.glob("??/*")).name if cache.root else ""
    with cache.lock(key, seconds=10) as held:
        assert held and time.monotonic() - start < 5
    assert len(finish(start_child(folder, "", 2))) == 2


def test_killing_the_parent_ends_its_workers(folder: Path) -> None:
    child = start_child(folder, SLOW, 3)
    with child:
        wait_for(lambda: len(children_of(child.pid)) == 2)
        workers = children_of(child.pid)
        child.send_signal(signal.SIGKILL)
        child.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 60)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    every = [listed, *Path(f"/proc/{pid}/task").glob("*/children")]
    return sorted({int(word) for path in every for word in path.read_text().split()})


def wait_for(condition: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_without_a_compiler_what_another_machine_compiled_still_runs(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ge2.errors import EnvironmentUnusable

    here, elsewhere = source(folder, 1), source(folder, 2)
    wanted = jit.compile([here], "sm_80")[here].meta.cubin_sha256
    forget_all()

    def gone(*_: object) -> None:
        raise EnvironmentUnusable("the NVRTC library does not load")

    for name in ("version", "supported_archs", "target_for"):
        monkeypatch.setattr(nvrtc, name, gone)
    compiled = jit.compile([here], "sm_80")[here]
    assert compiled.from_cache
    assert compiled.meta.cubin_sha256 == wanted
    with pytest.raises(EnvironmentUnusable, match="ge2 cache import"):
        jit.compile([elsewhere], "sm_80")
    with pytest.raises(EnvironmentUnusable, match="NVRTC"):
        jit.compile([here], "sm_90a")
