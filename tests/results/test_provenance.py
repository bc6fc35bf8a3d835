from __future__ import annotations

from pathlib import Path

from lm_eval_leakage.logs.run import IDENTITY, Run
from lm_eval_leakage.results.result_types import Provenance, provenance_of, provenances

COMMIT, DIGEST = "93efa2f097d58c2a74874c7e644dbc9b0cee75a2", "b1dd61d9d65be8aa"
TIME = "2026-11-23T22-02-48.575968"


def run(identity: dict[str, str], model: str = "org/m", time: str = TIME, **sections) -> Run:
    return Run(model, time, {IDENTITY: identity, "lm_eval_version": "0.4.13", **sections}, logs={"t": Path("log")})


def test_a_model_of_the_hub_has_its_revision_and_a_folder_a_digest_of_its_files() -> None:
    hub = provenance_of(run({"backend": "hf", "pretrained": f"org/m ({COMMIT})"}))
    assert (hub.model, hub.revision, hub.asked_as) == ("org/m", f"revision {COMMIT}", "hf")
    local = {"backend": "hf", "pretrained": f"./m ({DIGEST})", "dtype": "bfloat16", "peft": f"lora ({DIGEST[::-1]})"}
    found = provenance_of(run(local))
    assert found.revision == f"files with digest {DIGEST}, peft files with digest {DIGEST[::-1]}"
    assert found.asked_as == "hf, dtype=bfloat16"


def test_a_run_of_plain_lm_eval_has_the_commit_that_the_harness_wrote_or_none() -> None:
    told = {"model_sha": COMMIT, "model_revision": "main"}
    assert provenance_of(run({}, config=told)).revision == f"revision {COMMIT}"
    assert provenance_of(run({}, config={"model_sha": ""})).revision == ""
    assert provenance_of(Run("m", TIME)) == Provenance("m", date="2026-11-23")


def test_the_newest_run_of_a_task_counts_and_a_group_has_that_of_its_members() -> None:
    members = {"group_subtasks": {"g": ["t"]}}
    runs = [run({}, time="2026-01-01T00-00-00", **members), run({}, time="2026-02-02T00-00-00", **members)]
    assert {name: made.date for name, made in provenances(runs).items()} == {"t": "2026-02-02", "g": "2026-02-02"}
