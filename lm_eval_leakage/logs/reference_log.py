"""Reads a reference model's log-likelihoods of the same texts from its samples log, to be subtracted before a test.

Any model prefers a natural order of the options. The difference of log-likelihoods between the run's model and a model
that has not seen the benchmark (an earlier, a smaller or another one) leaves the preferences of the former alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.file_search import files_below
from lm_eval_leakage.logs.run import ANNOTATED, NOT_AS_WRITTEN, Problem, json_lines
from lm_eval_leakage.logs.runs import results_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReferenceLog:
    """The log-likelihoods by a reference model, which are looked up by text.

    loglikelihoods: by digest of the text (context, continuation), nats
    model: the model's name, from the results file next to the log; the log's path if there is none
    """

    loglikelihoods: Mapping[bytes, float]
    model: str

    def of(self, texts: Sequence[tuple[str, str]]) -> list[float] | None:
        """Return the log-likelihoods of all the texts; None if the log lacks one of them."""
        values = [self.loglikelihoods.get(_key(*text)) for text in texts]
        return None if None in values else [number for number in values if number is not None]


@cache
def read_reference(place: str) -> ReferenceLog:
    """Return the log-likelihoods in the samples logs at `place`, a file or the output folder of a run with
    --log_samples.

    A broken line is logged and skipped. Raises ValueError if no log has log-likelihoods, and for logs of several
    models.
    """
    path = Path(place).expanduser()
    logs = [path] if path.is_file() else sorted(file for file in files_below(path) if file.match("samples_*.jsonl"))
    files = [file for file in logs if not file.stem.endswith(ANNOTATED)]
    models = {_model_of(file) or str(file.parent) for file in files}
    if len(models) > 1:
        raise ValueError(
            f"reference_log is {place!r}, which holds logs of {len(models)} models ({', '.join(sorted(models))}); "
            "name the folder of one"
        )
    loglikelihoods: dict[bytes, float] = {}
    problems: list[Problem] = []
    for file in files:
        for number, sample in json_lines(file, problems):
            try:
                loglikelihoods.update(_scored_texts(sample))
            except NOT_AS_WRITTEN as error:
                problems.append(Problem(f"left out: not a line of a samples log ({error!r})", file, number))
    for problem in problems:
        logger.warning("%s", problem)
    if not loglikelihoods:
        raise ValueError(
            f"reference_log is {place!r}, which holds no log-likelihoods in {len(files)} samples log(s); give the "
            "output folder of a run of the same task with --log_samples"
        )
    return ReferenceLog(loglikelihoods, _model_of(path) or place)


def _model_of(place: Path) -> str | None:
    """Return the model's name from the newest readable results file next to the logs; None if there is none."""
    folder = place.parent if place.is_file() else place
    newest_first = sorted((file for file in files_below(folder) if file.match("results_*.json")), reverse=True)
    names = (results_of(file).get("model_name") for file in newest_first)
    return next((str(name) for name in names if name), None)


def _scored_texts(sample: Mapping[str, Any]) -> Iterator[tuple[bytes, float]]:
    """Yield the scored texts in a line of a log, by digest. Generations and empty continuations are skipped."""
    for arguments, response in zip(sample["arguments"].values(), sample["resps"], strict=True):
        if isinstance(arguments.get("arg_1"), str) and isinstance(response[0], list):
            yield _key(arguments["arg_0"], arguments["arg_1"]), float(response[0][0])


def _key(context: str, continuation: str) -> bytes:
    """Return a digest of a text, which needs less memory: full MMLU has 337,008 texts."""
    return blake2b(f"{len(context)} {context}{continuation}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
