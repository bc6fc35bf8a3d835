"""`hf-prefix-tree` on several processes (gloo, CPUs)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.models import prefix_tree_lm
from lm_eval_leakage.scoring.scorers import TreeScorer
from tests.harness.launched import free_port, launched_as
from tests.harness.test_prefix_tree_lm import instances, lm_of
from tests.harness.test_ranks import MANY
from tests.harness.test_task import TASK

PAIRS = [(f"Question {n}: what is it that is asked here?\n", f"A. {option}") for n in range(6) for option in "xyz"]
OWN = PAIRS[5:12], PAIRS[:7]  # what each process lacks in its own response cache
BUDGET = 64


def hold_one_model(number: int, port: int, model: str, folder: str) -> None:
    """One of two processes that hold one model; in each, memory runs out once."""
    launched_as(number, port)
    # each process reads its own free memory
    prefix_tree_lm.default_max_tokens = lambda *_: BUDGET + 10 * number
    lm = lm_of(model, tp_plan="auto")
    report: dict[str, object] = {"agreed": lm.budget.max_tokens, "by_tree": lm.choice.scorer is not None}
    advance, failed = TreeScorer._advance, []

    def runs_out_once(self, *args):
        if not failed:
            failed.append(True)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return advance(self, *args)

    TreeScorer._advance = runs_out_once
    report["answers"] = lm.loglikelihood(instances(PAIRS), disable_tqdm=True)
    report["after"] = lm.budget.max_tokens
    report["own"] = lm.loglikelihood(instances(OWN[number]), disable_tqdm=True)
    Path(folder, f"reported_{number}").write_text(json.dumps(report))


@pytest.mark.model  # starts processes
@pytest.mark.filterwarnings("ignore")
def test_processes_that_hold_one_model_read_the_same_pieces(llama, tmp_path: Path) -> None:
    mp.start_processes(hold_one_model, (free_port(), llama, str(tmp_path)), nprocs=2, start_method="fork")
    first, second = (json.loads((tmp_path / f"reported_{rank}").read_text()) for rank in range(2))
    pieces = [report.pop("own") for report in (first, second)]
    assert first == second
    assert (first["by_tree"], first["agreed"], first["after"]) == (True, BUDGET, BUDGET // 2)
    alone = [value for value, _ in lm_of(llama).loglikelihood(instances(PAIRS), disable_tqdm=True)]
    assert [value for value, _ in first["answers"]] == pytest.approx(alone, abs=1e-3)
    for answers, right in zip(pieces, (alone[5:12], alone[:7]), strict=True):
        assert [value for value, _ in answers] == pytest.approx(right, abs=1e-3)


def run_audit(number: int, port: int, model: str, arguments: str, metadata: dict, folder: str) -> None:
    """One of two nodes with a process each, as launchers start it."""
    launched_as(number, port)
    results = audited(model, arguments, metadata, f"{folder}/out")
    if results is not None:
        Path(folder, f"samples_{number}.json").write_text(json.dumps(results["samples"][TASK]))


def audited(model: str, arguments: str, metadata: dict, output: str) -> dict | None:
    return simple_evaluate(
        model="hf-prefix-tree",
        model_args=f"pretrained={model},dtype=float32,max_length=512{arguments}",
        device="cpu",
        tasks=[TASK],
        task_manager=TaskManager(include_path=task_configs_path(), include_defaults=False, metadata=metadata),
        evaluation_tracker=EvaluationTracker(output_path=output),
    )


def answers_of(samples: list[dict]) -> dict[tuple[int, str], list[float]]:
    return {(line["doc_id"], line["filter"]): [float(answer[0][0]) for answer in line["resps"]] for line in samples}


@pytest.mark.model  # starts processes
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arguments", ["", ",tp_plan=auto"], ids=["data parallel", "tensor parallel"])
def test_two_nodes_give_the_results_of_one_process_and_the_first_node_saves_them(
    llama, questions_file, tmp_path, arguments
) -> None:
    metadata = questions_file(MANY[:5]) | {"control_form": False}
    mp.start_processes(
        run_audit, (free_port(), llama, arguments, metadata, str(tmp_path)), nprocs=2, start_method="fork"
    )
    assert sorted(file.name for file in tmp_path.glob("samples_*")) == ["samples_0.json"]
    samples = json.loads((tmp_path / "samples_0.json").read_text())
    alone = audited(llama, "", metadata, str(tmp_path / "alone"))
    assert alone is not None
    answers, right = answers_of(samples), answers_of(alone["samples"][TASK])
    assert len(samples) == len(answers)  # each question once
    assert answers.keys() == right.keys()
    for key, values in right.items():
        assert answers[key] == pytest.approx(values, abs=1e-3)
    n_stores = len(list((tmp_path / "out" / "leakage_answers").glob("*.sqlite")))
    assert n_stores == (1 if arguments else 2)  # in a data-parallel run each process has answered some


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("memory", "places"), [("30KB", {"disk"}), ("40KB", {"cpu", "disk"})])
def test_layers_on_other_devices_or_on_disk_change_no_answer(llama, tmp_path, memory, places) -> None:
    offloaded = {"parallelize": True, "max_cpu_memory": memory, "offload_folder": str(tmp_path / "offloaded")}
    lm = lm_of(llama, **offloaded)
    assert set(map(str, lm.model.hf_device_map.values())) == places
    assert lm.choice.scorer is not None
    alone = lm_of(llama).loglikelihood(instances(PAIRS), disable_tqdm=True)
    assert lm.loglikelihood(instances(PAIRS), disable_tqdm=True) == alone
