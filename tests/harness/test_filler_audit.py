"""Audits whose rows exchange their names: what is asked, what is found, and what the log says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from lm_eval_leakage.detectors.crossed_fillers import CrossedFillers
from lm_eval_leakage.harness.tasks.audit import RefusedAudit
from lm_eval_leakage.harness.tasks.filler_audit import starts_of, with_likeliest_start
from lm_eval_leakage.logs.audit_line import read_line
from lm_eval_leakage.questions.slots import find_slot
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.data_verdict import data_verdict
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import evaluate
from tests.logs.test_reference_log import log
from tests.word_problems import town, word_problems, write_generating_task

ROWS = word_problems(90)
AUDIT = "sums_leakage_fillers"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "tasks"
    place.mkdir()
    write_generating_task(place, "sums", ROWS)
    return place


def run(folder: Path, lm: FakeLM, metadata=None, **settings):
    return evaluate(lm, metadata, [AUDIT], folder, **settings)


def verdict(results) -> dict:
    return results["leakage_details"][AUDIT]["verdict"]


def fond_of_rows(rows, nats: float = 1.5):
    """A model that remembers these rows in both layouts, and for which some names are likelier than others."""
    beginnings = []
    for row in rows:
        filler = find_slot(row["question"]).filler
        beginnings += [f"Question: {filler}", f'{{"question": "{filler}']
    texts = {row["question"][:60] for row in rows}

    def score(context: str, continuation: str) -> float:
        text = context + continuation
        is_own = text.startswith(tuple(beginnings)) and any(part in text for part in texts)
        return by_hash(context, continuation) + 5 * by_hash("", continuation.split()[0]) + nats * is_own

    return score


def test_a_model_that_remembers_the_rows_is_found(folder) -> None:
    verdict_of_run = verdict(run(folder, FakeLM(fond_of_rows(ROWS))))
    assert verdict_of_run["word"] == "strong evidence"
    assert verdict_of_run["basis"] == "fillers"
    assert verdict_of_run["n"] == verdict_of_run["n_asked"] == len(ROWS)
    assert verdict_of_run["mean"] > 0.5


def test_half_of_the_rows_are_found_too(folder) -> None:
    assert verdict(run(folder, FakeLM(fond_of_rows(ROWS[::2], 3))))["word"] in ("evidence", "strong evidence")


@pytest.mark.parametrize("seed", range(5))
def test_a_model_without_memory_is_not_accused(folder, seed: int) -> None:
    lm = FakeLM(lambda context, continuation: fond_of_rows([])(context, f"{continuation}{seed}"))
    results = run(folder, lm)
    assert "evidence" not in verdict(results)["word"]
    row = results["results"][AUDIT]
    assert row["evidence_pvalue,crossed_blocks"] == verdict(results)["pvalue"]
    assert row["skipped,crossed_blocks"] == 0


def test_names_that_fit_their_rows_are_no_evidence(folder) -> None:
    """The control form prefers them, too."""
    fitting = {town(number): find_slot(row["question"]).filler for number, row in enumerate(ROWS)}

    def fits(context: str, continuation: str) -> float:
        where = next(word for word in re.findall(r"[a-j]{3}ville", f"{context} {continuation}"))
        return by_hash(context, continuation) + 0.5 * (continuation.split()[0] == fitting[where])

    assert "evidence" not in verdict(run(folder, FakeLM(fits), {"layouts": "prompt"}))["word"]
    alone = verdict(run(folder, FakeLM(fits), {"layouts": "prompt", "control_form": False}))
    assert alone["word"] == "strong evidence", "without the control form they are"


def test_the_log_has_all_that_the_verdict_needs(folder, tmp_path) -> None:
    results = run(folder, FakeLM(fond_of_rows(ROWS[::2])))
    lines = [read_line(line, AUDIT) for line in results["samples"][AUDIT]]
    again = data_verdict((), fillers=[line.fillers for line in lines])
    assert (again.word, again.pvalue) == (verdict(results)["word"], verdict(results)["pvalue"])
    line = results["samples"][AUDIT][0]
    assert (line["n_fillers"], line["layouts"], line["document_start"]) == (len(line["resps"]) // 3, "prompt json", "")
    places = {line.fillers.block: set() for line in lines}
    for line in lines:
        places[line.fillers.block].add(line.fillers.place)
    assert all(numbers == {*range(len(numbers))} for numbers in places.values())
    (annotation,) = annotate([log(results, tmp_path / "logs", AUDIT)])
    assert annotation.rows[0].verdict.pvalue == again.pvalue


def test_rows_of_a_limited_run_exchange_names_among_themselves(folder) -> None:
    results = run(folder, FakeLM(by_hash), limit=30)
    lines = [read_line(line, AUDIT) for line in results["samples"][AUDIT]]
    assert len(lines) == 30
    sizes = {line.fillers.block: line.fillers.n_fillers for line in lines}
    assert sum(sizes.values()) == 30


def test_a_reference_is_subtracted_instead_of_the_control_form(folder, tmp_path) -> None:
    alike = fond_of_rows(ROWS)
    noisy = FakeLM(lambda context, continuation: alike(context, continuation) + by_hash(continuation, context) / 9)
    reference = log(run(folder, noisy), tmp_path / "reference", AUDIT)
    results = run(folder, FakeLM(alike), {"reference_log": str(reference)})
    assert "evidence" not in verdict(results)["word"]
    assert len(results["samples"][AUDIT][0]["resps"]) == 2 * results["samples"][AUDIT][0]["n_fillers"]
    other = log(run(folder, FakeLM(by_hash)), tmp_path / "other", AUDIT)
    assert verdict(run(folder, FakeLM(alike), {"reference_log": str(other)}))["word"] == "strong evidence"


def test_a_task_without_names_is_refused_with_the_reason(folder) -> None:
    rows = [{"question": f"A robe takes {n % 9} bolts of {town(n)}. How many?", "answer": str(n)} for n in range(30)]
    write_generating_task(folder, "robes", rows)
    with pytest.raises(
        RefusedAudit, match="no detail that could be exchanged.* 30 of the first 30 have no given name"
    ):
        evaluate(FakeLM(by_hash), None, ["robes_leakage_fillers"], folder)


def test_a_damaged_line_is_named(folder) -> None:
    line = json.loads(json.dumps(run(folder, FakeLM(by_hash))["samples"][AUDIT][0]))
    for damage in ({"block_place": 99}, {"n_fillers": 5 + line["n_fillers"]}, {"layouts": ""}, {"block": 3}):
        with pytest.raises((TypeError, ValueError)):
            read_line(line | damage, AUDIT)


class Starting(FakeLM):
    """A model that finds texts likelier after one start of a document."""

    tokenizer = SimpleNamespace(bos_token="<s>", eos_token="</s>", all_special_tokens=["<s>", "</s>", "<user>"])

    def __init__(self, best: str) -> None:
        super().__init__(lambda context, continuation: -10.0 + 3 * context.startswith(best) - 1e-3 * len(context))

    def apply_chat_template(self, turns, **_):
        return f"<user>{turns[0]['content']}</user>"


def test_the_start_of_documents_is_the_one_after_which_rows_are_likeliest(folder) -> None:
    assert starts_of(Starting("</s>")) == ["", "<s>", "</s>", "<user>"]
    assert starts_of(FakeLM(by_hash)) == [""]
    for best in ("<s>", "</s>", "<user>"):  # a longer one is chosen only if it saves a share of the nats
        results = run(folder, Starting(best))
        line = results["samples"][AUDIT][0]
        assert line["document_start"] == best
        assert all(arguments[0].startswith(best) for arguments in line["arguments"])
    given = run(folder, Starting("</s>"), {"start": "<s>"})
    assert given["samples"][AUDIT][0]["document_start"] == "<s>"
    broken = Starting("</s>")
    broken.score = lambda context, continuation: float("nan")
    assert with_likeliest_start(CrossedFillers().with_pool(lambda: []), broken).start == ""
    assert with_likeliest_start(CrossedFillers(start="x"), Starting("<s>")).start == "x"
