"""Audits that lost lines, logs or results: each is reported, and none is judged."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval_leakage.logs.audits import benchmarks_of_groups
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.conditions import check_complete
from tests.results.harness_files import answered, audited, row, write_run

N = 10
OUTLIER = "outlier"


def perm(of=range(N)) -> list[dict]:
    """Two statistics of one audit, filter after filter, as the harness writes them."""
    docs = [row(i) for i in of]
    outliers = [audited(doc, False, filter="outlier", detector=OUTLIER, null_rate=0.4) for doc in docs]
    return [*(audited(doc, i < 5) for i, doc in enumerate(docs)), *outliers]


def audit(folder: Path, of=range(N), **how) -> Path:
    """Write an audit, and return its log."""
    place = write_run(folder, "m", {"bench_leakage_perm": perm(of)}, **how)
    return max(place.glob("samples_bench_leakage_perm*"))


def change_results(folder: Path, sections: dict) -> None:
    (file,) = folder.rglob("results_*")
    file.write_text(json.dumps(json.loads(file.read_text()) | sections))


def keep(log: Path, kept) -> None:
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for i, line in enumerate(lines) if i in kept))


def missing(folder: Path) -> list[str]:
    """Return what is missing, as `annotate` reports it."""
    problems = [problem for annotation in annotate([folder]) for problem in annotation.problems]
    incomplete = [str(problem) for problem in problems if problem.incomplete]
    if incomplete:
        with pytest.raises(ValueError, match="--fail-on does not judge incomplete logs"):
            check_complete(problems)
    check_complete(problem for problem in problems if not problem.incomplete)
    return incomplete


def test_a_line_that_stands_twice_does_not_make_up_for_one_that_is_gone(tmp_path) -> None:
    log = audit(tmp_path)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines, *lines]))
    assert missing(tmp_path) == []
    log.write_text("".join([*lines[:-1], lines[0]]))
    assert "9 of 10 by outlier" in missing(tmp_path)[0]


@pytest.mark.parametrize(
    ("place", "left", "said"),
    [(2 * N - 1, None, "9 of 10 by outlier"), (1, 40, "9 of 10 by max_order")]
    + [(0, n, "9 of 10 by max_order") for n in (0, 1, 12)],
)
def test_one_line_that_is_gone_or_broken_anywhere_is_missing_by_its_statistic(tmp_path, place, left, said) -> None:
    log = audit(tmp_path)
    lines = log.read_text().splitlines()
    lines[place : place + 1] = [] if left is None else [lines[place][:left]]
    log.write_text("".join(f"{line}\n" for line in lines))
    (reported,) = missing(tmp_path)
    assert said in reported
    assert len(re.findall("of 10 by", reported)) == 1


def test_rows_that_the_harness_numbers_alike_are_questions_of_their_own(tmp_path) -> None:
    """The harness does so with --samples 1,3,3,5."""
    lines = [audited(row(i), True, doc_id=number) for i, number in ((1, 1), (3, 3), (5, 3))]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    assert missing(tmp_path) == []


@pytest.mark.parametrize("counts", [None, {}, {"bench_leakage_perm": {"effective": "10"}}])
def test_without_a_count_in_its_results_file_too(tmp_path, counts) -> None:
    audit(tmp_path)
    change_results(tmp_path, {"n-samples": counts})
    assert "no results file records how many" in missing(tmp_path)[0]


def test_an_audit_whose_log_is_gone_is_known_by_its_rows(tmp_path) -> None:
    audit(tmp_path, range(N, 2 * N))
    audit(tmp_path, range(N)).unlink()
    assert "has rows of bench_leakage_perm, an audit, whose samples log is missing" in missing(tmp_path)[0]


@pytest.mark.parametrize(
    ("of", "kept", "others", "n_missing"),
    [(5, 10, range(5, N), 0), (5, 4, range(5, N), 1), (N, 7, range(N), 0), (N, 3, range(3), 1)],
    ids=["two parts", "two parts, one of them cut", "run again", "run again on fewer"],
)
def test_an_audit_that_was_cut_is_reported_unless_another_one_has_all_of_its_questions(
    tmp_path, of, kept, others, n_missing
) -> None:
    keep(audit(tmp_path, range(of)), range(kept))
    audit(tmp_path, others)
    assert len(missing(tmp_path)) == n_missing
    (annotation,) = annotate([tmp_path])
    is_cut = kept < of  # which is reported, but costs nothing if another one is complete
    assert any(f"{kept} of {of} by max_order" in str(problem) for problem in annotation.problems) is is_cut


def test_a_log_without_results_in_another_folder_of_the_model_is_the_same_models(tmp_path) -> None:
    for folder, of, results in (("a", range(5), True), ("b", range(5, N), False)):
        write_run(tmp_path / folder, "org/m", {"bench_leakage_perm": perm(of)}, results=results)
    (annotation,) = annotate([tmp_path])
    assert len(annotation.audited_questions) == N


def test_a_run_that_lost_lines_is_not_judged_either(tmp_path) -> None:
    lines = [answered(i, row(i), True, filter_=name) for name in ("strict", "flexible") for i in range(N)]
    place = write_run(tmp_path, "m", {"bench": lines})
    audit(tmp_path)
    (log,) = place.glob("samples_bench_2*")
    keep(log, range(2 * N - 3))
    (annotation,) = annotate([tmp_path])
    (said,) = [str(problem) for problem in annotation.problems if problem.incomplete]
    assert "holds 7 of the 10 questions of bench by filter flexible" in said


@settings(max_examples=40)
@given(kept=st.sets(st.integers(0, 2 * N - 1), max_size=2 * N - 1), doubled=st.integers(0, 3), seed=st.integers(0, 99))
def test_whatever_lines_are_removed_it_is_reported_and_not_judged(tmp_path_factory, kept, doubled, seed) -> None:
    folder = tmp_path_factory.mktemp("removed")
    log = audit(folder)
    lines = [line for i, line in enumerate(log.read_text().splitlines(keepends=True)) if i in kept]
    lines += lines[:doubled]
    Random(seed).shuffle(lines)
    log.write_text("".join(lines))
    (annotation,) = annotate([folder])
    with pytest.raises(ValueError, match="--fail-on does not judge incomplete logs"):
        check_complete(annotation.problems)
    assert annotation.problems[0].incomplete
    shutil.rmtree(folder)


# ---------------------------------------------------------------------- which tasks are audits, and of what


def test_an_audit_whose_log_and_rows_are_gone_is_known_by_its_configuration(tmp_path) -> None:
    write_run(tmp_path, "m", {"bench": [answered(0, row(0), True)], "sideways": [audited(row(0), True)]})
    next(tmp_path.rglob("samples_sideways*")).unlink()
    ours = {"filter_list": [{"name": "max_order", "filter": [{"function": "leakage", "statistic": "max_order"}]}]}
    # what is given by --metadata stands in the configuration of every task
    configs = {"sideways": ours, "bench": {"metadata": {"probe": "option_orders"}, "filter_list": None}}
    results = {"sideways": {"alias": "sideways"}, "bench": {"acc,none": 1.0}}
    change_results(tmp_path, {"results": results, "configs": configs})
    problems = [str(problem) for annotation in annotate([tmp_path]) for problem in annotation.problems]
    assert any("has rows of sideways, an audit, whose samples log is missing" in problem for problem in problems)
    assert not any("rows of bench," in problem for problem in problems)


@pytest.mark.parametrize("config", [7, {}, {"filter_list": 7}, {"filter_list": [7, {"filter": 7}, {"filter": [7]}]}])
def test_a_configuration_of_another_shape_says_nothing(tmp_path, config) -> None:
    write_run(tmp_path, "m", {"bench": [answered(0, row(0), True)], "bench_leakage_perm": [audited(row(0), True)]})
    change_results(tmp_path, {"configs": {"bench": config, "bench_leakage_perm": config}})
    (annotation,) = annotate([tmp_path])
    assert [line.task for line in annotation.rows] == ["bench"]


def test_a_group_of_audits_is_the_group_that_was_audited(tmp_path) -> None:
    members = {"a_upside": [audited(row(0), True, benchmark="a")], "b_leakage_perm": [audited(row(1), True)]}
    write_run(tmp_path, "m", members, groups={"bench_leakage_perm": [*members, "odd"]})
    change_results(tmp_path, {"configs": {"a_upside": {"metadata": {"audit_of": "bench_a"}}}})
    (run,) = find_runs([tmp_path], [])
    assert benchmarks_of_groups(run) == {"bench": ["bench_a", "b", "odd"]}


def test_questions_on_which_the_model_failed_are_said_and_others_that_were_skipped_are_not(tmp_path: Path) -> None:
    file = audit(tmp_path)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line["doc_id"] in (1, 2):
            line |= {"flagged": None, "reason": "the backend failed on it (CUDA out of memory)"}
        if line["doc_id"] == 3:
            line |= {"flagged": None, "reason": "two options read alike"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (annotation,) = annotate([tmp_path])
    (problem,) = annotation.problems
    assert "2 questions of bench_leakage_perm were skipped, since they have no answer: the backend" in str(problem)
    assert not problem.incomplete


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pvalue": 7.0}, "pvalue is 7.0, which is not between 0 and 1"),
        ({"pvalue": -0.1}, "pvalue is -0.1, which is not between 0 and 1"),
        ({"null_rate": math.nan}, "null_rate is nan, which is not between 0 and 1"),
        ({"resps": [[["3.0", "False"]]] * 24}, "a log-likelihood is 3"),
        ({"resps": [[["-Infinity", "False"]]] * 24}, "a log-likelihood is -inf"),
        ({"resps": [[["NaN", "False"]]] * 24}, "a log-likelihood is nan"),
    ],
)
def test_a_line_with_numbers_that_cannot_be_right_is_left_out_and_the_audit_not_judged(tmp_path, change, said) -> None:
    lines = [audited(row(number), False) for number in range(5)]
    lines[2] |= change
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    (annotation,) = annotate([tmp_path])
    assert any(said in str(problem) and problem.line == 3 for problem in annotation.problems)
    assert any(problem.incomplete and "4 of 5 by max_order" in str(problem) for problem in annotation.problems)


@pytest.mark.parametrize(("flagged", "is_disputed"), [(False, False), (True, True)])
def test_lines_that_say_different_things_of_one_question_are_reported_and_the_audit_not_judged(
    tmp_path, flagged: bool, is_disputed: bool
) -> None:
    lines = [{"doc_id": number, **audited(row(number), False)} for number in range(5)]
    place = write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    (log,) = place.glob("samples_*")
    again = json.loads(log.read_text().splitlines()[1]) | audited(row(1), flagged) | {"benchmark": "bench"}
    log.write_text(f"{log.read_text()}{json.dumps(again)}\n")
    (annotation,) = annotate([tmp_path])
    what = "says different things of one question in 1 line(s) of bench_leakage_perm"
    assert any(problem.incomplete and what in str(problem) for problem in annotation.problems) is is_disputed
