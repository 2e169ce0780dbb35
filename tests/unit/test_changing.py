"""docs/changing.md, carried out: each kind of change with the files that it names and no others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ge2
from ge2 import contract, launch_table, paths
from ge2.compiler import opdefs
from ge2.compiler.kernels import registry, selector, source
from ge2.compiler.opdefs import elementwise
from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.compiler.plan import make_plan
from ge2.contract import ActKind, Status
from ge2.errors import ApiVersionMismatch
from ge2.evidence.device import profile_for
from ge2.launch.params import decode_params, encode_params
from ge2.model import GraphBuilder
from ge2.problem import Problem, TensorSpec
from ge2.runtime.device import EmulatedDevice
from ge2.runtime.launcher import PlainLauncher

H200 = profile_for("sm_90a")
EXAMPLE_A = {
    "name": "gemm_bias_act_f32_tiled", "op_type": "GEMM_BIAS_ACT",
    "dtypes": {"in": ["f32", "f32", "f32"], "out": "f32"},
    "flags": {"tensor_core": False, "min_mnk": (256, 256, 128)},
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    registry.reset()
    yield
    paths.remove_kernel_dirs()
    registry.reset()


def gemm(act: str = "none", epilogue: Hashable = None, size: int = 512) -> Problem:
    a = TensorSpec.dense("f32", (size, size))
    bias = TensorSpec("f32", (size, size), (0, 1))
    schema = launch_table_attrs("GEMM_BIAS_ACT")
    attrs = {spec.name: spec.default for spec in schema}
    attrs |= {"act": act, "epilogue": epilogue}
    return Problem("GEMM_BIAS_ACT", (a, a, bias, None), (a,), tuple(sorted(attrs.items())))


def with_epilogue() -> Problem:
    """Return the product as launchers complete it: with its epilogue as an expression."""
    return gemm(epilogue=gemm_epilogue("f32", ("f32", None), 1.0, 1.0, "none", 0.0))


def launch_table_attrs(op_type: str) -> tuple[contract.AttrSpec, ...]:
    from ge2.launch.schemas import kernel_op

    return kernel_op(op_type).attrs


def own_template(folder: Path, name: str, extra: str = "") -> None:
    """Write a kernel of the user's own: the strided elementwise kernel under another name."""
    text = (paths.kernels_dir() / "elementwise/elementwise_strided.cu.j2").read_text()
    text = text.replace("elementwise_strided", name).replace("score = 30", f"score = 500\n{extra}")
    (folder / f"{name}.cu.j2").write_text(text)
    paths.add_kernel_dir(folder)
    registry.reset()


def squares() -> GraphBuilder:
    g = GraphBuilder()
    x = g.input("x", "f32", [64, 64])
    g.output("y", g.mul(x, x))
    return g


# 1. a new kernel variant


def test_new_kernel_is_one_file(tmp_path: Path) -> None:
    own_template(tmp_path, "my_elementwise")
    plan = make_plan(squares().graph, H200)
    step, = plan.steps
    assert step.choice is not None
    assert step.choice.variant.kernel.name == "my_elementwise"
    assert 'extern "C" __global__' in source.render(plan.records[0].kernel)
    assert callable(launch_table.ge2_launch_my_elementwise)
    assert launch_table.query_capability("ELEMENTWISE__my_elementwise", H200) == 500


# 4. a new operator


def test_new_elementwise_operator_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = elementwise._row("CUBE", lambda x: x * x * x, "x cubed.")
    monkeypatch.setitem(opdefs.OPS, "CUBE", row)
    monkeypatch.setitem(elementwise.BY_NAME, "CUBE", row)
    g = GraphBuilder()
    x = g.input("x", "f16", ["n", 3])
    g.output("y", g.cube(x))
    values = np.arange(6, dtype="f2").reshape(2, 3)
    np.testing.assert_array_equal(g.model(backend="cpu")(values)["y"], values**3)
    step, = g.model(backend="cpu").explain(arch="sm_80", symbols={"n": 2}).plan.steps
    assert step.problem.op_type == "ELEMENTWISE"
    assert "cubed" in g.cube.__doc__


# 11 A. the registry entry of the change guide, word for word


def test_register_takes_the_literal_of_example_a() -> None:
    info = ge2.register(EXAMPLE_A)
    assert info.min_mnk == (256, 256, 128)
    assert info.dtypes[0].inputs == ("f32", "f32", "f32")
    assert "tensor_core" not in info.flags
    key = "GEMM_BIAS_ACT__gemm_bias_act_f32_tiled"
    assert launch_table.query_capability(key, H200) == 90
    assert callable(launch_table.ge2_launch_gemm_bias_act_f32_tiled)
    problem = with_epilogue()
    choice = selector.select(problem, H200, kernels=[info])
    assert launch_table.bind(problem, choice.variant, H200)


def test_register_a_kernel_of_the_users_own(tmp_path: Path) -> None:
    text = (paths.kernels_dir() / "gemm/gemm_bias_act_f32_tiled.cu.j2").read_text()
    (tmp_path / "my_gemm.cu.j2").write_text(text.replace("gemm_bias_act_f32_tiled", "my_gemm"))
    paths.add_kernel_dir(tmp_path)
    registry.reset()
    info = ge2.register({**EXAMPLE_A, "name": "my_gemm", "score": 400})
    assert selector.select(with_epilogue(), H200).variant.kernel == info


# 11 B. GELU by the act parameter


def test_gelu_reuses_the_field() -> None:
    relu, gelu = encode_params(gemm("relu")), encode_params(gemm("gelu"))
    assert relu.dtype == gelu.dtype
    assert gelu["header"]["api_version"] == ge2.GE2_API_VERSION == 3
    assert gelu["attrs"]["act"] == ActKind.GELU == 2
    gelu["attrs"]["act"] = ActKind.RELU
    assert gelu.tobytes() == relu.tobytes()


# 7. capability scores


def test_score_decides(tmp_path: Path) -> None:
    own_template(tmp_path, "my_elementwise")
    problem = make_plan(squares().graph, H200).steps[0].problem
    launch_table.set_capability("ELEMENTWISE__my_elementwise", 1)
    assert launch_table.query_capability("ELEMENTWISE__my_elementwise", H200) == 1
    assert selector.select(problem, H200).variant.kernel.name != "my_elementwise"
    launch_table.set_capability("ELEMENTWISE__my_elementwise", 500)
    assert selector.select(problem, H200).variant.kernel.name == "my_elementwise"


def test_score_of_what_the_device_cannot_run() -> None:
    for kernel in registry.all_kernels():
        if not kernel.runs_on("sm_75"):
            assert launch_table.query_capability(kernel.capability_key, profile_for("sm_75")) == 0


# 6. a new contract version


def test_old_params_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    block = encode_params(gemm(), workspace=0)
    monkeypatch.setattr("ge2.launch.params.GE2_API_VERSION", 4)
    launch = PlainLauncher(registry.get("gemm_bias_act_f32_tiled"), EmulatedDevice())
    bufs = [16, 16, 16, 0, 16, block.ctypes.data]
    assert launch(bufs, len(bufs), 0) == Status.API_VERSION == -12
    error = ge2.last_error()
    assert error is not None and (error.found, error.wanted) == (3, 4)
    with pytest.raises(ApiVersionMismatch, match="found 3; wanted 4"):
        decode_params(block.ctypes.data, "GEMM_BIAS_ACT", 5, (16,) * 5)


def test_old_plug_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_template(tmp_path, "my_elementwise", f"api = {ge2.GE2_API_VERSION}")
    assert registry.get("my_elementwise").score == 500
    monkeypatch.setattr("ge2.compiler.kernels.metadata_parse.GE2_API_VERSION", 4)
    registry.reset()
    with pytest.raises(ApiVersionMismatch, match=r"my_elementwise\.cu\.j2 .*found 3; wanted 4"):
        registry.all_kernels()


def test_history_has_a_row_for_every_version() -> None:
    versions = [version for version, _, _ in contract.VERSION_HISTORY]
    assert versions == list(range(1, contract.GE2_API_VERSION + 1))


def test_the_page_names_the_present_version() -> None:
    page = (Path(__file__).parents[2] / "docs" / "changing.md").read_text()
    assert f"`api = {contract.GE2_API_VERSION}`" in page
    assert f"ge2.GE2_API_VERSION == {contract.GE2_API_VERSION}" in page


# 10. what must not change


def test_buffer_order_is_inputs_outputs_params() -> None:
    for kernel in registry.all_kernels():
        assert hasattr(launch_table, f"ge2_launch_{kernel.name}")
        assert kernel.capability_key == f"{kernel.op_type}__{kernel.name}"
    problem = gemm()
    assert problem.tensors == (*problem.inputs, *problem.outputs)


def test_status_and_activation_numbers_are_what_they_were() -> None:
    assert [int(s) for s in Status] == list(range(0, -13, -1))
    assert [k.name for k in ActKind][:3] == ["NONE", "RELU", "GELU"]
