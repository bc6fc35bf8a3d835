"""What earlier checks into the same folder have to say to later ones, in `check.json`: the page shows all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.texts import as_json

MEMORY = "check.json"


@dataclass(frozen=True)
class CheckMemory:
    """files: results files of given runs; references: folders; calibrations: files, by model
    checked: by model, its tasks with the reason why option orders cannot be audited, empty if they can
    """

    files: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    calibrations: Mapping[str, str] = field(default_factory=dict)
    checked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def with_check(
        self, model: str, reasons: Mapping[str, str], files: tuple[Path, ...], reference: Path | None
    ) -> CheckMemory:
        references = () if reference is None else (str(reference.resolve()),)
        return replace(
            self,
            files=tuple(dict.fromkeys([*self.files, *(str(file.resolve()) for file in files)])),
            references=tuple(dict.fromkeys([*self.references, *references])),
            checked={**self.checked, model: {**self.checked.get(model, {}), **reasons}},
        )

    def with_calibration(self, model: str, file: Path) -> CheckMemory:
        return replace(self, calibrations={**self.calibrations, model: str(file.resolve())})


def read_memory(folder: Path) -> CheckMemory:
    """Nothing if there is no file or it cannot be read; places that no longer exist are left out."""
    try:
        found = json.loads((folder / MEMORY).read_text(encoding="utf-8"))
        memory = CheckMemory(**found)
        return replace(
            memory,
            files=tuple(file for file in memory.files if Path(file).is_file()),
            references=tuple(place for place in memory.references if Path(place).exists()),
            calibrations={model: file for model, file in memory.calibrations.items() if Path(file).is_file()},
        )
    except (OSError, ValueError, TypeError, AttributeError):
        return CheckMemory()


def write_memory(memory: CheckMemory, folder: Path) -> None:
    atomic_write(folder / MEMORY, as_json(asdict(memory), indent=1))
