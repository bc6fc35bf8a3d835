"""An audit against what another model said of the same texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.tasks.metadata import probe_of, reference_of
from lm_eval_leakage.logs.reference_log import read_reference
from lm_eval_leakage.logs.run import OF_CHECK
from tests.fakes import FakeLM, by_hash

extend_harness(TaskManager)
TASK = "fresh_leakage_perm"
DOCS = [{"question": f"How many, {i}?", "choices": ["1", "2", "3", "4"], "answer": 0} for i in range(12)]


def fond_of_rising(context: str, continuation: str) -> float:
    """A model without memory that prefers rising numbers."""
    return by_hash(context, continuation) + 5 * (continuation == "\nA. 1\nB. 2\nC. 3\nD. 4")


def audit(score, data: dict[str, str], task: str = TASK, **metadata: object):
    ours = TaskManager(include_path=str(task_configs_path()), include_defaults=False, metadata=data | metadata)
    return simple_evaluate(model=FakeLM(score), tasks=[task], task_manager=ours)


def log(results, folder: Path, task: str = TASK, model: str = "reference") -> Path:
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.model_name_sanitized = model
    tracker.date_id = "2026-01-01T00-00-00.000000"
    tracker.save_results_samples(task, results["samples"][task])
    return folder


def row(results) -> dict[str, float]:
    return results["results"][TASK]


def test_what_any_model_prefers_is_taken_off_and_what_only_this_one_prefers_stays(questions_file, tmp_path) -> None:
    data = questions_file(DOCS)
    alike = log(audit(lambda c, t: fond_of_rising(c, t) + by_hash(t, c) / 9, data), tmp_path / "alike")
    other = log(audit(by_hash, data), tmp_path / "other")
    assert row(audit(fond_of_rising, data))["flagged_rate,max_order"] == 1
    against = audit(fond_of_rising, data, reference_log=str(alike))
    assert row(against)["flagged_rate,max_order"] < 0.5
    assert against["leakage_details"][TASK]["dataset_pvalue,max_order"] > 0.001
    assert row(audit(fond_of_rising, data, reference_log=str(other)))["flagged_rate,max_order"] == 1


def test_what_a_check_set_aside_since_another_model_answered_it_is_no_reference(questions_file, tmp_path) -> None:
    check = tmp_path / "check"
    log(audit(by_hash, questions_file(DOCS[:6])), check / "runs")
    log(audit(by_hash, questions_file(DOCS)), check / "replaced" / "2026-11-30")
    for name in OF_CHECK:
        (check / name).write_text("{}")
    results = audit(by_hash, questions_file(DOCS), reference_log=str(check))
    assert row(results)["skipped,max_order"] == 6


def test_a_question_that_the_reference_was_not_asked_is_skipped_with_the_reason(questions_file, tmp_path) -> None:
    reference = log(audit(by_hash, questions_file(DOCS[:9])), tmp_path)
    results = audit(by_hash, questions_file(DOCS), reference_log=str(reference))
    assert row(results)["skipped,max_order"] == 3
    assert results["samples"][TASK][-1]["reason"] == "the reference log does not have all of its texts"


def test_a_broken_line_is_named_and_costs_itself_only(questions_file, tmp_path, caplog) -> None:
    folder = log(audit(by_hash, questions_file(DOCS), control_form=False), tmp_path)
    (file,) = folder.rglob("samples_*.jsonl")
    lines = [line for line in file.read_text().splitlines() if '"filter": "max_order"' in line]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join([*lines[:-2], lines[-2][:50], json.dumps({"arguments": 1})]))
    assert len(read_reference(str(broken)).loglikelihoods) == (len(DOCS) - 2) * 24
    assert f"{broken}, line {len(lines) - 1}: left out" in caplog.text


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_place_without_a_log_is_named(name: str, questions_file, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="which holds no log-likelihoods in 0 samples log"):
        audit(by_hash, questions_file(DOCS), reference_log=str(tmp_path / name))


def test_a_method_without_loglikelihoods_goes_on_without_a_reference(questions_file, caplog) -> None:
    metadata = {"probe": "option_completions", "reference_log": "anywhere"}
    assert reference_of(metadata, probe_of(metadata)) is None
    assert "the probe 'option_completions' requests no log-likelihoods" in caplog.text


def test_a_log_of_other_texts_is_named_and_not_used(questions_file, tmp_path, caplog) -> None:
    others = [{**doc, "question": doc["question"] + "?"} for doc in DOCS]
    reference = log(audit(by_hash, questions_file(others)), tmp_path)
    results = audit(fond_of_rising, questions_file(DOCS), reference_log=str(reference))
    assert row(results)["flagged_rate,max_order"] == 1
    assert row(results)["skipped,max_order"] == 0
    assert "has no texts of this audit" in caplog.text
    assert "reference" not in results["samples"][TASK][0]["detector"]


def test_scores_against_a_reference_are_not_those_without(questions_file, tmp_path) -> None:
    reference = log(audit(by_hash, questions_file(DOCS)), tmp_path)
    for folder in {file.parent for file in tmp_path.rglob("samples_*.jsonl")}:
        (folder / "results_2026.json").write_text('{"model_name": "elder", "results": {}}')
    results = audit(by_hash, questions_file(DOCS), reference_log=str(reference))
    assert results["samples"][TASK][0]["detector"] == "max_order:reference=elder"


def test_a_folder_with_logs_of_two_models_is_refused_and_copies_of_annotate_are_not_read(tmp_path, caplog) -> None:
    sample = {"arguments": {"gen_args_0": {"arg_0": "Which?", "arg_1": " A"}}, "resps": [[[-1.0, False]]]}
    for model in ("elder", "younger"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "samples_reference.jsonl").write_text(json.dumps(sample))
        (tmp_path / model / "results_reference.json").write_text(json.dumps({"model_name": model, "results": {}}))
    (tmp_path / "elder" / "samples_reference_leakage.jsonl").write_text('{"flagged": true}\n')
    assert read_reference(str(tmp_path / "elder")).model == "elder"
    assert not caplog.messages
    with pytest.raises(ValueError, match=r"holds logs of 2 models \(elder, younger\); name the folder of one"):
        read_reference(str(tmp_path))
