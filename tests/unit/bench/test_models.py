"""bench.models without a GPU: both forms of the encoder, what counts as a figure, starts."""

from __future__ import annotations

import importlib.util
import json
import math
import time

import ml_dtypes  # noqa: F401 - registers bfloat16 with NumPy
import numpy as np
import pytest
from click.testing import CliRunner

from bench import minilm, model_start, models
from bench.model_case import SECTIONS, time_limit
from ge2.evidence.measure import Timing
from ge2.model.weights import open_weights

from ..examples.test_minilm import forward, needs_package, package_folder

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                 reason="PyTorch is not installed")
TINY = minilm.Sizes(hidden_size=24, intermediate_size=40, num_attention_heads=3,
                    num_hidden_layers=2, max_position_embeddings=128, vocab_size=50)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return minilm.write_random(tmp_path_factory.mktemp("weights"), TINY)


def config(folder):
    return json.loads((folder / "config.json").read_text())


# -- the encoder -----------------------------------------------------------------------------------

@needs_package
def test_random_weights_have_the_shapes_of_the_real_ones(tmp_path):
    real = package_folder()
    drawn = open_weights(minilm.write_random(tmp_path) / "model.safetensors", "drawn")
    known = open_weights(real / "model.safetensors", "real")
    assert {name: a.shape for name, a in drawn.items()} == {
        name: known[name].shape for name in drawn}
    assert config(tmp_path).items() <= config(real).items()


@pytest.mark.parametrize(("form", "atol"), [("f32", 1e-5), ("x3", 1e-5), ("f16", 2e-3)])
def test_ge2_computes_the_encoder(tiny, form, atol):
    ids, mask = minilm.sentences(config(tiny), 3, 17, ragged=True)
    model = minilm.build(tiny, *models.FORMS[form]).model(backend="cpu")
    found = model(ids=ids, mask=mask)["embedding"].astype("f8")
    np.testing.assert_allclose(found, forward(tiny, ids, mask), atol=atol)


@pytest.mark.parametrize("form", ["f32", "x3"])
def test_products_say_how_f32_is_multiplied(tiny, form):
    nodes = minilm.build(tiny, *models.FORMS[form]).graph.nodes
    said = {node.attrs["f32"] for node in nodes if node.op == "GEMM_BIAS_ACT"}
    assert said == {models.FORMS[form][1]}


def test_both_forms_have_the_same_weights(tiny):
    graph = minilm.build(tiny, "f32").graph
    renamed = minilm.renamed(open_weights(tiny / "model.safetensors", "tiny"), config(tiny))
    parts = [part for name, array in renamed.items()
             for part in (np.split(array, 3) if ".qkv." in name else [array])]
    assert sorted(a.tobytes() for a in graph.constants.values()) == sorted(
        part.tobytes() for part in parts)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_torch_computes_the_encoder(tiny):
    import torch

    from bench.minilm_torch import Encoder, reference

    ids, mask = minilm.sentences(config(tiny), 3, 17, ragged=True)
    wanted = forward(tiny, ids, mask)
    given = torch.from_numpy(ids), torch.from_numpy(mask)
    with torch.no_grad():
        found = Encoder(tiny, torch.float32)(*given)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    wide = reference(tiny, torch.float32, *given, chunk=2)
    # Positions and types are added in f32, as the example does; forward() adds them in f64.
    np.testing.assert_allclose(wide.numpy(), wanted, atol=1e-7)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_check_only_compares_both_on_the_cpu(tiny):
    args = ["--only", "f16,f32", "--check-only", "--weights", str(tiny)]
    done = CliRunner().invoke(models.main, args, catch_exceptions=False)
    assert done.exit_code == 0
    assert [line.split(":")[0] for line in done.output.splitlines()] == [
        "ok   f16 B1 f16", "ok   f16 B1 eager called", "ok   f32 B1 f32", "ok   f32 B1 x3",
        "ok   f32 B1 eager called"]


def test_ragged_sentences_have_tokens_and_padding():
    _, mask = minilm.sentences({"vocab_size": 9}, 64, 16, ragged=True)
    assert mask[:, 0].all() and len(set(mask.sum(1))) > 8
    assert minilm.sentences({"vocab_size": 9}, 2, 16, ragged=False)[1].all()


# -- figures ---------------------------------------------------------------------------------------

def timing(*samples: float) -> Timing:
    return Timing(sorted(samples)[len(samples) // 2], 0.0, len(samples), 1, samples, False)


def test_ratios_are_of_the_same_round_and_to_the_best_compiled_peer():
    row = models.summary({
        "ge2 f32": timing(1.0, 2.0, 4.0), "ge2 x3": timing(1.0, 1.0, 1.0),
        "eager": timing(1.0, 1.0, 1.0), "compile": timing(3.0, 6.0, 12.0),
        "max-autotune": timing(9.0, 9.0, 9.0)})
    assert row["peer"] == "compile"
    assert row["ge2 f32"]["ratio"] == pytest.approx(3.0) == row["ge2 f32"]["lower"]
    assert row["ge2 x3"]["ratio"] == 6.0 > row["ge2 x3"]["lower"]
    assert row["ge2 x3"]["ratios"]["eager"] == 1.0


def test_without_a_compiled_peer_there_is_no_ratio():
    row = models.summary({"ge2 f16": timing(1.0), "eager": timing(2.0)})
    assert row["peer"] is None and "ratio" not in row["ge2 f16"]


def test_what_is_far_from_the_reference_has_no_figure():
    candidates = dict.fromkeys(("ge2 f16", "eager", "compile"))
    errors = {"f16": math.nan, "eager called": 1e-3, "compile called": 3e-3}
    assert list(models.sound_candidates(candidates, errors, "called", 2e-3)) == ["eager"]


def test_a_line_says_ratio_goal_and_launches(capsys):
    figures = {"errors": {"f16": 1e-4}, "limit": {"f16": 2e-3}, "plan": {"f16": {"launches": 33}},
               "refused": {"max-autotune called": "took more than 9 s"},
               "captured": models.summary({"ge2 f16": timing(2.0), "compile": timing(3.0)})}
    models.show("B1", figures)
    models.show("B1", {**figures, "errors": {"f16": math.nan}})
    good, refused, bad, _ = capsys.readouterr().out.splitlines()
    assert good.startswith("ok ") and "1.50 (>1.50) x compile, goal 1.3" in good
    assert "33 launches" in good and "took more than 9 s" in refused and bad.startswith("FAIL")


def test_every_form_has_a_goal_and_a_limit():
    forms = {form for forms, _ in SECTIONS.values() for form in forms}
    assert forms == set(models.FORMS) == set(models.GOALS) == set(models.LIMITS)


def test_time_limit():
    with pytest.raises(TimeoutError, match=r"0\.01 s"), time_limit(0.01):
        time.sleep(5)
    with time_limit(5):
        pass


@pytest.mark.parametrize("args", [["--only", "f8"], ["--batches", "1,x"], ["--only", "f16"]])
def test_usage_errors(args, tiny):
    done = CliRunner().invoke(models.main, [*args, "--weights", str(tiny)])
    assert done.exit_code == 2


# -- starts ----------------------------------------------------------------------------------------

def test_seconds_are_counted_from_the_start_of_the_process():
    marks = {"import": 11.0, "context": 12.0, "loaded": 12.5, "first": 15.0, "second": 15.25}
    assert model_start.seconds(10.0, marks) == {
        "total": 5.0, "import": 1.0, "after_import": 4.0, "after_context": 3.0, "load": 0.5,
        "second_call": 0.25}


def test_processes_start_with_empty_and_with_full_caches(tiny, capsys):
    found = model_start.starts(tiny, 2, 16, ("compile", "max-autotune"), device="cpu")
    assert all(found[f"ge2 {state}"]["total"] > 0 for state in ("cold", "warm"))
    assert capsys.readouterr().out.count("ge2") == 2


def test_a_process_that_fails_says_why(tiny, capsys):
    found = model_start.starts(tiny, 2, 16, ("compile", "max-autotune"), device="tpu")
    assert "tpu" in found["ge2 cold"]["failed"] and "FAIL" in capsys.readouterr().out
