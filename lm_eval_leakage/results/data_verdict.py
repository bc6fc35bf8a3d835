"""The verdict on a data set, computed from a model's answers to the option orders of its questions.

Questions that share their options, a passage or their stem are one unit of evidence (`questions.families`), but for a
sealed benchmark, whose key draws each order by itself.

What is tested, and on which questions, follows from the status of the published orders (`null_status`):

- drawn or sealed: T (`stats.order_sum`) on all questions. Its null hypothesis is exact, whatever the model knows.
  Where a draw rests on what the author documents and another model is given as reference, T is computed from the
  scores minus the reference's: as exact if the orders were drawn, and no false alarm where both models prefer them.
- otherwise, with another model as reference: T on standardised scores minus the reference's, on the questions without
  a guard. Null hypothesis: without memory, both models have the same preferences for natural orders, up to
  `TOLERANCES`. Each is standardised first, since a model that is less sure of everything would subtract too little.
- otherwise, with the model as its own control: T on standardised scores minus those of the same orders in each of two
  forms that break memory (without the question, and with it in capitals), on the questions without a guard; both must
  find the published orders preferred, and the larger p-value counts. Null hypothesis: without memory, the preference
  is the same in one of the two forms, but for what is natural (`natural_part`). An order that is natural in
  itself (by time, by size) is so without its question, too, and one that is natural beside the question (the order in
  which it names the options) is so in capitals, too. T is the sum of these differences: the controls remember, too, so
  that memory leaves a small difference on many questions, not a large one on few.
- where the orders follow a pattern of length or likeness: as with a guard on every question, unless questions that the
  model cannot have seen show how much of the preference is natural.
- otherwise, and nothing else: no p-value. The ratio says how strong natural preference alone would have to be.

A verdict is about the data set. It accuses no single question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from lm_eval_leakage.questions.families import families
from lm_eval_leakage.records import FillerAnswers, OrderAnswers
from lm_eval_leakage.results.filler_verdict import filler_verdict
from lm_eval_leakage.results.formatting import counted, number
from lm_eval_leakage.results.published_orders import OrderStatus, is_exact
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL, FEWEST_JUDGED, NOT_AUDITED, Basis, DataVerdict
from lm_eval_leakage.results.verdict_words import in_families
from lm_eval_leakage.stats.order_power import (
    CONTROL_FORMS,
    FOUND_WITH,
    SEEN_ERROR,
    SEEN_IN_LAYOUTS,
    OrderPower,
    Shares,
    found_by_all,
    needed_by_all,
    seen_at_most,
)
from lm_eval_leakage.stats.order_sum import (
    NaturalPart,
    OrderRatio,
    Weigh,
    bases_of,
    error_of_mean,
    expected_preferences,
    order_ratio,
    order_sum,
    standard_scores,
    usual_spread,
)
from lm_eval_leakage.stats.pooling import Floats, Verdicts
from lm_eval_leakage.stats.sealed import TOP_SIXTH, Hits, best_bound, hits_of

VERDICT_SEED = 0
STAGES = 2  # a check may ask a benchmark's questions in two stages, which share one error
TOO_ALIKE = 0.97  # mean correlation of two models' scores of a question's orders
# The comparisons of each basis; every one of them must find the published orders preferred.
RANKED_BY = {Basis.ORDERS: (Basis.ORDERS,), Basis.REFERENCE: (Basis.REFERENCE,), Basis.CONTROL: CONTROL_FORMS}
TOLERANCES: Mapping[str, float] = {
    Basis.ORDERS: 0.0,
    Basis.REFERENCE: 0.1,
}  # measured on clean models: docs/validity.md
ONE_PLACE = (
    "the right option stands in one place in all questions without a natural order, and no other order keeps it "
    "there, as with two options; there is a verdict only if the author documents that the orders were drawn at "
    "random"
)
PATTERN_ALONE = (
    "the published orders follow a pattern of the options' length or likeness, more than on any benchmark where the "
    "controls were tried, so that a model may prefer them without having seen them; questions of the same kind that "
    "it cannot have seen (`check --unseen FILE`) would show how much"
)
USUAL_DEVIATION = 1.22  # of the difference of two standardised scores: median of 367 cases in docs/clean_cases.csv
USUAL_QUESTIONS = 200
MARGIN = 1.2  # a model's scores differ from the usual ones
_verdict_by_fillers = lru_cache(maxsize=64)(filler_verdict)


def data_verdict(
    questions: Iterable[OrderAnswers],
    natural: NaturalPart | None = None,
    fillers: Iterable[FillerAnswers] = (),
    unseen_fillers: Sequence[FillerAnswers] = (),
) -> DataVerdict:
    """Return the verdict on the questions together; NOT_AUDITED if neither orders nor fillers were asked.

    natural: the preference for published orders that the model cannot have seen, see `natural_part`
    fillers: the answers to rows with the fillers of other rows; where orders were asked, too, both are one verdict, by
        Bonferroni's rule
    unseen_fillers: such answers to rows of the same kind that the model cannot have seen
    """
    by_orders, answers = _verdict_by_orders(tuple(questions), natural), tuple(fillers)
    if not answers:
        return by_orders
    by_names = _verdict_by_fillers(answers, tuple(unseen_fillers))
    return joint_verdict(by_orders, by_names) if by_orders.basis else by_names


def joint_verdict(by_orders: DataVerdict, by_names: DataVerdict) -> DataVerdict:
    """Return the verdict on a data set by the orders of its options and by the names in its rows."""
    is_by_names = math.isnan(by_orders.pvalue) and not math.isnan(by_names.pvalue)
    main, other = (by_names, by_orders) if is_by_names else (by_orders, by_names)
    verdict = replace(main, beside=other)
    return replace(verdict, at_most=_seen_at_most(verdict, SEEN_ERROR / STAGES)) if main.at_most else verdict


def _seen_at_most(verdict: DataVerdict, error: float) -> Shares:
    """Return how many of the questions may have been seen, by the tests of the verdict and of the one beside it."""
    other = () if verdict.beside is None else verdict.beside.power
    return seen_at_most((*verdict.power, *other), error)


def natural_part(unseen: Iterable[OrderAnswers]) -> NaturalPart | None:
    """Return the preference for published orders of questions that the model cannot have seen; None for too few of
    them."""
    unguarded = [question for question in unseen if not question.guarded]
    controlled = [question for question in unguarded if len(question.controls) == len(CONTROL_FORMS)]
    scored = [question for question in _scored(Basis.CONTROL, controlled) if question.prior[0] < 1]
    numbers = _families([question.answers for question in scored])
    if len(set(numbers)) < FEWEST_JUDGED:
        return None
    first = np.array([[form[0] for form in question.scores] for question in scored])
    errors = tuple(error_of_mean(form, numbers) for form in first.T)
    return NaturalPart(len(scored), tuple(first.mean(axis=0).tolist()), errors)


@lru_cache(maxsize=64)
def _verdict_by_orders(questions: tuple[OrderAnswers, ...], natural: NaturalPart | None) -> DataVerdict:
    """Return the verdict by option orders. It is cached, since several rows and columns need the same one."""
    if not questions:
        return NOT_AUDITED
    orders = _weakest_status(questions)
    basis, compared = _compared_by(questions, natural)
    verdict = _not_comparable(basis, questions, natural)
    if verdict is None:
        verdict = _by_draws(basis, compared) if is_exact(orders) else _tested(basis, compared, natural)
    layouts = max(question.layouts for question in questions)  # of all of them, unless a group has others
    ratio = _ratio(_counted(questions, natural))
    return replace(verdict, orders=orders, n_asked=len(questions), ratio=ratio, layouts=layouts)


def untestable(questions: Sequence[OrderAnswers], natural: NaturalPart | None = None) -> DataVerdict | None:
    """Return the verdict of questions that cannot be tested; None if they can, provided that a model's answers differ
    between orders."""
    if not questions:
        return NOT_AUDITED
    basis, compared = _compared_by(questions, natural)
    verdict = _not_comparable(basis, questions, natural)
    return verdict or _units(basis, compared, equally=is_exact(_weakest_status(questions))).refusal


def _not_comparable(
    basis: Basis, questions: Sequence[OrderAnswers], natural: NaturalPart | None
) -> DataVerdict | None:
    """Return the verdict of questions whose published orders may be compared with nothing; None if they may be."""
    if not _counted(questions, natural) and any(not question.guarded for question in questions):
        return DataVerdict(Basis.CONTROL, doubt=PATTERN_ALONE)
    return DataVerdict(basis) if basis == Basis.RATIO else None


def _counted(questions: Sequence[OrderAnswers], natural: NaturalPart | None) -> list[OrderAnswers]:
    """Return those that a verdict counts where the orders were not drawn."""
    unguarded = [question for question in questions if not question.guarded]
    if natural:
        return unguarded
    return [question for question in unguarded if question.orders != OrderStatus.PATTERNED]


def _compared_by(
    questions: Sequence[OrderAnswers], natural: NaturalPart | None
) -> tuple[Basis, Sequence[OrderAnswers]]:
    """Return what the published orders are compared with, and the questions that allow it."""
    orders, unguarded = _weakest_status(questions), _counted(questions, natural)
    referred = [question for question in (questions if is_exact(orders) else unguarded) if question.reference]
    if is_exact(orders):
        return (Basis.REFERENCE, referred) if orders == OrderStatus.DRAWN and referred else (Basis.ORDERS, questions)
    if any(question.reference for question in questions):
        return Basis.REFERENCE, referred
    if any(question.control for question in questions) or not unguarded:  # of which alone the control forms are asked
        return Basis.CONTROL, [question for question in unguarded if len(question.controls) == len(CONTROL_FORMS)]
    return Basis.RATIO, unguarded


def _by_draws(basis: Basis, questions: Sequence[OrderAnswers]) -> DataVerdict:
    """Return the verdict on orders that were drawn at random, with a lower bound of how many questions were seen."""
    compared = questions
    if basis == Basis.REFERENCE:
        scored = _scored(basis, questions, equally=True)
        compared = [
            replace(question.answers, loglikelihoods=tuple(question.scores[0].tolist())) for question in scored
        ]
    independent = [compared[family] for family in dict.fromkeys(_families(compared))]
    return replace(_tested(basis, questions, equally=True), seen=best_bound(order_hits(independent)))


def _families(questions: Sequence[OrderAnswers]) -> list[int]:
    """Return the number of each question's family (`questions.families`). Questions of a sealed benchmark are families
    of one, since its key draws for each question by itself."""
    return families([() if question.orders == OrderStatus.SEALED else question.shared for question in questions])


def _weakest_status(questions: Sequence[OrderAnswers]) -> OrderStatus:
    """Return the status of published orders that can be assumed for all questions.

    A group may have tasks with drawn orders and tasks with written ones.
    """
    statuses = {_status_of(question) for question in questions}
    return min(statuses, key=[*OrderStatus].index)


def _status_of(answers: OrderAnswers) -> OrderStatus:
    """Return the status of a question's published order."""
    try:
        return OrderStatus(answers.orders)
    except ValueError:  # of a later version
        return OrderStatus.UNDECIDED


def order_hits(questions: Sequence[OrderAnswers]) -> tuple[Hits, ...]:
    """Return the hits that bound the number of seen questions where the published orders were drawn."""
    scores = [question.loglikelihoods for question in questions]
    return hits_of("option orders", scores), hits_of("option orders, first sixth", scores, TOP_SIXTH)


def _ratio(unguarded: Sequence[OrderAnswers]) -> OrderRatio:
    """Return how much more often than by chance the published order is the most likely one; NaN for too few
    questions."""
    if len(unguarded) < FEWEST_JUDGED:
        return OrderRatio(len(unguarded))
    n_first = sum(values[0] > max(values[1:]) for values in (question.loglikelihoods for question in unguarded))
    return order_ratio(n_first, [1 / len(question.loglikelihoods) for question in unguarded])


@dataclass(frozen=True, eq=False)
class _Units:
    """The questions that a test counts, and their families.

    families: of each question, the number of its family
    refusal: the verdict that they are too few for a test; None if they are not
    """

    scored: Sequence[_Scored]
    families: Sequence[int] = ()
    refusal: DataVerdict | None = None


def _units(basis: Basis, questions: Sequence[OrderAnswers], *, equally: bool) -> _Units:
    """Return the questions that have scores and more than one possible order, with their families."""
    usable = _scored(basis, questions, equally=equally)
    scored = [question for question in usable if question.prior[0] < 1]
    # sorted, so that no random draw depends on which log has a question first
    scored.sort(key=lambda question: tuple(question.scores[0]))
    n = len(scored)
    if usable and not scored:
        return _Units(scored, refusal=DataVerdict(basis, doubt=ONE_PLACE))
    if n < FEWEST_JUDGED:
        return _Units(scored, refusal=DataVerdict(basis, n=n))
    numbers = _families([question.answers for question in scored])
    if len(set(numbers)) < FEWEST_JUDGED:
        few = f"{counted(n)} {in_families(len(set(numbers)))}; at least {FEWEST_JUDGED} families are needed"
        return _Units(scored, numbers, DataVerdict(basis, n=n, doubt=few))
    return _Units(scored, numbers)


def _tested(
    basis: Basis, questions: Sequence[OrderAnswers], natural: NaturalPart | None = None, *, equally: bool = False
) -> DataVerdict:
    """Return the verdict of the test of one basis, or the refusal of questions that are too few.

    With several comparisons, each must find the published orders preferred, so the largest p-value counts.

    equally: whether all orders were as likely to be published and no preference for them is natural
    """
    units = _units(basis, questions, equally=equally)
    if units.refusal is not None:
        return units.refusal
    scored, numbers, n = units.scored, units.families, len(units.scored)
    rng, kinds = np.random.default_rng(VERDICT_SEED), RANKED_BY[basis]
    n_layouts = max(len(question.answers.layouts) for question in scored) or 1
    weigh = _weighed_by(basis)
    naturals = [(0.0 if equally else TOLERANCES.get(basis, 0.0), 0.0)]
    if basis == Basis.CONTROL:
        is_usual = all(question.answers.orders != OrderStatus.PATTERNED for question in scored)
        naturals = expected_preferences(natural, len(kinds), usual_spread(n_layouts), is_usual=is_usual)
    priors = None if equally else [question.prior for question in scored]
    tests, powers = [], []
    for place, (kind, (tolerance, spread)) in enumerate(zip(kinds, naturals, strict=True)):
        scores = [question.scores[place] for question in scored]
        tests.append(order_sum(scores, rng, tolerance, weigh=weigh, families=numbers, spread=spread, priors=priors))
        powers.append(_power(basis, kind, scores, tolerance, spread, priors, numbers, n_layouts=n_layouts))
    doubt = _doubt_of_reference(scored, numbers, rng) if basis == Basis.REFERENCE else ""
    weakest = max(range(len(tests)), key=lambda place: (tests[place].pvalue, -tests[place].mean))
    # the smallest e-value, so that its mean is 1 at most
    tested = replace(tests[weakest], log_evalue=min(test.log_evalue for test in tests))
    means = tuple(
        float(np.mean(of_form)) for of_form in zip(*(question.published for question in scored), strict=True)
    )
    shares = () if doubt else seen_at_most(powers, SEEN_ERROR / STAGES)
    verdict = DataVerdict(basis, n=n, tested=tested, at_most=shares, doubt=doubt, power=tuple(powers), scores=means)
    if basis == Basis.CONTROL:
        verdict = replace(verdict, natural=naturals[weakest], n_unseen=natural.n if natural else 0)
    return verdict


def _weighed_by(basis: Basis) -> Weigh:
    """Return the function that turns a standardised score into the weight that the test sums."""
    return np.positive if basis == Basis.CONTROL else np.exp


def _power(
    basis: Basis,
    kind: str,
    scores: Sequence[Floats],
    tolerance: float,
    spread: float,
    priors: Sequence[Floats] | None = None,
    families: Sequence[int] | None = None,
    *,
    n_layouts: int = 1,
) -> OrderPower:
    """Return what one comparison finds at other levels; arguments are as in `stats.order_sum`."""
    weigh, ranks = _weighed_by(basis), SEEN_IN_LAYOUTS[max(n for n in SEEN_IN_LAYOUTS if n <= n_layouts)][kind]
    bases = bases_of(scores, tolerance, priors) if tolerance or priors else None
    found_with = 1 - (1 - FOUND_WITH) / len(RANKED_BY[basis])
    return OrderPower([*map(weigh, scores)], bases, ranks, families, found_with, spread * len(scores), priors)


def usually_needed(basis: Basis, n_orders: int, detect: float, level: float, *, n_layouts: int = 1) -> int | None:
    """Return about how many questions of `n_orders` orders are needed to find the share `detect`; None if no number is
    enough.

    A model's scores are not known yet: they are taken to be normal, and the number has a margin.
    """
    n = needed_by_all(_usual_powers(basis, n_orders, USUAL_QUESTIONS, n_layouts), detect, level)
    return None if n is None else math.ceil(MARGIN * n)


def usually_found(basis: Basis, n_orders: int, n: int, level: float, *, n_layouts: int = 1) -> Shares:
    """Return the shares that `n` questions of `n_orders` orders find, before a model's scores are known, without a
    margin."""
    powers = _usual_powers(basis, n_orders, n, n_layouts)
    return found_by_all(power.detectable(level) for power in powers)


def usually_excluded(basis: Basis, n_orders: int, n: int, error: float, *, n_layouts: int = 1) -> Shares:
    """Return the shares that `n` questions of `n_orders` orders can exclude with this error, before a model's scores
    are known: they do if the model prefers no published order, and with a margin for its scores."""
    return seen_at_most(_usual_powers(basis, n_orders, math.ceil(MARGIN * n), n_layouts), error)


def _usual_powers(basis: Basis, n_orders: int, n: int, n_layouts: int) -> list[OrderPower]:
    """Return the power of each comparison for scores drawn from a normal distribution, of which the published orders
    have the smallest."""
    rng, kinds = np.random.default_rng(VERDICT_SEED), RANKED_BY[basis]
    drawn = np.sort(rng.normal(size=(n, n_orders)))
    size = 1.0 if basis == Basis.ORDERS else USUAL_DEVIATION
    scores = [size * (values - values.mean()) / values.std() for values in drawn]
    spread = usual_spread(n_layouts) if basis == Basis.CONTROL else 0.0
    return [_power(basis, kind, scores, TOLERANCES.get(basis, 0.0), spread, n_layouts=n_layouts) for kind in kinds]


def at_its_level(verdict: DataVerdict) -> DataVerdict:
    """Return the verdict with the numbers that depend on its level and on its share of all looks' error.

    These are how many of the questions may have been seen, and the threshold from which it would be evidence.
    """
    if verdict.at_most:
        verdict = replace(verdict, at_most=_seen_at_most(verdict, SEEN_ERROR / STAGES * verdict.spent))
    if not verdict.power or verdict.basis != Basis.CONTROL:
        return verdict
    critical = [power.critical(verdict.level_of_each) for power in verdict.power]
    return replace(verdict, threshold=max(critical) / verdict.n)


def _doubt_of_reference(scored: Sequence[_Scored], numbers: Sequence[int], rng: np.random.Generator) -> str:
    """Return why this reference may hide leakage: it is too like the model, or has seen the benchmark; else an empty
    text."""
    alike = np.mean([_correlation(question.answers.loglikelihoods, question.answers.reference) for question in scored])
    if alike > TOO_ALIKE:
        return (
            f"the reference prefers the same orders as the model (mean correlation {number(float(alike), 2)}), as the "
            "model itself or a version of it does; what both have seen cannot show, so take a model of another origin"
        )
    turned = order_sum(
        [-question.scores[0] for question in scored],
        rng,
        tolerance=TOLERANCES[Basis.REFERENCE],
        families=numbers,
        priors=[question.prior for question in scored],
    )
    if turned.pvalue <= EVIDENCE_LEVEL:
        return (
            "the reference prefers the published orders more than the model does, so it may have seen the benchmark "
            "itself; take another reference"
        )
    return ""


def _correlation(loglikelihoods: Sequence[float], other: Sequence[float]) -> float:
    """Return the correlation of two models' log-likelihoods of a question's orders; 0 if one's are all equal."""
    scores, other_scores = standard_scores(np.array(loglikelihoods)), standard_scores(np.array(other))
    return 0.0 if scores is None or other_scores is None else float(np.mean(scores * other_scores))


@dataclass(frozen=True, eq=False)
class _Scored:
    """A question's standardised scores in each comparison.

    scores: of each order, by comparison; the mean score of a drawn order is 0
    prior: how likely each order was to be published
    published: the published order's score in the audited form and in each that it is compared with
    """

    answers: OrderAnswers
    scores: tuple[Floats, ...]
    prior: Floats
    published: tuple[float, ...]


def _scored(basis: Basis, questions: Sequence[OrderAnswers], *, equally: bool = False) -> list[_Scored]:
    """Return the questions for which each comparison can be made, with their scores.

    Apart from the question, a model may prefer one place for the right option, and a stronger model prefers it more.
    So the prior of an order is the share of these questions whose right option was published in the place where the
    order has it. A question whose published order has a prior of 1 shows nothing.

    equally: whether all orders were as likely to be published
    """
    counts = Counter((max(question.right), question.right[0]) for question in questions if question.right)
    scored = []
    for question in questions:
        places = [*(range(len(question.loglikelihoods)) if equally else _compared(basis, question))]
        values = np.array(question.loglikelihoods)[places]
        others: list[Floats | None] = [None]
        if basis == Basis.REFERENCE:
            others = [np.array(question.reference)[places]]
        elif basis == Basis.CONTROL:
            others = [np.array(form) for form in question.controls]
        scores = [standard_scores(values, other) for other in others]
        prior = np.full(len(places), 1 / len(places))
        if question.right and not equally:
            prior = np.array([float(counts[max(question.right), question.right[place]]) for place in places])
            prior /= prior.sum()
        usable = [form for form in scores if form is not None]
        if len(usable) == len(scores):
            each = [standard_scores(form) for form in (values, *(other for other in others if other is not None))]
            published = tuple(0.0 if form is None else float(form[0] - prior @ form) for form in each)
            scored.append(_Scored(question, tuple(form - float(prior @ form) for form in usable), prior, published))
    return scored


def _compared(basis: Basis, answers: OrderAnswers) -> Sequence[int]:
    """Return the indices of the orders that are compared: those that the control forms repeat, or all.

    A reference has all orders, but if the places of the right option are not known, only those that the control forms
    would repeat keep it in its published place.
    """
    every = range(len(answers.loglikelihoods))
    is_limited = basis == Basis.CONTROL or (basis == Basis.REFERENCE and not answers.right)
    return answers.compared or every if is_limited else every


def verdict_on(verdicts: Verdicts) -> DataVerdict:
    """Return the verdict on the questions whose orders, or whose rows with other fillers, were asked."""
    orders = (answers for answers in verdicts if isinstance(answers, OrderAnswers))
    return data_verdict(orders, fillers=(answers for answers in verdicts if isinstance(answers, FillerAnswers)))
