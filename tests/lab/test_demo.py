from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from benchmarks import demo


@pytest.mark.parametrize("n", [demo.FEWEST_QUESTIONS, 81, demo.N_FRESH])
def test_each_question_is_in_one_half_and_each_half_can_be_judged(n: int) -> None:
    rows = demo.fresh_rows()[:n]
    parts = demo.halves(rows)
    assert sorted(json.dumps(row) for part in parts.values() for row in part) == sorted(map(json.dumps, rows))
    assert min(map(len, parts.values())) >= 20
    assert abs(len(parts[demo.TRAINED]) - len(parts[demo.HELD_OUT])) <= 1


def test_the_conclusion_has_each_verdict_next_to_what_is_true(tmp_path: Path) -> None:
    models = {demo.ORIGINAL_MODEL: tmp_path / "smollm2", demo.TRAINED_COPY: tmp_path / "copy" / "epoch_3"}
    words = {"smollm2": ("none found", "no verdict"), "copy/epoch_3": ("strong evidence", "none found")}
    usual = {"detect": 0.8, "flagged": 2, "n_tested": 40, "summary": "A short sentence. " * 15}
    verdicts = [
        {"model": model, "task": half, "verdict": word, **usual}
        for model, of_halves in words.items()
        for half, word in zip((demo.TRAINED, demo.HELD_OUT), of_halves, strict=True)
    ]
    (tmp_path / "leakage").mkdir()
    (tmp_path / "leakage" / "verdicts.json").write_text(
        json.dumps({"verdicts": verdicts[2:], "earlier": verdicts[:2]})
    )
    lines = demo.conclusion(demo.verdicts_in(tmp_path, models)).splitlines()
    assert lines[-6:] == [
        "| original | trained | 0 | 2 of 40 | none found |",
        "| original | held_out | 0 | 2 of 40 | no verdict |",
        "| copy | trained | 3 | 2 of 40 | strong evidence |",
        "| copy | held_out | 0 | 2 of 40 | none found |",
        "",
        demo.AIM,
    ]
    assert lines[0].replace("\u00a0", " ") == "smollm2 on trained: NONE FOUND: 80 % seen three times is excluded"
    assert len(lines) < 35, "it fits on a screen"
    assert max(map(len, lines)) <= demo.WIDTH


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_of_a_terminal_and_the_log_has_everything() -> None:
    lines = [
        "reading the tasks ...\n",
        "[1/8] trained: accuracy, copy\n",
        "Running loglikelihood requests:  6%|x| 1/9\n",
    ]
    log, terminal, file = io.StringIO(), Screen(), io.StringIO()
    demo.show_progress(lines, log, terminal)
    assert log.getvalue() == "".join(lines)
    assert terminal.getvalue().split(demo.CLEAR)[-2:] == ["[1/8] trained: accuracy, copy  6%|x| 1/9", ""]
    assert "\n" not in terminal.getvalue()
    demo.show_progress(lines, log, file)
    assert file.getvalue() == ""


def test_a_missing_package_or_a_folder_that_is_a_file_is_an_error_before_any_work(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo, "smollm2", lambda _: pytest.fail("the model is fetched"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("DEMO_FOLDER", str(tmp_path / "file"))
    with pytest.raises(SystemExit, match="file is a file; choose another place"):
        demo.main()
    monkeypatch.setattr("lm_eval_leakage.lab.settings.find_spec", lambda name: name != "gguf" or None)
    with pytest.raises(SystemExit, match="gguf: needed but not installed; `pip install 'lm-eval-leakage.lab.'`"):
        demo.main()


@pytest.mark.parametrize("value", ["39", "201", "all", "-40", ""])
def test_a_number_of_questions_that_makes_no_sense_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_QUESTIONS", value)
    with pytest.raises(SystemExit, match=f"DEMO_QUESTIONS is '{value}'; choose a whole number from 40 to 200"):
        demo.main()
