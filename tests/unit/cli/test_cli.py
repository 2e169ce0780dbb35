"""The command line: exit codes, streams, JSON, no tracebacks for a user's mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import pytest

from ge2.cli import COMMANDS, EXIT_CODES, cli, run
from ge2.commands.output import to_json

EXAMPLE = "examples/digits/model.json"
CPU = ("--backend", "cpu")


@dataclass(frozen=True)
class Result:
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def ge2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command line in this process."""
    for name in list(os.environ):
        if name.startswith("GE2_"):
            monkeypatch.delenv(name)

    def call(*args: str) -> Result:
        capsys.readouterr()
        code = run(list(args))
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return call


@pytest.mark.parametrize("option", ["--trace", "--output", "--json"])
def test_places_that_cannot_be_written_are_refused_before_the_run(ge2: Any, tmp_path: Path,
                                                                  option: str) -> None:
    result = ge2("run", EXAMPLE, *CPU, option, str(tmp_path / "none" / "o.npz"))
    assert result.code == 2
    assert f"there is no folder {tmp_path / 'none'}" in result.err
    assert "first run" not in result.out + result.err
    if option == "--trace":
        assert "it is a folder" in ge2("run", EXAMPLE, *CPU, option, str(tmp_path)).err


def test_run_checks_the_sample(ge2: Any) -> None:
    result = ge2("run", EXAMPLE, *CPU)
    assert result.code == 0
    assert "accuracy 98.61 % (355 of 360)" in result.out
    assert "matches" in result.out
    assert result.err == "inputs: the model's sample\n"


@pytest.mark.parametrize("name,least", [("model", 0.97), ("conv", 0.98), ("model-f16", 0.97)])
def test_every_digits_model_is_accurate(ge2: Any, name: str, least: float) -> None:
    result = ge2("run", f"examples/digits/{name}.json", *CPU, "--check", "--json", "-", "-q")
    assert result.code == 0
    assert result.json["accuracy"]["probabilities"] >= least
    assert all(item["ok"] for item in result.json["expected"] + result.json["check"])


def test_json_on_stdout_is_alone(ge2: Any) -> None:
    result = ge2("run", EXAMPLE, *CPU, "--json", "-")
    assert result.json["ok"] is True
    assert result.json["backend"] == "cpu"
    assert "accuracy" in result.err


def test_json_file(ge2: Any, tmp_path: Path) -> None:
    assert ge2("run", EXAMPLE, *CPU, "--json", str(tmp_path / "r.json")).code == 0
    assert json.loads((tmp_path / "r.json").read_text())["name"] == "digits-mlp"
    assert ge2("run", EXAMPLE, *CPU, "--json", str(tmp_path / "no" / "r.json")).code == 2


@pytest.mark.parametrize("args,kind", [
    (("run", "no.json"), "ModelError"), (("run", EXAMPLE, *CPU, "--sym", "n=3"), "BadParameter"),
    (("run", "--chekc"), "NoSuchOption"), (("kernels", "show", "nothing"), "NoKernelError"),
    (("cache", "export", "/no/folder/x"), "ModelError"),
])
@pytest.mark.parametrize("form", ["--json", "--json="])
def test_a_failure_is_json_too(ge2: Any, tmp_path: Path, args: tuple[str, ...], kind: str,
                               form: str) -> None:
    result = ge2(*args, *((form, "-") if form == "--json" else ("--json=-",)))
    assert result.json["ok"] is False and result.json["exit_code"] == result.code
    assert result.json["error"]["kind"] == kind
    assert result.json["error"]["message"] in result.err
    file = tmp_path / "failure.json"
    file.write_text("an older result")
    ge2(*args, "--json", str(file))
    assert json.loads(file.read_text()) == result.json


def test_a_system_error_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "cli.py", "ops"], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "Errno 28" in line] == [
        "ge2: [Errno 28] No space left on device"]


def test_a_folder_below_a_file_is_refused(ge2: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = ge2("kernels", "new", "mine", "--op", "ROW", "--dir", str(tmp_path / "file" / "sub"))
    assert result.code == 2 and f"{tmp_path / 'file'} is no folder" in result.err


def test_schema_and_completion_as_json(ge2: Any, tmp_path: Path) -> None:
    assert ge2("schema").json == ge2("schema", "--json", "-").json
    assert ge2("schema", "--json", str(tmp_path / "s.json")).out == ""
    assert json.loads((tmp_path / "s.json").read_text())["$defs"]
    assert "_GE2_COMPLETE" in ge2("completion", "bash", "--json", "-").json["script"]


def test_interrupt_during_start_is_no_traceback() -> None:
    code = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from ge2.__main__ import main
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            check=False)
    assert (result.returncode, result.stderr) == (130, "")


def test_mismatch_exits_with_1(ge2: Any) -> None:
    result = ge2("run", EXAMPLE, *CPU, "--atol", "0", "--rtol", "0")
    assert result.code == 1
    assert "MISMATCH" in result.out
    assert "worst at [" in result.out


def test_random_inputs_are_announced(ge2: Any) -> None:
    result = ge2("run", EXAMPLE, *CPU, "--sym", "batch=3", "--seed", "5")
    assert "inputs: random, seed 5, batch=3\n" in result.err
    assert "float32[3, 10]" in result.out


def test_inputs_and_outputs(ge2: Any, tmp_path: Path) -> None:
    images = np.load("examples/digits/images.npy")[:7]
    np.save(tmp_path / "x.npy", images)
    np.savez(tmp_path / "x.npz", images=images, another=images[:1])
    np.savetxt(tmp_path / "x.csv", images.reshape(7, 64), fmt="%d", delimiter=",")
    arrays = []
    for file in ("x.npy", "x.npz", "x.csv"):
        for given in (f"images={tmp_path / file}", str(tmp_path / file)):
            out = tmp_path / "y.npy"
            assert ge2("run", EXAMPLE, *CPU, "--input", given, "--output", str(out)).code == 0
            arrays.append(np.load(out))
    want = np.load("examples/digits/model-expected.npy")[:7]
    for array in arrays:
        np.testing.assert_allclose(array, want, atol=1e-4)
    for target, read in (("o.npz", lambda p: np.load(p)["probabilities"]),
                         ("folder", lambda p: np.load(p / "probabilities.npy")),
                         ("o.csv", lambda p: np.loadtxt(p, delimiter=","))):
        path = tmp_path / target
        ge2("run", EXAMPLE, *CPU, "--input", str(tmp_path / "x.npy"), "--output", str(path))
        np.testing.assert_allclose(read(path), want, atol=1e-4)


@pytest.mark.parametrize("args,code,wanted", [
    (("run", "no.json"), 3, "no.json does not exist"),
    (("run", "examples"), 3, "is a folder"),
    (("run", EXAMPLE, *CPU, "--input", "image=x.npy"), 3, "Did you mean images?"),
    (("run", EXAMPLE, *CPU, "--input", "x.npy"), 3, "x.npy does not exist"),
    (("run", EXAMPLE, *CPU, "--input", "examples/digits/labels.npy"), 3, "another rank"),
    (("run", EXAMPLE, *CPU, "--sym", "batch"), 2, "'batch' is not NAME=N"),
    (("run", EXAMPLE, *CPU, "--sym", "batch=x"), 2, "not NAME=N"),
    (("run", EXAMPLE, *CPU, "--sym", "n=3"), 2, "no named dimension 'n'; it has: batch"),
    (("run", EXAMPLE, *CPU, "--sym", "batch=3", "--sym", "batch=4"), 2, "given twice"),
    (("run", EXAMPLE, "--backend", "gpu"), 2, "'gpu' is not one of"),
    (("run", EXAMPLE, "--chekc"), 2, "--check"),
    (("run",), 2, "Missing argument 'MODEL'"),
    (("rnu",), 2, "did you mean run?"),
    (("check", EXAMPLE, "no.json"), 3, "no.json does not exist"),
    (("kernels", "show", "nothing"), 5, "nothing"),
    (("kernels", "compile", "nothing"), 5, "nothing"),
    (("kernels", "compile", "row_warp", "--arch", "sm_9"), 2, "sm_75 or newer"),
    (("kernels", "compile", "gemm_bias_act_wgmma", "--arch", "sm_80"), 5, "no example problem"),
    (("kernels", "new", "mine", "--op", "LAB_NORMALIZE_SUM"), 2, "no kernels for"),
    (("ops", "softmx"), 2, "did you mean SOFTMAX"),
    (("cache", "prune", "--older-than", "old"), 2, "'old' is not an age"),
    (("cache", "prune", "--max-size", "inf"), 2, "not a size; found 'inf'"),
    (("cache", "prune", "--max-size", "-1"), 2, "not a size; found '-1'"),
    (("run", EXAMPLE, *CPU, "--output", "result.txt"), 2, "unknown suffix '.txt'"),
    (("run", EXAMPLE, *CPU, "--bench", "--min-time", "nan"), 2, "'nan' is no number"),
    (("run", EXAMPLE, *CPU, "--bench", "--timeout", "nan"), 2, "'nan' is no number"),
    (("run", EXAMPLE, *CPU, "--rtol", "nan"), 2, "'nan' is no number"),
    (("explain", EXAMPLE, "--arch", "sm_12"), 2, "sm_75 or newer"),
    (("explain", EXAMPLE, "--arch", "ampere"), 2, "--arch"),
    (("tune", "--op", "GEMM_BIAS_ACT", "--dry-run", "--arch", "sm_12"), 2, "sm_75 or newer"),
    (("tune", "--op", "GEMM", "--dry-run"), 2, "Did you mean GEMM_BIAS_ACT"),
    (("tune", "shw"), 2, "did you mean show"),
    (("kernels", "list", "--arch", "sm_12"), 2, "sm_75 or newer"),
    (("kernels", "list", "--op", "ROWS"), 2, "there are"),
    (("lab", "show", "softmx"), 2, "Did you mean softmax"),
])
def test_mistakes(ge2: Any, args: tuple[str, ...], code: int, wanted: str) -> None:
    result = ge2(*args)
    assert result.code == code
    assert wanted in result.err + result.out


def test_no_gpu_exits_with_4(ge2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ge2.model.backend.cuda_device_count", lambda: (0, "no driver here"))
    result = ge2("run", EXAMPLE, "--backend", "cuda")
    assert result.code == 4
    assert result.err.startswith("ge2: no CUDA device: no driver here")


def test_device_without_a_gpu_says_that_it_is_not_used(ge2: Any) -> None:
    result = ge2("run", EXAMPLE, *CPU, "--device", "3")
    assert result.code == 0
    assert "the cpu backend has no devices: --device is not used" in result.err


def test_gpu_without_cupy_falls_back(ge2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ge2.model.backend.cuda_device_count", lambda: (1, ""))
    monkeypatch.setattr("ge2.model.backend.has_cupy", lambda: False)
    result = ge2("run", EXAMPLE)
    assert result.code == 0
    assert "pip install 'ge2[cuda13]'" in result.err
    assert " on cpu" in result.out


@pytest.fixture
def fresh_topics() -> Iterator[None]:
    """Loggers are set up at their first use: let this test, and those after it, do that anew."""
    from ge2.log import topic

    topic.cache_clear()
    yield
    topic.cache_clear()


@pytest.mark.usefixtures("fresh_topics")
@pytest.mark.parametrize("name,value", [
    ("GE2_BACKEND", "gpu"), ("GE2_DEVICE", "-1"), ("GE2_DEVICE", "one"), ("GE2_JOBS", "0"),
    ("GE2_LOG", "slect"), ("GE2_CACHE_MAX_SIZE", "2X"), ("GE2_CACHE", "yes"),
])
def test_bad_variable_is_an_error(ge2: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str
                                  ) -> None:
    monkeypatch.setenv(name, value)
    result = ge2("env")
    assert result.code == 2
    assert f"{name} has a bad value; found {value!r}; wanted" in result.err


@pytest.mark.usefixtures("fresh_topics")
@pytest.mark.parametrize("name,value", [
    ("GE2_LOG", "cache, select"), ("GE2_LOG", ""), ("GE2_CACHE_MAX_SIZE", "1.5G"),
    ("GE2_JOBS", ""), ("GE2_DEVICE", "7"), ("GE2_CACHE_MAX_SIZE", "1000"),
])
def test_good_variable(ge2: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert ge2("env").code == 0


def test_explain_shows_what_a_memory_budget_saves_and_costs(ge2: Any) -> None:
    args = ("explain", EXAMPLE, "--arch", "sm_90a", "--sym", "batch=64", "--json", "-")
    free = ge2(*args).json
    assert free["memory_budget"] is None
    found = ge2(*args, "--memory-budget", "1K").json["memory_budget"]
    assert found["budget"] == 1024 and found["bytes_before"] == free["arena_bytes"]
    assert found["saved_bytes"] >= 0 and found["added_us"] >= 0
    assert "bytes saved of" in ge2(*args[:-2], "--memory-budget", "1K").out


def test_a_memory_budget_is_a_number_of_bytes(ge2: Any) -> None:
    assert ge2("run", EXAMPLE, *CPU, "--memory-budget", "2GiB").code == 0
    result = ge2("run", EXAMPLE, *CPU, "--memory-budget", "much")
    assert result.code == 2 and "not a number of bytes" in result.err


def test_misspelt_variable_is_a_warning(ge2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_CACHE_DRI", "x")
    result = ge2("env")
    assert result.code == 0
    assert "GE2_CACHE_DRI is not a ge2 variable; did you mean GE2_CACHE_DIR" in result.err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from ge2.errors import ModelError

    monkeypatch.setenv("GE2_DEBUG", "1")
    with pytest.raises(ModelError):
        run(["run", "no.json"])


def test_env_lists_every_variable(ge2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ge2.config import VARIABLES

    monkeypatch.setenv("GE2_DEVICE", "3")
    result = ge2("env", "--json", "-", "-q")
    assert set(result.json) == set(VARIABLES)
    assert result.json["GE2_DEVICE"] | {"doc": ""} == {
        "value": "3", "source": "environment", "default": "0", "choices": [], "doc": ""}


def test_help_lists_commands_and_exit_codes(ge2: Any) -> None:
    text = ge2("--help").out
    for name in COMMANDS:
        assert f"  {name} " in text
    for code, meaning in EXIT_CODES:
        assert str(code) in text and meaning in text


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths = [path]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            paths += every_command(child, (*path, name))
    return paths


@pytest.mark.parametrize("path", every_command(cli), ids="-".join)
def test_every_command_has_help(ge2: Any, path: tuple[str, ...]) -> None:
    result = ge2(*path, "--help")
    assert result.code == 0
    assert result.out.startswith("Usage: ge2")
    assert all(len(line) <= 100 for line in result.out.splitlines())


def test_schema_accepts_the_example(ge2: Any) -> None:
    schema = ge2("schema").json
    assert schema["$schema"].startswith("https://json-schema.org/")
    node = schema["$defs"]["NodeDecl"]
    assert node["additionalProperties"] is False
    assert set(node["required"]) == {"op", "inputs", "outputs"}


def test_ops_lists_every_operator(ge2: Any) -> None:
    from ge2.compiler.opdefs import OPS

    listed = ge2("ops", "--json", "-").json["operators"]
    assert [item["name"] for item in listed] == list(OPS)
    assert "axis" in ge2("ops", "softmax").out


def test_check_describes_models(ge2: Any) -> None:
    result = ge2("check", EXAMPLE, "examples/digits/conv.json")
    assert result.code == 0
    assert "input  images: u8[batch, 8, 8]" in result.out
    assert result.out.count("ok ") == 2


def test_bench_names_the_unmet_criterion(ge2: Any) -> None:
    result = ge2("run", EXAMPLE, *CPU, "--bench", "--timeout", "0.1", "--min-time", "5")
    assert result.code == 0
    assert "median" in result.out
    assert "not met within 0.1 s: min-time 5 s" in result.out


def test_doctor_passes_here(ge2: Any) -> None:
    result = ge2("doctor", "--json", "-", "-q")
    assert result.code == 0, result.err
    names = [f["name"] for f in result.json["findings"]]
    assert {"ge2", "python", "cupy", "headers", "cache"} <= set(names)


@pytest.mark.parametrize("driver,compiler,status,wanted", [
    ((13, 0), (13, 5), "ok", ""), ((13, 0), (12, 9), "ok", ""), ((12, 2), None, "ok", ""),
    ((12, 8), (13, 0), "FAIL", "pip install 'ge2[cuda12]'"),
    ((11, 4), (13, 0), "FAIL", "a newer driver"),
])
def test_doctor_judges_the_driver(driver: tuple[int, int], compiler: tuple[int, int] | None,
                                  status: str, wanted: str) -> None:
    from ge2.commands.doctor import driver_finding

    finding = driver_finding(driver, compiler)
    assert finding.status == status and wanted in finding.fix


@pytest.mark.parametrize("capability,status", [((7, 0), "FAIL"), ((9, 0), "ok"), ((13, 0), "warn")])
def test_doctor_judges_the_gpu(capability: tuple[int, int], status: str) -> None:
    from ge2.commands.doctor import gpu_finding

    finding = gpu_finding(0, "a GPU", capability, (75, 80, 90, 100))
    assert finding.status == status and bool(finding.fix) == (status != "ok")


def test_doctor_finds_two_and_stale_installs(ge2: Any, monkeypatch: pytest.MonkeyPatch,
                                             tmp_path: Path) -> None:
    for folder, version in (("one", "0.0.9"), ("two", "0.1.0")):
        info = tmp_path / folder / f"ge2-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ge2\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
    result = ge2("doctor")
    assert result.code == 4
    assert "ge2 is installed more than once" in result.out and "pip uninstall -y ge2" in result.out
    assert f"metadata in {tmp_path / 'one'} says 0.0.9" in result.out


def test_doctor_names_two_cupy_wheels(ge2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    class Wheel:
        def __init__(self, name: str, version: str) -> None:
            self.metadata = {"Name": name}
            self.version = version

    monkeypatch.setattr(importlib.metadata, "distributions", lambda **kw: [] if kw else [
        Wheel("cupy-cuda12x", "14.0"), Wheel("cupy-cuda13x", "14.0")])
    result = ge2("doctor")
    assert result.code == 4
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in result.out


def test_colors_obey_no_color() -> None:
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1"}
    result = subprocess.run([sys.executable, "cli.py", "check", EXAMPLE], env=environment,
                            capture_output=True, text=True, check=True)
    assert "\x1b" not in result.stdout


def test_closed_pipe_is_no_error() -> None:
    result = subprocess.run(f"{sys.executable} cli.py ops | head -1", shell=True,
                            capture_output=True, text=True, check=True)
    assert "Traceback" not in result.stderr and "Broken" not in result.stderr


@pytest.mark.parametrize(("command", "code"), [
    ("run none.json --json - | true", 3), ("run none.json 2>&1 | true", 3), ("ops >&-", 0),
    ("ops >&- 2>&-", 0), ("ops --json - > /dev/full", 1)])
def test_streams_that_take_nothing_leave_the_exit_code(command: str, code: int) -> None:
    done = subprocess.run(["bash", "-c", f"{sys.executable} cli.py {command}\n"
                           "exit ${PIPESTATUS[0]}"], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "ignored" not in done.stderr


@pytest.mark.parametrize(("args", "wanted"), [
    (("--output", ""), "no place for outputs"), (("--output", "-"), "no place for outputs"),
    (("--trace", "-"), "takes only --json -"), (("--output", EXAMPLE + "/x/"), "is no folder"),
    (("--json", "{0}/a.npz", "--output", "{0}/a.npz"), "another option writes there")])
def test_places_of_outputs_that_make_no_sense(ge2: Any, tmp_path: Path, args: tuple[str, ...],
                                              wanted: str) -> None:
    result = ge2("run", EXAMPLE, *CPU, *(arg.format(tmp_path) for arg in args))
    assert result.code == 2 and wanted in result.err


def test_a_model_is_no_standard_input(ge2: Any) -> None:
    result = ge2("run", "-", *CPU)
    assert result.code == 3 and "read from a file" in result.err


@pytest.mark.parametrize(("name", "encoding", "text"), [
    ("모델", "utf-8", "모델"), ("모델", "ascii", "\\ubaa8\\ub378"),
    ("a\udcff", "utf-8", "a\\udcff")])
def test_characters_that_an_encoding_lacks_are_escaped(name: str, encoding: str, text: str) -> None:
    written = to_json({"file": name}, encoding).encode(encoding).decode(encoding)
    assert text in written and json.loads(written) == {"file": name}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(ge2: Any, shell: str) -> None:
    assert "_GE2_COMPLETE" in ge2("completion", shell).out


def test_completion_offers_commands() -> None:
    environment = {**os.environ, "_GE2_COMPLETE": "bash_complete", "COMP_WORDS": "ge2 ex",
                   "COMP_CWORD": "1"}
    result = subprocess.run([sys.executable, "-c", "from ge2.cli import main; main()"],
                            env=environment, capture_output=True, text=True, check=False)
    assert "explain" in result.stdout


def test_published_schema_is_what_the_loader_takes() -> None:
    from ge2.model.schema import ModelFile, json_schema

    assert json_schema()["$defs"]["ModelFile"] == msgspec.json.schema(ModelFile)["$defs"][
        "ModelFile"]


def test_interrupt_exits_with_130() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ge2", "run", EXAMPLE, *CPU, "--bench", "--min-time", "100",
         "--timeout", "100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "measuring" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "interrupted" in err
