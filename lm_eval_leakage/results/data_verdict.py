"""The verdict on a data set, from a model's answers to the option orders of its questions: one word and one sentence.

Questions that share their options, a passage or their stem are one unit of evidence (`questions.families`), but for a
sealed benchmark, whose key draws each order by itself.

What is tested, and on which questions, follows from the status of the published orders (`null_status`):

- drawn or sealed: T (`inference.order_sum`) on all questions. Its null hypothesis is exact, whatever the model knows.
  Where a draw rests on what the builder documents and another model is given as reference, T is computed from the
  scores minus the reference's: as exact if the orders were drawn, and no false alarm where both models prefer them.
- otherwise, with another model as reference: T on standardised scores minus the reference's, on the questions without
  a guard. Null hypothesis: without memory, both models have the same preferences for natural orders, up to
  `TOLERANCES`. Each is standardised first, since a model that is less sure of everything would subtract too little.
- otherwise, with the model as its own control: T on standardised scores minus those of the same orders in each of two
  forms that break memory (without the question, and with it in capitals), on the questions without a guard; both must
  find the published orders preferred, and the larger p-value counts. Null hypothesis: without memory, the preference
  is the same in one of the two forms, but for what is natural (`inference.natural_part`). An order that is natural in
  itself (by time, by size) is so without its question, too, and one that is natural beside the question (the order in
  which it names the options) is so in capitals, too. T is the sum of these differences: the controls remember, too, so
  that memory leaves a small difference on many questions, not a large one on few.
- where the orders follow a pattern of length or likeness: as with a guard on every question, unless questions that the
  model cannot have seen show how much of the preference is natural.
- otherwise, and nothing else: no p-value. The ratio says how strong natural preference alone would have to be.

A verdict is about the data set. It accuses no single question.

Rows of the verdict on the data set, which every audit of option orders has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from lm_eval_leakage.questions.families import families, left_out_in_words
from lm_eval_leakage.records import DeclaredRow, InWords, OrderAnswers
from lm_eval_leakage.results.formatting import (
    count,
    counted,
    defined,
    number,
    percent,
    pvalue,
    pvalue_equation,
    rounded_up,
    whole_percent,
)
from lm_eval_leakage.results.published_orders import (
    DRAWN_ORDERS,
    EXACT,
    PASSED_ORDERS,
    PATTERNED_ORDERS,
    SEALED_ORDERS,
    UNDECIDED_ORDERS,
    WEAKEST_FIRST,
    WRITTEN_ORDERS,
)
from lm_eval_leakage.stats.looks import share_alone
from lm_eval_leakage.stats.order_power import (
    CONTROL_FORMS,
    DETECT,
    DETECT_TIMES,
    FOUND_WITH,
    SEEN_IN_MIXED_LAYOUTS,
    SEEN_RANKS,
    Detectable,
    OrderPower,
    found_by_all,
)
from lm_eval_leakage.stats.order_sum import (
    USUAL_SPREAD,
    NaturalPart,
    OrderRatio,
    OrderSum,
    Weigh,
    bases_of,
    error_of_mean,
    expected,
    order_ratio,
    order_sum,
    standard_scores,
)
from lm_eval_leakage.stats.pooling import NAN, Floats, Verdicts
from lm_eval_leakage.stats.sealed import TOP_SIXTH, Hits, SeenBound, best_bound, hits_of
from lm_eval_leakage.stats.unseen_texts import TextTest

STRONG_EVIDENCE, EVIDENCE, INCONCLUSIVE = "strong evidence", "evidence", "inconclusive"
NONE_FOUND, CANNOT_TELL = "none found", "cannot be told"
WORDS = (CANNOT_TELL, NONE_FOUND, INCONCLUSIVE, EVIDENCE, STRONG_EVIDENCE)  # what clears a model less comes later
EVIDENCE_LEVEL, STRONG_LEVEL = 0.01, 0.0001
FEWEST_JUDGED = 20  # questions; a p-value of fewer would look like an answer
VERDICT_SEED = 0
TOO_ALIKE = 0.97  # mean correlation of two models' scores of a question's orders
BY_ORDERS, BY_REFERENCE, BY_CONTROL = "orders", "reference", "control"  # what a p-value is computed from
RANKED_BY = {BY_ORDERS: (BY_ORDERS,), BY_REFERENCE: (BY_REFERENCE,), BY_CONTROL: CONTROL_FORMS}
BY_RATIO, BY_NOTHING = "ratio", "no audit"
TOLERANCES = {BY_ORDERS: 0.0, BY_REFERENCE: 0.1}  # measured on clean models: docs/validity.md
ONE_PLACE = (
    "the right option stands in one place in all questions without a natural order, and no other order keeps it "
    "there, as with two options; the verdict can be told only if the builder documents that the orders were drawn at "
    "random"
)
PATTERN_ALONE = (
    "the published orders follow a pattern of the options' length or likeness, more than on any benchmark where the "
    "controls were tried, so that a model may prefer them without having seen them; questions of the same kind that "
    "it cannot have seen (`check --unseen FILE`) would tell how much"
)
NOT_TESTED, NO_RATIO, NOTHING_SEEN = OrderSum(0), OrderRatio(0), SeenBound()


@dataclass(frozen=True)
class DataVerdict:
    """basis: BY_ORDERS, BY_REFERENCE, BY_CONTROL or BY_RATIO; empty if no orders were asked
    orders: status of the published orders; empty if no orders were asked
    n: number of questions that the p-value covers; n_asked: of all whose orders were asked
    tested: the test; its numbers are NaN where no null hypothesis holds, or for too few questions
    ratio: of the questions without a guard; NaN where they are too few
    detectable: by number of exposures, the smallest share of seen questions that would have been found with
        probability `FOUND_WITH`; NaN if even all would not be
    detect: share of the questions, seen `DETECT_TIMES` times, that has to be found; else finding nothing says little
    adjusted: the p-value, adjusted for its look and for the number `n_together` of those that are shown together
    doubt: why finding nothing means nothing; empty if it does
    seen: at least how many of the questions were seen, where the null hypothesis is exact
    remedy: a sentence on what may change a verdict that cannot be told; empty where nobody said
    n_copies: copies of questions that were left out
    look: its number among the looks at this benchmark by this model, where somebody counts them; else 0
    spent: share of all looks' error that this one spends
    level: the p-value from which it would be evidence, at its look and among those that are shown together
    power: what each comparison finds at other levels; empty where none was made
    natural: how many standard deviations of `tested.mean` are expected without memory, and their standard deviation
    n_unseen: number of unseen questions on which that rests; 0 if it is what is usual
    layouts: in which each order was asked, if in several; then `detectable` is of questions seen in mixed layouts
    scores: mean standardised scores of the published orders in the audited form, and in each that it is compared with
    threshold: about the mean difference from which it would be evidence, by the control forms
    texts: the same question asked of whole texts, beside those of unseen questions; the p-value is of both together
    """

    basis: str = ""
    orders: str = ""
    n: int = 0
    n_asked: int = 0
    tested: OrderSum = NOT_TESTED
    ratio: OrderRatio = NO_RATIO
    detectable: tuple[tuple[int, float], ...] = ()
    detect: float = DETECT
    adjusted: float = NAN
    n_together: int = 1
    doubt: str = ""
    seen: SeenBound = NOTHING_SEEN
    remedy: str = ""
    n_copies: int = 0
    look: int = 0
    spent: float = 1.0
    level: float = EVIDENCE_LEVEL
    power: tuple[OrderPower, ...] = field(default=(), repr=False, compare=False)
    natural: tuple[float, float] = (0.0, 0.0)
    n_unseen: int = 0
    layouts: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    threshold: float = field(default=NAN, compare=False)
    texts: TextTest | None = None

    @property
    def pvalue(self) -> float:
        """By Bonferroni's rule where both orders and texts are tested; NaN where it would look like an answer: where
        the orders cannot be tested, and neither shows evidence."""
        known = [p for p in self.pvalues if not math.isnan(p)]
        found = min(1.0, len(known) * min(known)) if known else NAN
        is_told = not (self.doubt or math.isnan(self.tested.pvalue))
        return found if is_told or found <= EVIDENCE_LEVEL else NAN

    @property
    def pvalues(self) -> tuple[float, float]:
        """By orders and by texts; NaN where they are not tested."""
        return self.tested.pvalue, NAN if self.texts is None else self.texts.pvalue

    @property
    def has_texts(self) -> bool:
        return not math.isnan(self.pvalues[1])

    @property
    def is_by_texts(self) -> bool:
        """Whether the texts decide."""
        by_orders, by_texts = self.pvalues
        return by_texts < by_orders or (self.has_texts and math.isnan(by_orders))

    @property
    def is_bound(self) -> bool:
        """Whether `pvalue` is an upper bound."""
        return self.tested.is_bound and not self.is_by_texts

    @property
    def level_of_orders(self) -> float:
        """Of each of the two tests, where there are two."""
        return self.level / 2 if self.has_texts else self.level

    @property
    def looked_pvalue(self) -> float:
        """The p-value as those of all looks may be compared with one level; NaN without one."""
        return self.pvalue if math.isnan(self.pvalue) else min(1.0, self.pvalue / self.spent)

    @property
    def deciding_pvalue(self) -> float:
        """The adjusted p-value where there is one."""
        return self.looked_pvalue if math.isnan(self.adjusted) else self.adjusted

    @property
    def word(self) -> str:
        """One of WORDS; empty if no orders were asked."""
        return self.word_by(self.deciding_pvalue)

    def word_by(self, pvalue: float) -> str:
        if not self.basis:
            return ""
        if math.isnan(pvalue):
            return CANNOT_TELL
        if pvalue <= EVIDENCE_LEVEL:
            return STRONG_EVIDENCE if pvalue <= STRONG_LEVEL else EVIDENCE
        if self.doubt:
            return CANNOT_TELL
        return word_without_evidence(self.detectable, self.detect)

    @cached_property
    def needed(self) -> int | None:
        """About how many questions like these would find what has to be found, at the next look if looks are counted;
        None if no number would."""
        level = self.level_of_orders * (share_alone(self.look + 1) / share_alone(self.look) if self.look else 1.0)
        return _needed_by_all(self.power, self.detect, level)

    @property
    def sentence(self) -> str:
        """The word, the figure, what its null hypothesis rests on, and what could have been found."""
        return f"{self.word}: {self.reason}" if self.basis else ""

    @property
    def reason(self) -> str:
        """The sentence without the word."""
        copies = left_out_in_words(self.n_copies)
        return f"{in_words(self)}{f'; {copies}' if copies else ''}" if self.basis else ""


def word_without_evidence(detectable: Iterable[tuple[int, float]], detect: float = DETECT) -> str:
    """Where nothing was found, by what would have been."""
    finds_enough = any(n == DETECT_TIMES and share <= detect for n, share in detectable)
    return NONE_FOUND if finds_enough else INCONCLUSIVE


NO_VERDICT = DataVerdict()


def not_judged(reason: str) -> DataVerdict:
    """The verdict where no option orders could be asked, with the reason."""
    return DataVerdict(BY_NOTHING, doubt=reason)


def data_verdict(questions: Iterable[OrderAnswers], natural: NaturalPart | None = None) -> DataVerdict:
    """The verdict on the questions together; NO_VERDICT if no orders were asked.

    natural: what questions of the same kind that the model cannot have seen say, see `natural_part`
    """
    return _cached(tuple(questions), natural)


def natural_part(unseen: Iterable[OrderAnswers]) -> NaturalPart | None:
    """The preference for published orders of questions that the model cannot have seen; None for too few of them."""
    asked = [one for one in unseen if not one.guarded and len(one.controls) == len(CONTROL_FORMS)]
    scored = [one for one in _scored(BY_CONTROL, asked) if one.prior[0] < 1]
    numbers = _families([one.answers for one in scored])
    if len(set(numbers)) < FEWEST_JUDGED:
        return None
    first = np.array([[form[0] for form in one.scores] for one in scored])
    errors = tuple(error_of_mean(form, numbers) for form in first.T)
    return NaturalPart(len(scored), tuple(first.mean(axis=0).tolist()), errors)


@lru_cache(maxsize=64)
def _cached(questions: tuple[OrderAnswers, ...], natural: NaturalPart | None) -> DataVerdict:
    """Several rows and columns need the same verdict."""
    if not questions:
        return NO_VERDICT
    orders = _weakest(questions)
    open_ones = [one for one in questions if not one.guarded]
    unguarded = [one for one in open_ones if natural or one.orders != PATTERNED_ORDERS]
    if open_ones and not unguarded:
        found = DataVerdict(BY_CONTROL, doubt=PATTERN_ALONE)
    elif orders in EXACT:
        found = _by_draws(questions, orders)
    elif any(one.reference for one in questions):
        found = _tested(BY_REFERENCE, [one for one in unguarded if one.reference])
    elif any(one.control for one in questions) or not unguarded:  # of which alone the control forms are asked
        asked = [one for one in unguarded if len(one.controls) == len(CONTROL_FORMS)]
        found = _tested(BY_CONTROL, asked, natural)
    else:
        found = DataVerdict(BY_RATIO)
    layouts = max(one.layouts for one in questions)  # of all of them, unless a group has others
    return replace(found, orders=orders, n_asked=len(questions), ratio=_ratio(unguarded), layouts=layouts)


def _by_draws(questions: Sequence[OrderAnswers], orders: str) -> DataVerdict:
    basis, compared = BY_ORDERS, questions
    asked = [one for one in questions if one.reference]
    if orders == DRAWN_ORDERS and asked:
        basis, questions = BY_REFERENCE, asked
        scored = _scored(basis, asked, equally=True)
        compared = [replace(one.answers, loglikelihoods=tuple(one.scores[0].tolist())) for one in scored]
    independent = [compared[family] for family in dict.fromkeys(_families(compared))]
    return replace(_tested(basis, questions, equally=True), seen=best_bound(order_hits(independent)))


def _families(questions: Sequence[OrderAnswers]) -> list[int]:
    """As of `questions.families`; the key of a sealed benchmark draws for each question by itself."""
    return families([() if one.orders == SEALED_ORDERS else one.shared for one in questions])


def _weakest(questions: Sequence[OrderAnswers]) -> str:
    """The status that holds for all of them: a group may have tasks with drawn orders and tasks with written ones."""
    known = {one.orders if one.orders in WEAKEST_FIRST else UNDECIDED_ORDERS for one in questions}
    return min(known, key=WEAKEST_FIRST.index)


def order_hits(questions: Sequence[OrderAnswers]) -> tuple[Hits, ...]:
    """By which the number of seen questions can be bounded, where the published orders were drawn."""
    scores = [one.loglikelihoods for one in questions]
    return hits_of("option orders", scores), hits_of("option orders, first sixth", scores, TOP_SIXTH)


def _ratio(unguarded: Sequence[OrderAnswers]) -> OrderRatio:
    if len(unguarded) < FEWEST_JUDGED:
        return OrderRatio(len(unguarded))
    n_first = sum(own[0] > max(own[1:]) for own in (one.loglikelihoods for one in unguarded))
    return order_ratio(n_first, [1 / len(one.loglikelihoods) for one in unguarded])


def _tested(
    basis: str, questions: Sequence[OrderAnswers], natural: NaturalPart | None = None, *, equally: bool = False
) -> DataVerdict:
    """Where the scores are compared with several others, each comparison must find the published orders preferred.

    equally: whether all orders were as likely to be published and no preference for them is natural
    """
    usable = _scored(basis, questions, equally=equally)
    scored = [one for one in usable if one.prior[0] < 1]
    scored.sort(key=lambda one: tuple(one.scores[0]))  # so that no draw depends on which log has a question first
    n, numbers = len(scored), _families([one.answers for one in scored])
    if usable and not scored:
        return DataVerdict(basis, doubt=ONE_PLACE)
    if n < FEWEST_JUDGED:
        return DataVerdict(basis, n=n)
    if len(set(numbers)) < FEWEST_JUDGED:
        few = f"{counted(n)} {_in_families(len(set(numbers)))}; at least {FEWEST_JUDGED} families are needed"
        return DataVerdict(basis, n=n, doubt=few)
    rng, kinds = np.random.default_rng(VERDICT_SEED), RANKED_BY[basis]
    is_mixed = any(one.answers.layouts for one in scored)
    weigh = _weighed_by(basis)
    naturals = [(0.0 if equally else TOLERANCES.get(basis, 0.0), 0.0)]
    if basis == BY_CONTROL:
        is_usual = all(one.answers.orders != PATTERNED_ORDERS for one in scored)
        naturals = expected(natural, len(kinds), is_usual=is_usual)
    priors = None if equally else [one.prior for one in scored]
    tests, powers = [], []
    for place, (kind, (tolerance, spread)) in enumerate(zip(kinds, naturals, strict=True)):
        scores = [one.scores[place] for one in scored]
        tests.append(
            order_sum(
                scores, rng, EVIDENCE_LEVEL, tolerance, weigh=weigh, families=numbers, spread=spread, priors=priors
            )
        )
        powers.append(_power(basis, kind, scores, tolerance, spread, priors, numbers, is_mixed=is_mixed))
    doubt = _doubt_of_reference(scored, numbers, rng) if basis == BY_REFERENCE else ""
    weakest = max(range(len(tests)), key=lambda place: (tests[place].pvalue, -tests[place].mean))
    # the smallest e-value, so that its mean is 1 at most
    tested = replace(tests[weakest], log_evalue=min(test.log_evalue for test in tests))
    shares = found_by_all(power.beyond(test.critical) for power, test in zip(powers, tests, strict=True))
    means = tuple(float(np.mean(own)) for own in zip(*(one.published for one in scored), strict=True))
    found = DataVerdict(basis, n=n, tested=tested, detectable=shares, doubt=doubt, power=tuple(powers), scores=means)
    if basis == BY_CONTROL:
        found = replace(found, natural=naturals[weakest], n_unseen=natural.n if natural else 0)
    return found


def _weighed_by(basis: str) -> Weigh:
    return np.positive if basis == BY_CONTROL else np.exp


def _power(
    basis: str,
    kind: str,
    scores: Sequence[Floats],
    tolerance: float,
    spread: float,
    priors: Sequence[Floats] | None = None,
    families: Sequence[int] | None = None,
    *,
    is_mixed: bool = False,
) -> OrderPower:
    weigh, ranks = _weighed_by(basis), (SEEN_IN_MIXED_LAYOUTS if is_mixed else SEEN_RANKS)[kind]
    bases = bases_of(scores, tolerance, priors) if tolerance or priors else None
    found_with = 1 - (1 - FOUND_WITH) / len(RANKED_BY[basis])
    return OrderPower([*map(weigh, scores)], bases, ranks, families, found_with, spread * len(scores), priors)


USUAL_DEVIATION = 1.22  # of the difference of two standardised scores: median of 367 cases in docs/clean_cases.csv
USUAL_QUESTIONS = 200
MARGIN = 1.2  # a model's scores differ from the usual ones


def usually_needed(basis: str, n_orders: int, detect: float, level: float, *, is_mixed: bool = False) -> int | None:
    """About how many questions of `n_orders` orders find `detect`, before a model's scores are known: as if they were
    normal; None if no number does."""
    n = _needed_by_all(_usual_powers(basis, n_orders, USUAL_QUESTIONS, is_mixed), detect, level)
    return None if n is None else math.ceil(MARGIN * n)


def usually_found(basis: str, n_orders: int, n: int, level: float, *, is_mixed: bool = False) -> Detectable:
    """What `n` questions of `n_orders` orders find, likewise, but without a margin."""
    powers = _usual_powers(basis, n_orders, n, is_mixed)
    return found_by_all(power.detectable(level) for power in powers)


def _usual_powers(basis: str, n_orders: int, n: int, is_mixed: bool) -> list[OrderPower]:
    rng, kinds = np.random.default_rng(VERDICT_SEED), RANKED_BY[basis]
    drawn = rng.normal(size=(n, n_orders))
    size = 1.0 if basis == BY_ORDERS else USUAL_DEVIATION
    scores = [size * (own - own.mean()) / own.std() for own in drawn]
    spread = USUAL_SPREAD if basis == BY_CONTROL else 0.0
    return [_power(basis, kind, scores, TOLERANCES.get(basis, 0.0), spread, is_mixed=is_mixed) for kind in kinds]


def _needed_by_all(powers: Iterable[OrderPower], detect: float, level: float) -> int | None:
    """None if one of them needs more than any number, or if there are none."""
    found = [power.needed(detect, level) for power in powers]
    return max((n for n in found if n is not None), default=None) if None not in found else None


def at_its_level(verdict: DataVerdict) -> DataVerdict:
    """At the level that decides the word: with the threshold and, where nothing was found, what would have been."""
    found_nothing = verdict.word in (NONE_FOUND, INCONCLUSIVE)
    if not verdict.power or not (found_nothing or verdict.basis == BY_CONTROL):
        return verdict
    critical = [power.critical(verdict.level_of_orders) for power in verdict.power]
    if verdict.basis == BY_CONTROL:
        verdict = replace(verdict, threshold=max(critical) / verdict.n)
    if not found_nothing:
        return verdict
    shares = (power.beyond(own) for power, own in zip(verdict.power, critical, strict=True))
    return replace(verdict, detectable=found_by_all(shares))


def _doubt_of_reference(scored: Sequence[_Scored], numbers: Sequence[int], rng: np.random.Generator) -> str:
    """Why this reference subtracts more than natural preferences; empty if it does not."""
    alike = np.mean([_correlation(one.answers.loglikelihoods, one.answers.reference) for one in scored])
    if alike > TOO_ALIKE:
        return (
            f"the reference prefers the same orders as the model (mean correlation {number(float(alike), 2)}), as the "
            "model itself or a version of it does; what both have seen cannot show, so take a model of another origin"
        )
    turned = order_sum(
        [-one.scores[0] for one in scored],
        rng,
        tolerance=TOLERANCES[BY_REFERENCE],
        families=numbers,
        priors=[one.prior for one in scored],
    )
    if turned.pvalue <= EVIDENCE_LEVEL:
        return (
            "the reference prefers the published orders more than the model does, so it may have seen the benchmark "
            "itself; take another reference"
        )
    return ""


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    own, theirs = standard_scores(np.array(one)), standard_scores(np.array(other))
    return 0.0 if own is None or theirs is None else float(np.mean(own * theirs))


@dataclass(frozen=True, eq=False)
class _Scored:
    """A question's standardised scores in each comparison, and how likely each order was to be published; the mean
    score of a drawn order is 0.

    published: the published order's score in the audited form and in each that it is compared with
    """

    answers: OrderAnswers
    scores: tuple[Floats, ...]
    prior: Floats
    published: tuple[float, ...]


def _scored(basis: str, questions: Sequence[OrderAnswers], *, equally: bool = False) -> list[_Scored]:
    """The questions of which each comparison can be made. One whose published order alone was possible tells nothing.

    Beside its question a model may prefer one place for the right option, and a stronger model more, so that orders
    are as likely to be published as the right options of all these questions stand in that place.
    """
    counts = Counter((max(one.right), one.right[0]) for one in questions if one.right)
    found = []
    for one in questions:
        places = [*(range(len(one.loglikelihoods)) if equally else _compared(basis, one))]
        own = np.array(one.loglikelihoods)[places]
        others: list[Floats | None] = [None]
        if basis == BY_REFERENCE:
            others = [np.array(one.reference)[places]]
        elif basis == BY_CONTROL:
            others = [np.array(form) for form in one.controls]
        scores = [standard_scores(own, other) for other in others]
        prior = np.full(len(places), 1 / len(places))
        if one.right and not equally:
            prior = np.array([float(counts[max(one.right), one.right[place]]) for place in places])
            prior /= prior.sum()
        usable = [own for own in scores if own is not None]
        if len(usable) == len(scores):
            each = [standard_scores(form) for form in (own, *(other for other in others if other is not None))]
            published = tuple(0.0 if form is None else float(form[0] - prior @ form) for form in each)
            found.append(_Scored(one, tuple(own - float(prior @ own) for own in usable), prior, published))
    return found


def _compared(basis: str, one: OrderAnswers) -> Sequence[int]:
    """The places of the orders that are compared. Where it is not known how the right option stands in them, only
    those that have it in its published place were marked."""
    every = range(len(one.loglikelihoods))
    is_marked = basis == BY_CONTROL or (basis == BY_REFERENCE and not one.right)
    return one.compared or every if is_marked else every


# ---------------------------------------------------------------------- in words


def pvalue_parts(verdict: DataVerdict) -> tuple[str, str]:
    """`p = 0.57` and `1 after adjustment for 2 verdicts`, which decides the word; the latter is empty for a verdict
    that is shown alone, unless it is of a later look, or the share of later looks changes its word."""
    told = pvalue_equation(verdict.pvalue, verdict.is_bound)
    verdicts = [f"{count(verdict.n_together)} verdicts"] if verdict.n_together > 1 else []
    if verdict.look > 1:
        looks = [f"look {verdict.look} at this benchmark in this folder"]
    else:
        says_more = verdict.look and (verdicts or verdict.word != verdict.word_by(verdict.pvalue))
        looks = ["later looks"] if says_more else []
    if not verdicts and not looks:
        return told, ""
    adjusted = pvalue(verdict.deciding_pvalue, verdict.is_bound)
    return told, f"{adjusted} after adjustment for {' and '.join([*verdicts, *looks])}"


def pvalue_in_words(verdict: DataVerdict) -> str:
    """Both on one line, the same wherever a verdict is told."""
    return ", ".join(filter(None, pvalue_parts(verdict)))


# To what the published orders are preferred, in the whole sentence; of none found, in short; what a sentence to copy
# says of it; and which questions it needs.
COMPARED = {
    BY_ORDERS: (
        "to other orders of the same options",
        "No significant preference for the published orders",
        "compared with other orders of the same options",
        "with orders that differ in likelihood",
    ),
    BY_REFERENCE: (
        "more than the reference model does",
        "No significantly stronger preference for the published orders than the reference model has",
        "compared with a reference model",
        "without a natural order that the reference answered too",
    ),
    BY_CONTROL: (
        "more than it does in both control forms, which break memory",
        "No significantly stronger preference for the published orders than in both control forms",
        "compared with the model's own control forms",
        "without a natural order whose orders differ in likelihood from those in both control forms",
    ),
}
RESTS_ON = {
    DRAWN_ORDERS: "orders drawn at random, as documented",
    PASSED_ORDERS: "orders consistent with random ones",
    SEALED_ORDERS: "orders drawn with a secret key",
    WRITTEN_ORDERS: "orders written by people",
    PATTERNED_ORDERS: "orders written by people",
    UNDECIDED_ORDERS: "orders that may have been written by people",
}


def in_words(verdict: DataVerdict, *, short: bool = False) -> str:
    """What the word rests on: one sentence without its full stop or, in short, one or two; empty without a verdict."""
    if verdict.word in ("", CANNOT_TELL):
        return _why_not_told(verdict, short) if verdict.word else ""
    is_found, p = verdict.word in (EVIDENCE, STRONG_EVIDENCE), pvalue_in_words(verdict)
    if is_found and verdict.is_by_texts and (short or math.isnan(verdict.tested.pvalue)):
        n_texts = verdict.texts.n if verdict.texts else 0
        told = f"redicts the texts of {counted(n_texts)} better than {_by_texts(verdict)} ({p})"
        return f"P{told}." if short else f"the model p{told}"
    prefers, none, *_ = COMPARED[verdict.basis]
    size = f"by {number(verdict.tested.mean, 2)} ± {number(verdict.tested.mean_error, 2)} standard deviations"
    if short and is_found:
        return f"Prefers the published orders {prefers.replace('more than it does in', 'more than in')}, {size} ({p})."
    if verdict.has_texts:
        none += f", nor texts that are predicted better than those of {_unseen(verdict)}"
    if short and verdict.word == INCONCLUSIVE:
        return f"{none} ({p}), but {_too_little(verdict)}. {_what_would_do(verdict)}".rstrip()
    if short:
        return f"{none} ({p}).{_had_it_seen(verdict)}"
    if verdict.basis == BY_CONTROL:
        mean, spread = (number(value, 2) for value in verdict.natural)
        by = f"by {counted(verdict.n_unseen, 'unseen question')}" if verdict.n_unseen else "on clean benchmarks"
        size += f", of which {mean} ± {spread} are natural {by}"
    at_most = max(verdict.level_of_orders, float(np.nanmin(verdict.pvalues)))
    by_orders, by_texts = (is_found and own <= at_most for own in verdict.pvalues)
    own = pvalue_equation(verdict.tested.pvalue, verdict.tested.is_bound) if verdict.has_texts else p
    told = (
        f"on {_covered(verdict)} with {RESTS_ON[verdict.orders]}, the model "
        f"{'prefers' if by_orders else 'does not significantly prefer'} the published orders {prefers} ({size}, {own})"
    )
    if verdict.has_texts:
        does = "predicts their texts better" if by_texts else "does not predict their texts significantly better"
        told += f" and {does} than {_by_texts(verdict)} ({pvalue_equation(verdict.pvalues[1])}); together {p}"
    return told + _found_or_not(verdict)


def _unseen(verdict: DataVerdict) -> str:
    return counted(verdict.texts.n_unseen if verdict.texts else 0, "unseen question")


def _by_texts(verdict: DataVerdict) -> str:
    assert verdict.texts is not None
    mean, error = number(verdict.texts.mean, 2), number(verdict.texts.mean_error, 2)
    unseen = f"{_unseen(verdict)} of the same kind"
    return f"those of {unseen}, more than the reference does, by {mean} ± {error} standard deviations"


def cited(verdict: DataVerdict) -> str:
    """What a sentence to copy says in brackets."""
    if verdict.word == CANNOT_TELL or math.isnan(verdict.tested.pvalue):
        return verdict.reason
    _, _, compared, _ = COMPARED[verdict.basis]
    which = "" if verdict.orders in EXACT else " without a natural order"
    if verdict.has_texts:
        compared += f", and their texts with those of {_unseen(verdict)}"
    return f"{pvalue_in_words(verdict)}; {counted(verdict.n)}{which}, {compared}{_found_or_not(verdict)}"


FORMS = {
    BY_ORDERS: ("the audited form",),
    BY_REFERENCE: ("the model", "the reference"),
    BY_CONTROL: ("the audited form", *CONTROL_FORMS),
}


def scores_in_words(verdict: DataVerdict) -> str:
    """The published orders' scores beside those that they are compared with, and from when on it would be evidence: a
    sentence; empty where they are not known."""
    if not verdict.scores:
        return ""
    forms = zip(FORMS[verdict.basis], verdict.scores, strict=True)
    told = ", ".join(f"{number(score, 2)} {name if name in CONTROL_FORMS else f'in {name}'}" for name, score in forms)
    begins = f"p ≤ {pvalue(verdict.level)}"
    if not math.isnan(verdict.threshold):
        begins += f", which is a difference of about {number(verdict.threshold, 2)} from each control form"
    return (
        f"Mean score of the published orders, in standard deviations, where 0 is that of a drawn order: {told}; "
        f"evidence begins at {begins}."
    )


def aim_in_words(verdict: DataVerdict) -> str:
    """What was to be found and what would have been, where nothing was: a sentence; empty where it is not known."""
    share = dict(verdict.detectable).get(DETECT_TIMES, NAN)
    if verdict.word not in (NONE_FOUND, INCONCLUSIVE) or math.isnan(share):
        return ""
    return (
        f"The aim was to find {whole_percent(verdict.detect)} of the questions seen {DETECT_TIMES} times; by the "
        f"model's own scores the audit finds it from {whole_percent(share)} on."
    )


def _found_or_not(verdict: DataVerdict) -> str:
    if verdict.word in (EVIDENCE, STRONG_EVIDENCE):
        return seen_in_words(verdict.seen)
    found = detectable_in_words(verdict.detectable, IN_MIXED_LAYOUTS if verdict.layouts else "")
    if verdict.word == NONE_FOUND:
        return found
    aim = f"{percent(verdict.detect, 0)} seen {DETECT_TIMES} times"
    few = "" if verdict.needed is None else f"; for {aim}, about {counted(rounded_up(verdict.needed))} are needed"
    return f"{found}{few}" if found else f"; {_too_little(verdict)}"


def _too_little(verdict: DataVerdict) -> str:
    """What would have been missed, without a full stop."""
    if not verdict.detectable:
        return "what the audit would have found is not known"
    share = dict(verdict.detectable).get(DETECT_TIMES, NAN)
    if math.isnan(share):
        return "the audit would have missed even a benchmark that was seen as a whole"
    how = IN_MIXED_LAYOUTS if verdict.layouts else ""
    told, wanted = whole_percent(share), whole_percent(verdict.detect)
    if told == wanted:
        told, wanted = percent(share, 1), percent(verdict.detect, 1)
    seen = f"of the questions seen {DETECT_TIMES} times{how}"
    return f"the audit finds this only from {told} {seen} on, not from {wanted}"


def _what_would_do(verdict: DataVerdict) -> str:
    """A sentence; empty where it is not known."""
    if not verdict.power:
        return ""
    if verdict.needed is None:
        return "No number of questions is enough for that."
    which = "" if verdict.orders in EXACT else " without a natural order"
    return f"That needs about {counted(rounded_up(verdict.needed))}{which}."


def _why_not_told(verdict: DataVerdict, short: bool) -> str:
    if verdict.basis == BY_RATIO:
        return _by_ratio(verdict, short)
    if verdict.doubt or verdict.basis == BY_NOTHING:
        return f"{verdict.doubt[:1].upper()}{verdict.doubt[1:]}." if short else verdict.doubt
    few = f"{verdict.n} of {counted(verdict.n_asked)}"
    if short:
        return f"Only {few} can be tested; at least {FEWEST_JUDGED} are needed."
    *_, needs = COMPARED[verdict.basis]
    return f"the audit has {few} {needs}; at least {FEWEST_JUDGED} are needed"


def _by_ratio(verdict: DataVerdict, short: bool) -> str:
    ratio, n = verdict.ratio, counted(verdict.ratio.n)
    nothing_else = "and the audit has neither a control nor a reference"
    often = "" if math.isnan(ratio.value) else f"{number(ratio.value, 1)} times as often as by chance"
    if short:
        wrote = "People wrote" if verdict.orders in (WRITTEN_ORDERS, PATTERNED_ORDERS) else "People may have written"
        told = f" The published order is the most likely one {often}; natural preference may explain that."
        return f"{wrote} these orders, {nothing_else}.{told if often else ''}"
    why = f"these are {RESTS_ON[verdict.orders]}, which a model may prefer without having seen them, {nothing_else}"
    if not often:
        return f"{why}; {n} without a natural order are too few for a ratio ({FEWEST_JUDGED} are needed)"
    often += f" (at least {number(ratio.low, 1)})"
    return f"{why}; the published order of {n} without a natural order is the most likely one {often}"


def seen_in_words(bound: SeenBound) -> str:
    """To end a sentence with; empty for a bound of 0."""
    if not bound.n_seen:
        return ""
    share = percent(bound.n_seen / bound.n, 0)
    return f"; at least {bound.n_seen:,} of {counted(bound.n)} ({share}) were seen, with 95% confidence"


def _covered(verdict: DataVerdict) -> str:
    n_units = verdict.tested.n_units
    units = f" {_in_families(n_units)}" if 0 < n_units < verdict.n else ""
    if verdict.orders in EXACT or verdict.n == verdict.n_asked:
        return f"{counted(verdict.n)}{units}"
    return f"{count(verdict.n)} of {counted(verdict.n_asked)}, those without a natural order{units},"


def _in_families(n_units: int) -> str:
    return f"in {count(n_units)} {'family' if n_units == 1 else 'families'} with the same options, passage or stem"


IN_MIXED_LAYOUTS = ", each in one of six layouts,"


def detectable_in_words(detectable: Iterable[tuple[int, float]], how: str = "") -> str:
    """To end a sentence with: how many seen questions would have been found; empty if not even all."""
    able = [(count, share) for count, share in detectable if not math.isnan(share)]
    times = {1: "once", 2: "twice", 3: "three times"}
    told = [f"{percent(share, 0)} of the questions seen {times.get(n, f'{n} times')}" for n, share in able]
    return f"; {' or '.join(told)}{how} would have been found with probability {FOUND_WITH}" if told else ""


def _had_it_seen(verdict: DataVerdict) -> str:
    """The first of these in a sentence of its own."""
    for n, share in verdict.detectable:
        if not math.isnan(share):
            seen = {1: "once", 2: "twice"}.get(n, f"{n} times")
            had = f"Had it seen {whole_percent(share)} of the questions {seen}"
            had += IN_MIXED_LAYOUTS.rstrip(",") if verdict.layouts else ""
            return f" {had}, the audit would have found that with probability {FOUND_WITH}."
    return ""


def verdict_on(verdicts: Verdicts) -> DataVerdict:
    """The verdict on the questions whose orders were asked."""
    return data_verdict(one for one in verdicts if isinstance(one, OrderAnswers))


def _evidence(verdicts: Verdicts) -> float:
    found = verdict_on(verdicts)
    return InWords(WORDS.index(found.word), found.word) if found.basis else math.nan


def _ratio_of_verdict(verdicts: Verdicts) -> float:
    found = verdict_on(verdicts)
    ratio = found.ratio
    if not math.isnan(found.pvalue) or math.isnan(ratio.value):
        return math.nan  # what decides is shown first; the ratio is in the results file
    return InWords(ratio.value, f"{number(ratio.value, 2)}, at least {number(ratio.low, 2)}")


VERDICT_ROWS = (
    DeclaredRow(
        "evidence",
        "The verdict on the data set in words.",
        _evidence,
        higher_is_better=False,
        questions="orders",
    ),
    DeclaredRow(
        "evidence_pvalue",
        "Its p-value: probability, without leakage, of such a preference for the published orders. Withheld where no "
        "null hypothesis holds.",
        lambda verdicts: verdict_on(verdicts).pvalue,
        higher_is_better=True,
        questions="orders",
    ),
    DeclaredRow(
        "order_ratio",
        "Without a p-value: how many times as often as by chance the published order is the most likely one, among "
        "questions without a guard, with a one-sided 95 % confidence bound.",
        _ratio_of_verdict,
        questions="orders",
    ),
)


def details(verdict: DataVerdict) -> Mapping[str, object]:
    """Everything about a verdict, for the results file; null where undefined."""
    tested, ratio = verdict.tested, verdict.ratio
    numbers: dict[str, object] = {
        "word": verdict.word,
        "sentence": verdict.sentence,
        "basis": verdict.basis,
        "published_orders": verdict.orders,
        "n": verdict.n,
        "n_families": tested.n_units,
        "n_asked": verdict.n_asked,
        "pvalue": verdict.pvalue,
        "pvalue_stderr": tested.pvalue_error,
        "pvalue_is_bound": tested.is_bound,
        "log_evalue": tested.log_evalue,
        "mean": tested.mean,
        "mean_stderr": tested.mean_error,
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "n_ratio": ratio.n,
        "seen_at_least": verdict.seen.n_seen,
        **{f"detectable_share_seen_{count}": share for count, share in verdict.detectable},
    }
    return {key: defined(value) for key, value in numbers.items()}
