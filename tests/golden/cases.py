"""Every case: what is typed, in order, in a folder that holds the files of `given.py`."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "lm-eval-leakage"
CHECK = f"{OURS} check --questions 40 --model fake --model_args pretrained"
RUN = "lm_eval --model fake --log_samples -o audits --model_args pretrained"
SHORT = (
    "lm_eval --model fake --model_args pretrained=half --log_samples --tasks short_leakage_perm --include_path tasks"
)
BOTH = "--tasks both --include_path tasks"
RUNS = ("*/runs/*", "*/unseen/*", "*/reference/*", "*/attempts/*", "*/manifest.json", "*/status.json", "*/plan.yaml")
INPUTS = ("*/tasks/*",)


@dataclass(frozen=True)
class Case:
    """A case of typed commands.

    typed: lines, of which the output of each is kept
    after: the case in whose folder, as it is left, this one is typed
    without: patterns of files that other cases show already
    """

    typed: tuple[str, ...]
    after: str = ""
    without: tuple[str, ...] = ()


def checked(line: str, *more: str, after: str = "") -> Case:
    """A check whose runs and tasks are like those of the case `check`."""
    return Case((f"{CHECK}={line}", *(f"{CHECK}={line_of_more}" for line_of_more in more)), after, (*RUNS, *INPUTS))


CASES = {
    "check": Case((f"{CHECK}=seen --tasks quiz.jsonl",)),
    "check-clean": checked("clean --tasks quiz.jsonl --questions 80"),
    "check-again": checked("seen --tasks quiz.jsonl", "seen --tasks quiz.jsonl --questions 60", after="check"),
    "check-documented": checked("seen --tasks quiz.jsonl --orders 'random: its README'", after="check"),
    "check-unseen": checked("half --tasks short.jsonl --unseen private.jsonl"),
    "check-gate": checked(
        "seen --tasks quiz.jsonl --fail-on evidence --quiet",
        "seen --tasks few.jsonl --fail-on evidence --quiet",
        "seen --tasks few.jsonl --fail-on evidence --allow-no-verdict --quiet",
        after="check",
    ),
    "check-export": checked(
        "seen --tasks quiz.jsonl --export every-eval-ever --export hf-eval-results --export badge", after="check"
    ),
    "check-given-runs": checked("seen --tasks quiz.jsonl --runs leakage/runs --output_path other", after="check"),
    "check-other-model": checked("clean --tasks quiz.jsonl", after="check"),
    "check-written": checked("half --tasks written.jsonl"),
    "check-reference": checked("half --tasks written.jsonl --reference pretrained=clean", after="check-written"),
    "check-few": checked("seen --tasks few.jsonl"),
    "check-two-options": checked("seen --tasks two.jsonl"),
    "check-no-key": checked("half --tasks no_key.jsonl"),
    "check-dry-run": Case((f"{CHECK}=clean --tasks quiz.jsonl,few.jsonl --dry_run", f"{OURS} check settings.yaml")),
    "check-refused": Case(
        (
            f"{OURS} check --model chat-fake --model_args model=x --tasks few.jsonl",
            f"{CHECK}=seen --tasks piqqa",
            f"{CHECK}=seen --tasks broken.jsonl",
            f"{CHECK}=seen --tasks few.jsonl --orders drawn",
        )
    ),
    "runs": checked(f"half {BOTH}", f"clean {BOTH}"),
    "annotate": Case((f"{OURS} annotate leakage/runs --subjects --output_path annotated",), "runs"),
    "annotate-formats": Case(
        tuple(
            f"{OURS} annotate leakage/runs --dry_run --format {style}"
            for style in ("markdown", "csv", "latex", "json")
        ),
        "runs",
    ),
    "annotate-conditions": Case(
        (
            f"{OURS} annotate leakage/runs --dry_run --quiet --fail-on 'verdict>=evidence'",
            f"{OURS} annotate leakage/runs --dry_run --quiet --fail-on 'accuracy<0.1'",
            f"{OURS} annotate leakage/runs --dry_run --quiet --fail-on 'leakage>0.5'",
        ),
        "runs",
    ),
    "report": Case((f"{OURS} report leakage/runs",), "runs"),
    "leaderboard": Case(
        (
            f"{OURS} leaderboard leakage/runs",
            f"{OURS} leaderboard leakage/runs --format markdown",
            f"{OURS} leaderboard leakage/runs --format csv",
        ),
        "runs",
    ),
    "clean": Case(
        (
            f"{OURS} clean leakage/runs --output_path cleaned",
            f"{OURS} clean leakage/runs --output_path cleaned",
            f"{OURS} clean leakage/runs --output_path strong --strong --keep_untested",
        ),
        "runs",
        ("*.py",),
    ),
    "orders": Case(
        (
            f"{OURS} ls quiz.jsonl --orders",
            f"{OURS} ls written.jsonl --orders",
            f"{OURS} ls few.jsonl --orders",
            f"{OURS} ls written.jsonl --documented random 'its README' --format json --orders",
            f"{OURS} ls broken.jsonl --orders",
        )
    ),
    "lm-eval": Case((f"{RUN}=half --tasks mmlu_leakage_perm --limit 40 --metadata data_files=quiz.jsonl",)),
    "lm-eval-others": Case(
        (
            f"{RUN}=half --tasks mmlu_choice_confusion,arc_challenge_leakage_perm_q --metadata data_files=few.jsonl",
            f"{RUN}=half --tasks short --include_path tasks --limit 40",
            f"{OURS} run --model fake --tasks mmlu_leakag_perm",
        )
    ),
    "seal": Case((f"{OURS} seal trees.jsonl", f"{OURS} seal verify sealed")),
    "seal-audit": Case(
        (
            f"{RUN}=reader --tasks trees_leakage_seal --include_path sealed/public --metadata seal=sealed/private",
            f"{RUN}=clean --tasks trees_leakage_perm --include_path sealed/public --metadata seal=sealed/private",
            f"{OURS} seal audit audits --seal sealed/private --output_path audit.json",
            f"{OURS} seal audit audits --seal sealed/private",
            f"{OURS} seal verify sealed",
            f"{OURS} annotate audits --dry_run",
        ),
        "seal",
        ("audits/*",),
    ),
    "simulate": Case(
        (
            f"{OURS} simulate --model fake --model_args pretrained=clean --tasks short.jsonl --output_path lab "
            "--n_questions 40 --epochs 1 --audits leakage_perm,leakage_perm_q",
        ),
        without=("lab/audits_*",),
    ),
    "campaign": Case(
        (
            f"{OURS} check plan.yaml --dry_run",
            f"{OURS} check plan.yaml",
            f"{OURS} check --status leakage",
            f"{OURS} check plan.yaml",
            f"{OURS} check changed.yaml",
        ),
        without=("*/samples_*", "*/results_*"),
    ),
}
