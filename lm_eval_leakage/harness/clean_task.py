"""An lm_eval task restricted to the questions in a list next to this file; needs only lm_eval.

Written by `lm-eval-leakage clean`, together with task YAMLs that have this metadata:
    base: the base task
    base_yaml: its YAML, relative to the `tasks` folder of lm_eval
    questions: the JSON file with the kept questions, by their hashes in lm_eval's samples logs
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import lm_eval.tasks
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.utils import handle_non_serializable, hash_string

logger = logging.getLogger("lm_eval.clean_task")  # a logger of the harness, so that messages are shown

HERE = Path(__file__).parent
TASKS = Path(lm_eval.tasks.__file__).parent
NOT_INHERITED = ("task", "tag", "group", "task_list", "class")


class CleanTask(ConfigurableTask):  # type: ignore[misc]
    """Has the prompts, few-shot examples, metrics and filters of the base task, but only the kept questions."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in config.items() if key != "class"}
        self._questions_file = HERE / settings["metadata"]["questions"]
        base = base_config(settings["metadata"])
        settings["metadata"] = metadata_of(base, settings["metadata"])
        if "task_alias" in base:
            settings.setdefault("task_alias", f"{base['task_alias']}_clean")
        super().__init__(config=base | settings)

    @cached_property
    def base_docs(self) -> Any:
        """All questions of the base task."""
        return super().eval_docs

    @cached_property
    def eval_docs(self) -> Any:
        """The kept rows in the base task's order; equal rows as often as in the list."""
        docs = self.base_docs
        about = json.loads(self._questions_file.read_text(encoding="utf-8"))
        wanted = Counter(question["doc_hash"] for question in about["kept"])
        places = []
        for index, doc in enumerate(docs):
            name = doc_hash(doc)
            if wanted[name]:
                wanted[name] -= 1
                places.append(index)
        if len(places) != about["n_kept"]:
            made_with = ", ".join(f"{package} {number}" for package, number in about["made_with"].items())
            raise ValueError(
                f"{len(places)} of the {about['n_kept']} questions that {self._questions_file} keeps are among the "
                f"{len(docs)} that {about['base']} has here: its data or lm_eval's processing of them has changed; "
                f"make the list again from runs on these data, or use what it was made with ({made_with})"
            )
        if len(docs) > about["n_questions"]:
            logger.warning(
                "%s was chosen from %d of these %d questions", self._questions_file, about["n_questions"], len(docs)
            )
        return docs.select(places)

    def build_all_requests(self, *, tokenizer_name: str = "", **options: Any) -> None:
        """Adds the list to the cache key of --cache_requests, so that another list does not get cached requests."""
        self._upcoming = iter(self.base_docs)
        digest = sha256(self._questions_file.read_bytes()).hexdigest()[:16]
        super().build_all_requests(tokenizer_name=f"{tokenizer_name}-questions{digest}", **options)

    def fewshot_context(self, doc: Any, num_fewshot: int, **options: Any) -> Any:
        """Also draws examples for omitted questions, so that the kept ones get those of the base task's run."""
        if num_fewshot:
            name = doc_hash(doc)
            for passed_over in takewhile(lambda other: doc_hash(other) != name, self._upcoming):
                super().fewshot_context(passed_over, num_fewshot=num_fewshot, **options)
        return super().fewshot_context(doc, num_fewshot=num_fewshot, **options)


def base_config(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base task's settings, as the installed lm_eval has them."""
    file = TASKS / about["base_yaml"]
    if not file.is_file():
        raise ValueError(
            f"the base task {about['base']} has no YAML at {file} with lm_eval {version('lm_eval')}; use the lm_eval "
            f"version that made_with in {about['questions']} names, or make the folder again with this one"
        )
    config: dict[str, Any] = load_yaml(file)
    return {key: value for key, value in config.items() if key not in NOT_INHERITED}


def metadata_of(base: Mapping[str, Any], task_metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's metadata; the version is that of the base task as installed, whose prompts are used."""
    inherited = base.get("metadata")
    metadata = {**(inherited if isinstance(inherited, dict) else {}), **task_metadata}
    here, then = version_of(base), task_metadata.get("version")
    if here != then:
        logger.warning(
            "%s has version %s here; its questions were chosen with version %s", task_metadata["base"], here, then
        )
    return metadata if here is None else metadata | {"version": here}


def version_of(config: Mapping[str, Any]) -> Any:
    """Return the version in a task's settings; None if it has none."""
    metadata = config.get("metadata")
    return metadata.get("version") if isinstance(metadata, dict) else None


def doc_hash(doc: Any) -> str:
    """Return the hash that lm_eval's evaluator gives to a row."""
    return str(hash_string(json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)))
