"""Pictures of the documentation, made again from real runs: `make pictures`.

A terminal becomes a pair of SVG files, for light and dark pages. What people see in a browser becomes a PNG file, taken
by Chromium without a window: the timeline of a step, TensorBoard, a notebook, and the live page.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 100
TFK8S = Path(sys.executable).parent / "tfk8s"
TUTORIAL = "examples/tutorial/cluster.yaml"
TERMINAL = [
    f"tfk8s up --local {TUTORIAL}",
    "tfk8s submit --local tutorial --tf1 examples/tutorial/two_tasks.py",
    "tfk8s status --local tutorial",
    "tfk8s down --local tutorial",
]
# Two runs, as Keras' callback would write them.
CURVES = """
import math
import tensorflow as tf

for run, rate in (("slow", 0.02), ("fast", 0.05)):
    with tf.summary.create_file_writer(f"logs/{run}").as_default():
        for step in range(100):
            tf.summary.scalar("loss", 2.3 * math.exp(-rate * step) + 0.1, step)
"""
# Three workers that train, of which one is far slower than the others.
TRAINING = """
apiVersion: tfk8s.dev/v1
name: mnist
jobs:
  worker:
    tasks: 3
    program: [train.py]
"""
TRAIN = """
import math
import os
import time

import tfk8s

index = int(os.environ["TFK8S_INDEX"])
for step in range(3000):
    time.sleep(0.4 if index == 2 else 0.1)
    tfk8s.progress(step, 3000, loss=2.3 * math.exp(-step / 100) + 0.1 * index)
"""
LIGHT = TerminalTheme((255, 255, 255), (36, 41, 47), [(36, 41, 47)] * 8, [(87, 96, 106)] * 8)

# As Rich's own, without fonts of other hosts: a page loads nothing from elsewhere.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace; white-space: pre; }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    """Make all pictures, on clusters of this machine in a home folder of their own."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        path = f"{TFK8S.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "HOME": home, "COLUMNS": "200", "PATH": path}  # the picture has shorter paths
        draw_terminal(environment)
        with browser() as page:
            take_timeline(page, environment)
            take_tensorboard(page, environment)
            take_notebook(page, environment)
            take_dashboard(page, environment)


def draw_terminal(environment: dict[str, str]) -> None:
    """Run the commands of README, and write what a terminal shows, with the home folder as `~`."""
    shown = [(command, _output(command, environment)) for command in TERMINAL]
    for name, theme in (("light", LIGHT), ("dark", DIMMED_MONOKAI)):
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        for command, output in shown:
            console.print(Text(f"$ {command}", "bold"))
            console.print(Text(output))
        svg = console.export_svg(title="", theme=theme, code_format=SVG, unique_id="terminal")
        svg = svg.replace("rgba(255,255,255,0.35)", "rgba(128,128,128,0.35)")  # a frame that white pages show, too
        (PICTURES / f"terminal-{name}.svg").write_text(re.sub(r"\n+", "\n", svg))


def _output(command: str, environment: dict[str, str]) -> str:
    run = subprocess.run(command.split(), cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.rstrip("\n").replace(environment["HOME"], "~").replace(str(ROOT), "~/tfk8s")


@contextmanager
def browser() -> Iterator[Page]:
    """Open a page in the Chromium of this machine."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium.new_page(viewport={"width": 1100, "height": 760})
        chromium.close()


def take_timeline(page: Page, environment: dict[str, str]) -> None:
    """Trace the rung of the ladder whose workers make their own batches."""
    trace = Path(environment["HOME"]) / "trace.html"
    words = ["run", "--local", "--tf1", "--trace", str(trace), "examples/data_parallel/cluster.yaml"]
    subprocess.run([TFK8S, *words, "examples/data_parallel/in_graph.py"], cwd=ROOT, env=environment, check=True)
    page.goto(f"file://{trace}")
    page.screenshot(path=str(PICTURES / "timeline.png"))


def take_tensorboard(page: Page, environment: dict[str, str]) -> None:
    """Show the losses of two runs."""
    folder = Path(environment["HOME"]) / "curves"
    folder.mkdir()
    (folder / "curves.py").write_text(CURVES)
    with cluster(environment):
        words = ["submit", "--local", "tutorial", str(folder / "curves.py")]
        subprocess.run([TFK8S, *words], cwd=folder, env=environment, check=True)
        with server(["tensorboard", "--local", "tutorial", "--no-browser"], folder, environment) as address:
            page.goto(address)
            page.get_by_text("Smoothing").first.wait_for()
            page.locator("line-chart, canvas").first.wait_for()
            page.wait_for_timeout(3000)  # the curves move into their place
            page.screenshot(path=str(PICTURES / "tensorboard.png"))


def take_notebook(page: Page, environment: dict[str, str]) -> None:
    """Run the cell of the page on notebooks."""
    folder = Path(environment["HOME"]) / "notebooks"
    folder.mkdir()
    page_text = (ROOT / "docs" / "notebooks.md").read_text()
    source = page_text.partition("```python\n")[2].partition("```")[0].rstrip("\n")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source), nbformat.v4.new_code_cell("cluster")],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "tutorial.ipynb")
    with cluster(environment), server(["notebook", "--local", "tutorial", "--no-browser"], folder, environment) as lab:
        page.goto(lab.replace("/lab?", "/lab/tree/tutorial.ipynb?"))
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        cells.first.wait_for()
        page.get_by_text("| Idle").wait_for()
        page.get_by_role("button", name="No", exact=True).click()  # news of Jupyter
        cells.first.locator(".cm-content").click()
        for _ in range(2):
            page.keyboard.press("Shift+Enter")
        page.get_by_text("local/1").first.wait_for()
        page.screenshot(path=str(PICTURES / "notebook.png"))


def take_dashboard(page: Page, environment: dict[str, str]) -> None:
    """Show a cluster that trains for a minute."""
    folder = Path(environment["HOME"]) / "training"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(TRAINING)
    (folder / "train.py").write_text(TRAIN)
    with (
        cluster(environment, str(folder / "cluster.yaml"), "mnist"),
        server(["dashboard", "--local", "--no-browser"], folder, environment) as address,
    ):
        page.set_viewport_size({"width": 1100, "height": 1000})
        page.goto(address)
        page.locator("#charts figure", has_text="loss").wait_for()
        page.wait_for_timeout(60_000)  # of the curves
        page.screenshot(path=str(PICTURES / "dashboard.png"))


@contextmanager
def cluster(environment: dict[str, str], file: str = TUTORIAL, name: str = "tutorial") -> Iterator[None]:
    """Run a cluster on this machine."""
    subprocess.run([TFK8S, "up", "--local", file], cwd=ROOT, env=environment, check=True)
    try:
        yield
    finally:
        subprocess.run([TFK8S, "down", "--local", name], cwd=ROOT, env=environment, check=True)


@contextmanager
def server(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a command that serves a page, and yield the page's address, the first line of the command's output."""
    with subprocess.Popen([TFK8S, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


if __name__ == "__main__":
    main()
