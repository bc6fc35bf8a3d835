"""The command `lm-eval-leakage seal`: publishes a benchmark as a secret key draws it, verifies it, audits models."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_leakage.cli.arguments import FIELDS, add_options
from lm_eval_leakage.cli.command_checks import fields_of_files
from lm_eval_leakage.cli.ending import CONDITION_MET
from lm_eval_leakage.cli.output import note, say, warn
from lm_eval_leakage.cli.result_commands import print_problems
from lm_eval_leakage.files import QUESTION_FILES, atomic_write, check_writable
from lm_eval_leakage.questions.fields import ROWS_NAMED
from lm_eval_leakage.seal.author_rows import ORDER_RULES, Notes, OrderRule
from lm_eval_leakage.texts import as_json, visible

if TYPE_CHECKING:
    from lm_eval_leakage.harness.sealing import Sealing

SEALED = Path("sealed")
REASONS_SHOWN = 5
WHAT = (
    f"questions to be sealed, in a file ({', '.join(QUESTION_FILES)}), with or without options, or a task of lm_eval "
    "with options; or "
    "`verify PUBLIC [PRIVATE]`: whether a public folder or file is what the key in a private folder draws, both are "
    "what the commitment fixed, and no look was taken out of the ledger; or `audit RUNS...`: what runs "
    "(--log_samples) say about each model, with --seal"
)
OPTIONS = {
    "[--output_path -o DIR]": f"a new folder for public and private (default: {SEALED}); with audit: a JSON file",
    "[--name NAME]": "of the benchmark and its task (default: from the file or task)",
    f"[--order_dependent {{{','.join(ORDER_RULES)}}}]": "what is done with options that depend on their order, such "
    "as all of the above: keep their order, hold the question out, or refuse to seal (default: %(default)s); a "
    "question's field `seal` overrides it",
    "[--commitment HEX]": "with verify: the commitment as its author announced it",
    "[--head HEX]": "with verify: a head of the ledger, as its author announced it after some look",
    "[--include_path DIR]": "a folder with additional tasks",
    "[--seal DIR]": "with audit: the private folder, in which every look is counted",
    "[--alpha ALPHA]": "with audit: probability of any false claim over all looks at all models (default: 0.01)",
}


def seal(args: argparse.Namespace) -> None:
    """Publish a benchmark in a version that a secret key draws, to make leakage provable; `verify` compares them."""
    first, *others = args.what
    if first in OF_SEALS:
        OF_SEALS[first](args, [Path(other) for other in others])
    elif others:
        raise ValueError(
            f"{' '.join(args.what)!r} is not one file or task; write `seal FILE`, `seal verify PUBLIC [PRIVATE]` or "
            "`seal audit RUNS --seal PRIVATE`"
        )
    else:
        _seal(args, first)


def seal_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="+", metavar="FILE", help=WHAT)
    add_options(parser, FIELDS | OPTIONS, defaults={"order_dependent": ORDER_RULES[0]})


def _seal(args: argparse.Namespace, what: str) -> None:
    from lm_eval_leakage.harness.preflight import preflight
    from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT

    is_file = what.endswith(QUESTION_FILES)
    fields = fields_of_files(args.fields, [what])
    preflight([] if is_file else [what], audits=[FIRST_AUDIT], include_path=args.include_path)
    from lm_eval_leakage.harness.sealing import check_free, sealing_of, write_sealing  # seconds

    folder = Path(args.output_path or SEALED)
    check_free(folder)
    if is_file:
        _without_bars()
    sealing = sealing_of(what, args.name, args.order_dependent, args.include_path, fields)
    write_sealing(sealing, folder)
    _note_rows(sealing, args.order_dependent)
    _print_places(sealing, folder)


def _note_rows(sealing: Sealing, rule: OrderRule) -> None:
    examined = sealing.examined
    for number, reason in examined.unusable:
        warn(f"row {number} is left out: {reason}")
    fate = "it is held out" if rule == "hold_out" else "its order is kept, and it is left out of the test of orders"
    for number, reason in examined.dependent:
        warn(f"row {number} depends on the order of its options, so {fate}: {reason}")
    if examined.dependent:
        note(
            "such options are drawn once they are reworded, or if their row says `seal: permute`; `seal: hold_out` or "
            "--order_dependent hold_out keeps the question private"
        )
    for sentence in _of_kept(examined.kept):
        note(sentence)
    if sealing.unpublished_fields:
        note(f"fields of the rows that no sealed file keeps: {', '.join(sealing.unpublished_fields)}")


def _of_kept(kept: Notes) -> Iterator[str]:
    """Yield how many texts are published as they are, by reason, the most frequent one first."""
    from lm_eval_leakage.results.formatting import counted

    rows = defaultdict[str, list[int]](list)
    for number, reason in kept:
        rows[reason].append(number)
    by_frequency = sorted(rows, key=lambda reason: -len(rows[reason]))
    for reason in by_frequency[:REASONS_SHOWN]:
        shown = ", ".join(map(str, rows[reason][:ROWS_NAMED])) + (", ..." if len(rows[reason]) > ROWS_NAMED else "")
        yield f"{counted(len(rows[reason]), 'row')} published as written (row {shown}): {reason}"
    if n_more := sum(len(rows[reason]) for reason in by_frequency[REASONS_SHOWN:]):
        yield f"{counted(n_more, 'row')} published as written for other reasons"


def _print_places(sealing: Sealing, folder: Path) -> None:
    from lm_eval_leakage.results.formatting import counted

    n_published, originals = len(sealing.seal.questions), sealing.examined.originals
    drawn = _drawn_texts(sealing) if sealing.seal.is_of_texts else _drawn_questions(sealing)
    what = f"{counted(n_published, 'text')} without options" if sealing.seal.is_of_texts else counted(n_published)
    say(
        f"{what} sealed as {visible(sealing.seal.name)}: {drawn}; "
        f"{len(originals) - n_published:,} held out, {counted(len(sealing.examined.unusable), 'row')} left out"
    )
    say(f"publish: {folder / 'public'}")
    say(f"keep secret, and keep a backup: {folder / 'private'} (if it is lost, nothing can be verified or tested)")
    say(f"commitment: {sealing.seal.commitment}")


def _drawn_questions(sealing: Sealing) -> str:
    questions = sealing.seal.questions
    n_drawn = sum(question.order_drawn for question in questions)
    n_worded = sum(len(question.wordings) > 1 for question in questions)
    return f"{n_drawn:,} with drawn orders of options, {n_worded:,} with a drawn wording"


def _drawn_texts(sealing: Sealing) -> str:
    exchanges = [text.exchange for text in sealing.seal.questions if text.exchange is not None]
    n_blocks = len({exchange.block.name for exchange in exchanges})
    return (
        f"{len(exchanges):,} with a drawn name or detail ({sealing.examined.n_marked:,} marked) in {n_blocks:,} "
        f"block{'s' * (n_blocks != 1)}, {len(sealing.seal.questions) - len(exchanges):,} as written"
    )


def _verify(args: argparse.Namespace, places: Sequence[Path]) -> None:
    from lm_eval_leakage.harness.seal_verification import verified

    if not 1 <= len(places) <= 2:
        raise ValueError("write `seal verify PUBLIC PRIVATE`, or `seal verify PUBLIC` before the key is revealed")
    _without_bars()
    verification = verified(places[0], places[1] if len(places) > 1 else None, args.commitment, args.head)
    for sentence in verification.differs:
        warn(f"differs: {sentence}")
    if verification.differs:
        sys.exit(CONDITION_MET)
    for sentence in verification.holds:
        say(visible(sentence))
    for remark in verification.remarks:
        note(remark)
    if verification.unverified:
        raise ValueError("; ".join(verification.unverified))


def _audit(args: argparse.Namespace, places: Sequence[Path]) -> None:
    from lm_eval_leakage.results.seal_audit import as_seal_record, as_table, ledger_report, remarks, seal_audit
    from lm_eval_leakage.stats.looks import USUAL_ALPHA

    if not places or args.seal is None:
        raise ValueError("write `seal audit RUNS --seal PRIVATE`, with the output folders of runs (--log_samples)")
    file = args.output_path and Path(args.output_path)
    if file:
        check_writable(file)
    alpha = USUAL_ALPHA if args.alpha is None else args.alpha
    audit = seal_audit(places, Path(args.seal), alpha)
    if file:
        atomic_write(file, as_json(as_seal_record(audit), indent=1) + "\n")
    say(as_table(audit))
    for verdict in audit.verdicts:
        for remark in remarks(verdict):
            note(f"note: {verdict.model}: {remark}")
    note(ledger_report(audit.ledger))
    print_problems([("", problem) for problem in audit.problems])
    print_problems([(verdict.model, problem) for verdict in audit.verdicts for problem in verdict.problems])


def _without_bars() -> None:
    """Turn off progress bars: local files are read in a moment, and bars would stand between the sentences."""
    import datasets

    datasets.disable_progress_bars()


OF_SEALS: Mapping[str, Callable[[argparse.Namespace, Sequence[Path]], None]] = {"verify": _verify, "audit": _audit}
