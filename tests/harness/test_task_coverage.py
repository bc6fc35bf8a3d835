"""The table of docs/any_task/coverage.md says what the package finds."""

from __future__ import annotations

import datasets
import pytest
from lm_eval import __version__

from benchmarks.task_coverage import PAGE, leaderboard_table, without_words


@pytest.fixture
def without_progress():
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.mark.skipif(f"lm-eval {__version__}," not in PAGE.read_text(encoding="utf-8"), reason="of another lm-eval")
@pytest.mark.usefixtures("without_progress")
def test_the_table_of_leaderboard_benchmarks_is_as_the_script_writes_it() -> None:
    assert leaderboard_table() in PAGE.read_text(encoding="utf-8")


def test_reasons_of_many_tasks_leave_out_the_words_of_one() -> None:
    assert without_words("the options are words of the task, the same for every question: yes, no").endswith(
        "question"
    )
    assert without_words("the prompt shows no options for its choices A, B") == "the prompt shows no options"
    assert without_words("the harness cannot load it (KeyError: 'a')") == "the harness cannot load it"
