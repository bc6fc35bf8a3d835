"""Audits on several processes, interrupted and continued by another number of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from tests.fakes import FakeLM, by_hash
from tests.faults.tally import Tally, attack
from tests.harness.test_ranks import MANY, N_REQUESTS, Kept, spawned, texts
from tests.harness.test_task import TASK, evaluate

NUMBERS = (1, 2, 3, 5)


@attack("ranks 1, 2, 3, 5: interrupted, continued by another number", 8, 1)
def changing_ranks(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Each try: cut off after some answers per process, twice with other numbers of them, then to the end."""
    file = folder / "questions.jsonl"
    folder.mkdir(parents=True)
    file.write_text("".join(json.dumps(doc) + "\n" for doc in MANY))
    metadata = {"data_files": str(file), "control_form": False}
    right = {
        (line["doc_id"], line["filter"]): line["pvalue"]
        for line in evaluate(FakeLM(by_hash), metadata)["samples"][TASK]
    }
    for number in range(tries):
        place = folder / f"try_{number}"
        place.mkdir()
        counts = (*rng.sample(NUMBERS, 2), NUMBERS[number % len(NUMBERS)])
        answered: set[tuple[str, ...]] = set()
        for stage, n_processes in enumerate(counts):
            stop_after = rng.randint(1, 60) if stage < 2 else None
            requests, samples = spawned(place, str(stage), n_processes, Kept, stop_after, metadata)
            tally.tries += 1
            note = f"{counts[: stage + 1]} processes"
            tally.record(f"{note}: answers were asked again", lost=len(texts(requests) & answered))
            answered |= texts(requests)
        if samples is None:
            tally.record(f"{note}: no results", wrong=1)
            continue
        lines = Counter((line["doc_id"], line["filter"]) for line in samples)
        tally.record(f"{note}: questions stand twice", doubled=sum(count - 1 for count in lines.values()))
        pvalues = {(line["doc_id"], line["filter"]): line["pvalue"] for line in samples}
        tally.record(f"{note}: differs", wrong=pvalues != right or len(answered) != N_REQUESTS)
