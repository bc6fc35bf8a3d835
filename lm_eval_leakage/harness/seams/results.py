"""Patches EvalAcc, where lm_eval assembles the results and samples of a run, to post-process them.

Wrapping `evaluate` itself is not enough: code that imported it before the patch would still call the original. A
callback of lm_eval on finished results would replace this.

Patches EvaluationTracker to check that lm_eval has saved the files of a run with our tasks completely.

lm_eval turns every error while saving into a log message and exits with 0. A `save_results_aggregated` that raises, or
returns whether it saved, would replace this.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any

from lm_eval.utils import handle_non_serializable, make_table

from lm_eval_leakage.files import append_lines, try_to_write
from lm_eval_leakage.harness.seams.patching import Refusal, patched_once

ASSEMBLED = "lm_eval.evaluator_utils:EvalAcc._to_eval_results"
Finish = Callable[[dict[str, Any]], None]
_registered: list[Finish] = []
_of_next: list[Finish] = []


def on_results(finish: Finish) -> None:
    """Registers `finish`, which may modify what `evaluate` is about to return."""
    patched_once(ASSEMBLED, _finished)
    if finish not in _registered:
        _registered.append(finish)


def on_next_results(finish: Finish) -> None:
    """The same for the next results only."""
    patched_once(ASSEMBLED, _finished)
    if finish not in _of_next:
        _of_next.append(finish)


def _finished(original: Callable[..., Any]) -> Callable[..., Any]:
    def _to_eval_results(self: Any, **kwargs: Any) -> Any:
        results = original(self, **kwargs)
        for finish in [*_registered, *_of_next]:
            finish(results)
        _of_next.clear()
        return results

    return _to_eval_results


logger = logging.getLogger(__name__)
TRACKER = "lm_eval.loggers.evaluation_tracker:EvaluationTracker"


class NotSaved(Refusal):
    """A results file or samples log was not saved completely."""


def refuse_unwritable(output: Path) -> None:
    """Raises Refusal if results cannot be saved in `output`, the value of `--output_path`."""
    folder = output.parent if output.suffix == ".json" else output
    try:
        try_to_write(folder)
    except OSError as error:
        raise Refusal(
            f"output_path is {str(output)!r}, where nothing can be written ({error.strerror}); choose a writable "
            "folder, or free some space"
        ) from error


def watch_run_files() -> None:
    """Makes the harness check the files that it saves for our tasks; files of other tasks are not checked."""
    if patched_once(f"{TRACKER}.save_results_aggregated", _results_saved):
        patched_once(f"{TRACKER}.save_results_samples", _samples_saved)


def _results_saved(save: Callable[..., None]) -> Callable[..., None]:
    def save_results_aggregated(self: Any, results: dict[str, Any], samples: Any = None, **further: Any) -> None:
        # of each sample only its hashes are used
        hashed = {task: getattr(lines, "as_collected", lines) for task, lines in (samples or {}).items()}
        save(self, results=results, samples=samples and hashed, **further)
        if self.output_path:
            _look_at_results(self, results)

    return save_results_aggregated


def _samples_saved(save: Callable[..., None]) -> Callable[..., None]:
    def save_results_samples(self: Any, task_name: str, samples: Any, **further: Any) -> None:
        if hasattr(samples, "as_collected") and not getattr(self, "push_samples_to_hub", False):
            _save_quickly(lambda some: save(self, task_name=task_name, samples=some, **further), self, samples)
        else:
            save(self, task_name=task_name, samples=samples, **further)
        if self.output_path:
            _look_at_samples(self, task_name, samples)

    return save_results_samples


def _save_quickly(save: Callable[[Any], None], tracker: Any, samples: Sequence[dict[str, Any]]) -> None:
    """The harness writes the first line. If ours is the same, we write the others, in a third of its time, else the
    harness does, to which each sample is given only while it is written: it adds to what it is given."""
    before = set(_files(tracker, ".jsonl"))
    left = iter(samples)
    first = list(islice(left, 1))
    save([dict(sample) for sample in first])
    written = [file for file in _files(tracker, ".jsonl") if file not in before]
    try:
        same = len(written) == 1 and written[0].read_text(encoding="utf-8") == "".join(map(harness_line, first))
        if same:
            append_lines(written[0], _further_lines(written[0], samples))
            return
    except (OSError, UnicodeError) as error:
        logger.warning("not all samples could be written (%s)", error)
        return
    save(left)


def _further_lines(file: Path, samples: Any) -> Iterator[bytes]:
    """The lines after the first, which `file` has. The texts of a question are the same in the lines of all
    statistics, so they are copied from its first one, unless that is still in the buffer of the file."""
    places: dict[int, tuple[int, int]] = {}  # where a question's texts are in the file
    end = file.stat().st_size
    with file.open("rb", buffering=0) as before:
        for asked, texts, sample in islice(samples.in_parts(), 1, None):
            begin, rest = (part.encode() for part in _around_texts(sample))
            place, size = places.get(id(asked), (0, 0))
            before.seek(place)
            large = before.read(size)
            if not size or len(large) < size:
                large = _large(texts()).encode()
                places[id(asked)] = end + len(begin), len(large)
            line = b"".join([begin, large, rest])
            end += len(line)
            yield line


def _look_at_results(tracker: Any, results: Mapping[str, Any]) -> None:
    tracker._results_with_audits = results if _has_audit(results) else None
    if tracker._results_with_audits is not None:
        files = _files(tracker, ".json")
        try:
            whole = bool(files) and all(isinstance(json.loads(file.read_bytes()), dict) for file in files)
        except (OSError, ValueError):
            whole = False
        if not whole:
            _refuse(tracker, "the results")


def _look_at_samples(tracker: Any, task_name: str, samples: Sequence[object]) -> None:
    if getattr(tracker, "_results_with_audits", None) is None:
        return
    files = [file for file in _files(tracker, ".jsonl") if file.name.startswith(f"samples_{task_name}_")]
    try:
        n_lines = sum(_n_lines(file) for file in files)
    except OSError:
        n_lines = -1
    if n_lines != len(samples):
        _refuse(tracker, f"the samples of {task_name}")


def _refuse(tracker: Any, what: str) -> None:
    """Prints the tables first: they may be all that is left of hours of work."""
    results = tracker._results_with_audits
    print(make_table(results))
    if results.get("groups"):
        print(make_table(results, "groups"))
    raise NotSaved(
        f"{what} could not be saved completely in {tracker.output_path} (full disk? no permission?); the tables above "
        "are correct; when there is space, the same command saves them from the answers that were kept"
    )


def _has_audit(results: Mapping[str, Any]) -> bool:
    """Whether the results include an audit, recognised by settings that only our tasks have."""
    configs = (results.get("configs") or {}).values()
    return any("probe" in (config.get("metadata") or {}) for config in configs)


def _files(tracker: Any, suffix: str) -> list[Path]:
    output, date = Path(tracker.output_path), getattr(tracker, "date_id", None)
    folder = output.parent if output.suffix == ".json" else output
    return [] if date is None else sorted(folder.rglob(f"*_{date}{suffix}"))


def _n_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(line.endswith(b"\n") for line in lines)


# ---------------------------------------------------------------------- lines as the harness writes them

ENCODED = json.JSONEncoder(ensure_ascii=False, default=handle_non_serializable).encode
LARGE = ("arguments", "resps", "filtered_resps")  # in this order, one after the other


def harness_line(sample: Mapping[str, Any]) -> str:
    """A sample as the harness writes it; its many texts are joined here, each distinct context being encoded once."""
    begin, rest = _around_texts(sample)
    return begin + _large(sample) + rest


def _around_texts(sample: Mapping[str, Any]) -> tuple[str, str]:
    """A line before and after the question's texts and responses, which need not be in the sample."""
    keys = list(sample)
    begin = keys.index(LARGE[0])
    before = {key: sample[key] for key in keys[:begin]} | {"target": str(sample["target"])}
    after = {key: sample[key] for key in keys[begin + len(LARGE) :]}
    return f'{ENCODED(before)[:-1]}, "arguments": ', f", {ENCODED(after)[1:]}\n"


def _large(sample: Mapping[str, Any]) -> str:
    responses = [_in_words(response) for response in sample["filtered_resps"]]
    together, apart = ", ".join(responses), ", ".join([f"[{own}]" for own in responses])
    return f'{_arguments(sample["arguments"])}, "resps": [{apart}], "filtered_resps": [{together}]'


def _arguments(arguments: Sequence[Sequence[Any]]) -> str:
    """Requests of any number of arguments; the first one is the same for many of a question's requests."""
    last: object = None
    told, encoded = [], ""
    for place, (context, *others) in enumerate(arguments):
        if context is not last:
            last, encoded = context, _encoded(context)
        rest = "".join([f', "arg_{part}": {_encoded(value)}' for part, value in enumerate(others, 1)])
        told.append(f'"gen_args_{place}": {{"arg_0": {encoded}{rest}}}')
    return f"{{{', '.join(told)}}}"


def _encoded(value: object) -> str:
    return encode_basestring(value) if isinstance(value, str) else ENCODED(value)


def _in_words(response: Any) -> str:
    """The harness logs every number as a text."""
    if isinstance(response, tuple):
        loglikelihood, greedy = response
        return f'["{loglikelihood}", "{greedy}"]'
    return encode_basestring(str(response))
