"""The pages in a browser: what their script does, and that they ask for nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lm_eval_leakage.results import page
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.stats.pooling import Estimate
from tests.report.browsing import needs_browser, open_all_details, width_is, written
from tests.report.made import OF_WORD, annotation, answered, audited, row
from tests.report.test_reading import COMMAND, MOST_WORDS, two_verdicts

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

EVIL = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
NAMES = ["m", "m_a", "m_b", "m_c"]
RATES = [0.3, 0.5, float("nan"), 0.1]

pytestmark = needs_browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """60 flagged questions, of which 7 of chemistry; one has hostile text, one a long one."""
    flagged = [audited(i, margin=60.0 - i, subject="chemistry" if i % 9 == 0 else "anatomy") for i in range(60)]
    flagged[0] = audited(0, margin=90.0, subject="chemistry", question=EVIL, options=(EVIL, "b", "c", "d"))
    flagged[1] = audited(1, margin=80.0, n_orders=120, question="long " * 1000)
    rows = [
        row(
            name,
            "group" if name == "m" else "task",
            flagged_rate=Estimate(rate, 0.01),
            verdict=OF_WORD["evidence"],
            group="" if name == "m" else "m",
        )
        for name, rate in zip(NAMES, RATES, strict=True)
    ]
    questions = tuple(answered(row, 1.0, "m_a") for row in flagged)
    long_name = "organisation/" + "a-very-long-name-" * 4
    made = annotation(*flagged, rows=tuple(rows), questions=questions, model=long_name)
    return written(tmp_path_factory.mktemp("report"), page.render_page([made]))


def find(browser: Any, selector: str) -> Any:
    return browser.find_element(By.CSS_SELECTOR, selector)


def find_all(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements(By.CSS_SELECTOR, selector))


def opened(browser: Any, place: int) -> Any:
    """Return the question at that place of the list, when its body is there: browsers report an opening a little
    later."""
    item = find_all(browser, ".questions > li")[place]
    item.find_element(By.TAG_NAME, "summary").click()
    WebDriverWait(browser, 10).until(lambda _: item.find_elements(By.CSS_SELECTOR, ".body"))
    return item


def unfolded(browser: Any, place: str) -> None:
    """The page with everything unfolded but the questions."""
    browser.get(place)
    open_all_details(browser)


def tasks_shown(browser: Any) -> list[str]:
    heads = find_all(browser, "#rows tbody tr:not([hidden]) > th .value")
    return [head.get_attribute("textContent") for head in heads]


def requested(browser: Any) -> set[str]:
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}


def test_the_page_says_nothing_on_the_console_and_asks_for_nothing(browser, report) -> None:
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(report)
    for place in range(3):
        opened(browser, place)
    assert browser.get_log("browser") == []
    assert {url for url in requested(browser) if url != "data:,"} == {report}
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_a_head_sorts_by_mouse_up_down_and_back(browser, report) -> None:
    unfolded(browser, report)
    (head,) = [
        th for th in find_all(browser, "#rows thead th") if th.text.startswith("flagged") and "guard" not in th.text
    ]
    button = head.find_element(By.TAG_NAME, "button")
    assert tasks_shown(browser) == NAMES
    orders = []
    for way in ("ascending", "descending", "none"):
        button.click()
        assert head.get_attribute("aria-sort") == way
        orders.append(tasks_shown(browser))
    # the undefined one is last both ways
    assert orders == [["m_c", "m", "m_a", "m_b"], ["m_a", "m", "m_c", "m_b"], NAMES]


def test_rows_are_filtered_by_text_and_level_and_counted_aloud(browser, report) -> None:
    unfolded(browser, report)
    status = find(browser, "#rows .shown")
    assert status.get_attribute("role") == "status"
    assert status.text == "4 of 4 rows shown"
    find(browser, "#rows .level option[value=task]").click()
    assert tasks_shown(browser) == NAMES[1:]
    find(browser, "#rows .filter").send_keys("M_B")
    assert (tasks_shown(browser), status.text) == (["m_b"], "1 of 4 rows shown")


def test_questions_come_a_few_then_10_at_a_time_and_the_first_new_one_has_the_focus(browser, report) -> None:
    browser.get(report)
    more = find(browser, ".more")
    counts = []
    while more.is_displayed():
        counts.append(len(find_all(browser, ".questions > li")))
        more.send_keys(Keys.ENTER)
        assert browser.switch_to.active_element.text.startswith(f"score\n{60 - counts[-1]}.000")
    assert [*counts, len(find_all(browser, ".questions > li"))] == [6, 16, 26, 36, 46, 56, 60]


def test_questions_are_filtered_by_text_and_subject_and_counted_aloud(browser, report) -> None:
    browser.get(report)
    status = find(browser, ".flagged .shown")
    assert status.text == "60 of 60 questions"
    find(browser, ".flagged .subject option[value='mmlu/chemistry']").click()
    assert status.text == "7 of 60 questions"
    find(browser, ".flagged .filter").send_keys("question 5")
    # of 0, 9, 18, 27, 36, 45 and 54
    assert status.text == "1 of 60 questions"
    assert len(find_all(browser, ".questions > li")) == 1


def test_a_question_is_text_and_its_answer_is_marked_in_words(browser, report) -> None:
    browser.get(report)
    title = browser.title
    opened(browser, 0)
    assert find(browser, ".questions .whole").text == EVIL
    assert find(browser, ".questions .answer").text.split() == ["B.", "b", "✓", "answer"]
    assert find(browser, ".questions .facts").text == "In the run: answered correctly in m_a."
    assert browser.title == title


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_the_page_is_never_wider_than_the_window(browser, report, width) -> None:
    width_is(browser, width)
    browser.get(report)
    for place in range(2):
        opened(browser, place)
    for details in find_all(browser, "details:not([open])"):
        browser.execute_script("arguments[0].open = true", details)
    scroll, client = browser.execute_script(
        "const root = document.documentElement; return [root.scrollWidth, root.clientWidth]"
    )
    width_is(browser, 1280)
    assert scroll <= client
    assert client <= width


TARGETS = """
  const every = [...document.querySelectorAll('a, button, summary, input, select')];
  const shown = every.filter((one) => one.checkVisibility() && !one.matches('.skip'));
  const size = (one) => one.getBoundingClientRect();
  const small = shown.filter((one) => Math.min(size(one).width, size(one).height) < 24);
  return [shown.length, small.map((one) => one.outerHTML.slice(0, 200))];
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_every_target_of_a_click_is_24_pixels_wide_and_high(browser, report, width) -> None:
    width_is(browser, width)
    unfolded(browser, report)
    n_shown, small = browser.execute_script(TARGETS)
    width_is(browser, 1280)
    assert n_shown > 40
    assert small == []


def of_one_benchmark(model: str) -> Annotation:
    """Return an inconclusive verdict with 20 flagged questions."""
    whole = two_verdicts()
    return replace(whole, model=model, rows=tuple(replace(row, model=model) for row in whole.rows[:1]))


N_WORDS = """
  const [range, walker] = [document.createRange(), document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)];
  let n = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode;
    range.selectNodeContents(text);
    const isShown = text.parentElement.checkVisibility() && range.getClientRects().length;
    const isRead = isShown && !text.parentElement.closest('.unseen, .skip, title, option');
    if (isRead) n += text.data.split(/\\s+/).filter(Boolean).length;
  }
  return n;
"""
TWO_VERDICTS = {
    "two benchmarks": lambda: [two_verdicts()],
    "two models": lambda: [of_one_benchmark("M"), of_one_benchmark("N")],
}


@pytest.mark.parametrize("name", TWO_VERDICTS)
def test_a_page_with_two_verdicts_shows_few_words_with_its_rows_closed(browser, tmp_path, name) -> None:
    browser.get(written(tmp_path, page.render_page(TWO_VERDICTS[name]())))
    assert len(find_all(browser, ".questions > li")) == 6
    assert 400 < browser.execute_script(N_WORDS) <= MOST_WORDS


def test_a_button_copies_its_command(browser, tmp_path) -> None:
    browser.get(written(tmp_path, page.render_page([two_verdicts()])))
    button = find(browser, ".copying")
    browser.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    button.click()
    WebDriverWait(browser, 10).until(lambda _: button.text.startswith("Copied"))
    assert browser.execute_script("return window.copied") == COMMAND


def test_in_print_there_are_no_controls_and_the_charts_are_kept(browser, report) -> None:
    browser.get(report)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    shown = [control.is_displayed() for control in find_all(browser, ".controls, nav, .more")]
    charts = [chart.is_displayed() for chart in find_all(browser, ".chart")]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown
    assert not any(shown)
    assert charts
    assert all(charts)


def test_without_a_script_there_is_a_plain_table_and_a_sentence(browser, report) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(report)
    shown = tasks_shown(browser)
    controls = [control.is_displayed() for control in find_all(browser, ".controls")]
    sentence = find(browser, "noscript").text
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert shown == NAMES
    assert not any(controls)
    assert "This list is drawn by a script." in sentence
