from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.logs.run import DATA, IDENTITY, Run, digest_of
from lm_eval_leakage.results.provenance import Provenance, provenance_of, provenances

COMMIT, DIGEST = "93efa2f097d58c2a74874c7e644dbc9b0cee75a2", "b1dd61d9d65be8aa"
TIME = "2026-11-23T22-02-48.575968"


def run(identity: dict[str, str], model: str = "org/m", time: str = TIME, **sections) -> Run:
    return Run(model, time, {IDENTITY: identity, "lm_eval_version": "0.4.13", **sections}, logs={"t": Path("log")})


def test_a_model_of_the_hub_has_its_revision_and_a_folder_a_digest_of_its_files_whatever_it_is_called() -> None:
    hub = provenance_of(run({"backend": "hf", "pretrained": f"org/m ({COMMIT})"}, model="smol"))
    assert (hub.model, hub.weights, hub.revision, hub.asked_as) == ("smol", "org/m", f"revision {COMMIT}", "hf")
    local = {"backend": "hf", "pretrained": f"./m ({DIGEST})", "dtype": "bfloat16", "peft": f"lora ({DIGEST[::-1]})"}
    provenance = provenance_of(run(local))
    assert provenance.revision == f"files with digest {DIGEST}, peft files with digest {DIGEST[::-1]}"
    assert (provenance.weights, provenance.asked_as) == ("./m", "hf, dtype=bfloat16")
    assert provenance_of(run({"backend": "hf", "pretrained": "org/m"}, model="smol")).weights == "org/m"


def test_a_run_of_plain_lm_eval_has_the_commit_that_the_harness_wrote_or_none() -> None:
    model_settings = {"model_sha": COMMIT, "model_revision": "main"}
    assert provenance_of(run({}, config=model_settings)).revision == f"revision {COMMIT}"
    assert provenance_of(run({}, config={"model_sha": ""})).revision == ""
    assert provenance_of(Run("m", TIME)) == Provenance("m", date="2026-11-23", weights="m")


def test_the_newest_run_of_a_task_counts_and_a_group_has_that_of_its_members() -> None:
    members = {"group_subtasks": {"g": ["t"]}}
    runs = [run({}, time="2026-01-01T00-00-00", **members), run({}, time="2026-02-02T00-00-00", **members)]
    assert {name: made.date for name, made in provenances(runs).items()} == {"t": "2026-02-02", "g": "2026-02-02"}


ARC = {"dataset_path": "allenai/ai2_arc", "dataset_name": "ARC-Easy"}


def test_a_benchmark_has_a_digest_of_all_of_its_rows_and_what_its_tasks_data_sets_have_in_common() -> None:
    def of_group(data: dict[str, str], *configs: dict[str, str]) -> dict[str, Provenance]:
        names = ("t", "u")
        sections = {DATA: data, "configs": dict(zip(names, configs, strict=True)), "group_subtasks": {"g": names}}
        return provenances([run({}, **sections)])

    both = {"t": "aa", "u": "bb"}
    provenances_of_tasks = of_group(both, ARC, ARC | {"dataset_name": "ARC-Challenge"})
    figures = {
        name: (provenance.digest, provenance.dataset, provenance.config)
        for name, provenance in provenances_of_tasks.items()
    }
    assert figures["t"] == (digest_of({"t": "aa"}), "allenai/ai2_arc", "ARC-Easy")
    assert figures["g"] == (digest_of(both), "allenai/ai2_arc", "")
    assert of_group({"t": "aa"}, ARC, ARC)["g"].digest == ""
    assert of_group(both, ARC, ARC | {"dataset_path": "org/other"})["g"].dataset == ""


def test_files_and_folders_are_no_data_sets_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data/mine").mkdir(parents=True)
    for path in ("json", "data/mine", "./data", "/data/mine", "a/b/c", None):
        provenance = provenances([run({}, configs={"t": {"dataset_path": path}})])["t"]
        assert (provenance.dataset, provenance.config) == ("", "")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"chat_template_sha": "ab12"}, "chat template"),
        ({"chat_template_sha": None, "system_instruction_sha": None}, "plain text"),
        (
            {"chat_template_sha": None, "system_instruction_sha": "0123456789ab"},
            "plain text with system instruction 01234567",
        ),
        ({"system_instruction_sha": "0123456789ab"}, "system instruction 01234567"),
        ({}, ""),
    ],
)
def test_the_prompt_format_is_what_the_run_records_of_it(results, expected) -> None:
    assert provenance_of(run({}, **results)).prompt_format == expected
