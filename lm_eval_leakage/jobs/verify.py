"""What differs in the folder of a plan from its manifest, and from the verdicts and tables that its logs give."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.jobs.estimates import CheckedPlan
from lm_eval_leakage.jobs.folder import MANIFEST, PLAN, UNIT_FILE, CampaignFolder, digests_of
from lm_eval_leakage.jobs.manifest import IDENTITY_OF_UNIT, differs, identity_of_unit
from lm_eval_leakage.jobs.outcome import TABLE_FILES, VERDICTS, CheckedTask, conclude, texts_of
from lm_eval_leakage.jobs.plan import Unit, as_settings
from lm_eval_leakage.logs.run import ANNOTATED


@dataclass(frozen=True)
class Verification:
    """n_units: of the manifest; n_files: of these units; found: what differs, a sentence each"""

    n_units: int
    n_files: int
    found: tuple[str, ...]


def verify(folder: CampaignFolder) -> Verification:
    """Every unit that is done is compared with the manifest, the manifest with the plan, and verdicts and tables with
    the logs. The manifest itself is taken as it is: whoever can write the folder can write it, too.

    Raises ValueError if there is no campaign in the folder.
    """
    manifest = folder.manifest()
    if not manifest:
        raise ValueError(f"{folder.path} has no {MANIFEST}; name the folder of a campaign")
    told: Mapping[str, Mapping[str, Any]] = manifest.get("units") or {}
    found = [*_of_plan(folder, manifest), *_unknown(folder, told)]
    for name, unit in sorted(told.items()):
        found += _of_model(folder, Unit.of_id(name), unit, manifest.get("models") or {})
        found += _of_unit(folder.run_of(Unit.of_id(name)), unit["files"])
    n_files = sum(len(unit["files"]) for unit in told.values())
    return Verification(len(told), n_files, (*found, *_of_verdicts(folder)))


def _of_plan(folder: CampaignFolder, manifest: Mapping[str, Any]) -> Iterator[str]:
    try:
        plan = folder.plan
    except (OSError, ValueError) as error:
        yield f"{folder.path / PLAN} cannot be read ({error})"
        return
    told = manifest.get("plan") or {}
    if as_settings(plan) | {"output_path": ""} != told | {"output_path": ""}:  # a campaign may be moved
        yield f"{folder.path / PLAN} is not the plan of the manifest"
    units = CheckedPlan.of(folder).units()
    known = {*(manifest.get("units") or {}), *(one.unit.id for one in folder.failed(units) if not one.ok)}
    for unit in units:
        if unit.id not in known:
            yield f"{unit.id} is in the plan, but not in the manifest: it is not done, or the campaign was interrupted"


def _unknown(folder: CampaignFolder, told: Collection[str]) -> Iterator[str]:
    """Whatever is in the rooms beside the units of the manifest, at any depth. A folder that leads to no unit is named
    once."""
    units = {folder.run_of(Unit.of_id(name)) for name in told}
    leading = {*folder.rooms, *(parent for unit in units for parent in unit.parents)}
    left = folder.rooms
    while left:
        place = left.pop()
        if place in leading:
            left += sorted(place.iterdir(), reverse=True) if place.is_dir() else ()
        elif place not in units:
            yield (
                f"{place} is not in the manifest; remove it if this plan did not make it, else start the plan again, "
                "which adds it"
            )


def _of_model(
    folder: CampaignFolder, unit: Unit, told: Mapping[str, Any], models: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    attested = told.get(IDENTITY_OF_UNIT) or {}
    if folder.done(unit) and not folder.was_asked(unit):
        return
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


def _of_verdicts(folder: CampaignFolder) -> Iterator[str]:
    """Of the last command. Remedies name the folder, which may have been moved, and times are their own."""
    try:
        prepared = CheckedPlan.of(folder)
        saved = json.loads((folder.path / VERDICTS).read_text(encoding="utf-8"))["verdicts"]
        known = [replace(CheckedTask(**record), summary="") for record in saved]
    except (OSError, ValueError, TypeError, KeyError) as error:
        yield f"{folder.path / VERDICTS} or {PLAN} cannot be read ({error})"
        return
    lost = {attempt.unit: attempt for attempt in folder.failed(prepared.units())}
    outcome = conclude(prepared.plan, prepared, folder, lost, keep=False)
    given = [replace(one, summary="") for one in outcome.verdicts]
    for one in known:
        if one not in given:
            yield f"{folder.path / VERDICTS} differs from what the logs give: its verdict on {one.model}, {one.task}"
    texts = texts_of(outcome)
    for name in (name for name in texts if name in TABLE_FILES):
        file = folder.path / name
        if not file.is_file():
            yield f"{file} is missing; the logs give one"
        elif (read := file.read_text(encoding="utf-8")) != texts[name]:
            yield f"{file} differs from what the logs give{_first_difference(read, texts[name])}"


def _first_difference(saved: str, computed: str) -> str:
    for number, (one, other) in enumerate(zip(saved.splitlines(), computed.splitlines(), strict=False), 1):
        if one != other:
            return f", first in line {number}: it has {one[:80]!r} instead of {other[:80]!r}"
    return ", in its length"
