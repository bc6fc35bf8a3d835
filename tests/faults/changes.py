"""Whatever a verdict is of, changed under the same names: the next one is that of a fresh folder, or says why not."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from tests.checking.conftest import questions, written
from tests.faults.children import KILLED, Ended
from tests.faults.tally import Tally, attack
from tests.faults.weighed import DOCS, OF_ACCURACY, OF_ORDERS, TEMPLATE, TRAINED, Place, killed
from tests.logs.test_broken_files import damage

Run = Callable[..., Ended]


def _other_keys(place: Place) -> None:
    written(place.folder, [doc | {"answer": (doc["answer"] + 1) % 4} for doc in DOCS])


def _other_questions(place: Place) -> None:
    written(place.folder, questions(40, seed=9))


def _fewer_questions(place: Place) -> None:
    written(place.folder, DOCS[:33])


def _as_chat(place: Place) -> None:
    place.asked_with = [] if place.asked_with else ["--apply_chat_template"]


def _template(place: Place) -> None:
    (place.model / TEMPLATE).write_text("{{ messages }}, please")


IN_FILES: Mapping[str, Callable[[Place], object]] = {
    "weights": lambda place: place.weights(TRAINED),
    "template": _template,
    "questions": _other_questions,
    "fewer questions": _fewer_questions,
    "keys": _other_keys,
}
IN_ARGUMENTS: Mapping[str, Callable[[Place], object]] = {
    "dtype": lambda place: place.arguments.update(dtype="float16"),
    "chat": _as_chat,
}
CHANGES = IN_FILES | IN_ARGUMENTS
BEFORE, BETWEEN, WITHIN, MEANWHILE = "after a whole run", "between two parts", "within a part", "while it runs"
# request at which a run is killed, or at which its files change
MOMENTS = {
    BEFORE: None,
    BETWEEN: OF_ACCURACY,
    WITHIN: OF_ACCURACY + OF_ORDERS // 2,
    MEANWHILE: OF_ACCURACY + OF_ORDERS // 3,
}


@dataclass(frozen=True)
class Said:
    """The results of a command that a user would act upon."""

    code: int
    what: Any


class Attacked:
    """A check or a campaign in one place, whose output is removed for each try."""

    def __init__(self, place: Place, is_campaign: bool) -> None:
        self.place, self.is_campaign = place, is_campaign

    def run(self, **how: Any) -> Ended:
        return self.place.campaign(**how) if self.is_campaign else self.place.check(**how)

    def said(self, ended: Ended) -> Said:
        return Said(ended.code, self.place.table() if self.is_campaign else self.place.verdicts())

    def fresh(self) -> Said:
        """Return what the command gives in a fresh folder."""
        self.place.without_output()
        return self.said(self.run())


@attack("check: model, dtype, template, file, keys changed under their names", 100, 1)
def check_changes(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """Each change at each moment; afterwards it is undone."""
    _changes(tally, Attacked(Place(folder), is_campaign=False), tries)


@attack("campaign: model, dtype, template, file, keys changed under their names", 100, 1)
def campaign_changes(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """The same."""
    _changes(tally, Attacked(Place(folder), is_campaign=True), tries)


def _changes(tally: Tally, attacked: Attacked, tries: int) -> None:
    right = attacked.fresh()
    assert right.what, "a campaign or a check without a result"
    combinations = list(product(CHANGES, MOMENTS))
    random.Random(0).shuffle(combinations)
    for name, moment in combinations[:tries]:
        if moment != MEANWHILE or name in IN_FILES:
            _changed(attacked, tally, right, name, moment)


def _changed(attacked: Attacked, tally: Tally, before: Said, name: str, moment: str) -> None:
    place, note = attacked.place, f"{name} changed {moment}"
    place.as_new()
    CHANGES[name](place)
    after = attacked.fresh()
    assert after != before, name
    place.as_new()
    request = MOMENTS[moment]
    if moment == MEANWHILE:
        ended = attacked.run(at={request: lambda: CHANGES[name](place)})
        sentence = attacked.said(ended)
        tally.record(
            f"{note}: of neither: {ended.output[-400:]}", wrong=sentence not in (before, after) and ended.code != 2
        )
    else:
        ended = attacked.run(at={} if request is None else {request: killed})
        tally.record(f"{note}: not killed", lost=(ended.code == KILLED) != (request is not None))
        CHANGES[name](place)
    tally.tries += 1
    _compare(attacked, tally, after, note)
    tally.tries += 1
    _undone(place)
    _compare(attacked, tally, before, f"{note}, undone")


def _undone(place: Place) -> None:
    """Everything but the output as it was first."""
    kept = place.out.rename(place.folder.with_name("kept"))
    place.as_new()
    kept.rename(place.out)


def _compare(attacked: Attacked, tally: Tally, right: Said, note: str) -> None:
    """Refusing is saying so."""
    ended = attacked.run()
    sentence = attacked.said(ended)
    is_refused = ended.code == 2 and bool(ended.output.strip())
    tally.record(f"{note}: exit {ended.code}: {ended.output[-400:]}", wrong=sentence != right and not is_refused)


@attack("folder with older verdicts", 12, 1)
def older_verdicts(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Three older checks of other benchmarks lie in the folder, and sometimes their verdicts are damaged: words,
    numbers and exit code are those of a fresh folder. The model's memory is around what is just evidence."""
    attacked = Attacked(Place(folder), is_campaign=False)
    place, older = attacked.place, folder.with_name("older")
    for seed in (11, 12, 13):
        place.quiz = written(folder, questions(40, seed=seed), f"other_{seed}.jsonl")
        place.check()
    place.out.rename(older)
    while tally.tries < tries:
        place.as_new()
        place.weights(f"memory {rng.uniform(0.2, 1.2):.2f} ".encode())
        right = attacked.fresh()
        place.without_output()
        shutil.copytree(older, place.out)
        if rng.random() < 0.3:
            damage(place.out / "verdicts.json", rng)
        sentence = attacked.said(attacked.run())
        tally.tries += 1
        tally.record(f"exit {sentence.code} instead of {right.code}", wrong=sentence != right)
