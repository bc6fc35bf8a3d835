"""Logs of inspect_ai, lighteval and OpenCompass as runs: what a log says of its run, in the sections of a results file
of lm_eval, and each sample as a line of its samples logs.

None of them has lm_eval's hash of the data row, so that a line is marked with OTHER_TOOL: its `doc` is what the tool
asked, as its prompt words it, by which the question is found in audits.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.run import ANNOTATED, MADE_BY, Problem, Run, model_named
from lm_eval_leakage.questions.prompt_parser import labels_among, options_after_labels, shared_beginning
from lm_eval_leakage.texts import in_one_sentence

OTHER_TOOL = "other_tool"  # key of a line
ACCURACY, STDERR = "acc", "acc_stderr"
INSPECT_JSON = re.compile(rb'\s*\{\s*"version":\s*\d+,\s*"status":')
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # inspect_ai's: correct, partially, incorrect, no answer
BOT_ROLES = ("BOT", "assistant")
OPTION_BEGINS = re.compile(r"\n|: |：")  # after it, in OpenCompass's texts
Line = tuple[int, dict[str, Any]]  # of a samples log, with its number


def run_of_other_tool(file: Path, problems: list[Problem]) -> Run | None:
    """The run of a log of inspect_ai, or of one data set of OpenCompass; None for any other file, and for one that
    cannot be read, which becomes a problem.

    Raises ImportError for a log of inspect_ai where that is not installed.
    """
    if file.stem.endswith(ANNOTATED):
        return None
    if is_of_inspect(file):
        read, tool = _inspect_run, "inspect_ai"
    elif _is_of_opencompass(file):
        read, tool = _opencompass_run, "OpenCompass"
    else:
        return None
    try:
        return read(file)
    except ImportError as error:
        raise ImportError(
            f"{file} is a log of inspect_ai, which reads it and is not installed; run `pip install inspect_ai`"
        ) from error
    except Exception as error:  # the tool's own reader may raise anything
        problems.append(Problem(f"left out: not a complete log of {tool} ({in_one_sentence(error)})", file))
        return None


def sample_lines(file: Path, problems: list[Problem]) -> Iterator[Line]:
    """The samples of another tool's log; what cannot be read becomes a problem."""
    read = _of_parquet if file.suffix == ".parquet" else _of_inspect if is_of_inspect(file) else _of_opencompass
    try:
        lines = list(read(file))
    except Exception as error:
        problems.append(Problem(f"left out: its samples cannot be read ({in_one_sentence(error)})", file))
        return
    n_asked = len({line["doc_id"] for _, line in lines})
    if unscored := {line["doc_id"] for _, line in lines if not line["metrics"]}:
        what = f"{len(unscored)} of {n_asked} questions have no score; `n` counts them, the accuracy is of the others"
        problems.append(Problem(what, file, incomplete=True))
    if unread := {line["doc_id"] for _, line in lines if "choices" not in line["doc"]}:
        what = f"{len(unread)} of {n_asked} questions show no options that can be read, by which they could be joined"
        problems.append(Problem(what, file))
    yield from lines


def _line(number: int, asked: Mapping[str, Any], scores: Mapping[str, float], filter_: str = "none") -> Line:
    digest = blake2b(json.dumps(asked).encode(), digest_size=16).hexdigest()
    of_question = {"doc_id": number, "doc_hash": digest, "doc": asked, OTHER_TOOL: True}
    return number + 1, {**of_question, "filter": filter_, "metrics": list(scores), **scores}


def _asked(prompt: str, choices: Sequence[str] | None = None) -> dict[str, Any]:
    """What was asked, as a data row: the text before the options, and the options, which are in the prompt if there
    are no `choices` or only labels."""
    labels = labels_among(choices) if choices else None
    shown = None if choices and not labels else options_after_labels(prompt, labels) or options_after_labels(prompt)
    if shown is not None:
        return {"question": shown.frame.before, "choices": list(shown.options)}
    return {"question": prompt, "choices": list(choices)} if choices else {"question": prompt}


def _sections(task: str, n: int, told: Mapping[str, float], made_by: str) -> dict[str, Any]:
    return {"results": {task: dict(told)}, "n-samples": {task: {"effective": n}}, MADE_BY: made_by}


# ---------------------------------------------------------------------- inspect_ai


def is_of_inspect(file: Path) -> bool:
    if file.suffix != ".json":
        return file.suffix == ".eval"
    try:
        with file.open("rb") as beginning:
            return INSPECT_JSON.match(beginning.read(200)) is not None
    except OSError:  # its reader will say so
        return False


def _inspect_run(file: Path) -> Run:
    from inspect_ai.log import read_eval_log

    log = read_eval_log(str(file), header_only=True)
    told = {}
    for score in log.results.scores if log.results else ():
        if score.reducer in (None, "mean") and "accuracy" in score.metrics:
            told[f"{ACCURACY},{score.name}"] = score.metrics["accuracy"].value
            if "stderr" in score.metrics:
                told[f"{STDERR},{score.name}"] = score.metrics["stderr"].value
    arguments = log.eval.model_args
    model = arguments.get("model_path") or log.eval.model.partition("/")[2] or log.eval.model
    n = len(log.eval.dataset.sample_ids or ()) or log.eval.dataset.samples or 0
    asked_with = getattr(log.eval, "task_args_passed", None) or {}  # such as the subject; older logs lack it
    task = " ".join([log.eval.task.rpartition("/")[2], *(f"{key}={value}" for key, value in asked_with.items())])
    sections = _sections(task, n, told, f"inspect_ai {(log.eval.packages or {}).get('inspect_ai', '')}".strip())
    time = str(log.eval.created)[:19].replace(":", "-")
    return Run(model_named(str(model), arguments), time, sections, file, {task: file})


def _of_inspect(file: Path) -> Iterator[Line]:
    """Of several epochs, a question's score is the mean; samples that failed have none."""
    from inspect_ai.log import read_eval_log

    asked: dict[object, dict[str, Any]] = {}
    scores: dict[str, dict[object, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in read_eval_log(str(file)).samples or ():
        asked[sample.id] = asked.get(sample.id) or _asked(_prompt_of(sample.input), sample.choices)
        for name, score in (sample.scores or {}).items():
            if (value := _grade(score.value)) is not None:
                scores[name][sample.id].append(value)
    for name in scores or ("none",):
        for number, (key, question) in enumerate(asked.items()):
            own = scores[name][key]
            yield _line(number, question, {ACCURACY: sum(own) / len(own)} if own else {}, name)


def _prompt_of(asked: str | Iterable[Any]) -> str:
    """The last message of the user."""
    if isinstance(asked, str):
        return asked
    return next((one.text for one in reversed([*asked]) if one.role == "user"), "")


def _grade(value: object) -> float | None:
    if isinstance(value, str):
        return GRADES.get(value)
    return float(value) if isinstance(value, (int, float)) else None


# ---------------------------------------------------------------------- lighteval


def is_of_lighteval(results: Mapping[str, Any]) -> bool:
    return isinstance(results.get("config_general"), dict)


def lighteval_run(
    results: Mapping[str, Any], time: str, file: Path, details: Mapping[str, Path], problems: list[Problem]
) -> Run:
    """results: of its results file; details: its parquet file of each task"""
    general, tasks = results["config_general"], results.get("config_tasks") or {}
    held = {task: _n_rows(log, problems) for task, log in details.items()}
    logs = {task: log for task, log in details.items() if held[task]}
    told = {name: own for name, own in results["results"].items() if name in tasks or name in logs}
    sections = {
        "results": {name: {f"{key},none": value for key, value in own.items()} for name, own in told.items()},
        "n-shot": {name: parts[2] for name in told if (parts := name.rpartition("|"))[0]},
        "n-samples": {name: {"effective": held[name]} for name in logs},
        MADE_BY: "lighteval",
    }
    model = model_named(str(general.get("model_name")), general.get("model_config") or {})
    return Run(model, time, sections, file, logs)


def _n_rows(file: Path, problems: list[Problem]) -> int:
    """How many samples its metadata tell; 0 if it cannot be read."""
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as found:
            return int(found.metadata.num_rows)
    except Exception as error:
        problems.append(Problem(f"left out: not the details that lighteval writes ({in_one_sentence(error)})", file))
        return 0


def _of_parquet(file: Path) -> Iterator[Line]:
    from pyarrow.parquet import read_table

    for number, row in enumerate(read_table(file, columns=["doc", "metric"]).to_pylist()):
        doc, scores = row["doc"], row["metric"] or {}
        numbers = {name: float(value) for name, value in scores.items() if isinstance(value, (int, float))}
        yield _line(number, _asked(doc["query"], doc["choices"]), numbers)


# ---------------------------------------------------------------------- OpenCompass


def _is_of_opencompass(file: Path) -> bool:
    """Whether it is `predictions/MODEL/DATA_SET.json`; of a data set in parts, the first one."""
    is_prediction = file.suffix == ".json" and file.absolute().parent.parent.name == "predictions"
    return is_prediction and file == _parts(file)[0]


def _parts(file: Path) -> list[Path]:
    """All predictions of the file's data set, which are divided into `DATA_SET_0.json`, `DATA_SET_1.json` ... if there
    is no `DATA_SET.json`."""
    name, _, number = file.stem.rpartition("_")
    if not (name and number.isdecimal()) or file.with_name(f"{name}.json").exists():
        return [file]
    endings = (one.stem.rpartition("_")[2] for one in file.parent.glob(f"{escape(name)}_*.json"))
    numbers = sorted(int(one) for one in endings if one.isdecimal())
    return [file.with_name(f"{name}_{one}.json") for one in numbers] if numbers[0] == 0 else [file]


def _data_set(file: Path) -> str:
    """A single part cannot be told from a data set with such a name, except by its results."""
    name = file.stem.removesuffix("_0")
    return name if len(_parts(file)) > 1 or _results_of(file, name).exists() else file.stem


def _results_of(file: Path, data_set: str) -> Path:
    place = file.absolute().parent
    return place.parent.parent / "results" / place.name / f"{data_set}.json"


def _opencompass_run(file: Path) -> Run:
    """The model has the short name that it has in OpenCompass."""
    data_set = _data_set(file)
    results, place = _results_of(file, data_set), file.absolute().parent
    accuracy = json.loads(results.read_bytes()).get("accuracy") if results.exists() else None
    told = {f"{ACCURACY},none": accuracy / 100} if isinstance(accuracy, (int, float)) else {}
    sections = _sections(data_set, len(_scored_predictions(file)), told, "OpenCompass")
    time = re.sub(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)", r"\1-\2-\3T\4-\5-\6", place.parent.parent.name)
    return Run(place.name, time, sections, file, {data_set: file})


def _of_opencompass(file: Path) -> Iterator[Line]:
    for number, (prediction, score) in enumerate(_scored_predictions(file)):
        yield _line(number, _asked(*_of_prediction(prediction)), {} if score is None else {ACCURACY: score})


def _scored_predictions(file: Path) -> list[tuple[Mapping[str, Any], float | None]]:
    """Each prediction with the share of its answers, of several to a question, that are correct: by the details of the
    results or, for the most likely of several texts, by the prediction itself; else None."""
    parts = [json.loads(part.read_bytes()) for part in _parts(file)]
    predictions = [part[str(number)] for part in parts for number in range(len(part))]
    results = _results_of(file, _data_set(file))
    details = json.loads(results.read_bytes()).get("details") if results.exists() else None
    if isinstance(details, list) and details:  # one for each question, whose answers may be several
        return [(one, _share_right(own)) for one, own in zip(predictions, details, strict=False)]
    told = details if isinstance(details, dict) else {}
    return [(one, _share_right(told.get(str(number)) or _likeliest(one))) for number, one in enumerate(predictions)]


def _likeliest(prediction: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(key.startswith("label: ") for key in prediction):
        return {}
    return {"predictions": str(prediction.get("prediction")), "references": str(prediction.get("gold"))}


def _share_right(details: Mapping[str, Any]) -> float | None:
    found = details.get("correct", details.get("is_correct"))
    if found is None and {"predictions", "references"} <= details.keys():
        found = details["predictions"] == details["references"]
    answers = found if isinstance(found, list) else [found]
    right = [float(one) for one in answers if isinstance(one, (bool, int, float))]
    return sum(right) / len(right) if right else None


def _of_prediction(prediction: Mapping[str, Any]) -> tuple[str, Sequence[str] | None]:
    """The prompt and, if the most likely of several texts was the answer, what these end with."""
    texts = [own["testing input"] for key, own in prediction.items() if key.startswith("label: ")]
    if len(texts) < 2:
        return _human(prediction.get("origin_prompt")), None
    shared = shared_beginning(texts)
    # options may begin alike
    begun = max((found.end() for found in OPTION_BEGINS.finditer(shared)), default=len(shared))
    return shared[:begun], [text[begun:] for text in texts]


def _human(prompt: object) -> str:
    """The last text that is not the model's, of a prompt in turns."""
    if isinstance(prompt, str):
        return prompt
    turns = [turn for turn in prompt or () if isinstance(turn, dict)] if isinstance(prompt, list) else []
    told = (turn.get("prompt") or turn.get("content") for turn in reversed(turns) if turn.get("role") not in BOT_ROLES)
    return next((text for text in told if isinstance(text, str) and text.strip()), "")
