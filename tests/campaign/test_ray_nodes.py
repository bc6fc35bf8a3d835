"""What Ray reserves for workers, why it has lost one, and which nodes can be used: without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage import __version__
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs import ray_places
from lm_eval_leakage.jobs.plan import PlanModel
from lm_eval_leakage.jobs.ray_actor import mark_of, refuse_node
from lm_eval_leakage.jobs.ray_cluster import cause_of
from tests.campaign.unloaded_runner import a_plan


@pytest.mark.parametrize(
    ("gpus", "workers", "cpus"), [(0, None, 1.0), (0, 1, 8.0), (0, 3, 4.0), (0, 100, 1.0), (2, 1, 1.0)]
)
def test_workers_without_gpus_share_the_cpus_if_their_number_is_limited(gpus, workers, cpus, monkeypatch) -> None:
    monkeypatch.setattr(ray_places, "amounts", {"CPU": [4.0, 8.0]}.__getitem__)
    plan = a_plan(models=(PlanModel(name="one", gpus=gpus, workers=workers),))
    assert ray_places.cpus_of_worker(plan, "one") == cpus


DIED = """The actor died unexpectedly before finishing this task.
\tactor_id: 07254a
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR \
Some common causes include: (1) the process was killed by the OOM killer"""
IN_CREATION = (
    "The actor died because of an error raised in its creation task, ray::A\n  File 'a.py'\nOSError: no disk\n"
)


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        (DIED, "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"),
        (IN_CREATION, "OSError: no disk"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_of_a_loss_is_one_sentence_without_ids_and_advice(report: str, cause: str) -> None:
    assert cause_of(RuntimeError(report)) == cause


def test_a_node_that_cannot_be_used_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic_write(mark_of(tmp_path), "now")
    refuse_node(tmp_path, "now", __version__)
    with pytest.raises(ValueError, match=f"has lm-eval-leakage {__version__}; install 9.9 on every node"):
        refuse_node(tmp_path, "now", "9.9")
    with pytest.raises(ValueError, match=f"does not see the campaign's folder {tmp_path}; choose an --output_path"):
        refuse_node(tmp_path, "another start", __version__)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ValueError, match=f"cannot write to {tmp_path}; let the user that runs Ray there write to it"):
        refuse_node(tmp_path, "now", __version__)
