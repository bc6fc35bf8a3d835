"""Define a leakage audit as an lm_eval task: a probe makes its requests, and statistics compute its rows as filters.

Within `--limit`, an audit draws its questions; the harness would take the first rows of a benchmark, which are of one
subject or of one source.
"""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator_utils import get_sample_size

from lm_eval_leakage.detectors import Probe
from lm_eval_leakage.harness.models.abilities import LongerThanWindow, lacking, longer_than_window, n_tokens_of
from lm_eval_leakage.harness.models.asking import add_request_method
from lm_eval_leakage.harness.models.processes import is_first, refuse_wrong_rank
from lm_eval_leakage.harness.models.question_requests import LeakageInstance, QuestionRequests
from lm_eval_leakage.harness.seams.evaluation import Evaluation, current_evaluation
from lm_eval_leakage.harness.seams.refusals import Refusal, hide_tracebacks
from lm_eval_leakage.harness.seams.run_files import refuse_unwritable, watch_run_files
from lm_eval_leakage.harness.seams.run_results import on_results
from lm_eval_leakage.harness.table import Contribution, JudgedQuestion, metric_list, registered_rows, row_named
from lm_eval_leakage.harness.tasks.audited_rows import split_asked
from lm_eval_leakage.harness.tasks.data import Docs, ReadDoc, docs_of, load_questions, row_names
from lm_eval_leakage.harness.tasks.finished_results import finish
from lm_eval_leakage.harness.tasks.judging import judge_questions
from lm_eval_leakage.harness.tasks.metadata import probe_of, reference_of, switch_of, with_parameters
from lm_eval_leakage.harness.tasks.order_status import documented_status, refuse_undrawn, status_of
from lm_eval_leakage.harness.tasks.prospect import Prospect
from lm_eval_leakage.harness.tasks.seals import refuse_foreign, refuse_untestable, seal_of, sealed_status, wordings_of
from lm_eval_leakage.logs.audit_line import benchmark_of
from lm_eval_leakage.logs.reference_log import ReferenceLog
from lm_eval_leakage.questions.families import distinct
from lm_eval_leakage.questions.fields import Doc, question_from_doc
from lm_eval_leakage.questions.guards import guards_of, shared_option_sets
from lm_eval_leakage.records import DeclaredRow, Question, Request, Skipped, UntestableQuestion
from lm_eval_leakage.registry import detector_id
from lm_eval_leakage.results.published_orders import NullStatus, is_exact
from lm_eval_leakage.seal.drawn import COMMITMENT_KEY

ChatTemplate = Callable[..., str]  # for a chat model behind an API, it returns the turns as JSON in a tuple
Row = TypeVar("Row")

logger = logging.getLogger(__name__)
limit_logger = logging.getLogger("lm_eval.leakage_limit")  # a logger of the harness, so that messages are shown

DEFAULTS: dict[str, Any] = {"output_type": "loglikelihood", "num_fewshot": 0}  # for keys that a task's YAML leaves out
TASKS_OF_GROUP = "tasks_of_group"  # key of `metadata` of the members of a group
# Objects between two searches for unreachable cycles. Python's usual 700 cost full MMLU, which has a million objects
# until the run ends, 4 of 37 CPU seconds; mypy searches even less often.
SELDOM = (50_000, 20, 20)
NOTHING = ("", "")  # arguments of a placeholder request that is never sent to the model


def framing(system: str, chat_template: ChatTemplate | None) -> Callable[[str], str]:
    """Return a function that turns a request's context into what the model reads.

    It puts the system instruction before the context. Under a chat template the context is the user's turn, so that
    the continuation is scored as the assistant's.
    """

    def framed(context: str) -> str:
        if chat_template is None:
            return f"{system}\n\n{context}" if system else context
        before = [{"role": "system", "content": system}] if system else []
        return chat_template([*before, {"role": "user", "content": context}])

    return framed


def framed_texts(requests: Sequence[Request], framed: Callable[[str], str]) -> Sequence[tuple[str, str]]:
    """Return context and continuation of each request as the model reads them; each distinct context is framed once.

    framed: the function that `framing` returns
    """
    frames = {context: framed(context) for context in {request.context for request in requests}}
    return [(frames[context], continuation) for context, continuation in requests]


def request_arguments(probe: Probe, lm: object, context: str, continuation: str) -> tuple[Any, ...]:
    """Return the arguments of the model's method for one request."""
    if probe.needs == "token_scores":
        return (context + continuation,)
    if probe.needs == "generate_until":
        n_tokens = probe.n_tokens(Request(context, continuation))
        wanted = n_tokens_of(lm, continuation) + 1 if n_tokens is None else n_tokens
        return context, {"until": [*probe.stops], "max_gen_toks": wanted, "do_sample": False, "temperature": 0.0}
    return context, continuation


def drawn(rows: Sequence[Row], n: int | None, seed: int) -> list[Row]:
    """Return `n` rows at random, in the benchmark's order; all of them for None.

    A larger n adds rows to those of a smaller one, so that the answers to these are reused.
    """
    places = list(range(len(rows)))
    random.Random(seed).shuffle(places)
    return [rows[place] for place in sorted(places[:n])]


def limited_rows(task: str, docs: Sequence[Doc], n: int, evaluation: Evaluation | None) -> list[int]:
    """Return the places of `n` questions, drawn with the run's seed: the same for every audit of a benchmark.

    They are drawn from all rows. But if ordinary tasks of the run ask at least `n` of the rows, they are drawn from
    those, so that accuracy and audit are of the same questions. The log says how many questions are asked, and how
    many of them are also asked by ordinary tasks of the run.
    """
    run = evaluation or Evaluation(None)
    names = set()
    for other in run.tasks.values():
        if not isinstance(other, LeakageTask):
            limited = other.doc_iterator(limit=get_sample_size(other, run.limit))
            names |= {name for _, doc in limited for name in row_names(doc) if name}
    beside = [row for row, doc in enumerate(docs) if not names.isdisjoint(row_names(doc))] if names else []
    rows = drawn(beside if len(beside) >= n else range(len(docs)), n, run.seed)
    if is_first() and not beside:
        limit_logger.info("%s: %d of %d questions, drawn at random with seed %d", task, n, len(docs), run.seed)
    elif is_first():
        limit_logger.warning(
            "%s: %d of %d questions, %d of them scored by other tasks of this run, which take the first of each; run "
            "the audit without them to draw from all",
            *(task, n, len(docs), len({*beside} & {*rows})),
        )
    return rows


class LeakageTask(ConfigurableTask):  # type: ignore[misc]
    """The audit of one benchmark with one probe.

    Its YAML names the probe in `metadata` (`probe: option_orders`, with the probe's parameters) and the statistics in
    `filter_list`; `--metadata` overrides the former. Its rows of the table are those that the statistics declare, or
    those of its `metric_list` if it has one.
    """

    evaluation: Evaluation | None = None  # the run; set once the harness begins to evaluate
    lm: object | None = None  # the run's model
    lacking: str | None = None  # why the model cannot answer the probe's requests; None if it can

    def __init__(self, config: dict[str, Any]) -> None:
        config = DEFAULTS | {key: value for key, value in config.items() if key != "class"}
        self.probe = probe_of(config.get("metadata") or {})
        self.resume = switch_of(config["metadata"], "resume")
        self.control_form = switch_of(config["metadata"], "control_form")
        documented_status(config["metadata"])  # refused now if it is invalid
        self.seal = seal_of(config["metadata"], self.probe)
        reference = reference_of(config["metadata"], self.probe)
        self._drawn: dict[int, list[int]] = {}  # places of questions, by limit
        self._rows = {name: row_named(name) for name in registered_rows()}  # registers them with the harness, too
        super().__init__(config=self._completed(config))
        self.audited = str(config["metadata"].get("audit_of") or benchmark_of(config["task"]))
        self.judges = {}
        for ensemble in self._filters:
            (judge,) = ensemble.filters  # made now, so that an invalid parameter ends the run before the model works
            self.judges[ensemble.name] = judge()
        self.compare_with(reference)
        refuse_foreign(self.seal, config["task"], self.benchmark())

    def _completed(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration with the rows of the table, the statistics' parameters and the seal's
        commitment."""
        metadata, rows = config["metadata"], config.get("metric_list")
        if rows is None:
            has_verdict = self.probe.asks_orders or self.probe.exchanges_fillers
            rows = metric_list(config["filter_list"], with_verdict=has_verdict)
        return config | {
            "metric_list": rows,
            "filter_list": [with_parameters(entry, metadata) for entry in config["filter_list"]],
            "metadata": metadata if self.seal is None else metadata | {COMMITMENT_KEY: self.seal.commitment},
        }

    def compare_with(self, reference: ReferenceLog | None) -> None:
        """Set the log of the reference model, whose log-likelihoods are subtracted; None for no reference.

        It is part of the detector ids, since scores with and without it differ.
        """
        self.reference = reference
        name = None if reference is None else reference.model
        self.detectors = {key: detector_id(self.probe, judge.statistic, name) for key, judge in self.judges.items()}

    # ------------------------------------------------------------------ the run

    def meet(self, evaluation: Evaluation) -> None:
        """Connect the task to the run, before any of its requests is made.

        Raises ValueError if the results cannot be saved, or if the model can answer none of the run's tasks. If it can
        answer others, the questions of this task are skipped with the reason.
        """
        if evaluation.output_path is not None:
            refuse_unwritable(evaluation.output_path)
        hide_tracebacks()
        self.evaluation, self.lm, self._drawn = evaluation, evaluation.lm, {}
        self.lacking = lacking(evaluation.lm, self.probe.needs)
        if self.lacking is not None:
            tasks = [task for task in evaluation.tasks.values() if isinstance(task, LeakageTask)]
            unfit = [task for task in tasks if lacking(evaluation.lm, task.probe.needs)]
            sentence = f"{self.config.task} cannot run: {self.lacking}"
            if len(unfit) == len(evaluation.tasks):
                raise ValueError(sentence)
            logger.warning(sentence)
        add_request_method(evaluation.lm)
        self._warn_of_obstacle(evaluation)

    def _warn_of_obstacle(self, evaluation: Evaluation) -> None:
        """Warn if no answers to the task's questions can give a verdict.

        The audits of a group have one verdict together, so the first of them warns for all.
        """
        audits = [task for task in evaluation.tasks.values() if isinstance(task, LeakageTask)]
        in_group = [
            task for task in audits if (task.config.metadata or {}).get(TASKS_OF_GROUP) and task.probe == self.probe
        ]
        pooled = in_group if self in in_group else [self]
        if not is_first() or self is not pooled[0]:
            return
        rows = [(task, place) for task in pooled for place in range(len(task.eval_docs))]
        if (obstacle := Prospect(rows, has_reference=self.reference is not None).obstacle) is not None:
            logger.warning(
                "%s%s: there will be no verdict: %s; no number of questions is enough. `lm-eval-leakage "
                "check --dry_run` says what may help",
                *(self.config.task, " and its group" if len(pooled) > 1 else "", obstacle.reason),
            )

    # ------------------------------------------------------------------ questions

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: object) -> None:
        """Set the data set to the benchmark's rows, or to those of the file that `data_files` names."""
        split = self.config.test_split or self.config.validation_split
        questions = load_questions(self.config, split_asked(self.config, split))
        is_from_file = "data_files" in (self.config.metadata or {})
        if is_from_file and "question" in questions.column_names:
            self.config.process_docs = None  # written for the fields of the hub's data set, not for ours
        self.dataset = {split: questions}

    def fewshot_docs(self) -> None:
        """Return no few-shot examples: the audit scores the benchmark's own text."""

    @cached_property
    def eval_docs(self) -> Docs:
        """Return the benchmark's rows, each with the question that is read from it."""
        rows = super().eval_docs
        return rows if isinstance(rows, Docs) else docs_of(rows, question_from_doc)

    def question(self, doc: Doc) -> Question:
        """Return the question in `doc`; raises UntestableQuestion, with the reason, if there is none."""
        reading = doc.reading if isinstance(doc, ReadDoc) else question_from_doc(doc)
        if isinstance(reading, UntestableQuestion):
            raise reading
        return reading

    def _readable(self, doc: Doc) -> Question | None:
        """Return the question in `doc`; None if there is none."""
        try:
            return self.question(doc)
        except UntestableQuestion:
            return None

    def doc_to_text(self, doc: Doc, doc_to_text: object = None) -> str:
        """Return the question's stem, for the samples log; empty if there is no question."""
        question = self._readable(doc)
        return "" if question is None else question.stem

    def doc_to_target(self, doc: Doc, doc_to_target: object = None) -> str:
        """Return the right option's text, for the samples log; empty if it is not known."""
        question = self._readable(doc)
        return "" if question is None or question.answer is None else question.options[question.answer]

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
        """Connect the task to the run, and build its requests as the harness does, but without its request cache.

        The cache's key ignores the probe's parameters, the limit and the model's window, so that a hit could give a
        question the wrong requests.
        """
        if cache_requests or rewrite_requests_cache:
            logger.warning(
                "%s: --cache_requests is ignored, since the cache does not notice a changed probe", self.config.task
            )
        evaluation = current_evaluation()
        try:
            if evaluation is not None:
                self.meet(evaluation)
            refuse_wrong_rank(rank, world_size)
        except ValueError as error:
            raise Refusal(str(error)) from error
        gc.set_threshold(*SELDOM)
        super().build_all_requests(rank=rank, world_size=world_size, **kwargs)

    def doc_iterator(
        self, *, rank: int = 0, limit: int | None = None, world_size: int = 1, samples: list[int] | None = None
    ) -> Iterator[tuple[int, Doc]]:
        """Return the rows of this process with their indices in the benchmark.

        They are those of the harness, except that `limit` questions are drawn at random.
        """
        n_questions = len(samples) if samples else min(len(self.eval_docs), int(limit or len(self.eval_docs)))
        if n_questions < world_size:
            raise ValueError(
                f"{self.config.task}: {n_questions} questions for {world_size} processes; the harness needs at least "
                "one per process, so raise --limit or start fewer processes"
            )
        if samples or n_questions == len(self.eval_docs):
            iterator: Iterator[tuple[int, Doc]] = super().doc_iterator(
                rank=rank, limit=None, world_size=world_size, samples=samples
            )
            return iterator
        if n_questions not in self._drawn:
            self._drawn[n_questions] = limited_rows(self.config.task, self.eval_docs, n_questions, self.evaluation)
        rows = self._drawn[n_questions]
        return ((row, self.eval_docs[row]) for row in islice(rows, int(rank), None, int(world_size)))

    def fewshot_context(
        self,
        doc: Doc,
        num_fewshot: int = 0,
        system_instruction: str | None = None,
        **_: object,
    ) -> str:
        """Return only the system instruction; `construct_requests` adds the question itself."""
        return system_instruction or ""

    def construct_requests(
        self,
        doc: Doc,
        ctx: str,
        metadata: tuple[str | None, int | None, int | None],
        apply_chat_template: bool = False,
        chat_template: ChatTemplate | None = None,
    ) -> list[LeakageInstance]:
        """Return the requests about a question, or a placeholder if it cannot be tested.

        ctx: the system instruction, as `fewshot_context` returns it
        """
        framed = self.framing(ctx, chat_template if apply_chat_template else None)
        try:
            requests, texts = self.fitting(doc, framed)
        except UntestableQuestion as error:
            nothing = request_arguments(self.probe, self.lm, *NOTHING)
            return QuestionRequests(self, doc, metadata, [nothing], skipped=Skipped(str(error))).instances
        arguments = [request_arguments(self.probe, self.lm, *text) for text in texts]
        return QuestionRequests(self, doc, metadata, arguments, requests).instances

    def framing(self, system: str, chat_template: ChatTemplate | None) -> Callable[[str], str]:
        """Return a function that turns a request's context into what the model reads; some audits replace it."""
        return framing(system, chat_template)

    def fitting(self, doc: Doc, framed: Callable[[str], str]) -> tuple[Sequence[Request], Sequence[tuple[str, str]]]:
        """Return the probe's requests about a question, and the texts to send.

        The texts are context and continuation of these requests and of the control forms, as the model reads them.
        Raises UntestableQuestion, with the reason, if the question cannot be tested, and LongerThanWindow if a text
        does not fit into the model's window.

        framed: the function that `framing` returns
        """
        if self.lacking is not None:
            raise UntestableQuestion(self.lacking)
        question = self.question(doc)
        if self.probe.needs_drawn_orders:
            refuse_undrawn(self.orders)
        if self.seal is not None:
            refuse_untestable(self.probe, self.seal, question)
        guarded = self.probe.asks_orders and self._may_have_natural_order(doc)
        probe = self.probe_for(guarded)
        requests = probe.requests(question)
        control = probe.control(question) if self.asks_control and not guarded else ()
        texts = framed_texts([*requests, *control], framed)
        if too_long := longer_than_window(self.lm, texts):
            raise LongerThanWindow(too_long)
        return requests, texts

    # ------------------------------------------------------------------ verdicts

    def apply_filters(self) -> None:
        """Have the statistics judge the questions that were answered; the others stay skipped in every pipeline."""
        judge_questions(self, [*dict.fromkeys(instance.of for instance in self.instances)])

    def process_results(self, doc: Doc, results: Sequence[object]) -> dict[str, Contribution]:
        """Return the question's contribution to each row of the table.

        Its line in the samples log is written at the end of the run, by `finished_results`.
        """
        judged = results[0]
        assert isinstance(judged, JudgedQuestion), "a filter must return a verdict as the first response"
        return judged.contributions_to(self.rows)

    def probe_for(self, guarded: bool) -> Probe:
        """Return the probe for a question: with fewer requests if the question counts in no verdict.

        That is so if it has a guard, unless the published orders were drawn.
        """
        counts = not (guarded and self.probe.asks_orders) or is_exact(self.orders.status)
        return self.pooled_probe if counts else self.pooled_probe.in_brief()

    def guards(self, doc: Doc) -> tuple[str, ...]:
        """Return the guards of the question in `doc`; raises UntestableQuestion if there is none."""
        return guards_of(self.question(doc), self.shared_sets)

    def _may_have_natural_order(self, doc: Doc) -> bool:
        """Return whether a question has a guard; true if that cannot be decided."""
        try:
            return bool(self.guards(doc))
        except Exception:  # judging the question fails, too, and it is skipped with that reason
            return True

    @cached_property
    def rows(self) -> dict[str, DeclaredRow]:
        """Return the rows of the task and their standard errors, by printed name; empty with --predict_only."""
        return {name: row for name, row in self._rows.items() if name in self.aggregation()}

    @cached_property
    def orders(self) -> NullStatus:
        """Return the status of the benchmark's published orders: whether and by whom they were drawn."""
        if self.seal is not None:
            return sealed_status(self.seal)
        return status_of(self.config.metadata, self.config.dataset_path, self.benchmark())

    @cached_property
    def asks_control(self) -> bool:
        """Return whether the compared orders of questions without a guard are scored in the control forms, too.

        They are if the orders alone are no exact test, and no reference takes natural preferences off.
        """
        wanted = self.control_form and self.probe.asks_orders and self.reference is None
        return wanted and not is_exact(self.orders.status)

    @cached_property
    def pooled_probe(self) -> Probe:
        """Return the probe with access to the benchmark's other questions and, if it is sealed, to their wordings."""
        probe = self.probe.with_pool(lambda: tuple(distinct(self.benchmark())))
        return probe if self.seal is None else probe.with_wordings(partial(wordings_of, self.seal))

    @cached_property
    def shared_sets(self) -> frozenset[frozenset[str]]:
        """Return the sets of options that many questions of the whole benchmark share."""
        return shared_option_sets(distinct(self.benchmark()))

    def benchmark(self) -> Iterator[Question]:
        """Return all readable questions of the benchmark, whether the run includes them or not."""
        return filter(None, map(self._readable, self.eval_docs))


watch_run_files()  # once, when lm_eval imports a leakage task
on_results(finish)
