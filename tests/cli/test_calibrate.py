"""Calibrations of a model's own scores, from the command that makes them to those that use them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from lm_eval_leakage.logs.calibration_file import read_calibration, write_calibration
from lm_eval_leakage.stats.combined import fit
from lm_eval_leakage.stats.known_scores import COMBINED, COPY, EVERY_CLASS, Calibration, KnownScores
from tests.results.harness_files import DETECTOR, audited, row, write_run

N_SEEN, N_ASKED, N_UNSEEN = 30, 120, 60
TASK = "bench_leakage_perm"


def line(number: int, score: float, **more: object) -> dict:
    return audited(row(number), score > 2, statistic=score, order_z=score) | more


def of_model(folder, model: str, numbers: range, scores, **more: object) -> None:
    write_run(folder, model, {TASK: [line(i, float(score), **more) for i, score in zip(numbers, scores, strict=True)]})


@pytest.fixture
def folder(tmp_path):
    """A model that has seen 30 of 120 questions, audited on them and on 60 private ones."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=N_ASKED) + np.repeat([4, 0], [N_SEEN, N_ASKED - N_SEEN])
    of_model(tmp_path / "runs", "m", range(1000, 1000 + N_ASKED), scores)
    of_model(tmp_path / "private", "m", range(5000, 5000 + N_UNSEEN), rng.normal(size=N_UNSEEN))
    return tmp_path


@pytest.fixture
def make(folder, typed):
    def run(unseen: str = "private", *words: object):
        return typed(
            "calibrate", folder / "runs", "--unseen", folder / unseen, "--output_path", folder / "c.json", *words
        )

    return run


@pytest.mark.parametrize(
    ("numbers", "change", "said"),
    [
        (
            range(1100, 1160),
            {},
            "20 of the 60 questions that the model is said not to have seen are in the benchmark, "
            "such as 'Question 1100?'; leave them out",
        ),
        (range(5000, 5019), {}, "19 unseen questions are too few"),
        (range(5000, 5060), {"guards": "in_order"}, "natural order of options 1.00 instead of 0.00"),
        (
            range(500_000, 500_060),
            {},
            "of another kind than those that were asked: characters of the question 16 instead of 14 (p = 0.00",
        ),
        (
            range(5000, 5060),
            {"detector": "max_order:orders=12"},
            "run the same audits on both, with the same --metadata",
        ),
    ],
)
def test_questions_that_cannot_speak_for_the_benchmark_make_no_calibration(
    folder, make, numbers, change, said
) -> None:
    of_model(folder / "other", "m", numbers, np.zeros(len(numbers)), **change)
    code, out, err = make("other")
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert not (folder / "c.json").exists()


def test_audits_of_two_benchmarks_make_no_calibration(folder, make) -> None:
    write_run(folder / "runs", "m", {"second_leakage_perm": [line(i, 0.0) for i in range(2000, 2030)]})
    code, _, err = make()
    assert (code, "the audits are of 2 benchmarks (bench, second)" in " ".join(err.split())) == (2, True)


def test_questions_that_the_model_has_certainly_seen_give_the_power(folder, typed, make) -> None:
    of_model(folder / "seen", "m", range(7000, 7040), np.full(40, 5.0))
    assert make("private", "--seen", folder / "seen")[0] == 0
    known = read_calibration(str(folder / "c.json")).detectors[DETECTOR]
    assert known.seen == [5.0] * 40
    assert known.flagged(0.05) == ((40, 40), (3, N_UNSEEN))
    code, out, _ = typed(
        "prevalence", folder / "runs", "--calibration", folder / "c.json", "--calibrated_by", DETECTOR
    )
    assert (code, "0.2" in out) == (0, True)


@pytest.mark.parametrize(
    "words", [("identify", "arc", "--calibration", "c.json"), ("prevalence", "arc", "--calibration", "c.json")]
)
def test_a_calibration_is_used_for_no_other_benchmark(folder, typed, make, words, monkeypatch) -> None:
    make()
    write_run(folder / "arc", "m", {"arc_leakage_perm": [line(i, 0.0) for i in range(1000, 1120)]})
    monkeypatch.chdir(folder)
    code, out, err = typed(*words, "--calibrated_by", DETECTOR)
    assert (code, out) == (2, "")
    assert "the calibration is of the benchmark 'bench', but the run audits arc" in " ".join(err.split())


# ---------------------------------------------------------------------- perplexity under a reference


def reference(folder, shift: float, model: str = "ref", n_unseen: int = N_UNSEEN) -> None:
    """Log-likelihoods of another model on all questions; those of the unseen ones are lower by `shift` nats."""
    rng = np.random.default_rng(1)

    def resps(more: float) -> list:
        return [[[str(-20.0 - i - more), "False"]] for i in range(24)]

    lines = [line(1000 + i, 0.0, resps=resps(rng.normal())) for i in range(N_ASKED)]
    lines += [line(5000 + i, 0.0, resps=resps(shift + rng.normal())) for i in range(n_unseen)]
    write_run(folder / "reference", model, {TASK: lines})


@pytest.mark.parametrize(
    ("shift", "model", "n_unseen", "ends", "said"),
    [
        (0.0, "ref", N_UNSEEN, 0, "nats per character of the options under ref"),
        (5.0, "ref", N_UNSEEN, 2, "of another kind than those that were asked: nats per character of the options"),
        (0.0, "m", N_UNSEEN, 2, "the audited model itself"),
        (0.0, "ref", 7, 2, "log-likelihoods of 7 of the unseen and 120 of the"),
    ],
)
def test_perplexity_is_compared_under_a_reference_model(folder, make, shift, model, n_unseen, ends, said) -> None:
    reference(folder, shift, model, n_unseen)
    code, out, err = make("private", "--reference", folder / "reference")
    assert (code, said in " ".join((out + err).split())) == (ends, True), err


# ---------------------------------------------------------------------- scores of a copy


@pytest.fixture
def of_copy(folder) -> Calibration:
    rng = np.random.default_rng(2)
    unseen, seen = rng.normal(size=100).tolist(), (rng.normal(size=100) + 3).tolist()
    together = fit({DETECTOR: [*seen, *unseen]}, [True] * 100 + [False] * 100)
    known = {DETECTOR: KnownScores({EVERY_CLASS: unseen}, seen)}
    known[COMBINED] = KnownScores({EVERY_CLASS: [together.probability({DETECTOR: one}) for one in unseen]}, ())
    made = Calibration("m", "bench", COPY, "held-out questions after 3 exposures to 100 others", known, together)
    write_calibration(folder / "copy.json", made)
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("identify", "runs", "--calibration", "copy.json"),
        ("prevalence", "runs", "--calibration", "copy.json"),
        ("clean", "runs", "--calibration", "copy.json", "--calibrated", "--output_path", "clean"),
    ],
    ids=lambda words: words[0],
)
def test_scores_of_a_copy_end_what_says_what_was_found_with_the_remedy(
    folder, typed, of_copy, words, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    code, out, err = typed(*words)
    told = " ".join(err.split())
    assert (code, out) == (2, "")
    assert "holds scores of a copy of 'm'" in told
    assert "make one of the model's own scores of questions that it cannot have seen" in told


def test_with_scores_of_a_copy_annotate_shows_no_calibrated_column_but_why(folder, typed, of_copy) -> None:
    code, out, err = typed(
        "annotate", folder / "runs", "--calibration", folder / "copy.json", "--dry_run", "--format", "json"
    )
    (found, *_) = json.loads(out)
    assert code == 0
    assert {key: value for key, value in found.items() if "calibrated" in key or ("prevalence" in key and value)} == {
        key: None for key in found if "calibrated" in key
    }
    assert "the calibration of 'm' is not used: the calibration holds scores of a copy of 'm'" in " ".join(err.split())


def test_the_combined_score_of_a_copy_may_be_used_with_the_models_own_scores(folder, typed, make, of_copy) -> None:
    assert make("private", "--combined", folder / "copy.json")[0] == 0
    made = read_calibration(str(folder / "c.json"))
    own = made.detectors[DETECTOR].unseen[EVERY_CLASS]
    assert made.combined == of_copy.combined
    assert made.detectors[COMBINED].unseen[EVERY_CLASS] == [
        of_copy.combined.probability({DETECTOR: one}) for one in own
    ]
    assert typed("identify", folder / "runs", "--calibration", folder / "c.json")[0] == 0


def test_a_combined_score_of_audits_that_were_not_run_is_refused(folder, make, of_copy) -> None:
    together = replace(of_copy.combined, detectors=("other",), unseen={"other": (0.0,)})
    write_calibration(folder / "copy.json", replace(of_copy, combined=together))
    code, _, err = make("private", "--combined", folder / "copy.json")
    assert (code, "audits are missing for: other" in " ".join(err.split())) == (2, True)
    write_calibration(folder / "copy.json", replace(of_copy, detectors={}, combined=None))
    code, _, err = make("private", "--combined", folder / "copy.json")
    assert (code, "has no combined score" in err) == (2, True)
