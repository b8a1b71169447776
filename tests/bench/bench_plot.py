"""docs/performance.svg, from tests/bench/history.csv: `make bench-plot`.

A panel for each figure of one pair, with the ratio of each recorded commit; a line for each event loop and Python. The
ratios are numbers of times, and the axis says of what.
"""

from collections import defaultdict

from bench_figures import ROOT, read

PLOT = ROOT / "docs" / "performance.svg"
PAIR = "messages>chat"
PANELS = {
    "paced": "events that come alone: CPU",
    "bulk": "events in bulk: CPU",
    "whole": "a whole response: CPU",
    "first": "the first byte: time",
    "text": "the core, a delta of text",
    "request of 64, tools": "the core, a request of 64 messages",
}
COLORS = {"asyncio": "#1f77b4", "uvloop": "#2ca02c", "trio": "#d62728", "": "#555"}
COLUMNS, WIDTH, HEIGHT = 3, 300, 200
LEFT, TOP, RIGHT, BOTTOM = 54, 34, 14, 40

Series = dict[tuple[str, str], dict[str, float]]


def series_of(figure: str, rows: list[dict[str, str]]) -> Series:
    """Return the last ratio of each commit, by event loop and minor version of Python."""
    series: Series = defaultdict(dict)
    for row in rows:
        if row["figure"] == figure and row["pair"] == PAIR:
            series[row["loop"], row["python"].rpartition(".")[0]][row["commit"]] = float(row["ratio"])
    return series


def panel(title: str, series: Series, commits: list[str], dashes: dict[str, str]) -> str:
    top = max([1.0, *(ratio for line in series.values() for ratio in line.values())]) * 1.1
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(commit: str, ratio: float) -> tuple[float, float]:
        step = commits.index(commit) / max(1, len(commits) - 1)
        return LEFT + width * step, TOP + height * (1 - ratio / top)

    drawn = [text(LEFT, 20, title, weight="bold")]
    for ratio in (0.0, top / 2.2, top / 1.1):
        _, y = place(commits[0], ratio)
        drawn.append(f'<path d="M{LEFT} {y:.1f}h{width}" stroke="#ccc"/>')
        drawn.append(text(LEFT - 5, y + 4, f"{ratio:.3g} x", anchor="end"))
    for commit, anchor in {commits[-1]: "end", commits[0]: "start"}.items():
        drawn.append(text(place(commit, 0)[0], HEIGHT - BOTTOM + 15, commit, anchor=anchor))
    drawn.append(text(LEFT + width / 2, HEIGHT - BOTTOM + 29, "commit", anchor="middle"))
    upwards = f'<g transform="translate(14 {TOP + height / 2:.1f}) rotate(-90)">'
    drawn.append(f"{upwards}{text(0, 0, 'times the bare work', anchor='middle')}</g>")
    for (loop, python), line in sorted(series.items()):
        places = [place(commit, line[commit]) for commit in commits if commit in line]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        style = f'stroke="{COLORS[loop]}" stroke-dasharray="{dashes[python]}"'
        drawn.append(f'<polyline points="{points}" fill="none" stroke-width="1.5" {style}/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{COLORS[loop]}"/>' for x, y in places]
    return "\n".join(drawn)


def text(x: float, y: float, content: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{content}</text>'


def legend(pythons: dict[str, str]) -> str:
    entries = [(name or "core", color, "") for name, color in COLORS.items()]
    entries += [(f"Python {version}", "#000", dash) for version, dash in pythons.items()]
    drawn = []
    for index, (name, color, dash) in enumerate(entries):
        x = LEFT + index * 110
        drawn.append(f'<path d="M{x} 14h22" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>')
        drawn.append(text(x + 28, 18, name))
    return "\n".join(drawn)


def plot(rows: list[dict[str, str]]) -> str:
    """Return the picture of some rows of the history."""
    rows = [row for row in rows if row["pair"] == PAIR]
    commits = list(dict.fromkeys(row["commit"] for row in rows))
    versions = sorted({row["python"].rpartition(".")[0] for row in rows}, key=lambda v: int(v.split(".")[1]))
    dashes = {version: f"{6 - index} {index * 3}" for index, version in enumerate(versions)}
    panels = [
        f'<g transform="translate({index % COLUMNS * WIDTH} {28 + index // COLUMNS * HEIGHT})">\n'
        f"{panel(title, series_of(figure, rows), commits, dashes)}\n</g>"
        for index, (figure, title) in enumerate(PANELS.items())
    ]
    size = (COLUMNS * WIDTH, 28 + -(-len(PANELS) // COLUMNS) * HEIGHT)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{size[0]}" height="{size[1]}" fill="#fff"/>',
            legend(dashes),
            *panels,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PLOT.write_text(plot(read()), "utf-8")
