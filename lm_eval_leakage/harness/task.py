"""A leakage audit as a harness task: the probe writes its requests, the filters' evidence becomes its rows."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

import lm_eval_leakage.harness.rows  # noqa: F401 (makes the rows known)
from lm_eval_leakage.guards import guards_of, templates_of
from lm_eval_leakage.harness.calibrated import ROWS as CALIBRATED_ROWS
from lm_eval_leakage.harness.calibrated import Calibrator
from lm_eval_leakage.harness.data import load_questions
from lm_eval_leakage.harness.filters import JudgedResponse, JudgedText, judged_response
from lm_eval_leakage.harness.logged_verdict import LoggedVerdict
from lm_eval_leakage.harness.model_of_run import tell_model_to
from lm_eval_leakage.harness.parameters import probe_of, reference_of, with_parameters
from lm_eval_leakage.harness.processes import on_all
from lm_eval_leakage.harness.row_values import ROWS, undecidable
from lm_eval_leakage.harness.token_scores import TokenAnswer
from lm_eval_leakage.harness.window import longer_than_window, n_tokens_of
from lm_eval_leakage.probes import Probe
from lm_eval_leakage.questions import question_from_doc
from lm_eval_leakage.records import Answered, Evidence, Question, Request, Skipped, UntestableQuestion
from lm_eval_leakage.statistics.known_scores import Calibrated, detector_name

logger = logging.getLogger(__name__)

Doc = Mapping[str, Any]
ChatTemplate = Callable[..., str]  # or, for a chat model behind an API, turns as JSON in a tuple


@dataclass
class LeakageInstance(Instance):  # type: ignore[misc]
    """One request about a question, or the stand-in for a question that could not be tested.

    The harness needs at least one request a question, so a skipped one sends a stand-in of two words, whose
    answer nobody reads.
    """

    skipped: Skipped | None = None


class LongerThanWindow(UntestableQuestion):
    """A question that would have to be truncated for the model of the run."""


STAND_IN = Request("Skipped", " question")
REASONS_SHOWN = 5  # in the run's messages; the samples log has every question's


class LeakageTask(ConfigurableTask):  # type: ignore[misc]
    """One probe over one benchmark. A YAML names the probe in `metadata` (`probe: option_orders`, beside the
    probe's parameters) and the statistics in `filter_list`; `--metadata` overrides the former.
    """

    lm: object | None = None  # the model of the run, known once the harness begins to evaluate

    def __init__(self, config: dict[str, Any]) -> None:
        config = {key: value for key, value in config.items() if key != "class"}
        self.probe = probe_of(config.get("metadata") or {})
        self.reference = reference_of(config["metadata"], self.probe)
        self.calibrator = Calibrator.of(config["metadata"], config["task"])
        if self.calibrator is not None:
            rows = [{"metric": name, "aggregation": name, "higher_is_better": None} for name in CALIBRATED_ROWS]
            config["metric_list"] = [*config["metric_list"], *rows]
        config["filter_list"] = [with_parameters(entry, config["metadata"]) for entry in config["filter_list"]]
        super().__init__(config=config)
        for ensemble in self._filters:
            for make_filter in ensemble.filters:
                make_filter()  # a parameter that makes no sense ends the run here, not after the model's work

    def meet(self, lm: object) -> None:
        """The model of the run; raises ValueError where the task's calibration is of another."""
        if self.calibrator is not None:
            self.calibrator.check_model(getattr(lm, "lm", lm))
        self.lm = lm

    # ------------------------------------------------------------------ questions

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        split = self.config.test_split or self.config.validation_split
        questions = load_questions(self.config, split)
        if not len(questions):
            raise ValueError(f"{self.config.task}: split {split!r} has no question; name another split or file")
        given = "data_files" in (self.config.metadata or {})
        if given and "question" in questions.column_names:
            self.config.process_docs = None  # it is written for the fields of the hub's data set, not for ours
        self.dataset = {split: questions}

    def fewshot_docs(self) -> None:
        """No examples: the audit asks for the benchmark's text as it stands."""

    def question(self, doc: Doc) -> Question:
        """The question that `doc` holds; raises UntestableQuestion, with the reason, where there is none."""
        return question_from_doc(doc)

    def doc_to_text(self, doc: Doc, doc_to_text: object = None) -> str:
        try:
            return self.question(doc).stem
        except UntestableQuestion:
            return ""

    def doc_to_target(self, doc: Doc, doc_to_target: object = None) -> str:
        """The right option's text, for the samples log; empty where it is unknown."""
        try:
            question = self.question(doc)
        except UntestableQuestion:
            return ""
        return "" if question.answer is None else question.options[question.answer]

    # ------------------------------------------------------------------ requests

    def build_all_requests(
        self,
        *,
        rank: int = 0,
        world_size: int = 1,
        cache_requests: bool = False,
        rewrite_requests_cache: bool = False,
        **kwargs: Any,
    ) -> None:
        """The harness's own, less its request cache, whose key knows nothing of the probe's parameters, the
        limit or the model's window: a hit could pair a question with requests that were not meant for it."""
        if cache_requests or rewrite_requests_cache:
            logger.warning("%s: --cache_requests is ignored, for the cache misses a changed probe", self.config.task)
        super().build_all_requests(rank=rank, world_size=world_size, **kwargs)

    def doc_iterator(
        self, *, rank: int = 0, limit: int | None = None, world_size: int = 1, samples: list[int] | None = None
    ) -> Iterator[tuple[int, Doc]]:
        n_questions = len(samples) if samples else min(len(self.eval_docs), int(limit or len(self.eval_docs)))
        if n_questions < world_size:
            raise ValueError(
                f"{self.config.task}: {n_questions} questions for {world_size} processes; the harness needs at least "
                "one for each, so raise --limit or start fewer processes"
            )
        iterator: Iterator[tuple[int, Doc]] = super().doc_iterator(
            rank=rank, limit=limit, world_size=world_size, samples=samples
        )
        return iterator

    def fewshot_context(
        self,
        doc: Doc,
        num_fewshot: int = 0,
        system_instruction: str | None = None,
        **_: object,
    ) -> str:
        """Only what stands before every request; `construct_requests` writes the question itself."""
        return system_instruction or ""

    def construct_requests(
        self,
        doc: Doc,
        ctx: str,
        metadata: tuple[str | None, int | None, int | None],
        apply_chat_template: bool = False,
        chat_template: ChatTemplate | None = None,
    ) -> list[LeakageInstance]:
        framed = _chat_frame(chat_template, ctx) if apply_chat_template and chat_template else _plain_frame(ctx)
        try:
            asked, skipped = self._asked(doc, framed), None
        except UntestableQuestion as error:
            asked = [(framed(STAND_IN.context), STAND_IN.continuation)]
            skipped = Skipped(str(error))
        return [
            LeakageInstance(
                self.probe.needs, doc, self._arguments(context, continuation), idx, metadata, skipped=skipped
            )
            for idx, (context, continuation) in enumerate(asked)
        ]

    def _asked(self, doc: Doc, framed: Callable[[str], str]) -> list[tuple[str, str]]:
        """The texts about one question, within the model's window."""
        requests = self._pooled_probe.requests(self.question(doc))
        asked = [(framed(request.context), request.continuation) for request in requests]
        if too_long := longer_than_window(self.lm, asked):
            raise LongerThanWindow(too_long)
        return asked

    def _arguments(self, context: str, continuation: str) -> tuple[Any, ...]:
        """What the model's method takes for one request."""
        if self.probe.needs == "token_scores":
            return (context + continuation,)
        if self.probe.needs == "generate_until":
            n_tokens = self.probe.n_tokens(Request(context, continuation))
            wanted = n_tokens_of(self.lm, continuation) + 1 if n_tokens is None else n_tokens
            return context, {"until": [], "max_gen_toks": wanted, "do_sample": False, "temperature": 0.0}
        return context, continuation

    # ------------------------------------------------------------------ verdicts

    def apply_filters(self) -> None:
        """Statistics see the questions that were asked; the others keep their reason in every pipeline."""
        by_question = [list(group) for _, group in groupby(self.instances, key=lambda instance: instance.doc_id)]
        if self.reference is not None and on_all(all(map(self._without_reference, by_question))):
            logger.warning(
                "%s: the log of %s holds no text of this audit, which is judged without a reference",
                self.config.task,
                self.reference.model,
            )
            self.reference = None
        for instances in by_question:
            instances[0].skipped = instances[0].skipped or self._without_reference(instances)
        asked = [instances for instances in by_question if instances[0].skipped is None]
        answered = [self._answered(instances) for instances in asked]
        for ensemble in self._filters:
            (make_filter,) = ensemble.filters
            judge = make_filter()
            verdicts = iter(judge.apply(None, answered))
            for instances in by_question:
                for instance in instances:
                    instance.filtered_resps[ensemble.name] = judged_response(instance.resps[0])
                judged = instances[0].filtered_resps[ensemble.name]
                judged.verdict = instances[0].skipped or next(verdicts)
                judged.detector = detector_name(
                    self.probe, judge.statistic, None if self.reference is None else self.reference.model
                )
                judged.calibrated = self._calibrated(judged, instances[0].doc)
            self._report(ensemble.name)

    def _calibrated(self, judged: JudgedResponse | JudgedText, doc: Doc) -> Calibrated | None:
        if self.calibrator is None or judged.verdict is None or isinstance(judged.verdict, Skipped):
            return None
        return self.calibrator.judge(judged.verdict, judged.detector, self.question(doc), bool(self._guards(doc)))

    def _answered(self, instances: Sequence[LeakageInstance]) -> Answered:
        question = self.question(instances[0].doc)
        answers = [instance.resps[0] for instance in instances]
        loglikelihoods = tuple(answer[0] for answer in answers if isinstance(answer, tuple))
        expected: tuple[float, ...] = ()
        if self.reference is not None:
            expected = tuple(self.reference.of([instance.args for instance in instances]) or ())
            loglikelihoods = tuple(own - other for own, other in zip(loglikelihoods, expected, strict=True))
        return Answered(
            question,
            self._pooled_probe.requests(question),
            loglikelihoods,
            self._pooled_probe.gold(question),
            tuple(answer.tokens for answer in answers if isinstance(answer, TokenAnswer)),
            tuple(answer for answer in answers if isinstance(answer, str)),
            expected,
        )

    def _without_reference(self, instances: Sequence[LeakageInstance]) -> Skipped | None:
        if self.reference is None or self.reference.of([instance.args for instance in instances]) is not None:
            return None
        return Skipped("the reference's log does not hold all of its texts")

    def _report(self, pipeline: str) -> None:
        """What the table has no room for: reasons of skipped questions, and why a rate may be missing."""
        verdicts = [instance.filtered_resps[pipeline].verdict for instance in self.instances if instance.idx == 0]
        evidence = [verdict for verdict in verdicts if isinstance(verdict, Evidence)]
        if undecidable(evidence):
            logger.warning(
                "%s, %s: with 2 options no question's p-value is below 1/2, so none can be flagged and no rate is "
                "shown; %d of %d questions show the sign, %d would by chance: read dataset_pvalue",
                self.config.task,
                pipeline,
                sum(verdict.flagged for verdict in evidence),
                len(evidence),
                round(sum(verdict.null_rate for verdict in evidence)),
            )
        reasons = Counter(verdict.reason for verdict in verdicts if isinstance(verdict, Skipped))
        for reason, count in reasons.most_common(REASONS_SHOWN):
            logger.warning("%s, %s: %d question(s) skipped: %s", self.config.task, pipeline, count, reason)

    def process_results(self, doc: Doc, results: Sequence[JudgedResponse | JudgedText]) -> LoggedVerdict:
        verdict = results[0].verdict
        assert verdict is not None, "a filter gave no verdict on a question's first response"
        names = [row.__name__ for row in ROWS if row.__name__ in self.aggregation()]
        return LoggedVerdict(verdict, self._guards(doc), names, results[0].calibrated, results[0].detector)

    def _guards(self, doc: Doc) -> tuple[str, ...]:
        try:
            return guards_of(self.question(doc), self._templates)
        except UntestableQuestion:
            return ()

    @cached_property
    def _pooled_probe(self) -> Probe:
        return self.probe.with_pool(lambda: tuple(self.benchmark()))

    @cached_property
    def _templates(self) -> frozenset[frozenset[str]]:
        """Option sets that many questions of the benchmark share, asked or not."""
        return templates_of(self.benchmark())

    def benchmark(self) -> Iterator[Question]:
        """All of its questions that can be read, asked or not."""
        for doc in self.eval_docs:
            try:
                yield self.question(doc)
            except UntestableQuestion:
                continue


def _plain_frame(system: str) -> Callable[[str], str]:
    return lambda context: f"{system}\n\n{context}" if system else context


def _chat_frame(chat_template: ChatTemplate, system: str) -> Callable[[str], str]:
    """The context as the user's turn, so that the continuation is scored as the assistant's."""
    before = [{"role": "system", "content": system}] if system else []
    return lambda context: chat_template([*before, {"role": "user", "content": context}])


tell_model_to(LeakageTask)
