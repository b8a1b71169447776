"""Draw a Mermaid flowchart of docs/map.md as SVG, for the site: Mermaid's own program would have to be fetched.

Each node is a line of text, in the order of the flowchart, and each arrow an arc from its start to its end.
"""

import re
from html import escape

_NODE = re.compile(r'^ +(\w+)\["([^"]+)"\]$', re.MULTILINE)
_GROUP = re.compile(r"^ +subgraph \w+\[([^\]]+)\]$", re.MULTILINE)
_ARROW = re.compile(r"^ +(\w+) (-->|-\.->) (\w+)$", re.MULTILINE)
_CHART = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_ROW = 20
_LEFT = 170

_STYLE = """
<style>
  .package-map path { fill: none; stroke: currentColor; stroke-opacity: 0.35; }
  .package-map path:hover { stroke-opacity: 1; stroke-width: 3; }
  .package-map text { fill: currentColor; font-size: 13px; text-anchor: end; }
</style>"""


def with_pictures(page: str) -> str:
    """Return the text of a page with a picture for each Mermaid flowchart in it."""
    return _CHART.sub(lambda chart: _svg(chart[1]), page)


def _svg(chart: str) -> str:
    rows = sorted([*_GROUP.finditer(chart), *_NODE.finditer(chart)], key=re.Match.start)
    place = {row[1]: _ROW * (number + 1) for number, row in enumerate(rows) if row.re is _NODE}
    name = {row[1]: row[2] for row in rows if row.re is _NODE}
    lines = []
    for number, row in enumerate(rows):
        label, weight = (row[2], "") if row.re is _NODE else (row[1], ' font-weight="bold"')
        lines.append(f'<text x="{_LEFT}" y="{_ROW * (number + 1) + 4}"{weight}>{escape(label)}</text>')
    widest = 0
    for start, arrow, end in _ARROW.findall(chart):
        width = 12 + abs(place[end] - place[start]) // 2
        widest = max(widest, width)
        dash = ' stroke-dasharray="4"' if arrow == "-.->" else ""
        lines.append(
            f'<path d="M {_LEFT + 6} {place[start]} c {width} 0 {width} {place[end] - place[start]} 4 '
            f'{place[end] - place[start]}" marker-end="url(#package-map-end)"{dash}>'
            f"<title>{escape(name[start])} imports {escape(name[end])}</title></path>"
        )
    marker = (
        '<marker id="package-map-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M 0 0 L 8 4 L 0 8"/></marker>'
    )
    size = f'viewBox="0 0 {_LEFT + widest} {_ROW * (len(rows) + 1)}"'
    return "\n".join(
        [
            f'<svg class="package-map" role="img" aria-label="The packages and what they import" {size}>',
            f"{_STYLE.strip()}<defs>{marker}</defs>",
            *lines,
            "</svg>",
        ]
    )
