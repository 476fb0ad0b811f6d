"""The built site in Chromium, as its readers meet it."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from playwright.sync_api import Browser, Page, sync_playwright

from torchproof import notebook
from torchproof.project import Project

PROJECT = Project(ROOT)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Address of the book, built by the command a reader gives and served from this machine."""
    done = subprocess.run(
        [sys.executable, "-m", "torchproof", "build", "--device", "cpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(PROJECT.html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as the machine has it; Playwright's own cannot be downloaded everywhere."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium here; `apt-get install chromium` runs the browser tests")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


def _open(browser: Browser, address: str, width: int = 1280, dark: bool = False) -> tuple[Page, list[str]]:
    """A page and the list of what went wrong while it loads."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on("response", lambda response: wrong.append(response.url) if response.status >= 400 else None)
    page.on("request", lambda r: None if "127.0.0.1" in r.url else wrong.append(f"third party: {r.url}"))
    page.goto(address, wait_until="networkidle")
    return page, wrong


PAGES = [
    "index.html",
    "search.html",
    *(f"{name}.html" for name in ("questions", "myths", "errors", "api", "verification", "changes")),
    *(f"chapters/{p.stem}.html" for p in sorted(PROJECT.chapters.glob("*.ipynb"))),
]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_without_a_fault_and_does_not_scroll_sideways(
    site: str, browser: Browser, name: str, width: int, dark: bool
) -> None:
    page, wrong = _open(browser, f"{site}/{name}", width, dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert wrong == []
    page.context.close()


def test_one_search_field_shows(site: str, browser: Browser) -> None:
    page, _ = _open(browser, f"{site}/chapters/autograd.html")
    fields = page.locator(".search-button-field, .search-button, input[type=search]")
    assert sum(field.is_visible() for field in fields.all()) == 1
    page.context.close()


def test_search_finds_a_question(site: str, browser: Browser) -> None:
    page, wrong = _open(browser, f"{site}/search.html?q=in-place+operation+problem+for+autograd")
    page.wait_for_selector("#search-results li a")
    assert "chapters/autograd.html" in page.content()
    assert wrong == []
    page.context.close()


def test_the_colab_button_opens_this_chapter(site: str, browser: Browser) -> None:
    page, _ = _open(browser, f"{site}/chapters/autograd.html")
    links = page.locator('a[href^="https://colab.research.google.com/github/"]').all()
    addresses = {link.get_attribute("href") for link in links}
    assert len(addresses) == 1
    assert str(addresses.pop()).endswith("/blob/main/chapters/autograd.ipynb")
    page.context.close()


def test_every_question_has_its_anchor_and_its_badge(site: str, browser: Browser) -> None:
    chapter = notebook.chapter(PROJECT.chapters / "autograd.ipynb")
    page, _ = _open(browser, f"{site}/chapters/autograd.html")
    for question in chapter.questions:
        for anchor in (question.id, *question.also, *(s.id for s in question.statements)):
            assert page.locator(f"#{anchor}").count() == 1, anchor
    assert page.locator(".proof-run").count() >= len(chapter.questions)
    page.context.close()


def test_a_folded_output_opens_without_javascript(site: str, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/chapters/autograd.html")
    fold = page.locator("details.hide").first
    assert not fold.locator(".output").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator(".output").first.is_visible()
    context.close()


def test_the_site_opens_from_a_folder(site: str, browser: Browser) -> None:
    page = browser.new_page()
    wrong: list[str] = []
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.goto((Path(PROJECT.html) / "chapters" / "autograd.html").as_uri())
    assert page.locator("article h1").inner_text().startswith("Autograd")
    assert wrong == []
    page.close()


def test_the_filter_narrows_the_questions_as_you_type(site: str, browser: Browser) -> None:
    page, wrong = _open(browser, f"{site}/questions.html")
    entries = page.locator(".entry")
    everything = entries.count()
    page.get_by_label("Filter the list").fill("zero_grad gradient")
    shown = [entry for entry in entries.all() if entry.is_visible()]
    assert 0 < len(shown) < everything
    assert all("grad" in (entry.text_content() or "").lower() for entry in shown)
    assert page.locator(".filter output").inner_text() == f"{len(shown)} of {everything}"
    page.get_by_label("Filter the list").fill("")
    page.get_by_label("Level").select_option("advanced")
    levels = {entry.get_attribute("data-level") for entry in entries.all() if entry.is_visible()}
    assert levels == {"advanced"}
    assert wrong == []
    page.context.close()


def test_every_question_is_listed_and_every_myth(site: str, browser: Browser) -> None:
    chapters = [notebook.chapter(path) for path in PROJECT.select([])]
    page, _ = _open(browser, f"{site}/questions.html")
    assert page.locator(".entry").count() == sum(len(chapter.questions) for chapter in chapters)
    page.goto(f"{site}/myths.html")
    statements = [s for chapter in chapters for question in chapter.questions for s in question.statements]
    assert page.locator(".entry").count() == sum(statement.myth for statement in statements)
    page.context.close()


def test_the_choice_of_an_environment_is_remembered_on_the_next_page(site: str, browser: Browser) -> None:
    page, wrong = _open(browser, f"{site}/chapters/training.html")
    label = page.locator(".sd-tab-set.outputs .sd-tab-label", has_text="torch 2.11").first
    if label.count() == 0:
        pytest.skip("no other environment's record is current")
    label.click()
    page.goto(f"{site}/chapters/autograd.html", wait_until="networkidle")
    for tabs in page.locator(".sd-tab-set.outputs").all():
        assert "torch 2.11" in tabs.locator("input:checked + label").inner_text()
    assert wrong == []
    page.context.close()


def test_generated_pages_read_without_javascript(site: str, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site}/questions.html")
    assert page.locator(".entry").last.is_visible()
    page.locator(".entry summary").first.click()
    assert page.locator(".entry details p").first.is_visible()
    context.close()
