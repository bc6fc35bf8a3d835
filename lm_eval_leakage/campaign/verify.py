"""Compares a campaign's folder with its manifest and its tables with the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.campaign.campaign_folder import MANIFEST, UNIT_FILE, CampaignFolder
from lm_eval_leakage.campaign.campaign_tables import board_of, tables_of
from lm_eval_leakage.campaign.digests import digests_of
from lm_eval_leakage.campaign.units import Unit
from lm_eval_leakage.logs.reference_log import ANNOTATED


@dataclass(frozen=True)
class Verification:
    """n_units: that are done; n_files: that were compared; found: what differs, a sentence each"""

    n_units: int
    n_files: int
    found: tuple[str, ...]


def verify(folder: CampaignFolder) -> Verification:
    """Digests of all files are compared with the manifest's, and the tables are computed again from the logs.

    Raises ValueError if there is no campaign in the folder.
    """
    manifest = folder.manifest()
    if not manifest:
        raise ValueError(f"{folder.path} has no {MANIFEST}; name the folder of a campaign")
    told: Mapping[str, Mapping[str, Mapping[str, str]]] = manifest.get("units") or {}
    there = {str(place.relative_to(folder.runs)) for place in folder.runs.glob("*/*/*/*") if place.is_dir()}
    found = [f"{name}: its files are gone" for name in sorted(told.keys() - there)]
    n_files = 0
    for name in sorted(there):
        own = told[name]["files"] if name in told else folder.unit_file(Unit.of_id(name)).get("files") or {}
        n_files += len(own)
        found += _of_unit(folder, Unit.of_id(name), own)
    return Verification(len(there), n_files, (*found, *_of_tables(folder)))


def _of_unit(folder: CampaignFolder, unit: Unit, told: Mapping[str, str]) -> Iterator[str]:
    place = folder.run_of(unit)
    now = {name: digest for name, digest in digests_of(place).items() if name != UNIT_FILE}
    for name in dict.fromkeys([*told, *now]):
        if name not in now:
            yield f"{place / name} is gone"
        elif name not in told and Path(name).stem.endswith(ANNOTATED):
            continue  # a copy by `annotate`, which nothing reads
        elif name not in told:
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
