"""Exported verdicts are valid by the schema, library or rules of each format, and say what the verdict says."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from jsonschema import Draft7Validator

from lm_eval_leakage.results.exports import COLOURS, EXPORTS, SCHEMA_VERSION, exported
from lm_eval_leakage.results.provenance import Provenance
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.verdict import NOT_AUDITED, VerdictWord
from lm_eval_leakage.results.verdict_texts import sentence_to_copy
from lm_eval_leakage.results.verdict_words import word_with_aim
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from tests.report.made import OF_WORD, row

SCHEMA = json.loads((Path(__file__).parent / "every_eval_ever" / "eval.schema.json").read_text())
SVG = "{http://www.w3.org/2000/svg}"
NOW = datetime(2026, 11, 23, 22, 2, 48, tzinfo=timezone.utc)
MADE = Provenance(
    "org/m", "revision 93efa2f", "hf", 7, "0.4.13", "2026-11-22", "org/m", "1a2b3c4d", "allenai/ai2_arc", "ARC-Easy"
)
# as its validator has it: four folders, of which only the first is `data`, and a random (version 4) UUID
PLACE = re.compile(
    r"data/(?!data/)[^/]+/(?!data/)[^/]+/(?!data/)[^/]+/"
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.json"
)
NOT_PORTABLE = re.compile(r'[<>:"\\|?*\x00-\x1f]')
HOSTILE = "\"><script>alert('&')</script>\x1b]0;\ud800]]>"


def exported_row(word: str = VerdictWord.NONE_FOUND, **changes: Any) -> Row:
    return row("arc_easy", verdict=OF_WORD[word], **{"provenance": MADE, **changes})


def file_of(row_of_task: Row, name: str) -> tuple[str, str]:
    """Return the path below the folder of the format, and the text."""
    texts, left_out = exported([row_of_task], [name], NOW)
    assert not left_out
    ((path, text),) = texts.items()
    return path.removeprefix(f"{name}/"), text


def record_of(row_of_task: Row) -> dict[str, Any]:
    record = json.loads(file_of(row_of_task, "every-eval-ever")[1])
    Draft7Validator(SCHEMA).validate(record)
    return record


# ---------------------------------------------------------------------- Every Eval Ever


def test_the_schema_that_records_are_validated_by_is_the_version_that_they_name() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["version"] == SCHEMA_VERSION
    broken = record_of(exported_row())
    del broken["evaluation_results"][0]["score_details"]["score"]
    assert [error.validator for error in Draft7Validator(SCHEMA).iter_errors(broken)] == ["required"]


@pytest.mark.parametrize("word", VerdictWord)
def test_a_record_with_any_verdict_is_valid_and_has_verdict_and_sentence(word: str) -> None:
    row_of_task = exported_row(word)
    record = record_of(row_of_task)
    (result,) = record["evaluation_results"]
    details = result["score_details"]["details"]
    assert details["leakage_word"] == word
    assert details["leakage_citation"] == sentence_to_copy(row_of_task)
    assert ("leakage_pvalue_adjusted" in details) == (word != VerdictWord.NO_VERDICT)


def test_a_record_names_model_data_set_and_versions_and_what_nobody_knows_is_unknown() -> None:
    record = record_of(exported_row())
    assert record["evaluation_id"] == "arc_easy/org/m/1795471368.0" == f"arc_easy/org/m/{NOW.timestamp()}"
    assert (record["evaluation_timestamp"], record["model_info"]["id"]) == ("2026-11-22", "org/m")
    assert record["model_info"]["additional_details"]["deployment_type"] == "self_deployed"
    assert record["source_metadata"]["source_organization_name"] == "unknown"
    assert record["evaluation_results"][0]["source_data"] == {
        "dataset_name": "arc_easy",
        "source_type": "hf_dataset",
        "hf_repo": "allenai/ai2_arc",
        "additional_details": {"config": "ARC-Easy", "digest": "1a2b3c4d"},
    }
    bare = record_of(exported_row(provenance=Provenance(), accuracy=Estimate(0.5), inflation=UNKNOWN))
    assert (bare["model_info"]["id"], bare["eval_library"]["version"]) == ("M", "unknown")
    assert bare["model_info"]["additional_details"]["deployment_type"] == "unknown"
    (result,) = bare["evaluation_results"]
    assert result["source_data"]["source_type"] == "other"
    assert result["score_details"]["uncertainty"] == {"num_samples": 100}
    assert "leakage_inflation" not in result["score_details"]["details"]


@pytest.mark.parametrize(("metric", "name"), [("acc,none", "accuracy"), ("acc_norm,none", "lm_eval.acc_norm")])
def test_only_the_plain_accuracy_has_the_name_that_all_records_share(metric: str, name: str) -> None:
    (result,) = record_of(exported_row(metric=metric))["evaluation_results"]
    assert result["metric_config"]["metric_id"] == name


@pytest.mark.parametrize("name", ["org/m", "/data/models/data", "../..", "data", "a b:c", HOSTILE, "中文/模型", ""])
def test_a_record_is_where_the_data_store_wants_it_whatever_model_and_benchmark_are_called(name: str) -> None:
    row_of_task = exported_row(model=name, provenance=replace(MADE, weights=name))
    for changed in (row_of_task, replace(row_of_task, task=name)):
        place, _ = file_of(changed, "every-eval-ever")
        assert PLACE.fullmatch(place)
        parts = place.split("/")
        assert not any(NOT_PORTABLE.search(part) or part.endswith((".", " ")) or part in (".", "..") for part in parts)


def test_the_record_of_a_model_and_benchmark_is_replaced_and_others_are_other_files() -> None:
    row_of_task = exported_row()
    later = replace(row_of_task, accuracy=UNKNOWN, verdict=OF_WORD[VerdictWord.NO_VERDICT])
    place = EXPORTS["every-eval-ever"].path
    others = [
        replace(row_of_task, n_shot="5"),
        replace(row_of_task, model="N"),
        replace(row_of_task, provenance=replace(MADE, revision="revision 0000000")),
        replace(row_of_task, provenance=replace(MADE, digest="00000000")),
    ]
    assert place(later) == place(row_of_task)
    assert len({place(row_of_task), *map(place, others)}) == 5


# ---------------------------------------------------------------------- the Hugging Face Hub


@pytest.mark.parametrize("word", VerdictWord)
def test_an_entry_for_the_hub_with_any_verdict_is_read_by_its_library(word: str) -> None:
    hub = pytest.importorskip("huggingface_hub")
    if not hasattr(hub, "parse_eval_result_entries"):
        pytest.skip("this huggingface_hub does not know the format")
    row_of_task = exported_row(word)
    path, text = file_of(row_of_task, "hf-eval-results")
    (entry,) = hub.parse_eval_result_entries(yaml.safe_load(text))
    assert path == "M/arc_easy.yaml"
    assert entry == hub.EvalResultEntry(
        "allenai/ai2_arc", "ARC-Easy", 50.0, date="2026-11-22", notes=sentence_to_copy(row_of_task)
    )
    assert hub.eval_result_entries_to_yaml([entry]) == yaml.safe_load(text)


def test_a_data_set_without_a_configuration_is_known_to_the_hub_by_the_tasks_name() -> None:
    _, text = file_of(exported_row(provenance=replace(MADE, config="")), "hf-eval-results")
    assert yaml.safe_load(text)[0]["dataset"] == {"id": "allenai/ai2_arc", "task_id": "arc_easy"}


# ---------------------------------------------------------------------- what is left out


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"provenance": replace(MADE, dataset="")}, "hf-eval-results", "its questions are not of a data set that"),
        ({"accuracy": UNKNOWN}, "hf-eval-results", "it has no accuracy, and the format is one of scores"),
        ({"accuracy": UNKNOWN}, "every-eval-ever", "it has no accuracy, and the format is one of scores"),
        ({"metric": "brier_score,none"}, "every-eval-ever", "brier_score,none is not an accuracy, so it"),
        ({"verdict": NOT_AUDITED}, "badge", "it has no verdict"),
    ],
)
def test_what_a_format_cannot_say_is_left_out_with_the_reason(changes, name: str, reason: str) -> None:
    row_of_task = replace(exported_row(), **changes)
    texts, (sentence,) = exported([row_of_task], [name], NOW)
    assert not texts
    assert sentence.startswith(f"{name} leaves out M on arc_easy: {reason}")


def test_no_file_is_written_over_by_that_of_another_benchmark() -> None:
    first, second = (replace(exported_row(), task=name) for name in ("a b", "a_b"))
    texts, (sentence,) = exported([first, second], ["badge"], NOW)
    assert "leakage of a b:" in texts["badge/M/a_b.svg"]
    assert sentence == "badge leaves out M on a_b: badge/M/a_b.svg is the file of another one"


# ---------------------------------------------------------------------- badges


@pytest.mark.parametrize("word", VerdictWord)
def test_a_badge_shows_its_word_within_its_half_and_says_it_to_who_cannot_see(word: str) -> None:
    path, text = file_of(exported_row(word), "badge")
    badge = ElementTree.fromstring(text)
    shown = word_with_aim(word, 0.25)
    name = f"Check of M for leakage of arc_easy: {shown}"
    assert path == "M/arc_easy.svg"
    assert (badge.get("role"), badge.get("aria-label"), badge.findtext(f"{SVG}title")) == ("img", name, name)
    border, whole = (float(re.match(r"M(\d+)", badge.find(f"{SVG}path").get("d"))[1]), float(badge.get("width")))
    texts = list(badge.iter(f"{SVG}text"))
    assert [element.text for element in texts] == ["leakage", shown]
    for element, start, end in zip(texts, (0.0, border), (border, whole), strict=True):
        left, length = float(element.get("x")), float(element.get("textLength"))
        assert start < left < left + length < end
        assert length >= 6 * len(element.text)
    assert "href" not in text  # it needs nothing from elsewhere


def luminance(colour: str) -> float:
    """Return the luminance of a colour as #rrggbb, as the accessibility guidelines (WCAG 2) define it."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else math.pow((share + 0.055) / 1.055, 2.4) for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_white_texts_can_be_read_on_every_colour() -> None:
    assert set(COLOURS) == set(VerdictWord)
    assert all(1.05 / (luminance(colour) + 0.05) >= 4.5 for colour in (*COLOURS.values(), "#3a414a"))


def test_no_name_breaks_out_of_a_badge() -> None:
    badge = ElementTree.fromstring(file_of(exported_row(model=HOSTILE), "badge")[1])
    assert {element.tag.removeprefix(SVG) for element in badge.iter()} == {"svg", "title", "rect", "path", "g", "text"}
    assert "<script>alert('&')</script>\\x1b]0;\\ud800]]>" in badge.get("aria-label")
