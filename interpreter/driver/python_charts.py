# Extracts the data of a matplotlib figure: titles, labels and points, in the
# format of E2B's clients. The type of a chart is derived from the artists on
# its axes.
import decimal
import math
import re

from matplotlib.collections import PathCollection
from matplotlib.dates import num2date
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def chart(figure):
    """Return the chart of a drawn figure, or an empty one for an empty figure."""
    axes = figure.get_axes()
    if not axes or len(axes) == 1 and not drawn(axes[0]):
        return {}
    if len(axes) == 1:
        return plot(axes[0])
    title = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": title and title.get_text() or None, "elements": [plot(ax) for ax in axes]}


def plot(ax):
    kind = kind_of(ax)
    found = {"type": kind, "title": ax.get_title() or None}
    if kind not in ("pie", "unknown"):
        found.update(labels(ax))
    if kind in ("line", "scatter"):
        found.update(ticks("x", ax.xaxis, ax.get_xticklabels(), ax.get_xscale()))
        found.update(ticks("y", ax.yaxis, ax.get_yticklabels(), ax.get_yscale()))
    found["elements"] = ELEMENTS[kind](ax, found)
    return found


def drawn(ax):
    children = getattr(ax, "_children", None)  # in drawing order, since matplotlib 3.5
    if children is None:
        children = list(ax.lines) + list(ax.patches) + list(ax.collections) + list(ax.images)
    return [thing for thing in children if not isinstance(thing, Text)]


def kind_of(ax):
    things = drawn(ax)
    for kind, classes in (("line", Line2D), ("box_and_whisker", (PathPatch, Line2D))):
        if all(isinstance(thing, classes) for thing in things):
            return kind
    things = [thing for thing in things if not is_grid(thing)]
    for kind, classes in (("scatter", PathCollection), ("pie", Wedge), ("bar", Rectangle)):
        if all(isinstance(thing, classes) for thing in things):
            return kind
    return "unknown"


def is_grid(thing):
    """Report whether a line is only a guide along an axis."""
    if not isinstance(thing, Line2D):
        return False
    x, y = list(thing.get_xdata()), list(thing.get_ydata())
    return len(x) == 2 and (x[0] == x[1] or y[0] == y[1])


# -- Axes ---------------------------------------------------------------------


def labels(ax):
    x, y = ax.get_xlabel() or None, ax.get_ylabel() or None
    return {"x_label": x, "y_label": y, "x_unit": unit(x), "y_unit": unit(y)}


def unit(label):
    found = UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None


def swap(found):
    """Describe a horizontal chart as if it were vertical."""
    found["x_label"], found["y_label"] = found["y_label"], found["x_label"]
    found["x_unit"], found["y_unit"] = found["y_unit"], found["x_unit"]


def ticks(name, axis, texts, scale):
    places, texts = list(axis.get_ticklocs()), [text.get_text() for text in texts]
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    if "Date" in type(converter).__name__:
        scale, places = "datetime", [num2date(place).isoformat() for place in places]
    else:
        places = [value(place) for place in places]
        if scale == "linear" and is_categorical(places, texts):
            scale = "categorical"
    return {name + "_ticks": places, name + "_tick_labels": texts, name + "_scale": scale}


def is_categorical(places, texts):
    """Report whether tick positions count from 0 while tick labels are names."""
    return all(place == i and text != str(i) for i, (place, text) in enumerate(zip(places, texts)))


# -- Elements -----------------------------------------------------------------


def value(v):
    """Return a number, a date or a name of matplotlib as a JSON value."""
    if hasattr(v, "isoformat"):
        return v.isoformat()
    if type(v).__name__ == "datetime64":
        return str(v.astype("datetime64[s]"))
    v = v.item() if hasattr(v, "item") else v
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    return v if v is None or isinstance(v, (str, int)) else str(v)


def number(v):
    """Round a number as E2B does: larger numbers keep fewer digits."""
    exact = decimal.Decimal(str(v))
    if not exact.is_finite():
        return float(exact)
    with decimal.localcontext() as context:
        context.prec = max(1, 8 - exact.adjusted())
        return float(+exact)


def named(label, prefix, kind):
    """Return a label, or "Line 2" for a label that matplotlib generated."""
    return "%s %s" % (kind, label[len(prefix):]) if label.startswith(prefix) else label


def points(xs, ys):
    return [[value(x), value(y)] for x, y in zip(xs, ys)]


def lines(ax, found):
    return [
        {"label": named(str(line.get_label()), "_child", "Line"), "points": points(line.get_xdata(), line.get_ydata())}
        for line in ax.get_lines()
        if not is_grid(line)
    ]


def scatters(ax, found):
    return [{"label": c.get_label(), "points": [[value(x), value(y)] for x, y in c.get_offsets()]} for c in ax.collections]


def pies(ax, found):
    return [
        {"label": wedge.get_label(), "angle": abs(number(wedge.theta2 - wedge.theta1)), "radius": value(wedge.r)}
        for wedge in ax.patches
    ]


def bars(ax, found):
    out, lying = [], False
    for container in ax.containers:
        group = named(str(container.get_label()), "_container", "Group")
        lying = getattr(container, "orientation", "vertical") == "horizontal"
        texts = [t.get_text() for t in (ax.get_yticklabels() if lying else ax.get_xticklabels())]
        if len(texts) != len(container):
            texts = ["%g" % middle(rectangle, lying) for rectangle in container]
        for text, r in zip(texts, container):
            out.append({"label": text, "group": group, "value": value(r.get_width() if lying else r.get_height())})
    if lying:
        swap(found)
    return out


def middle(rectangle, lying):
    if lying:
        return rectangle.get_y() + rectangle.get_height() / 2
    return rectangle.get_x() + rectangle.get_width() / 2


def boxes(ax, found):
    lying = not any(is_whisker(line, patch) for line in ax.lines for patch in ax.patches)
    texts = [t.get_text() for t in (ax.get_yticklabels() if lying else ax.get_xticklabels())]
    if lying:
        swap(found)
    across, along = (1, 0) if lying else (0, 1)
    return [box(text, patch, ax.lines, across, along) for text, patch in zip(texts, ax.patches)]


def is_whisker(line, patch):
    """Report whether a vertical line of two points starts at the end of the
    box."""
    x, y = line.get_xdata(), line.get_ydata()
    if len(x) != 2 or x[0] != x[1]:
        return False
    left, low = patch.get_path().vertices.min(axis=0)
    right, high = patch.get_path().vertices.max(axis=0)
    return left < x[0] < right and (number(max(y)) == number(low) or number(min(y)) == number(high))


def box(label, patch, lines, across, along):
    vertices = patch.get_path().vertices
    left, right = number(min(vertices[:, across])), number(max(vertices[:, across]))
    low, high = number(min(vertices[:, along])), number(max(vertices[:, along]))
    found = {
        "label": label, "min": low, "first_quartile": low, "median": low,
        "third_quartile": high, "max": high, "outliers": [],
    }
    for line in lines:
        data = (line.get_xdata(), line.get_ydata())
        where = [number(v) for v in data[across]]
        values = [number(v) for v in data[along]]
        if not where or not left <= min(where) <= max(where) <= right:
            continue
        if len(values) != 2:
            found["outliers"] += values
        elif values[0] != values[1]:
            found["min"] = min(values) if max(values) == low else found["min"]
            found["max"] = max(values) if min(values) == high else found["max"]
        elif max(where) - min(where) >= 0.9 * (right - left):
            found["median"] = values[0]  # the caps of whiskers are narrower than the box
    return found


ELEMENTS = {
    "line": lines,
    "scatter": scatters,
    "pie": pies,
    "bar": bars,
    "box_and_whisker": boxes,
    "unknown": lambda ax, found: [],
}
