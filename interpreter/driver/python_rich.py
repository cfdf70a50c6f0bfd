# The MIME bundle of a value. `driver` is python.py.
import binascii
import os
import sys

FRAME = "application/vnd.brig.frame+json"
CHART = "application/vnd.brig.chart+json"

# A longer representation is left out, because it is too long to read. The text
# is always included, up to a limit.
MAX_METADATA = 64 << 10
MAX_FORM = 8 << 20

# The maximum number of representations and of members of metadata, and the
# maximum length of their names. The host ends a driver that sends too many.
MAX_MEMBERS = 256
MAX_NAME = 1024

# The maximum size of a MIME bundle as JSON. The host accepts little more, and
# ends a driver that sends twice as much at once.
MAX_BUNDLE = 30 << 20

LEFT_OUT = "brig: %s of a value is left out, because it is too large to display (%d characters); save it to a file\n"

METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/pdf": "_repr_pdf_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}


# Types whose values are only displayed as text.
SIMPLE = (int, float, bool, complex, str, bytes, type(None))


def forms(value):
    """Return the MIME bundle of a value, without representations that fail."""
    if type(value) in SIMPLE:
        return {"text/plain": text(value)}
    found = {}
    if not isinstance(value, type):
        bundle = call_method(value, "_repr_mimebundle_")
        found.update(bundle if isinstance(bundle, dict) else {})
        for mime, method in METHODS.items():
            if mime not in found:
                found[mime] = call_method(value, method)
    try:
        found.update(special(value))
    except Exception:
        pass  # such as a data frame with values that JSON cannot represent
    found.setdefault("text/plain", text(value))
    return found


def call_method(value, method):
    """Return the result of a display method, or None if no method works."""
    try:
        # Some objects provide any attribute on request.
        if getattr(value, "_brig_no_such_method_", None) is not None:
            return None
        made = getattr(value, method, None)
        made = made() if callable(made) else None
    except Exception:
        return None
    return made[0] if isinstance(made, tuple) and made else made


def text(value):
    try:
        return repr(value)
    except Exception as exc:
        return "<%s object whose repr fails: %s>" % (type(value).__name__, driver.error_message(exc))


def encode_bundle(found):
    """Encode a MIME bundle for a message: binary data as base64, JSON as JSON.
    Report the omitted data on standard error."""
    out, left = {}, MAX_BUNDLE
    for mime, form in sorted(found.items(), key=lambda item: item[0] != "text/plain"):
        try:
            if form is None or not isinstance(mime, str) or len(mime) > MAX_NAME:
                continue
            if len(out) >= MAX_MEMBERS:
                break
            form = encode(mime, form)
            if mime == "text/plain" and (len(form) > MAX_FORM or size(form) > left):
                form = "%s… (%d characters)" % (form[: MAX_FORM // 12], len(form))
            if len(form) <= MAX_FORM and size(form) <= left:
                out[mime], left = form, left - size(form)
            elif not mime.endswith("json"):  # JSON is only another form of the displayed value
                driver.ignore_errors(lambda: sys.__stderr__.write(LEFT_OUT % (mime, len(form))))
        except (TypeError, ValueError, RecursionError):
            pass
    return out


def encode_metadata(metadata):
    """Return the metadata of a MIME bundle as JSON, or nothing if it is empty,
    too large or not valid JSON."""
    try:
        metadata = dict(metadata) if metadata else {}
        text = dumps(metadata) if len(metadata) <= MAX_MEMBERS else ""
    except Exception:  # any object can be given
        return None
    return driver.RawJSON(text) if metadata and 0 < len(text) <= MAX_METADATA else None


def size(form):
    """Return the size of a representation as JSON, or an upper bound if it is
    small."""
    if len(form) < 1 << 12:
        return 12 * len(form)
    driver.Json.load()  # otherwise this is slow
    return len(driver.encode(form))


def encode(mime, form):
    if mime.endswith("json"):
        return driver.RawJSON(dumps(form))
    text = mime.startswith("text/") or mime.endswith("xml") or mime.endswith("javascript")
    if isinstance(form, str):
        return str(form) if text else form.replace("\n", "")
    if text:
        return bytes(form).decode("utf-8", "replace")
    return binascii.b2a_base64(form, newline=False).decode()


def dumps(value):
    driver.Json.load()
    return (driver.Json.dumps or driver.encode_builtin)(value)


def special(value):
    """Return representations of types for data analysis. A type whose module
    was not imported cannot occur."""
    if type(value) in (list, dict):
        return {"application/json": value}
    pandas, figure = sys.modules.get("pandas"), sys.modules.get("matplotlib.figure")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return {FRAME: frame(value, pandas)}
    if pandas is not None and isinstance(value, pandas.Series):
        return {FRAME: frame(value.to_frame(), pandas)}
    if figure is not None and isinstance(value, figure.Figure):
        return figure_forms(value)
    return {}


def frame(table, pandas):
    """Return the columns of a data frame as JSON values."""
    return {
        str(name): [cell(v, pandas) for v in table.iloc[:, i].tolist()]
        for i, name in enumerate(table.columns)
    }


def cell(value, pandas):
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, (list, tuple)):
        return [cell(v, pandas) for v in value]
    if isinstance(value, dict):
        return {str(k): cell(v, pandas) for k, v in value.items()}
    if value is pandas.NaT or value is getattr(pandas, "NA", None):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):
        return cell(value.item(), pandas)
    return str(value)


# -- Figures ------------------------------------------------------------------


def figure_forms(figure):
    import io

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    found = {"image/png": buffer.getvalue()}
    try:
        found[CHART] = driver.load_sibling("python_charts").chart(figure)
    except Exception:
        pass  # the figure is an image and not a chart
    return found


def show_figures(display, but=None):
    """Show the open figures in order and close them, except one that is shown
    in any case."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not hasattr(pyplot, "get_fignums"):
        return
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        try:
            if figure is not but:
                display(figure)
        finally:
            pyplot.close(figure)


# -- Imports ------------------------------------------------------------------


def patch_libraries(display, adopt):
    """Make figures and images displays where libraries would use a screen, and
    let asyncio find the loop of the cells."""

    def pyplot(module):
        module.show = lambda *args, **options: show_figures(display)

    def image(module):
        import functools

        module.Image.show = lambda self, *args, **options: display(self)
        write = module.Image.save

        def save(self, fp, *args, **options):
            # E2B's interpreter displays an image that is saved to a file
            # before it writes the file, which may fail.
            if isinstance(fp, str) and "E2B_SANDBOX_ID" in os.environ:
                display(self)
            return write(self, fp, *args, **options)

        module.Image.save = functools.wraps(write)(save)

    def viewers(module):
        def show(self, image, **options):
            display(image)
            return 1

        module.UnixViewer.show = show
        module.show = lambda image, *args, **options: bool(show(None, image))

    driver.on_import({
        "matplotlib.pyplot": pyplot, "PIL.Image": image, "PIL.ImageShow": viewers, "asyncio": lambda module: adopt(),
    })


# -- IPython.display ----------------------------------------------------------


class Handle:
    """A display with an id. An update replaces its earlier values."""

    def __init__(self, display, display_id=None):
        self.show = display
        self.display_id = binascii.hexlify(os.urandom(16)).decode() if display_id in (None, True) else display_id

    def display(self, value, **options):
        self.show(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        self.show(value, display_id=self.display_id, update=True, **options)

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id


class DisplayObject:
    """An object that defines its representation, such as HTML("<b>bold</b>")."""

    mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, **options):
        if filename is None and url is None and isinstance(data, str) and self.named(data):
            data, filename = None, data
        if filename is not None:
            with open(filename, "rb") as f:
                data = f.read()
        if url is not None:
            from urllib.request import urlopen

            data = urlopen(url).read()
        self.data = data

    def named(self, data):
        """Report whether data is the name of a file with the content."""
        return False

    def _repr_mimebundle_(self, **options):
        return {self.mime: self.data}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class Image(DisplayObject):
    def named(self, data):
        return "\n" not in data and not data.startswith("<")

    @property
    def mime(self):
        if self.data[:3] == b"\xff\xd8\xff":
            return "image/jpeg"
        return "image/gif" if self.data[:3] == b"GIF" else "image/png"


class Math(DisplayObject):
    mime = "text/latex"

    def _repr_mimebundle_(self, **options):
        return {self.mime: "$\\displaystyle %s$" % self.data.strip("$")}


def display_class(name, mime):
    return type(name, (DisplayObject,), {"mime": mime})


def provide_ipython(shell):
    """Provide a minimal IPython.display if IPython is missing. It is created
    only when a cell uses the name, because other modules would conclude
    that IPython is installed."""
    import importlib.util

    if "IPython" in sys.modules or importlib.util.find_spec("IPython") is not None:
        return
    show = type(sys)("IPython.display")
    for name, mime in {
        "HTML": "text/html", "Markdown": "text/markdown", "SVG": "image/svg+xml", "JSON": "application/json",
        "Latex": "text/latex", "Javascript": "application/javascript", "Pretty": "text/plain",
    }.items():
        setattr(show, name, display_class(name, mime))
    show.Image, show.Math, show.DisplayObject = Image, Math, DisplayObject
    show.display = shell.display
    show.update_display = lambda value, *, display_id, **options: shell.display(
        value, display_id=display_id, update=True, raw=options.get("raw", False)
    )
    show.DisplayHandle = lambda display_id=None: Handle(shell.display, display_id)
    show.clear_output = shell.clear_output
    package = type(sys)("IPython")
    package.__path__ = []
    package.display = show
    package.get_ipython = lambda: shell.space.get("get_ipython", lambda: None)()
    sys.modules["IPython"], sys.modules["IPython.display"] = package, show
