"""The real command line, the real harness, a real small model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lm_eval_leakage.scoring.scorers import slows_down
from tests.harness.test_task import PER_STATISTIC

pytestmark = pytest.mark.model
N = 2


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict]]:
    """Return what `lm-eval-leakage --tasks fresh_leakage_perm` prints and logs."""
    return audited(model, "lm-eval-leakage", "hf", tmp_path_factory.mktemp("out"))


def audited(model: Path, program: str, backend: str, output: Path) -> tuple[str, list[dict]]:
    command = [Path(sys.executable).with_name(program), "--model", backend, "--tasks", "fresh_leakage_perm"]
    command += ["--model_args", f"pretrained={model},dtype=float32", "--limit", str(N)]
    command += ["--log_samples", "--output_path", output]
    command += ["--batch_size", "8"] if backend == "hf" else []
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr
    (log,) = output.rglob("samples_fresh_leakage_perm_*.jsonl")
    return done.stdout, [json.loads(line) for line in log.read_text().splitlines()]


def test_the_table_shows_the_verdict_and_the_rows_of_both_statistics(run) -> None:
    printed, _ = run
    cells = [[cell.strip() for cell in line.split("|")] for line in printed.splitlines() if line.startswith("|")]
    rows = {f"{row[5]},{row[3]}" for row in cells if row[3] in ("max_order", "outlier")}
    printed_rows = {row for row in PER_STATISTIC if not row.startswith("skipped")}
    assert rows == printed_rows | {
        "evidence,max_order",
        "sample,max_order",
    }  # two questions: no p-value, no ratio
    assert "no verdict" in printed


def test_logged_loglikelihoods_are_the_models_own(run, model: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    line = run[1][0]
    for index in (0, 7, 23):
        arguments = line["arguments"][f"gen_args_{index}"]
        whole = tokenizer(arguments["arg_0"] + arguments["arg_1"], return_tensors="pt")["input_ids"]
        n_context = len(tokenizer(arguments["arg_0"])["input_ids"])
        with torch.no_grad():
            logprobs = network(whole).logits.log_softmax(-1)[0, :-1].gather(1, whole[0, 1:, None])[:, 0]
        assert float(line["resps"][index][0][0]) == pytest.approx(float(logprobs[n_context - 1 :].sum()), abs=1e-3)


def test_verdicts_follow_from_the_logged_loglikelihoods_alone(run) -> None:
    for line in run[1]:
        answers = [float(response[0][0]) for response in line["resps"]]
        scores, control = answers[:24], answers[24:]
        assert (len(scores), len(control)) == (line["n_orders"], 2 * 12) == (24, 24)
        if line["filter"] == "max_order":
            assert line["flagged"] == (scores[0] > max(scores[1:]))
            assert line["pvalue"] == sum(score >= scores[0] for score in scores) / 24


def test_plain_lm_eval_with_the_hook_gives_the_same_answers_and_verdicts_by_a_prefix_tree(
    run, model: Path, tmp_path: Path
) -> None:
    subprocess.run([Path(sys.executable).with_name("lm-eval-leakage"), "plugin", "enable"], check=True)
    printed, lines = audited(model, "lm_eval", "hf-prefix-tree", tmp_path)
    assert [row for row in printed.splitlines() if row.startswith("|")] == [
        row for row in run[0].splitlines() if row.startswith("|")
    ]
    for ours, plain_line in zip(lines, run[1], strict=True):
        assert ours["doc_hash"] == plain_line["doc_hash"]
        assert ours["flagged"] == plain_line["flagged"]
        for (value,), (expected,) in zip(ours["resps"], plain_line["resps"], strict=True):
            assert float(value[0]) == pytest.approx(float(expected[0]), abs=1e-3)
            assert value[1] == expected[1]


@pytest.mark.skipif(slows_down(torch.bfloat16, torch.device("cpu")), reason="minutes on a processor without AVX-512")
def test_a_prefix_tree_in_bfloat16_strays_no_further_than_hf(run, model: Path) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM

    lines = run[1][:N]
    pairs = [tuple(line["arguments"][f"gen_args_{index}"].values()) for line in lines for index in range(24)]
    exact = [float(response[0][0]) for line in lines for response in line["resps"][:24]]
    instances = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(pairs)]

    def noise(lm: HFLM) -> float:
        values = lm.loglikelihood(instances, disable_tqdm=True)
        return sum((value - true) ** 2 for (value, _), true in zip(values, exact, strict=True)) ** 0.5

    arguments = {"pretrained": str(model), "dtype": "bfloat16", "device": "cpu"}
    by_chance = 1.1  # the root mean square over 48 texts of two questions
    assert noise(PrefixTreeLM(**arguments)) <= by_chance * noise(HFLM(**arguments, batch_size=8))
