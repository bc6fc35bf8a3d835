"""Commitments bind key and every version, and anybody can recompute them from the documentation."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from hypothesis import given, settings

from lm_eval_leakage.seal.drawn import canonical_json, commitment_of, digest_of_public, public_rows
from lm_eval_leakage.seal.folders import private_files
from tests.docs.pages import ROOT, blocks
from tests.sealing.made import KEY, TOOL, numbered, original, seal_of, some_originals

ORIGINALS = [*numbered(3), original(wordings=("Another?", "A third?"), answers=(0, 1), subject="maths")]


def documented() -> dict[str, object]:
    """What the programs on the page for authors define."""
    found: dict[str, object] = {"__name__": "documented"}
    for block in blocks(ROOT / "docs" / "howto" / "seal.md"):
        if block.language == "python":
            exec(block.text, found)
    return found


DOCUMENTED = documented()


def write(folder: Path, originals) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in private_files(seal_of(originals), originals).items():
        (folder / name).write_bytes(content)


@given(some_originals())
@settings(max_examples=15)
def test_the_documented_programs_compute_what_is_published(tmp_path_factory, originals) -> None:
    folder = tmp_path_factory.mktemp("private")
    originals = [*originals, original("Held out?", order="held out")]
    write(folder, originals)
    seal = seal_of(originals)
    assert DOCUMENTED["commitment"](folder) == seal.commitment
    without_subjects = [{**row, "subject": ""} for row in public_rows(seal.questions)]
    assert [{**row, "subject": ""} for row in DOCUMENTED["public_rows"](folder)] == without_subjects


def test_a_commitment_is_a_hash_of_a_text_that_has_the_whole_key() -> None:
    row = {"question": "Q?", "wordings": [], "choices": ["a", "b"], "answers": [1], "subject": "", "order": "drawn"}
    held = row | {"question": "H?", "order": "held out"}
    content = {"format": 2, "tool": TOOL, "name": "mine", "key": KEY.hex(), "questions": [row], "held_out": [held]}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    originals = [original(one["question"], "ab", answers=(1,), order=one["order"]) for one in (held, row)]
    assert commitment_of("mine", TOOL, KEY, originals) == sha256(text.encode()).hexdigest()


def test_canonical_json_is_ascii_whatever_the_order_of_keys() -> None:
    assert canonical_json({"b": "ö\u2028", "a": [1]}) == b'{"a":[1],"b":"\\u00f6\\u2028"}'


def test_the_public_digest_is_of_the_rows_not_of_their_file() -> None:
    rows = public_rows(seal_of(ORIGINALS).questions)
    assert digest_of_public(rows) == digest_of_public([dict(reversed(row.items())) for row in rows])
    assert digest_of_public(rows) != digest_of_public(rows[::-1])
