"""A figure as a file of its own: SVG with its style inside, and the same as PDF.

White ground, black text, a palette that colour-blind readers can tell apart (Okabe and Ito's),
type without serifs. A figure is at most two panels wide, 7.16 in (a page's two columns); a single
panel is one column wide.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import cache
from importlib.resources import files

from markupsafe import escape

from analysis.figures.axes import Figure, px

POINTS_PER_UNIT = 516.0 / 780.0
"""Two panels and the gap between them are 7.16 in = 516 pt wide: 11 units of type are 7.3 pt."""
GAP = 20.0
COLUMNS = 2
FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
PAPER = {"blue": "#0072b2", "orange": "#c9540a", "green": "#007a5a"}
SVG = "http://www.w3.org/2000/svg"
TEXT_RULES = ("text", ".title", ".small", ".sub", ".mid", ".end")
RAISED = {ord(s): p for s, p in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789", strict=True)}
HAT = "\u0302"


@cache
def paper_style() -> dict[str, str]:
    """Selector -> declarations of the marks on paper: ``marks.css`` with its variables filled."""
    css = (files("analysis.figures") / "marks.css").read_text(encoding="utf-8")
    light = css[: css.index("@media")]
    colours = dict(re.findall(r"--(\w+): (#\w+)", light)) | PAPER
    rules = re.findall(r"^svg ([.\w]+) \{ (.*) \}$", css, re.MULTILINE)
    return {
        selector: re.sub(r"var\(--(\w+)\)", lambda m: colours[m[1]], body).replace(
            "currentColor", "#000000"
        )
        for selector, body in rules
    }


def svg_text(figure: Figure, simulated: bool) -> str:
    """The figure as the text of an SVG file: panels in at most two columns, style inside.

    ``simulated``: said below the drawing.
    """
    style = "".join(f"{name}{{{body}}}" for name, body in paper_style().items())
    return _document(figure, simulated, f"text{{font-family:{FONTS}}}{style}")


def _document(figure: Figure, simulated: bool, style: str) -> str:
    # Three panels stand one above the other: a column's width, and no hole where a fourth was.
    columns = 1 if figure.wide or len(figure.panels) == 3 else min(COLUMNS, len(figure.panels))
    body, top, width = [], 0.0, 0.0
    for first in range(0, len(figure.panels), columns):
        row, left = figure.panels[first : first + columns], 0.0
        for each in row:
            body.append(f'<g transform="translate({px(left)} {px(top)})">{each.body}</g>')
            left += each.width + GAP
        width = max(width, left - GAP)
        top += max(each.height for each in row) + GAP / 2
    if simulated:
        body.append(f'<text class="end" x="{px(width - 4)}" y="{px(top + 8)}">simulated</text>')
        top += 14
    points = (width * POINTS_PER_UNIT, top * POINTS_PER_UNIT)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="{SVG}" width="{points[0]:.1f}pt" height="{points[1]:.1f}pt" '
        f'viewBox="0 0 {px(width)} {px(top)}">'
        f"<title>{escape(figure.caption)}</title><style>{style}</style>"
        f'<rect width="{px(width)}" height="{px(top)}" fill="#ffffff"/>'
        f"{''.join(body)}</svg>\n"
    )


def pdf_bytes(figure: Figure, simulated: bool) -> bytes:
    """The figure as a PDF of one page, of the drawing's size; text stays text.

    The fonts are embedded, but for that of Greek letters, which every PDF reader has.
    """
    from io import BytesIO  # noqa: PLC0415

    from reportlab.graphics import renderPDF  # noqa: PLC0415
    from reportlab.pdfgen.canvas import Canvas  # noqa: PLC0415
    from svglib.svglib import svg2rlg  # noqa: PLC0415

    class OwnFonts(Canvas):
        """A canvas that never names Helvetica, a renderer's first font: it is not embedded."""

        def setFont(self, psfontname: str, size: float, leading: float | None = None) -> None:
            super().setFont(psfontname.replace("Helvetica", "Vera"), size, leading)

    _register_fonts()
    rules = {n: b for n, b in paper_style().items() if n not in TEXT_RULES}
    style = "".join(f"{name}{{{body}}}" for name, body in rules.items())
    root = ET.fromstring(_document(figure, simulated, style))  # noqa: S314
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{SVG}}}text":
                place = list(parent).index(child)
                parent.remove(child)
                for n, piece in enumerate(_pieces(child)):
                    parent.insert(place + n, piece)
            elif child.tag == f"{{{SVG}}}title":
                parent.remove(child)
    ET.register_namespace("", SVG)
    drawing = svg2rlg(BytesIO(ET.tostring(root, encoding="utf-8")))
    assert drawing is not None  # noqa: S101  (it is for a file that can't be read)
    drawn = BytesIO()
    # invariant: no date and no random id, so that one figure is always the same file.
    canvas = OwnFonts(drawn, (drawing.width, drawing.height), invariant=1, initialFontName="Vera")
    canvas.setTitle(figure.name)
    canvas.setSubject(figure.caption)
    renderPDF.draw(drawing, canvas, 0, 0)
    canvas.showPage()
    canvas.save()
    return drawn.getvalue()


@cache
def _register_fonts() -> None:
    from reportlab.pdfbase import pdfmetrics  # noqa: PLC0415
    from reportlab.pdfbase.ttfonts import TTFont  # noqa: PLC0415
    from svglib.svglib import register_font  # noqa: PLC0415

    for name in ("Vera", "VeraBd"):
        pdfmetrics.registerFont(TTFont(name, f"{name}.ttf"))
    for name in ("Vera", "VeraBd", "Symbol"):
        register_font(name, rlgFontName=name)


def _size(classes: list[str]) -> float:
    sizes = [
        float(found[1])
        for name in ("text", *(f".{c}" for c in classes))
        if (found := re.search(r"font-size: ([\d.]+)px", paper_style().get(name, "")))
    ]
    return sizes[-1]


def _pieces(text: ET.Element) -> list[ET.Element]:
    """A text as pieces of one font and size each, placed by their widths.

    svglib anchors every tspan on its own, and no font that can be embedded everywhere has Greek
    letters, raised digits or a hat to put on a letter; so each run is placed here.
    """
    from reportlab.pdfbase.pdfmetrics import stringWidth  # noqa: PLC0415

    classes = (text.get("class") or "").split()
    bold = "VeraBd" if "title" in classes else "Vera"
    runs: list[tuple[str, str, float, float]] = []  # characters, font, size, shift

    def add(words: str | None, size: float, shift: float) -> None:
        for run in re.findall(
            r"[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|[Ͱ-Ͽ]+|\u0302|[^⁻⁰¹²³⁴⁵⁶⁷⁸⁹Ͱ-Ͽ\u0302]+", words or ""
        ):
            if run[0] in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹":
                runs.append((run.translate(RAISED), bold, size * 0.72, shift - size * 0.36))
            elif "Ͱ" <= run[0] <= "Ͽ":
                runs.append((run, "Symbol", size, shift))
            else:
                runs.append((run, bold, size, shift))

    size, shift = _size(classes), 0.0
    add(text.text, size, shift)
    for child in text:
        shift += float(child.get("dy") or 0.0)
        add(child.text, _size([*classes, *(child.get("class") or "").split()]), shift)
        add(child.tail, size, shift)
    widths = [0.0 if run == HAT else stringWidth(run, font, s) for run, font, s, _ in runs]
    at = float(text.get("x") or 0.0)
    at -= sum(widths) * (1.0 if "end" in classes else 0.5 if "mid" in classes else 0.0)
    up = float(text.get("y") or 0.0)
    placed = []
    for n, ((run, font, s, down), width) in enumerate(zip(runs, widths, strict=True)):
        lead = len(run) - len(run.lstrip(" "))  # svglib drops spaces at the ends
        x, y, shown = at + lead * stringWidth(" ", font, s), up + down, run.strip(" ")
        if run == HAT:
            shown = "ˆ"
            before = runs[n - 1][0][-1]
            x = at - (stringWidth(before, font, s) + stringWidth(shown, font, s)) / 2
            y -= s * 0.18
        piece = ET.Element(
            f"{{{SVG}}}text",
            {
                "x": f"{x:.2f}",
                "y": f"{y:.2f}",
                "font-family": font,
                "font-size": f"{s:g}",
                "fill": "#000000",
            },
        )
        piece.text = shown
        placed.append(piece)
        at += width
    return placed
