"""The report in a real browser."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from chromium import NEEDS_CHROMIUM, Browser
from report_rows import HOSTILE, PIXEL, make_rows

from driftnorm.bench.rows import save_rows
from driftnorm.views.report.page import make_report

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with rows, their images, and a run; hostile names in all."""
    folder = tmp_path_factory.mktemp("report")
    rows = make_rows(("source", "bn", f"tent:note={HOSTILE}"))
    shown = [replace(row, metrics={**row.metrics, "exhibits": "key"}) for row in rows]
    save_rows(shown, folder / "rows.jsonl")
    few = len(rows[0].metrics["answers"])
    kept = {"classes": [HOSTILE] * 4, "names": [HOSTILE] * few, "labels": [0] * few}
    (folder / "exhibits").mkdir()
    (folder / "exhibits" / "key.json").write_text(json.dumps({**kept, "images": [PIXEL] * few}))
    run = {
        "method": "gprebn",
        "data": HOSTILE,
        "entropy": {"source": [1.0, 1.1, 1.2], "adapted": [1.0, 0.8, 0.7]},
        "classes": {HOSTILE: 7, "cat": 5},
        "drift": [{"layer": HOSTILE, "mean": 0.5, "max": 2.0}],
        "examples": [{"name": HOSTILE, "source": "cat", "adapted": HOSTILE, "image": PIXEL}],
    }
    (folder / "run.json").write_text(json.dumps(run))
    page = folder / "report.html"
    page.write_text(make_report([folder / "rows.jsonl", folder / "run.json"]), encoding="utf-8")
    return page.as_uri()


@pytest.fixture
def opened(browser: Browser, address: str) -> Browser:
    browser.open(address)
    return browser


def tip(browser: Browser) -> str | None:
    """What the tooltip says, if it is to be seen."""
    return browser.run(
        "document.getElementById('tip').hidden ? null : document.getElementById('tip').textContent"
    )


def column(browser: Browser, number: int) -> list[str]:
    script = f"[...document.querySelectorAll('section table')[0].tBodies[0].rows].map(r => r.cells[{number}].dataset.value)"  # noqa: E501
    return list(browser.run(script))


def test_it_opens_quietly_and_asks_nobody(opened: Browser, address: str) -> None:
    assert opened.requests() == [address]
    assert opened.complaints() == []
    widths = opened.run("[...document.images].map(i => i.complete && i.naturalWidth)")
    assert widths == [1] * 13  # twelve of the rows' streams, one of the run


def test_the_policy_lets_no_other_script_run(opened: Browser) -> None:
    opened.run(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'bad = 1'}))"
    )
    assert opened.run("typeof bad") == "undefined"
    assert any("Content Security Policy" in json.dumps(event) for event in opened.complaints())


def test_names_stay_text(opened: Browser) -> None:
    assert opened.run("document.scripts.length") == 1
    assert opened.run("document.body.innerText.includes('<script>alert(1)</script>')")
    assert opened.run("document.querySelectorAll('svg script, svg img, [onerror]').length") == 0
    opened.hover("svg .mark[aria-label*='<script>']")
    assert "<script>alert(1)</script>" in str(tip(opened))
    assert opened.run("document.getElementById('tip').childElementCount") == 0
    assert not any(event["method"] == "Page.javascriptDialogOpening" for event in opened.events)


def test_headings_sort_by_mouse_and_by_keyboard(opened: Browser) -> None:
    head = "section th:nth-child(3)"
    opened.click(f"{head} button")
    values = [float(value) for value in column(opened, 2)]
    assert values == sorted(set(values))  # all differ
    assert opened.run(f"document.querySelector('{head}').ariaSort") == "ascending"
    opened.press("Enter")  # the button has the focus
    assert [float(value) for value in column(opened, 2)] == sorted(values, reverse=True)
    assert opened.run(f"document.querySelector('{head}').ariaSort") == "descending"
    opened.click("section th:nth-child(1) button")
    assert column(opened, 0) == sorted(column(opened, 0))
    assert opened.run("document.querySelectorAll('section:first-of-type [aria-sort]').length") == 1


def test_missing_values_stay_last(opened: Browser) -> None:
    opened.click("section th:nth-child(4) button")  # the reference has no change
    assert column(opened, 3)[-1] == ""
    opened.press("Enter")
    assert column(opened, 3)[-1] == ""


def test_values_show_on_hover_and_on_focus(opened: Browser) -> None:
    assert tip(opened) is None
    opened.hover("svg rect.mark")
    assert str(tip(opened)).startswith("source on clean: ")
    opened.hover("footer p")
    assert tip(opened) is None
    opened.middle("svg")
    opened.click(".legend button:last-child")  # just before the first chart
    opened.press("Tab")
    opened.settle()
    first = tip(opened)
    assert first is not None
    opened.press("ArrowRight")
    second = tip(opened)
    assert second not in (None, first)
    opened.press("ArrowLeft")
    assert tip(opened) == first
    opened.press("Escape")
    assert tip(opened) is None


def test_methods_can_be_hidden(opened: Browser) -> None:
    count = "document.querySelectorAll('section:first-of-type svg .mark.off').length"
    assert opened.run(count) == 0
    opened.click(".legend button:first-child")
    assert opened.run(count) > 0
    opened.press("Enter")
    assert opened.run(count) == 0


def test_the_theme_follows_the_system_and_the_button(opened: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for name in ("dark", "light"):
        feature = {"name": "prefers-color-scheme", "value": name}
        opened.call("Emulation.setEmulatedMedia", features=[feature])
        seen[name] = opened.run(background)
    assert seen["dark"] != seen["light"]
    for expected in ("light", "dark", None):
        opened.click("#theme")
        assert opened.run("document.documentElement.dataset.theme ?? null") == expected
        assert opened.run(background) == seen[expected or "light"]
    opened.call("Emulation.setEmulatedMedia", features=[], media="print")
    assert opened.run(background) == seen["light"]
    opened.call("Emulation.setEmulatedMedia", features=[], media="")


def test_it_fits_a_phone(browser: Browser, address: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    browser.open(address)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    drawn = "Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height))"  # noqa: E501
    assert browser.run(drawn) >= 10
    browser.call("Emulation.clearDeviceMetricsOverride")
