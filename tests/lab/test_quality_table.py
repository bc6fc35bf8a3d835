from __future__ import annotations

from lm_eval_leakage.lab.detection import Detector
from lm_eval_leakage.lab.outcome_report import methods_table, quality
from lm_eval_leakage.results.formatting import value_in_interval
from lm_eval_leakage.stats.combined import auroc_interval


def test_of_nine_questions_no_auroc_is_shown_and_of_ten_it_is() -> None:
    interval = value_in_interval(auroc_interval([1.0] * 10, [0.0] * 10))
    for n, cell in ((9, "| – | – |"), (10, f"| {interval} |")):
        trained, held_out = ([f"{half}{i}" for i in range(n)] for half in "ab")
        scores = {name: float(name[0] == "a") for name in (*trained, *held_out)}
        found = quality(Detector("d", "", scores, None, None, {}, 1.0, 1.0), 1, trained, held_out)
        assert cell in methods_table([found])
