"""The rows of the results table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lm_eval_leakage.harness.row_values import Verdicts, row, row_with_error
from lm_eval_leakage.records import Evidence, Measurement, Skipped
from lm_eval_leakage.statistics.calibration import mean_and_stderr, poisson_binomial_tail, rate_and_stderr
from lm_eval_leakage.statistics.conformal import from_pvalues
from lm_eval_leakage.statistics.known_scores import Calibrated
from lm_eval_leakage.statistics.paired_accuracy import ArmsMeasurement, Difference, below_reference, difference
from lm_eval_leakage.statistics.prevalence import Prevalence, rogan_gladen
from lm_eval_leakage.statistics.shared_likelihood import ShardEvidence, permutation_pvalue, ttest_pvalue
from lm_eval_leakage.statistics.tail_answered import TailEvidence

MISTAKES = 0.1  # accepted share of unseen questions among the identified

# ---------------------------------------------------------------------- what flags questions


def _tested(verdicts: Verdicts) -> list[Evidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, Evidence)]


def _flagged(verdicts: Verdicts) -> tuple[float, float]:
    return rate_and_stderr([evidence.flagged for evidence in _tested(verdicts)])


def _null_rate(verdicts: Verdicts) -> float:
    return mean_and_stderr([evidence.null_rate for evidence in _tested(verdicts)])[0]


def _pooled_pvalue(verdicts: Verdicts) -> float:
    evidence = _tested(verdicts)
    return poisson_binomial_tail(sum(e.flagged for e in evidence), [e.null_rate for e in evidence])


flagged_rate, flagged_rate_stderr = row_with_error(
    "flagged_rate", "Share of the tested questions that are flagged.", _flagged
)
flagged_rate_guarded, flagged_rate_guarded_stderr = row_with_error(
    "flagged_rate_guarded",
    "`flagged_rate` of the questions with a guard, whose options have a natural order.",
    _flagged,
)
flagged_rate_unguarded, flagged_rate_unguarded_stderr = row_with_error(
    "flagged_rate_unguarded", "`flagged_rate` of the questions without a guard.", _flagged
)
null_rate = row(
    "null_rate",
    "Share of the tested questions that would be flagged without leakage, by the statistic's null.",
    _null_rate,
)
dataset_pvalue = row(
    "dataset_pvalue",
    "Probability, without leakage, of at least as many flagged questions (exact Poisson-binomial tail).",
    _pooled_pvalue,
)
dataset_pvalue_unguarded = row(
    "dataset_pvalue_unguarded",
    "`dataset_pvalue` of the questions without a guard, whose null hypothesis is more credible.",
    _pooled_pvalue,
)
skipped = row(
    "skipped",
    "How many questions could not be tested; the samples log gives the reason of each.",
    lambda verdicts: sum(isinstance(verdict, Skipped) for verdict in verdicts),
)
accuracy_whole, accuracy_whole_stderr = row_with_error(
    "accuracy_whole",
    "Share of questions answered rightly when they are shown whole.",
    lambda verdicts: rate_and_stderr([verdict.whole for verdict in verdicts if isinstance(verdict, TailEvidence)]),
)

# ---------------------------------------------------------------------- what known scores flag


def _calibrated(verdicts: Sequence[object]) -> list[Calibrated]:
    return [verdict for verdict in verdicts if isinstance(verdict, Calibrated)]


def _identified(verdicts: Sequence[object]) -> float:
    pvalues = np.array([calibrated.pvalue for calibrated in _calibrated(verdicts)])
    return rate_and_stderr(from_pvalues(pvalues, MISTAKES).flagged)[0]


row_with_error(
    "calibrated_rate",
    "Share of the tested questions above the calibrated threshold, which flags a share `fpr` of known-unseen ones.",
    lambda verdicts: rate_and_stderr([calibrated.flagged for calibrated in _calibrated(verdicts)]),
)
row(
    "identified_rate",
    "Share of the tested questions in the set of which at most a tenth is expected to be unseen (conformal).",
    _identified,
)


def _prevalence(verdicts: Sequence[object]) -> Prevalence:
    calibrated = _calibrated(verdicts)
    if not calibrated or not calibrated[0].of_seen[1]:
        return Prevalence(math.nan, math.nan, math.nan)
    first, n_flagged = calibrated[0], sum(verdict.flagged for verdict in calibrated)
    rng = np.random.default_rng(0)
    return rogan_gladen(n_flagged, len(calibrated), first.of_seen, first.of_unseen, rng=rng)


row(
    "prevalence",
    "Estimated share of the benchmark that was seen, by how often known-seen and known-unseen questions are flagged.",
    lambda verdicts: _prevalence(verdicts).share,
)
row("prevalence_low", "Low end of its 95 % interval.", lambda verdicts: _prevalence(verdicts).low)
row("prevalence_high", "High end of its 95 % interval.", lambda verdicts: _prevalence(verdicts).high)

# ---------------------------------------------------------------------- choice confusion


def _arm(verdicts: Verdicts, arm: str) -> list[bool]:
    return [getattr(measured, arm) for measured in verdicts if isinstance(measured, ArmsMeasurement)]


def _change(verdicts: Verdicts, arm: str) -> Difference:
    return difference(_arm(verdicts, "original"), _arm(verdicts, arm))


def _against_reference(verdicts: Verdicts) -> float:
    given = [measured for measured in verdicts if isinstance(measured, ArmsMeasurement)]
    if not given or given[0].reference is None:
        return math.nan
    return below_reference(_change(verdicts, "generalized"), given[0].reference, given[0].reference_stderr or 0.0)


def _arm_rows(arm: str, options: str, change: str, meaning: str) -> None:
    def accuracy(verdicts: Verdicts) -> tuple[float, float]:
        return rate_and_stderr(_arm(verdicts, arm))

    def gained(verdicts: Verdicts) -> tuple[float, float]:
        found = _change(verdicts, arm)
        return found.value, found.stderr

    row_with_error(f"accuracy_{arm}", f"Share of questions answered rightly with their options {options}.", accuracy)
    if arm != "original":
        row_with_error(change, f"accuracy_{arm} - accuracy_original, paired: {meaning}.", gained)


_arm_rows("original", "as published", "", "")
_arm_rows("shuffled", "shuffled", "delta_shuffled", "what is lost with remembered letters")
_arm_rows("replaced", "replaced", "delta_replaced", "what is lost with remembered options")
_arm_rows("generalized", "replaced and shuffled", "delta", "what a clean model gains (Yao et al., 2024)")
row(
    "mcnemar_pvalue",
    "Two-sided exact p-value of `delta`: that answers are as often lost as won.",
    lambda verdicts: _change(verdicts, "generalized").pvalue,
)
row(
    "reference_pvalue",
    "Probability of a delta at least as far below that of the clean reference; undefined without one.",
    _against_reference,
)

# ---------------------------------------------------------------------- order of the questions


def _shards(verdicts: Verdicts) -> list[ShardEvidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, ShardEvidence)]


def _gains(verdicts: Verdicts) -> list[float]:
    return [shard.gain for shard in _shards(verdicts)]


row_with_error(
    "order_gain",
    "Nats by which a shard's published order beats the mean of others; mean over shards.",
    lambda verdicts: mean_and_stderr(_gains(verdicts)),
)
row(
    "ttest_pvalue",
    "One-sided t-test over shards that `order_gain` is above 0 (Oren et al., 2023).",
    lambda verdicts: ttest_pvalue(_gains(verdicts)),
)
row(
    "permutation_pvalue",
    "Probability, without leakage, of published orders at least as likely in sum over shards (exact).",
    lambda verdicts: permutation_pvalue([shard.loglikelihoods for shard in _shards(verdicts)]),
)

# ---------------------------------------------------------------------- means of what is measured


def _mean_row(name: str, meaning: str) -> None:
    def mean(verdicts: Verdicts) -> tuple[float, float]:
        measured = [verdict.values() for verdict in verdicts if isinstance(verdict, Measurement)]
        return mean_and_stderr([values[name] for values in measured if name in values])

    row_with_error(name, f"{meaning}; mean over questions.", mean)


_mean_row("mean_loglikelihood", "Log-likelihood a token of the published text, nats")
_mean_row("mean_zscore", "Min-K%++ with k = 100 %: z-score of the published text's tokens")
_mean_row("min_k", "Min-K%: log-probability of the k % least likely tokens, nats")
_mean_row("min_k_zscore", "Min-K%++: the k % lowest z-scores of tokens")
_mean_row("reproduced_rate", "Whether the model writes at least a share T of the options")
_mean_row("control_rate", "The same when completions are compared with the next option: what shared words give")
_mean_row("exact_rate", "Whether the model writes the hidden option exactly")
_mean_row("rouge", "ROUGE-L F of the hidden option and what the model writes")
_mean_row("judged_rate", "Whether a judge says that the two mean the same; undefined without `judge_model`")
_mean_row("ngram_accuracy", "Share of places where the model writes exactly how the published text goes on")
_mean_row("per_zlib_byte", "Log-likelihood of the published text over the bytes that zlib makes of it, nats")
_mean_row("over_upper", "Share of the nats of the text in upper case that the published form saves")
_mean_row("over_shuffled", "Share of the nats of the text with its words shuffled that the published form saves")
_mean_row("recall", "Nats of the text after unseen questions over its nats alone (ReCaLL)")
_mean_row("over_reference", "Share of a reference model's nats on the text that the model saves")
