"""What the pages say is there: links lead somewhere, commands and options exist, job files are valid."""

import json
import re
from pathlib import Path

import pytest

from tfk8s.cli.words import FILE
from tfk8s.jobfile.loader import load

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
WORDS = json.loads(FILE.read_text())

pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pages
def test_links_lead_to_what_is_there(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def commands(text):
    """Yield the words of each tfk8s command in a page's code, without its comment."""
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        fenced ^= line.startswith("```")
        code = [line] if fenced or line.startswith("    ") else re.findall(r"`([^`]+)`", line)
        for found in (re.match(r" *(?:\$ )?tfk8s ([a-z].*)", one) for one in code):
            if found:
                yield found[1].partition("  #")[0].split("|")[0].split()


def known(words):
    """Return the words of a command, or of one in a group, that the command line knows."""
    command = WORDS[words[0]]
    return command.get("commands", {}).get(words[1], command) if len(words) > 1 else command


def test_commands_are_found():
    assert len(list(commands((ROOT / "README.md").read_text()))) >= 10


@pages
def test_commands_and_options_exist(page):
    for words in commands(page.read_text()):
        assert words[0] in WORDS, words
        script = words[0] in ("run", "submit") and next(
            (at for at, word in enumerate(words) if word.endswith(".py")), None
        )
        for word in words[:script] if script else words:
            option = word.partition("=")[0]
            assert not option.startswith("-") or option == "-" or option in known(words)["options"], words


@pages
def test_job_files_are_valid(page, tmp_path):
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if "apiVersion: tfk8s.dev" in text:
            path = tmp_path / "job.yaml"
            path.write_text(text)
            load(path)
