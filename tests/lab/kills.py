"""Kills simulations of a tiny model and restarts them: what is lost, and is the result that of an uninterrupted run?

    python -m tests.lab.kills N [SEED]

kills N times at a random moment, and N times at a random one of the writes of the training (each file that is opened
for writing, renamed or removed, the middle of each `torch.save`).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.children import KILLED, Ended, child

WRITES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "shutil.move")
TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEVER = -1


def lab(folder: Path) -> Any:
    """Return the settings of a simulation of a few seconds, with its model and questions created in `folder`."""
    from lm_eval_leakage.lab.settings import Simulation
    from lm_eval_leakage.lab.training import Recipe
    from tests.harness.test_prefix_tree_lm import checkpoint

    model = checkpoint(folder / "tiny", hidden_size=32, intermediate_size=64)
    docs = [
        {"question": f"{i} and {i * i}?", "choices": [str(i + k) for k in range(4)], "answer": i % 4}
        for i in range(16)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return Simulation(
        model_args=f"pretrained={model},dtype=float32",
        benchmark=str(folder / "questions.jsonl"),
        n_questions=12,
        epochs=(1, 2, 5),
        detectors=("leakage_tokens",),
        recipe=Recipe(learning_rate=5e-3, batch_size=3),
    )


class Writes:
    """Counts this process's writes below `folder`, and kills it at write number `fatal`."""

    def __init__(self, folder: Path, fatal: int) -> None:
        self.folder, self.fatal, self.n = str(folder), fatal, 0
        self.first_of_training, self.last_of_training = 0, 0

    def watch(self) -> None:
        import torch

        save: Callable[..., Any] = torch.save

        def half(what: object, file: Any, *args: Any, **options: Any) -> None:
            save(what, file, *args, **options)
            self.count(file, lambda: os.truncate(file, Path(file).stat().st_size // 2))

        torch.save = half
        sys.addaudithook(self._seen)

    def _seen(self, event: str, args: tuple[Any, ...]) -> None:
        if event in WRITES or (event == "open" and isinstance(args[2], int) and args[2] & TO_WRITE):
            self.count(args[0])

    def count(self, place: object, damage: Callable[[], None] = lambda: None) -> None:
        if isinstance(place, (str, Path)) and str(place).startswith(self.folder):
            self.n += 1
            if "/model" in str(place)[len(self.folder) :]:
                self.first_of_training = self.first_of_training or self.n
                self.last_of_training = self.n
            if self.n == self.fatal:
                damage()
                os.kill(os.getpid(), signal.SIGKILL)


def simulated(settings: Any, folder: Path, fatal: int = NEVER, kill_after: float | None = None) -> Ended:
    """A simulation in a new process."""

    def run() -> None:
        from lm_eval_leakage.lab import outcome_report as report
        from lm_eval_leakage.lab.simulation import simulate

        writes = Writes(folder, fatal)
        writes.watch()
        report.write_report(simulate(settings, folder), folder)
        (folder.parent / "writes").write_text(json.dumps([writes.first_of_training, writes.last_of_training]))

    return child(run, folder.parent / f"{folder.name}.log", kill_after=kill_after)


def result(folder: Path) -> dict[str, str]:
    """Return digests of a simulation's results: weights, and all lines of all audits."""
    digests = {}
    for file in sorted(folder.glob("model/epoch_*/*.safetensors")):
        digests[str(file.relative_to(folder))] = hashlib.sha256(file.read_bytes()).hexdigest()
    for file in sorted(folder.glob("audits_*/*/samples_*.jsonl")):
        digests[str(file.parent.relative_to(folder))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests


def trial(settings: Any, folder: Path, whole: dict[str, str], kill: Callable[[Path], Ended]) -> dict[str, Any]:
    """One kill, followed by the same simulation again."""
    killed = kill(folder)
    again = simulated(settings, folder)
    return {"killed": killed.code == KILLED, "resumed": again.code == 0, "same": result(folder) == whole}


def campaign(n_trials: int, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    import transformers.trainer  # noqa: F401

    import lm_eval_leakage.harness.tasks.given_questions
    import lm_eval_leakage.lab.outcome_report
    import lm_eval_leakage.lab.simulation  # noqa: F401 (once, before the processes)

    settings, rng = lab(folder), random.Random(seed)
    uninterrupted = simulated(settings, folder / "whole")
    assert uninterrupted.code == 0, uninterrupted.output
    first, last = json.loads((folder / "writes").read_text())
    whole = result(folder / "whole")

    def at_a_moment(place: Path) -> Ended:
        return simulated(settings, place, kill_after=rng.uniform(0, uninterrupted.seconds))

    def at_a_write(place: Path) -> Ended:
        return simulated(settings, place, rng.randrange(first, last + 1))

    for number in range(n_trials):
        for kill in (at_a_moment, at_a_write):
            yield {"kill": kill.__name__} | trial(settings, folder / f"{kill.__name__}_{number}", whole, kill)


def main() -> None:
    n_trials, seed = int(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])
    with tempfile.TemporaryDirectory() as scratch:
        for trial_result in campaign(n_trials, seed, Path(scratch)):
            print(json.dumps(trial_result), flush=True)


if __name__ == "__main__":
    main()
