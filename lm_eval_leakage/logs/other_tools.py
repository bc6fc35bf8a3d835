"""Reads logs of inspect_ai, lighteval and OpenCompass as runs of lm_eval.

`run_reader_of` is the only entry point. Its runs have the sections of lm_eval's results files, and their logs are read
as lines of lm_eval's samples logs. These tools do not record the hash of a question's data row: `doc_hash` is empty,
and `doc` is the question as the prompt words it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.file_search import files_below
from lm_eval_leakage.logs.run import ANNOTATED, RESULTS, TIME, Line, LogReader, Problem, Run, model_named
from lm_eval_leakage.questions.prompt_parser import labels_among, options_after_labels, shared_beginning
from lm_eval_leakage.texts import in_one_sentence

RunReader = Callable[[Path, list[Problem]], Run | None]
LineReader = Callable[[Path], Iterator[Line]]
ACCURACY, STDERR = "acc", "acc_stderr"
N_BYTES = 200  # at the beginning of a file, where these patterns are searched
INSPECT_JSON = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":')
LIGHTEVAL_JSON = re.compile(rb'\s*\{\s*"config_general":')
LIGHTEVAL_DETAILS = re.compile(rf"details_(?P<task>.+?)_(?P<time>{TIME})\.parquet", re.DOTALL)
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # inspect_ai's: correct, partially, incorrect, no answer
BOT_ROLES = ("BOT", "assistant")
OPTION_BEGINS = re.compile(r"\n|: |：")  # the end of what stands before an option in OpenCompass's texts


@dataclass(frozen=True)
class _Format:
    """A kind of log; it says how files of the kind are recognised and read.

    tool: name of the tool that writes it
    has: returns whether a file is of this kind
    read: returns the run of a file
    """

    tool: str
    has: Callable[[Path], bool]
    read: RunReader


def run_reader_of(file: Path) -> RunReader | None:
    """Return the reader of another tool's log; None for any other file, and for the copies of `annotate`.

    The reader reports a damaged log as a problem and returns None. It raises ImportError for a log of inspect_ai where
    inspect_ai is not installed.
    """
    if file.stem.endswith(ANNOTATED):
        return None
    return next((partial(_read, kind) for kind in FORMATS if kind.has(file)), None)


def _read(kind: _Format, file: Path, problems: list[Problem]) -> Run | None:
    try:
        return kind.read(file, problems)
    except ImportError:
        raise
    except Exception as error:  # the tool's own reader may raise anything
        problems.append(Problem(f"left out: not a complete log of {kind.tool} ({in_one_sentence(error)})", file))
        return None


def _lines(read: LineReader, file: Path, problems: list[Problem]) -> Iterator[Line]:
    """Yield the lines of a log. A log that cannot be read becomes a problem."""
    try:
        lines = list(read(file))
    except Exception as error:
        problems.append(Problem(f"left out: its samples cannot be read ({in_one_sentence(error)})", file))
        return
    n_questions = len({line["doc_id"] for _, line in lines})
    if unscored := {line["doc_id"] for _, line in lines if not line["metrics"]}:
        counts = f"{len(unscored)} of {n_questions} questions have no score"
        what = f"{counts}; `n` counts them, the accuracy is of the others"
        problems.append(Problem(what, file, incomplete=True))
    if unread := {line["doc_id"] for _, line in lines if "choices" not in line["doc"]}:
        counts = f"{len(unread)} of {n_questions} questions"
        problems.append(Problem(f"{counts} show no options that can be read, by which they could be joined", file))
    yield from lines


def _log_reader(read: LineReader) -> LogReader:
    return partial(_lines, read)


def _line(number: int, doc: Mapping[str, Any], scores: Mapping[str, float], filter_: str = "none") -> Line:
    """Return a line as lm_eval writes it, from the number of its question, counted from 0."""
    line = {"doc_id": number, "doc_hash": "", "doc": doc, "filter": filter_, "metrics": list(scores), **scores}
    return number + 1, line


def _doc(prompt: str, choices: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a question as a data row: the text before the options, and the options.

    The options are read from the prompt if there are no `choices`, or if these are only labels.
    """
    labels = labels_among(choices) if choices else None
    shown = None if choices and not labels else options_after_labels(prompt, labels) or options_after_labels(prompt)
    if shown is not None:
        return {"question": shown.frame.before, "choices": list(shown.options)}
    return {"question": prompt, "choices": list(choices)} if choices else {"question": prompt}


def _sections(task: str, n: int, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return the sections of lm_eval's results file for a task."""
    return {"results": {task: dict(metrics)}, "n-samples": {task: {"effective": n}}}


def _begins_with(pattern: re.Pattern[bytes], file: Path) -> bool:
    try:
        with file.open("rb") as beginning:
            return pattern.match(beginning.read(N_BYTES)) is not None
    except OSError:  # reported by the reader of results files
        return False


# ---------------------------------------------------------------------- inspect_ai


def _is_inspect_log(file: Path) -> bool:
    return file.suffix == ".eval" or (file.suffix == ".json" and _begins_with(INSPECT_JSON, file))


def _inspect_log(file: Path, header_only: bool = False) -> Any:
    """Return the log, or only its header, as inspect_ai reads it. Raises ImportError if that is not installed."""
    try:
        from inspect_ai.log import read_eval_log
    except ImportError as error:
        raise ImportError(
            f"{file} is a log of inspect_ai, which reads it and is not installed; run `pip install inspect_ai`"
        ) from error
    return read_eval_log(str(file), header_only=header_only)


def _inspect_run(file: Path, problems: list[Problem]) -> Run:
    log = _inspect_log(file, header_only=True)
    metrics = {}
    for score in log.results.scores if log.results else ():
        if score.reducer in (None, "mean") and "accuracy" in score.metrics:
            metrics[f"{ACCURACY},{score.name}"] = score.metrics["accuracy"].value
            if "stderr" in score.metrics:
                metrics[f"{STDERR},{score.name}"] = score.metrics["stderr"].value
    arguments = log.eval.model_args
    model = arguments.get("model_path") or log.eval.model.partition("/")[2] or log.eval.model
    n = len(log.eval.dataset.sample_ids or ()) or log.eval.dataset.samples or 0
    task_args = getattr(log.eval, "task_args_passed", None) or {}  # such as the subject; older logs lack it
    task = " ".join([log.eval.task.rpartition("/")[2], *(f"{key}={value}" for key, value in task_args.items())])
    time = str(log.eval.created)[:19].replace(":", "-")
    name, reader = model_named(str(model), arguments), _log_reader(_inspect_lines)
    sections = _sections(task, n, metrics) | {"config": {"model": "inspect_ai", "model_args": dict(arguments)}}
    return Run(name, time, sections, file, {task: file}, read_log=reader)


def _inspect_lines(file: Path) -> Iterator[Line]:
    """Yield a line per question and scorer. The score is the mean over epochs; samples that failed have none."""
    docs: dict[object, dict[str, Any]] = {}
    scores: dict[str, dict[object, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in _inspect_log(file).samples or ():
        docs[sample.id] = docs.get(sample.id) or _doc(_last_user_message(sample.input), sample.choices)
        for name, score in (sample.scores or {}).items():
            if (value := _grade(score.value)) is not None:
                scores[name][sample.id].append(value)
    for name in scores or ("none",):
        for number, (key, doc) in enumerate(docs.items()):
            values = scores[name][key]
            yield _line(number, doc, {ACCURACY: sum(values) / len(values)} if values else {}, name)


def _last_user_message(messages: str | Iterable[Any]) -> str:
    if isinstance(messages, str):
        return messages
    return next((message.text for message in reversed([*messages]) if message.role == "user"), "")


def _grade(value: object) -> float | None:
    if isinstance(value, str):
        return GRADES.get(value)
    return float(value) if isinstance(value, (int, float)) else None


# ---------------------------------------------------------------------- lighteval


def _is_lighteval_results(file: Path) -> bool:
    return RESULTS.fullmatch(file.name) is not None and _begins_with(LIGHTEVAL_JSON, file)


def _lighteval_run(file: Path, problems: list[Problem]) -> Run:
    content = json.loads(file.read_bytes())
    general, tasks = content["config_general"], content.get("config_tasks") or {}
    time = file.stem.rpartition("_")[2]
    details = _lighteval_details(file, time)
    n_rows = {task: _n_rows(log, problems) for task, log in details.items()}
    logs = {task: log for task, log in details.items() if n_rows[task]}
    metrics = {name: values for name, values in content["results"].items() if name in tasks or name in logs}
    shots = {}
    for name in metrics:
        task, _, n_shots = name.rpartition("|")
        if task:
            shots[name] = n_shots
    sections = {
        "results": {name: {f"{key},none": value for key, value in values.items()} for name, values in metrics.items()},
        "n-shot": shots,
        "n-samples": {name: {"effective": n_rows[name]} for name in logs},
        "config": {"model": "lighteval", "model_args": general.get("model_config") or {}},
    }
    if sha := general.get("model_sha"):
        sections["config"]["model_sha"] = sha
    name = model_named(str(general.get("model_name")), general.get("model_config") or {})
    return Run(name, time, sections, file, logs, read_log=_log_reader(_lighteval_lines))


def _lighteval_details(results: Path, time: str) -> dict[str, Path]:
    """Return the details of each task of a results file, from the folder `details` of the same output."""
    candidates = [output / "details" for output in results.parents]
    folder = next((candidate for candidate in candidates if candidate.is_dir()), None)
    logs = {}
    for file in files_below(folder) if folder else ():
        if (match := LIGHTEVAL_DETAILS.fullmatch(file.name)) and match["time"] == time:
            logs[match["task"]] = file
    return dict(sorted(logs.items()))


def _is_first_of_details(file: Path) -> bool:
    """Return whether a file has details of lighteval and is the first such file of its run."""
    match = LIGHTEVAL_DETAILS.fullmatch(file.name)
    return match is not None and file == min(file.parent.glob(f"details_*_{escape(match['time'])}.parquet"))


def _without_results(file: Path, problems: list[Problem]) -> None:
    """Report details whose results file is missing. Other details are read with their results file."""
    folder = next((folder for folder in file.parents if folder.name == "details"), file.parent)
    time = file.stem.rpartition("_")[2]
    if not any(file.name.endswith(f"_{time}.json") for file in files_below(folder.parent)):
        what = "left out: details of lighteval without their results file, which names the model; copy it here"
        problems.append(Problem(what, file))


def _n_rows(file: Path, problems: list[Problem]) -> int:
    """Return the number of samples by the file's metadata; 0 if it cannot be read."""
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as table:
            return int(table.metadata.num_rows)
    except Exception as error:
        problems.append(Problem(f"left out: not the details that lighteval writes ({in_one_sentence(error)})", file))
        return 0


def _lighteval_lines(file: Path) -> Iterator[Line]:
    from pyarrow.parquet import read_table

    for number, row in enumerate(read_table(file, columns=["doc", "metric"]).to_pylist()):
        doc, scores = row["doc"], row["metric"] or {}
        numbers = {name: float(value) for name, value in scores.items() if isinstance(value, (int, float))}
        yield _line(number, _doc(doc["query"], doc["choices"]), numbers)


# ---------------------------------------------------------------------- OpenCompass


def _is_opencompass_log(file: Path) -> bool:
    """Return whether a file is `predictions/MODEL/DATA_SET.json`, or the first part of such a data set."""
    if file.suffix != ".json" or RESULTS.fullmatch(file.name):  # lm_eval may also have written into `predictions`
        return False
    return file.absolute().parent.parent.name == "predictions" and file == _parts(file)[0]


def _parts(file: Path) -> list[Path]:
    """Return all predictions of the file's data set.

    These are divided into `DATA_SET_0.json`, `DATA_SET_1.json` ... if there is no `DATA_SET.json`.
    """
    name, _, number = file.stem.rpartition("_")
    if not (name and number.isdecimal()) or file.with_name(f"{name}.json").exists():
        return [file]
    endings = (part.stem.rpartition("_")[2] for part in file.parent.glob(f"{escape(name)}_*.json"))
    numbers = sorted(int(ending) for ending in endings if ending.isdecimal())
    return [file.with_name(f"{name}_{part}.json") for part in numbers] if numbers[0] == 0 else [file]


def _data_set(file: Path) -> str:
    """Return the data set's name. Only its results distinguish a single part from a data set with such a name."""
    name = file.stem.removesuffix("_0")
    return name if len(_parts(file)) > 1 or _results_of(file, name).exists() else file.stem


def _results_of(file: Path, data_set: str) -> Path:
    place = file.absolute().parent
    return place.parent.parent / "results" / place.name / f"{data_set}.json"


def _opencompass_run(file: Path, problems: list[Problem]) -> Run:
    """Return the run of a data set. The model has the short name that it has in OpenCompass."""
    data_set = _data_set(file)
    results, place = _results_of(file, data_set), file.absolute().parent
    accuracy = json.loads(results.read_bytes()).get("accuracy") if results.exists() else None
    metrics = {f"{ACCURACY},none": accuracy / 100} if isinstance(accuracy, (int, float)) else {}
    sections = _sections(data_set, len(_scored_predictions(file)), metrics)
    time = re.sub(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)", r"\1-\2-\3T\4-\5-\6", place.parent.parent.name)
    return Run(place.name, time, sections, file, {data_set: file}, read_log=_log_reader(_opencompass_lines))


def _opencompass_lines(file: Path) -> Iterator[Line]:
    for number, (prediction, score) in enumerate(_scored_predictions(file)):
        yield _line(number, _doc(*_prompt_and_options(prediction)), {} if score is None else {ACCURACY: score})


def _scored_predictions(file: Path) -> list[tuple[Mapping[str, Any], float | None]]:
    """Return each prediction with the share of its answers that are correct; a question may have several answers.

    The share comes from the details of the results or, for the most likely of several texts, from the prediction. If
    neither has it, it is None.
    """
    parts = [json.loads(part.read_bytes()) for part in _parts(file)]
    predictions = [part[str(number)] for part in parts for number in range(len(part))]
    results = _results_of(file, _data_set(file))
    details = json.loads(results.read_bytes()).get("details") if results.exists() else None
    if isinstance(details, list) and details:  # an entry for each question, whose answers may be several
        return [(prediction, _share_right(entry)) for prediction, entry in zip(predictions, details, strict=False)]
    entries = details if isinstance(details, dict) else {}
    return [
        (prediction, _share_right(entries.get(str(number)) or _likeliest(prediction)))
        for number, prediction in enumerate(predictions)
    ]


def _likeliest(prediction: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a prediction that is the most likely of several texts; empty for any other."""
    if not any(key.startswith("label: ") for key in prediction):
        return {}
    return {"predictions": str(prediction.get("prediction")), "references": str(prediction.get("gold"))}


def _share_right(details: Mapping[str, Any]) -> float | None:
    """Return the share of correct answers by the details of a question; None if they have no grades."""
    grades = details.get("correct", details.get("is_correct"))
    if grades is None and {"predictions", "references"} <= details.keys():
        grades = details["predictions"] == details["references"]
    answers = grades if isinstance(grades, list) else [grades]
    right = [float(answer) for answer in answers if isinstance(answer, (bool, int, float))]
    return sum(right) / len(right) if right else None


def _prompt_and_options(prediction: Mapping[str, Any]) -> tuple[str, Sequence[str] | None]:
    """Return the prompt and, if the answer was the most likely of several texts, the different ends of these texts."""
    texts = [value["testing input"] for key, value in prediction.items() if key.startswith("label: ")]
    if len(texts) < 2:
        return _last_human_turn(prediction.get("origin_prompt")), None
    shared = shared_beginning(texts)
    # options may begin alike
    start = max((match.end() for match in OPTION_BEGINS.finditer(shared)), default=len(shared))
    return shared[:start], [text[start:] for text in texts]


def _last_human_turn(prompt: object) -> str:
    """Return the last text of a prompt in turns that is not the model's."""
    if isinstance(prompt, str):
        return prompt
    turns = [turn for turn in prompt or () if isinstance(turn, dict)] if isinstance(prompt, list) else []
    texts = (
        turn.get("prompt") or turn.get("content") for turn in reversed(turns) if turn.get("role") not in BOT_ROLES
    )
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


FORMATS = (
    _Format("inspect_ai", _is_inspect_log, _inspect_run),
    _Format("lighteval", _is_lighteval_results, _lighteval_run),
    _Format("lighteval", _is_first_of_details, _without_results),
    _Format("OpenCompass", _is_opencompass_log, _opencompass_run),
)
