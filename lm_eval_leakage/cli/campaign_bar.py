"""A campaign's progress in the terminal: units, tokens per second, time left."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from lm_eval_leakage.campaign.attempts import Attempt
from lm_eval_leakage.campaign.driver import Watch
from lm_eval_leakage.campaign.progress import Progress
from lm_eval_leakage.results.formatting import about, duration
from lm_eval_leakage.texts import visible

BAR_FORMAT = "{n_fmt}/{total_fmt} units |{bar}| {elapsed}{postfix}"


class CampaignBar(Watch):
    """One line that is written again, with a line above it for each failure."""

    def __init__(self) -> None:
        self._bar: Any = None

    def begins(self, progress: Progress) -> None:
        self._bar = tqdm(total=progress.n_units, initial=progress.n_done_before, bar_format=BAR_FORMAT)

    def ended(self, attempt: Attempt, progress: Progress) -> None:
        if not attempt.ok:
            self._bar.write(visible(f"{attempt.unit.id}: {attempt.error}"), file=self._bar.fp)
        self._bar.set_postfix_str(_rates(progress), refresh=False)
        self._bar.n = progress.n_done
        self._bar.refresh()

    def ends(self) -> None:
        self._bar.close()


def _rates(progress: Progress) -> str:
    left = progress.seconds_left()
    parts = [
        f"{about(round(progress.tokens_per_second))} tokens/s",
        *([] if left is None else [f"{duration(left)} left"]),
    ]
    failed = len(progress.failed)
    return ", ".join([*parts, *([f"{failed} failed"] if failed else [])])
