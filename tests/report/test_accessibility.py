"""What axe-core, a checker of the Web Content Accessibility Guidelines, finds on the pages, everything unfolded."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results import page
from lm_eval_leakage.results.detector_values import DetectorValue
from lm_eval_leakage.results.leaderboard import as_page, leaderboard
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.stats.pooling import Estimate
from tests.report.browsing import needs_browser, open_all_details, scheme_is, width_is, written
from tests.report.made import HALF, OF_WORD, annotation, answered, audited, row

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python, which carries axe-core, is not installed")
pytestmark = needs_browser

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
RUN = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
LONG = "organisation/" + "a-very-long-name-" * 4


def two_models() -> list[Annotation]:
    """Every part of a page, twice: verdicts of each kind, groups, choice confusion, other detectors, problems."""
    orders = OrderAnswers((), "written", control=(-10.0, *[-9.0] * 3, *[-12.0] * 20))
    questions = [audited(i, rank=1 + i % 4, margin=3.0 - i % 4, orders=orders) for i in range(12)]
    questions += [audited(i, rank=1 + i % 4, benchmark="t1") for i in range(12, 24)]
    arms = {"accuracy_original": Estimate(0.4, 0.02, 0.36, 0.44), "accuracy_generalized": HALF}
    other = DetectorValue("published_rotation", "flagged_rate", 9, HALF, 0.25, 0.5)
    rows = [row(f"t{i}", verdict=verdict, **arms) for i, verdict in enumerate(OF_WORD.values())]
    rows += [row("g", "group", others=(other,)), row("g_a", group="g")]
    return [
        annotation(
            *questions,
            rows=tuple(replace(question, model=model) for question in rows),
            questions=tuple(answered(question, 1.0) for question in questions),
            model=model,
            problems=(Problem("a log ends early.", Path("samples.jsonl")),),
            origins={"lm_eval": ["0.4.13"]},
        )
        for model in ("M", LONG)
    ]


PAGES = {
    "report": lambda: page.render_page(two_models()),
    "report of one model": lambda: page.render_page([annotation(*[audited(i) for i in range(12)])]),
    "report without audits": lambda: page.render_page([annotation(rows=(replace(row(), values={}, n_tested=0),))]),
    "leaderboard": lambda: as_page(leaderboard(two_models())),
}


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious_at_any_width_in_light_and_in_dark(browser, tmp_path, name) -> None:
    place = written(tmp_path, PAGES[name]())
    violations = {}
    for width in (360, 1280, 1920):
        for scheme in ("light", "dark"):
            width_is(browser, width)
            scheme_is(browser, scheme)
            browser.get(place)
            open_all_details(browser)
            browser.execute_script(AXE)
            result = browser.execute_async_script(RUN)
            assert result["testEngine"]["name"] == "axe-core"
            assert len(result["passes"]) > 20
            violations[width, scheme] = [
                f"{violation['impact']}: {violation['help']}: {violation['nodes'][0]['html'][:200]}"
                for violation in result["violations"]
            ]
    width_is(browser, 1280)
    scheme_is(browser, "")
    assert not any(violations.values()), violations


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("name", ["report", "leaderboard"])
def test_the_first_table_fits_its_window(browser, tmp_path, name, width) -> None:
    width_is(browser, width)
    browser.get(written(tmp_path, PAGES[name]()))
    script = "const box = document.querySelector('.scroll'); return [box.scrollWidth, box.clientWidth]"
    scroll, client = browser.execute_script(script)
    cue = browser.execute_script("return document.querySelector('.cue').hidden")
    width_is(browser, 1280)
    assert scroll <= client
    assert cue


def test_no_name_in_a_plot_touches_another_text_or_a_grid_line(browser, tmp_path) -> None:
    browser.get(written(tmp_path, PAGES["report"]()))
    overlaps = browser.execute_script("""
      const drawing = document.querySelector('.comparison svg');
      const boxes = (selector) => [...drawing.querySelectorAll(selector)].map((one) => one.getBoundingClientRect());
      const touch = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      const texts = boxes('text');
      const pairs = texts.flatMap((one, i) => texts.slice(i + 1).map((other) => [one, other]));
      const lines = texts.flatMap((one) => boxes('.grid').map((other) => [one, other]));
      return [texts.length, pairs.concat(lines).filter(([a, b]) => touch(a, b)).length];
    """)
    assert overlaps[0] > 16
    assert overlaps[1] == 0
