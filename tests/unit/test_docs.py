"""Checks of the documentation: links, commands, paths, job files, tables and line lengths."""

import json
import re
from pathlib import Path

import pytest

import tfk8s
from tfk8s.cli.app import program
from tfk8s.jobfile.loader import load

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
PROGRAM = program()
SCHEMA = json.loads((ROOT / "docs" / "job-file.schema.json").read_text())

pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pages
def test_links_resolve(page):
    for link in re.findall(r"\]\(([^)]+)\)|^\[[^]]+\]: (\S+)$", page.read_text(), re.MULTILINE):
        target, _, anchor = (link[0] or link[1]).partition("#")
        if "://" in target:
            continue
        path = page.parent / target if target else page
        assert path.exists(), link
        assert not anchor or anchor in anchors(path), link


@pages
def test_lines_have_at_most_120_characters(page):
    assert [line for line in page.read_text().splitlines() if len(line) > 120 and " " in line.strip()] == []


def test_readme_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pages
def test_rows_of_a_table_have_equally_many_cells(page):
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        head, rule, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        assert set(map(str.strip, rule)) == {"---"}, table
        assert {len(row) for row in (rule, *rows)} == {len(head)}, table


@pages
def test_paths_exist(page):
    for path in re.findall(r"`((?:bench|docs|examples|helm|images|manifests|tests)/[\w./-]*)`", page.read_text()):
        assert (ROOT / path).exists(), path


def commands(text):
    """Yield the words of each tfk8s command in a page's code, without its comment."""
    fenced = False
    for line in text.replace("\\\n", " ").splitlines():
        fenced ^= line.startswith("```")
        code = [line] if fenced or line.startswith("    ") else re.findall(r"`([^`]+)`", line)
        for found in (re.match(r" *(?:\$ )?tfk8s ([a-z].*)", one) for one in code):
            if found:
                yield found[1].partition("  #")[0].split("|")[0].split()


def options(words):
    """Return the options of a command, or of a command in a group."""
    command = PROGRAM.get_command(None, words[0])
    command = getattr(command, "commands", {}).get(words[1], command) if len(words) > 1 else command
    return {"-h", "--help", "-"}.union(*(param.opts for param in command.params))


def test_commands_are_found():
    assert len(list(commands((ROOT / "README.md").read_text()))) >= 10


@pages
def test_commands_and_options_exist(page):
    for words in commands(page.read_text()):
        assert PROGRAM.get_command(None, words[0]), words
        script = words[0] in ("run", "submit") and next(
            (at for at, word in enumerate(words) if word.endswith(".py")), None
        )
        for word in words[:script] if script else words:
            assert not word.startswith("-") or word.partition("=")[0] in options(words), words


def table_entries(name):
    """Return the code in the first cells of the tables of a page in docs/."""
    cells = re.findall(r"^\| ([^|]*)\|", (ROOT / "docs" / name).read_text(), re.MULTILINE)
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)}


def test_every_command_is_in_the_table_of_commands():
    assert {f"tfk8s {command}" for command in PROGRAM.list_commands(None)} <= table_entries("commands.md")


def test_every_field_is_in_the_tables_of_fields():
    fields = {*SCHEMA["properties"], *SCHEMA["$defs"]["Job"]["properties"]}
    assert fields <= table_entries("job-file.md")


def test_every_public_name_is_on_the_page_of_python():
    text = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in tfk8s.__all__ if name not in text and name != "__version__"] == []


@pages
def test_job_files_are_valid(page, tmp_path):
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if "apiVersion: tfk8s.dev" in text:
            path = tmp_path / "job.yaml"
            path.write_text(text)
            load(path)
