from __future__ import annotations

import sys

import pytest

from lm_eval_leakage.lab import demo
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.logs.audit_line import AuditLine, read_line
from lm_eval_leakage.logs.line_writer import written_line
from lm_eval_leakage.records import Question, Skipped
from lm_eval_leakage.statistics.max_order import MaxOrderEvidence


def test_the_training_text_is_the_published_wording_with_the_right_letter() -> None:
    question = Question("1", "Which? ", ("w", "x", "y", "z"), answer=2)
    assert ExposureText().write(question) == "Which?\nA. w\nB. x\nC. y\nD. z\nAnswer: C"


def line(identity: str, statistic: str, flagged: bool | None) -> AuditLine:
    evidence = MaxOrderEvidence(bool(flagged), 0.5, 1 / 24, 1.0, 1.0, 0, 24)
    verdict = Skipped("its options read alike") if flagged is None else evidence
    own = written_line(verdict, benchmark="fresh", detector=statistic)
    return read_line(own | {"doc": {"id": identity}, "doc_hash": identity, "filter": statistic}, "fresh_leakage_perm")


def test_the_table_separates_halves_statistics_and_skipped_questions() -> None:
    seen = [line("a", "max_order", True), line("b", "max_order", True), line("c", "max_order", None)]
    unseen = [line("x", "max_order", False), line("y", "max_order", True)]
    others = [line(identity, "outlier", False) for identity in "abxy"]
    rows = demo.table({"copy": [*seen, *unseen, *others]}, trained={"a", "b", "c"}).splitlines()[2:]
    assert rows[0] == "| max_order | copy | trained | 2 | 1.000 ± 0.000 | 0.042 |"
    assert rows[1] == "| max_order | copy | held out | 2 | 0.500 ± 0.500 | 0.042 |"
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| outlier"] * 2


def test_a_missing_package_or_a_folder_that_is_a_file_is_an_error_before_any_work(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "smollm2", lambda _: pytest.fail("the model is fetched"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("DEMO_FOLDER", str(tmp_path / "file"))
    with pytest.raises(SystemExit, match="file is a file; choose a folder"):
        demo.main()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(SystemExit, match="gguf is needed but not installed; `pip install 'lm-eval-leakage.lab.'`"):
        demo.main()


@pytest.mark.parametrize("value", ["7", "201", "all", "-8", ""])
def test_a_number_of_questions_that_makes_no_sense_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_QUESTIONS", value)
    with pytest.raises(SystemExit, match=f"DEMO_QUESTIONS is '{value}'; choose a whole number from 8 to 200"):
        demo.main()
