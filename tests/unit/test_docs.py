"""Checks of the documentation: links, commands, paths, job files, tables and line lengths."""

import json
import re

from documented_commands import PAGES as PATHS
from documented_commands import ROOT

import tfk8s
from tfk8s.cli.app import program
from tfk8s.jobfile.loader import load

PAGES = {path: path.read_text() for path in PATHS}
PROGRAM = program()
SCHEMA = json.loads((ROOT / "docs" / "job-file.schema.json").read_text())


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def is_broken(page, link):
    """Tell whether a link leads nowhere; links to other sites count as sound."""
    target, _, anchor = link.partition("#")
    path = (page.parent / target).resolve() if target else page
    return "://" not in target and (not path.exists() or bool(anchor and anchor not in anchors(path)))


def test_links_resolve():
    links = re.compile(r"(?:\]\(|^\[[^]]+\]: )([^)\s]+)", re.MULTILINE)
    assert [(page, link) for page in PAGES for link in links.findall(PAGES[page]) if is_broken(page, link)] == []


def test_lines_have_at_most_120_characters():
    lines = [line for text in PAGES.values() for line in text.splitlines()]
    assert [line for line in lines if len(line) > 120 and " " in line.strip()] == []


def test_readme_has_at_most_150_lines():
    assert len(PAGES[ROOT / "README.md"].splitlines()) <= 150


def test_rows_of_a_table_have_equally_many_cells():
    for table in re.findall(r"(?:^\|.*\n)+", "\n".join(PAGES.values()), re.MULTILINE):
        head, rule, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
        assert set(map(str.strip, rule)) == {"---"}, table
        assert {len(row) for row in (rule, *rows)} == {len(head)}, table


def test_paths_exist():
    path = re.compile(r"`((?:bench|docs|examples|helm|images|manifests|tests)/[\w./-]*)`")
    found = {(page, name) for page in PAGES for name in path.findall(PAGES[page])}
    assert [(page, name) for page, name in found if not (ROOT / name).exists()] == []


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
    assert len(list(commands(PAGES[ROOT / "README.md"]))) >= 10


def test_commands_and_options_exist():
    for words in (words for text in PAGES.values() for words in commands(text)):
        assert PROGRAM.get_command(None, words[0]), words
        script = words[0] in ("run", "submit") and next(
            (at for at, word in enumerate(words) if word.endswith(".py")), None
        )
        script = words.index("--") if "--" in words else script
        for word in words[:script] if script else words:
            assert not word.startswith("-") or word.partition("=")[0] in options(words), words


def table_entries(name):
    """Return the code in the first cells of the tables of a page in docs/."""
    cells = re.findall(r"^\| ([^|]*)\|", PAGES[ROOT / "docs" / name], re.MULTILINE)
    return {code for cell in cells for code in re.findall(r"`([^`]+)`", cell)}


def test_every_command_is_in_the_table_of_commands():
    assert {f"tfk8s {command}" for command in PROGRAM.list_commands(None)} <= table_entries("commands.md")


def test_headings_stand_apart():
    pages = {path: re.sub(r"```.*?```", "", text, flags=re.DOTALL) for path, text in PAGES.items()}
    assert [(path, line) for path, text in pages.items() for line in re.findall(r"[^\n]\n(#+ .*)", text)] == []


def test_every_field_is_in_the_tables_of_fields():
    fields = {*SCHEMA["properties"], *SCHEMA["$defs"]["Job"]["properties"], *SCHEMA["$defs"]["Volume"]["properties"]}
    assert fields <= table_entries("job-file.md")


def test_every_public_name_is_on_the_page_of_python():
    text = PAGES[ROOT / "docs" / "python.md"]
    assert [name for name in tfk8s.__all__ if name not in text and name != "__version__"] == []


def test_job_files_are_valid(tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", "\n".join(PAGES.values()), re.DOTALL)
    job_files = [block for block in blocks if "apiVersion: tfk8s.dev" in block]
    assert len(job_files) >= 8
    for text in job_files:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        load(path)
