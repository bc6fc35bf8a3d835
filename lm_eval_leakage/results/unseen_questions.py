"""Compares a model's audits of a benchmark with its audits of questions that it cannot have seen: private or newly
written ones, or `fresh`, audited in the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import Places, audits_of_one_model, lines_of_audits
from lm_eval_leakage.logs.run import Problem, Run
from lm_eval_leakage.questions.families import describe_families, families, shared_texts
from lm_eval_leakage.questions.statements import statement_reader
from lm_eval_leakage.records import Described, FillerAnswers, Question, UntestableQuestion
from lm_eval_leakage.results.asked_once import AskedOnce, asked_once
from lm_eval_leakage.results.data_verdict import natural_part
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.result_types import AuditedQuestion
from lm_eval_leakage.stats.exchangeability import why_not_comparable
from lm_eval_leakage.stats.order_sum import NaturalPart
from lm_eval_leakage.stats.pooling import NAN
from lm_eval_leakage.stats.unseen_texts import ComparedText, TextTest, text_test


@dataclass(frozen=True)
class UnseenQuestions:
    """The results of a model's audits of unseen questions, for a comparison with its audits of one benchmark.

    natural: the preference for published orders on them; None if their orders were not asked in the control forms
    answered: how many of them it answers correctly, and all, in the original arm of choice confusion
    by_letters: whether it names letters there, instead of the options' texts
    texts: how predictable the benchmark's texts are beside theirs; None without another model's scores
    fillers: the answers to those that exchanged fillers with each other
    """

    benchmark: str
    natural: NaturalPart | None = None
    answered: tuple[int, int] = (0, 0)
    by_letters: bool = False
    texts: TextTest | None = None
    fillers: tuple[FillerAnswers, ...] = ()

    def compares(self, questions: Iterable[AuditedQuestion]) -> bool:
        """Return whether all of these are of the benchmark or, by its name, of one of its tasks."""
        return all(
            question.benchmark == self.benchmark or question.benchmark.startswith(f"{self.benchmark}_")
            for question in questions
        )


def unseen_questions(
    folder: Places, unseen_folder: Places, problems: list[Problem], *, text_references: Sequence[Run] = ()
) -> UnseenQuestions:
    """Return what the audits of unseen questions say about those of a benchmark.

    folder, unseen_folder: output folders of both, with the samples logs, or results files in them
    text_references: runs of other models, which may have scores of the texts; without, texts are not tested

    Raises ValueError, with the remedy, for unseen questions that cannot speak for those of the benchmark.
    """
    model, lines = _lines(folder, problems)
    _, of_unseen = _lines(unseen_folder, problems, model)
    fillers = tuple(line.fillers for line in of_unseen if line.fillers is not None)
    published, unseen = _questions(lines), _questions(of_unseen)
    if not published and fillers:
        return _unseen_texts(lines, of_unseen, fillers)
    _check_audits(published, unseen)
    benchmarks = sorted({question.first.benchmark for question in published})
    if len(benchmarks) != 1:
        raise ValueError(
            f"the audits are of {len(benchmarks)} benchmarks ({', '.join(benchmarks) or 'none that can be read'}), "
            "and unseen questions are compared with those of one; check each benchmark in a folder of its own"
        )
    if reason := why_not_comparable(_described(unseen), _described(published)):
        raise ValueError(reason)
    unseen_lines = [line for question in unseen for line in question.lines.values()]
    arms = [line.arms for line in unseen_lines if line.arms is not None]
    texts = None
    if text_references:
        references = _known_texts(text_references, problems)
        texts = text_test(_by_family(published, references), _by_family(unseen, references))
        if lost := next(
            (problem.what for problem in problems if problem.incomplete), ""
        ):  # what is left may be any part
            texts = replace(texts, pvalue=NAN, withheld=f"a log is not complete: {lost}")
    return UnseenQuestions(
        benchmarks[0],
        natural_part(line.orders for line in unseen_lines if line.orders is not None),
        (sum(of_line.original for of_line in arms), len(arms)),
        any(of_line.shuffled_place is not None for of_line in arms),
        texts,
        fillers,
    )


def _unseen_texts(
    published: Sequence[AuditLine], unseen: Sequence[AuditLine], fillers: tuple[FillerAnswers, ...]
) -> UnseenQuestions:
    """Return what unseen texts without options say. Raises ValueError if they cannot speak for those of the
    benchmark."""
    if reason := why_not_comparable(_described_texts(unseen), _described_texts(published)):
        raise ValueError(reason)
    return UnseenQuestions(published[0].benchmark, fillers=fillers)


def _described_texts(lines: Sequence[AuditLine]) -> Described:
    docs = [line.doc for line in lines]
    read, questions = statement_reader(docs), list[Question]()
    for doc in docs:
        try:
            questions.append(read(doc))
        except UntestableQuestion:  # the audit said so
            continue
    return describe_families((question, False) for question in questions)


def _lines(folder: Places, problems: list[Problem], model: str | None = None) -> tuple[str, list[AuditLine]]:
    """Return the model and the lines of its audits."""
    name, lines = audits_of_one_model(folder, problems, model)
    return name, [line for _, line in lines]


def _questions(lines: Sequence[AuditLine]) -> list[AskedOnce]:
    """Return the questions that can be read; a shard is no question."""
    return asked_once(line for line in lines if line.read is not None)


def _check_audits(published: Sequence[AskedOnce], unseen: Sequence[AskedOnce]) -> None:
    """Raise ValueError if no audit asked both in the same way."""
    asked_by, unseen_by = (
        dict.fromkeys(name for question in group for name in question.scores) for group in (published, unseen)
    )
    if not any(name in asked_by for name in unseen_by):
        raise ValueError(
            f"the unseen questions have scores of {', '.join(unseen_by) or 'no detector'}, but the benchmark's have "
            f"scores of {', '.join(asked_by) or 'no detector'}: run the same audits on both, with the same --metadata"
        )


def _described(questions: Iterable[AskedOnce]) -> Described:
    """Return what the questions are like, each once."""
    return describe_families(
        (question.first.read, question.first.guarded) for question in questions if question.first.read is not None
    )


def _known_texts(references: Sequence[Run], problems: list[Problem]) -> dict[str, tuple[float, ...]]:
    """Return, by the hash of the row, the mean of other models' scores."""
    by_hash: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in references:
        for _, line in lines_of_audits([run], problems):
            if (scores := line.text_scores) is not None:
                by_hash[line.question].append(scores)
    return {name: _means(scores) for name, scores in by_hash.items()}


def _means(scores: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(fmean, zip(*scores, strict=True)))


def _by_family(published: Sequence[AskedOnce], references: Mapping[str, tuple[float, ...]]) -> list[ComparedText]:
    """Return the mean scores and the first question's text of each family.

    references: scores by the reference, by the hash of the row
    """
    scored = []
    for question in published:
        line = next((line for line in question.lines.values() if line.text_scores is not None), question.first)
        if line.read is not None and line.text_scores is not None and line.question in references:
            scored.append((line.read, line.text_scores, references[line.question]))
    numbers = families([shared_texts(read) for read, *_ in scored])
    compared = []
    for places in grouped(range(len(scored)), numbers.__getitem__).values():
        questions, scores, reference = zip(*(scored[place] for place in places), strict=True)
        text = " ".join([questions[0].stem, *questions[0].options])
        compared.append(ComparedText(text, _means(scores), _means(reference)))
    return compared
