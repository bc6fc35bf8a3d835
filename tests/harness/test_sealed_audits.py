"""Audits with a seal, through the harness: what is asked, what is left out, and what the key makes exact."""

from __future__ import annotations

import json
import random

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.preflight import check_run_options
from lm_eval_leakage.seal.drawn import COMMITMENT_KEY
from tests.checking.conftest import written
from tests.fakes import by_hash
from tests.harness.test_preflight import options
from tests.sealed import NAME, rows, run_sealed, sealed_folder

N = 42  # not a multiple of four

pytestmark = pytest.mark.usefixtures("hub_cache")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    kept = {"seal": "keep", "choices": ["one", "two", "both of them", "none of them"]}
    given = rows(N)
    given[5] |= kept
    return sealed_folder(tmp_path_factory.mktemp("sealed"), given)


def lines(results, audit: str, statistic: str) -> list[dict]:
    return [line for line in results["samples"][f"{NAME}_{audit}"] if line["filter"] == statistic]


# ---------------------------------------------------------------------- option orders


def test_orders_are_exact_by_the_seal_alone_and_no_control_form_is_asked(sealed) -> None:
    lm, results = run_sealed(sealed, "leakage_perm", by_hash)
    assert len(lm.requests) == (N - 1) * 24
    verdict = results["leakage_details"][f"{NAME}_leakage_perm"]["verdict"]
    assert (verdict["published_orders"], verdict["basis"], verdict["n"]) == ("sealed", "orders", N - 1)
    assert verdict["word"] == "none found"
    assert results["configs"][f"{NAME}_leakage_perm"]["metadata"][COMMITMENT_KEY] == sealed.seal.commitment


def test_a_test_of_randomness_that_fails_by_chance_does_not_overrule_the_key(tmp_path) -> None:
    """Numbers that all rise: here they are kept, so that the orders look written, and the others are still sealed."""
    given = [*rows(8), *({**row, "seal": "keep", "choices": ["3", "5", "8", "9"]} for row in rows(60)[8:])]
    folder = sealed_folder(tmp_path, given)
    _, results = run_sealed(folder, "leakage_perm", by_hash, published_orders="written: by us")
    assert {line.get("published_orders") for line in lines(results, "leakage_perm", "max_order")} == {"sealed", None}


def test_questions_that_the_seal_does_not_have_are_skipped_and_counted(sealed, tmp_path) -> None:
    public = [json.loads(line) for line in (sealed.public / f"{NAME}.jsonl").read_text().splitlines()]
    public[0]["choices"].reverse()
    public[1]["question"] = "Which other?"
    file = written(tmp_path, public)
    _, results = run_sealed(sealed, "leakage_perm", by_hash, data_files=str(file))
    reasons = [line["reason"] for line in lines(results, "leakage_perm", "max_order")]
    assert reasons[:2] == [f"it is not one of the questions that {NAME!r} published"] * 2
    assert results["leakage_details"][f"{NAME}_leakage_perm"]["verdict"]["n"] in (N - 3, N - 2)


def test_a_benchmark_without_a_question_of_the_seal_is_refused_with_the_reason(sealed, tmp_path) -> None:
    file = written(tmp_path, [{"question": "Who?", "choices": ["a", "b"], "answer": 0}])
    for audit in ("leakage_perm", "leakage_wording", "leakage_shared_likelihood", "leakage_seal"):
        with pytest.raises(ValueError, match=f"{NAME}_leakage_.* has none of the {N} questions that '{NAME}' .*'Who"):
            run_sealed(sealed, audit, by_hash, data_files=str(file))


# ---------------------------------------------------------------------- wordings


def test_wordings_without_a_seal_are_refused_with_the_remedy(sealed) -> None:
    manager = TaskManager(include_path=str(sealed.public), include_defaults=False)
    for audit in ("leakage_wording", "leakage_seal"):
        with pytest.raises(ValueError, match="--metadata seal=PRIVATE_FOLDER"):
            manager.load([f"{NAME}_{audit}"])


# ---------------------------------------------------------------------- question order


def test_all_blocks_of_four_neighbours_of_the_public_file_are_asked_in_all_orders(sealed, caplog) -> None:
    lm, results = run_sealed(sealed, "leakage_shared_likelihood", by_hash)
    samples = results["samples"][f"{NAME}_leakage_shared_likelihood"]
    assert [line["doc"]["members"] for line in samples] == [
        [str(place) for place in range(first, first + 4)] for first in range(0, N - 2, 4)
    ]
    assert len(lm.requests) == N // 4 * 24
    assert {line["doc"]["seal"] for line in samples} == {sealed.seal.commitment}
    assert {line["detector"] for line in samples} == {"shared_likelihood:examples=4,permutations=23"}
    assert "2 question(s) are in no shard: not of the seal, at the end of its file" in caplog.text
    assert "can be inferred from their texts" not in caplog.text


def test_the_order_of_the_tasks_rows_does_not_matter_and_a_missing_question_costs_its_block(sealed, tmp_path) -> None:
    public = (sealed.public / f"{NAME}.jsonl").read_text().splitlines()
    first = run_sealed(sealed, "leakage_shared_likelihood", by_hash)[0].requests
    kept = [line for place, line in enumerate(public) if place != 9]
    random.Random(0).shuffle(kept)
    file = tmp_path / "shuffled.jsonl"
    file.write_text("".join(f"{line}\n" for line in kept))
    again = run_sealed(sealed, "leakage_shared_likelihood", by_hash, data_files=str(file))[0].requests
    assert again == [*first[:48], *first[72:]]


# ---------------------------------------------------------------------- all at once


def test_without_other_wordings_their_audit_is_left_out(tmp_path) -> None:
    folder = sealed_folder(tmp_path, rows(12, wordings=0))
    _, results = run_sealed(folder, "leakage_seal", by_hash)
    assert set(results["samples"]) == {f"{NAME}_leakage_perm", f"{NAME}_leakage_shared_likelihood"}


def test_audits_of_other_kinds_ignore_the_seal_of_the_run(sealed) -> None:
    _, results = run_sealed(sealed, "leakage_semihalf", by_hash)
    assert results["results"][f"{NAME}_leakage_semihalf"]["sample_len"] == N


# ---------------------------------------------------------------------- before the model is loaded


@pytest.mark.parametrize("task", ["mmlu_leakage_seal", "mmlu_leakage_wording", "mmlu_leakage_perm"])
def test_a_folder_that_is_no_private_folder_is_refused_before_the_model_is_loaded(task, sealed) -> None:
    with pytest.raises(ValueError, match=r"seal is .*public.*, which has no key.json; name the private folder"):
        check_run_options(options([task], metadata={"seal": str(sealed.public)}))
    with pytest.raises(ValueError, match="seal is 3; name the private folder"):
        check_run_options(options([task], metadata={"seal": 3}))
    check_run_options(options([task], metadata={"seal": str(sealed.private)}))


def test_an_audit_that_needs_a_seal_is_refused_before_the_model_is_loaded() -> None:
    for task in ("mmlu_leakage_seal", "mmlu_leakage_wording"):
        with pytest.raises(ValueError, match=f"{task} needs what only the author .* --metadata seal="):
            check_run_options(options([task]))
    check_run_options(options(["mmlu_leakage_perm"]))
