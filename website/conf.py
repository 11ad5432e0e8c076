"""Sphinx's settings of the documentation site: `make site` builds it into build/site.

The pages are the Markdown files that GitHub shows, in the folders where they are. So a link leads to the same place on
GitHub and on the site. MyST reads the same Markdown as GitHub (CommonMark with tables).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.util import logging

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402 - stands beside this file

from tfk8s.version import __version__  # noqa: E402

project, release, author, project_copyright = "tfk8s", __version__, "the authors of tfk8s", "the authors of tfk8s"
html_title = f"tfk8s {release}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]

html_domain_indices = False
root_doc = "README"
include_patterns = ["*.md", "docs/**", "examples/*/README.md", "bench/results.md"]
exclude_patterns = [".*", "build", "dist", "helm", "images", "manifests", "tests", "tfk8s", "website"]
myst_heading_anchors = 4  # as on GitHub: each heading is an anchor
suppress_warnings = ["misc.highlighting_failure"]  # examples have "…" where code stands

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
default_role = "code"  # docstrings write code between single backticks
napoleon_use_ivar = True
smartquotes_action = "D"  # of the text, only "--" is replaced, which Sphinx writes before descriptions
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = [str(HERE / "tfk8s.css")]
html_css_files = ["tfk8s.css"]
html_extra_path = [str(HERE / "index.html")]  # leads to the page of README.md
html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

# The navigation in the order of a user's days: a caption, and its pages. Pages of docs/ that are in no list stand below
# "Programs".
NAVIGATION = {
    "Start": ["docs/tutorial", "docs/local", "docs/kubernetes"],
    "Programs": [
        *("docs/sessions", "docs/entries", "docs/tensorflow2", "docs/strategy", "docs/programs", "docs/parallel"),
        *("docs/libraries", "docs/python", "docs/testing"),
    ],
    "Look": ["docs/dashboard", "docs/metrics", "docs/history", "docs/timeline", "docs/tensorboard", "docs/notebooks"],
    "Run it for others": ["docs/security", "docs/gke", "docs/helm", "docs/images"],
    "Come from": ["docs/tfjob", "docs/distribute", "docs/terminals"],
    "Examples": sorted(f"examples/{path.parent.name}/README" for path in ROOT.glob("examples/*/README.md")),
    "Reference": [
        *("docs/commands", "docs/reference/commands", "docs/job-file", "docs/reference/job-file"),
        *("docs/job-file-errors", "docs/reference/python", "docs/reliability", "docs/compatibility"),
    ],
    "Project": [
        *("docs/scope", "docs/critique", "bench/results", "docs/principles", "docs/architecture"),
        *(f"docs/architecture/{page}" for page in ("scripts", "elastic", "lost-tasks", "local", "kubernetes")),
        *("docs/architecture/variables", "CONTRIBUTING", "SECURITY", "CHANGELOG"),
    ],
}
_LISTED = {page for pages in NAVIGATION.values() for page in pages}
NAVIGATION["Programs"] += sorted({f"docs/{path.stem}" for path in ROOT.glob("docs/*.md")} - _LISTED)

_TOCTREE = "\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
_FILE = "\n### {name}\n\n```{{literalinclude}} {name}\n:language: {language}\n```\n"
_PICTURE = re.compile(r'<picture>.*?srcset="(.*?)".*?alt="(.*?)" src="(.*?)".*?</picture>', re.DOTALL)
_IMAGE = "```{{image}} {}\n:alt: {}\n:class: only-{}\n```\n"
_LANGUAGES = {".py": "python", ".yaml": "yaml"}
_LINK = re.compile(r"\[([^]]*)\]\(([^)#\s]+)\)")
_LOADED = re.compile(r"<(?!a )[^>]* (?:src|href)=\"((?:https?:)?//[^\"]*)|url\([\"']?((?:https?:)?//[^)]*)|@import")


def setup(app: Any) -> None:
    """Write the generated pages, and let Sphinx call the other functions."""
    reference.write_pages(ROOT / "docs" / "reference")
    app.connect("source-read", add_to_page)
    app.connect("build-finished", check_hosts)


def add_to_page(_: Any, name: str, source: list[str]) -> None:
    """Add to a page what only the site has: the navigation to the first page, and its files to an example's."""
    folder = (ROOT / name).parent
    text = _LINK.sub(lambda link: _link(folder, *link.groups()), source[0])
    text = _PICTURE.sub(lambda found: _image(*found.groups()), text)
    if name == root_doc:
        text += "".join(_TOCTREE.format(caption=title, pages="\n".join(pages)) for title, pages in NAVIGATION.items())
    if name.startswith("examples/"):
        files = sorted(path for path in folder.iterdir() if path.suffix in _LANGUAGES)
        text += "\n## Files\n"
        text += "".join(_FILE.format(name=path.name, language=_LANGUAGES[path.suffix]) for path in files)
    source[0] = text


def check_hosts(app: Any, error: Exception | None) -> None:
    """Warn, which fails, if a page or a style loads anything from another host: fonts, scripts, pictures."""
    for path in (path for path in Path(app.outdir).rglob("*") if path.suffix in (".html", ".css") and not error):
        if loaded := _LOADED.search(path.read_text()):
            logging.getLogger(__name__).warning("%s loads from another host: %s", path, loaded[0])


def _image(dark: str, alt: str, light: str) -> str:
    """Return a picture for light and dark pages as the site's theme shows it: by the reader's choice on the page."""
    return _IMAGE.format(light, alt, "light") + _IMAGE.format(dark, alt, "dark")


def _link(folder: Path, text: str, target: str) -> str:
    """Return a link as the site has it: a folder's page or no link, and an example's file on the example's page."""
    path = (folder / target).resolve()
    if path.is_dir():
        return f"[{text}]({target}/README.md)" if (path / "README.md").exists() else f"`{text}`"
    if path.suffix in _LANGUAGES and path.parents[1] == ROOT / "examples":
        return f"[{text}]({Path(target).parent}/README.md#{re.sub(r'[^a-z0-9_-]', '', path.name.lower())})"
    return f"[{text}]({target})"
