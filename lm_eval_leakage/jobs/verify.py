"""The tables of a campaign, from the logs of the units that are done and nothing else; and what differs from the
manifest and from these tables in its folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs.estimates import CheckedPlan, Impossible
from lm_eval_leakage.jobs.folder import MANIFEST, PLAN, UNIT_FILE, CampaignFolder, digests_of
from lm_eval_leakage.jobs.manifest import IDENTITY_OF_UNIT, differs, identity_of_unit
from lm_eval_leakage.jobs.plan import Unit, as_settings
from lm_eval_leakage.logs.reference_log import ANNOTATED
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.leaderboard import Leaderboard, as_csv, as_markdown, as_page, leaderboard, records
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.texts import as_json

PROBLEMS_SAID = 5
TABLE_FILES = ("leaderboard.html", "leaderboard.json", "leaderboard.csv", "leaderboard.md")


def annotations_of(folder: CampaignFolder) -> list[Annotation]:
    return annotate([folder.runs]) if any(folder.runs.glob("*/*/*/*")) else []


def board_of(folder: CampaignFolder) -> Leaderboard | None:
    """None if no unit is done. Files are named relative to the folder, so that it may be moved."""
    found = annotations_of(folder)
    if not found:
        return None
    board = leaderboard(found)
    problems = [
        replace(one, file=one.file.relative_to(folder.path))
        if one.file is not None and one.file.is_relative_to(folder.path)
        else one
        for one in board.problems
    ]
    return replace(board, problems=tuple(problems))


def tables_of(board: Leaderboard) -> Mapping[str, str]:
    """The texts of the tables, by file name."""
    problems = [str(problem) for problem in board.problems]
    as_object = {"rows": records(board), "detectors": list(board.detectors), "problems": problems}
    texts = (as_page(board), as_json(as_object, indent=1), as_csv(board), as_markdown(board))
    return {name: f"{text.rstrip()}\n" for name, text in zip(TABLE_FILES, texts, strict=True)}


def write_tables(folder: CampaignFolder, say: Callable[[str], object]) -> list[Path]:
    """Writes the tables into the campaign's folder; nothing if no unit is done.

    say: called with what could not be read or judged, of which the tables have all
    """
    board = board_of(folder)
    if board is None:
        return []
    for name, text in tables_of(board).items():
        atomic_write(folder.path / name, text)
    for problem in board.problems[:PROBLEMS_SAID]:
        say(f"note: {problem}")
    if (more := len(board.problems) - PROBLEMS_SAID) > 0:
        say(f"note: and {more} more, which the page lists")
    return [folder.path / name for name in TABLE_FILES]


@dataclass(frozen=True)
class Verification:
    """n_units: of the manifest; n_files: of these units; found: what differs, a sentence each"""

    n_units: int
    n_files: int
    found: tuple[str, ...]


def verify(folder: CampaignFolder) -> Verification:
    """Everything in `runs` is compared with the manifest, the manifest with the plan, and the tables are computed
    again from the logs. The manifest itself is taken as it is: whoever can write the folder can write it, too.

    Raises ValueError if there is no campaign in the folder.
    """
    manifest = folder.manifest()
    if not manifest:
        raise ValueError(f"{folder.path} has no {MANIFEST}; name the folder of a campaign")
    told: Mapping[str, Mapping[str, Any]] = manifest.get("units") or {}
    found = [*_of_plan(folder, manifest), *_unknown(folder, told)]
    for name, unit in sorted(told.items()):
        found += _of_model(folder, Unit.of_id(name), unit, manifest.get("models") or {})
        found += _of_unit(folder.runs / name, unit["files"])
    n_files = sum(len(unit["files"]) for unit in told.values())
    return Verification(len(told), n_files, (*found, *_of_tables(folder)))


def _of_plan(folder: CampaignFolder, manifest: Mapping[str, Any]) -> Iterator[str]:
    try:
        plan = folder.plan
    except (OSError, ValueError) as error:
        yield f"{folder.path / PLAN} cannot be read ({error})"
        return
    told = manifest.get("plan") or {}
    if as_settings(plan) | {"output_path": ""} != told | {"output_path": ""}:  # a campaign may be moved
        yield f"{folder.path / PLAN} is not the plan of the manifest"
    units = CheckedPlan(plan, tuple(Impossible(**one) for one in manifest.get("impossible") or ())).units()
    known = {*(manifest.get("units") or {}), *(one.unit.id for one in folder.failed(units) if not one.ok)}
    for unit in units:
        if unit.id not in known:
            yield f"{unit.id} is in the plan, but not in the manifest: it is not done, or the campaign was interrupted"


def _unknown(folder: CampaignFolder, told: Collection[str]) -> Iterator[str]:
    """Whatever is in `runs` beside the units of the manifest, at any depth: the tables would include it. A folder that
    leads to no unit is named once."""
    units = {folder.runs / name for name in told}
    leading = {folder.runs, *(parent for unit in units for parent in unit.parents)}
    left = [folder.runs]
    while left:
        place = left.pop()
        if place in leading:
            left += sorted(place.iterdir(), reverse=True) if place.is_dir() else ()
        elif place not in units:
            yield (
                f"{place} is not in the manifest; remove it if this campaign did not make it, else continue the "
                "campaign, which adds it"
            )


def _of_model(
    folder: CampaignFolder, unit: Unit, told: Mapping[str, Any], models: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    attested = told.get(IDENTITY_OF_UNIT) or {}
    if difference := differs(attested, models.get(unit.model) or {}):
        yield f"{unit.id} is not of the manifest's {unit.model}: {difference}"
    elif folder.done(unit) and attested != identity_of_unit(folder, unit):
        yield f"{unit.id} names another model in its {UNIT_FILE} than in the manifest"


def _of_unit(place: Path, told: Mapping[str, str]) -> Iterator[str]:
    if not place.is_dir():
        yield f"{place} is gone"
        return
    now = digests_of(place)
    for name in dict.fromkeys([*told, *now]):
        if name not in now:
            yield f"{place / name} is gone"
        elif name not in told:
            if not Path(name).stem.endswith(ANNOTATED):  # a copy by `annotate`, which nothing reads
                yield f"{place / name} was added after the unit was complete"
        elif told[name] != now[name]:
            yield f"{place / name} was changed after the unit was complete"


def _of_tables(folder: CampaignFolder) -> Iterator[str]:
    board = board_of(folder)
    for name, text in tables_of(board).items() if board is not None else ():
        file = folder.path / name
        if not file.is_file():
            yield f"{file} is missing; the logs give one"
        elif (saved := file.read_text(encoding="utf-8")) != text:
            yield f"{file} differs from what the logs give{_first_difference(saved, text)}"


def _first_difference(saved: str, computed: str) -> str:
    for number, (one, other) in enumerate(zip(saved.splitlines(), computed.splitlines(), strict=False), 1):
        if one != other:
            return f", first in line {number}: it has {one[:80]!r} instead of {other[:80]!r}"
    return ", in its length"
