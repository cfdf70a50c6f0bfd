# The state that one step of a notebook leaves for the next step, which runs in
# another sandbox: a JSON document of variables, functions, classes and
# imports. Untrusted code can write the document, so it is only data: restoring
# it calls no code from it. Functions are compiled but not run, and classes get
# their methods last, when all objects exist. `driver` is python.py.
import abc
import ast
import base64
import builtins
import collections
import copy
import datetime
import decimal
import fractions
import functools
import importlib
import inspect
import json
import linecache
import pathlib
import re
import sys
import types
import uuid

VERSION = 1
dumps = json.JSONEncoder(allow_nan=False).encode
# The maximum size of a state, in bytes of JSON. The host has its own limit.
MAX_STATE = 6 << 20

# Names of Python itself, and of the cell history.
RESERVED = re.compile(r"__.*__$|_+$|_i*\d*$|_[iod]h$|_exit_code$|get_ipython$|display$")

# Names of sources that are not in a file.
CELL = re.compile(r"Cell \[\d+\]$|<ipython-input-\d+-\w+>$")

# Attributes that Python creates with a class, or that are never stored.
IMPLICIT = {
    "__dict__", "__weakref__", "__module__", "__qualname__", "__abstractmethods__", "_abc_impl", "__firstlineno__",
    "__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__annotations__",
    "__orig_bases__", "__parameters__", "__annotate_func__", "__annotations_cache__", "__conditional_annotations__",
}
FORBIDDEN = {"__del__", "__class__", "__bases__", "__mro__", "__slots__", "__dict__", "__weakref__"}

# Values that are stored as text: the type, and how to write and read it.
TEXTS = {
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), base64.b64decode),
    "bytearray": (bytearray, lambda v: base64.b64encode(v).decode(), lambda s: bytearray(base64.b64decode(s))),
    "float": (float, repr, float),
    "complex": (complex, repr, complex),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "uuid": (uuid.UUID, str, uuid.UUID),
    "path": (type(pathlib.Path()), str, pathlib.Path),
}
# Values that contain other values, and the function that creates them from a
# list.
LISTS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
DICTS = {"dict": dict, "ordered": collections.OrderedDict, "counter": collections.Counter}
KINDS = {made: name for name, made in (*LISTS.items(), *DICTS.items())}
KINDS.update({row[0]: name for name, row in TEXTS.items()})


class NotSerializable(Exception):
    """A value that the document cannot represent."""


def is_program_name(name):
    """Report whether a name belongs to the program, and not to Python or to the
    history of cells."""
    return isinstance(name, str) and name.isidentifier() and not RESERVED.match(name)


# -- Sources of functions -----------------------------------------------------


class Sources:
    """The sources of functions, and the definitions in them."""

    def __init__(self):
        self.texts = {}
        self.found = {}

    def definitions(self, file, line, name):
        """Return the definitions of functions that begin at a line, each with
        its class."""
        if file not in self.found:
            self.found[file] = list(walk(ast.parse(self.texts[file])))
        return [(node, owner) for node, owner in self.found[file] if first_line(node) == line and name_of(node) == name]

    def code(self, file, line, name, nth, free):
        """Return the compiled code of a definition. It is not run."""
        node, owner = self.definitions(file, line, name)[nth]
        return compile_definition(node, owner, file, free)


def walk(node, owner=""):
    """Return all functions below a node, each with its class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child, owner
        yield from walk(child, child.name if isinstance(child, ast.ClassDef) else owner)


def first_line(node):
    return min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])])


def name_of(node):
    return getattr(node, "name", "<lambda>")


def compile_definition(node, owner, file, free):
    """Compile a definition within a function that has its free variables, and
    return its code object."""
    first = first_line(node)
    node = NameMangler(owner).visit(copy.deepcopy(node))
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    if not isinstance(node, ast.Lambda):
        node.decorator_list, node.returns = [], None
    body = [ast.Expr(node)]
    if not isinstance(node, ast.Lambda):
        # A function that calls itself by its name uses the global name.
        body = [ast.Global([node.name]), node] if node.name not in free else [node]
    names = [ast.arg(n) for n in free]
    outer = ast.FunctionDef("outer", ast.arguments([], names, None, [], [], None, []), body, [])
    for each in (node, outer):
        if "type_params" in each._fields:
            each.type_params = []
    tree = ast.fix_missing_locations(ast.Module([ast.copy_location(outer, node)], []))
    made = find_code(compile(tree, file, "exec", dont_inherit=True), "outer")
    # The first line of a decorated function is that of its decorator.
    return find_code(made, name_of(node)).replace(co_firstlineno=first)


def find_code(code, name):
    """Return the code of a function from the constants of another."""
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


class NameMangler(ast.NodeTransformer):
    """Expands private names of a class: __x becomes _Class__x."""

    def __init__(self, owner):
        self.owner = owner.lstrip("_")

    def name(self, text):
        hidden = self.owner and text.startswith("__") and not text.endswith("__")
        return "_" + self.owner + text if hidden else text

    def visit_Name(self, node):
        node.id = self.name(node.id)
        return node

    def visit_Attribute(self, node):
        node.attr = self.name(node.attr)
        return self.generic_visit(node)

    def visit_arg(self, node):
        node.arg = self.name(node.arg)
        return node

    def visit_ClassDef(self, node):
        return node  # a nested class has its own private names


# -- Writing ------------------------------------------------------------------


class Writer:
    """Creates the document of a name space."""

    def __init__(self, shell):
        self.shell = shell
        self.space = shell.space
        self.sources = Sources()
        self.heap = []
        self.seen = {}
        self.keep = []
        self.dropped = {}

    def document(self, given):
        """Return all names except the given ones, each complete or not at all."""
        names, size = {}, 0
        for name, value in list(self.space.items()):
            if not is_program_name(name) or name in given:
                continue
            mark, files = len(self.heap), set(self.sources.texts)
            try:
                word = self.value(value)
                more = len(dumps([name, word, self.heap[mark:]]))
                more += sum([len(t) for f, t in self.sources.texts.items() if f not in files])
                if size + more > MAX_STATE:
                    raise NotSerializable("it is too large")
                names[name], size = word, size + more
            except NotSerializable as exc:
                self.dropped[name] = str(exc)
            except RecursionError:
                self.dropped[name] = "it is nested too deeply"
            except Exception as exc:
                self.dropped[name] = "%s: %s" % (type(exc).__name__, driver.error_message(exc))
            if name in self.dropped:
                del self.heap[mark:]
                self.seen = {k: n for k, n in self.seen.items() if n < mark}
                for file in set(self.sources.texts) - files:
                    del self.sources.texts[file]
        return {"v": VERSION, "names": names, "heap": self.heap, "sources": self.sources.texts}

    def value(self, value):
        """Return one value as JSON: the value, or its index on the heap."""
        if value is None or type(value) in (bool, str, int):
            return value
        if type(value) is float and value - value == 0:
            return value
        if id(value) in self.seen:
            return {"at": self.seen[id(value)]}
        at = len(self.heap)
        self.seen[id(value)] = at
        self.keep.append(value)
        self.heap.append(None)
        self.heap[at] = self.node(value)
        return {"at": at}

    def values(self, values):
        return [self.value(v) for v in values]

    def pairs(self, pairs):
        return [[self.key(k), self.value(v)] for k, v in pairs]

    def key(self, value):
        """Return a key of a dict, or an element of a set, as JSON."""
        kind = type(value)
        if any(is_program_class(c) and c.__dict__.get("__hash__") and not is_generated(c.__dict__["__hash__"]) for c in kind.__mro__):
            raise NotSerializable("%s defines __hash__" % kind.__name__)
        return self.value(value)

    def node(self, value):
        kind = type(value)
        name = KINDS.get(kind)
        if name in ("set", "frozenset"):
            return [name, [self.key(v) for v in value]]
        if name in LISTS:
            return [name, self.values(value)]
        if name in DICTS:
            return [name, self.pairs(value.items())]
        if kind in (datetime.datetime, datetime.time) and type(value.tzinfo) not in (type(None), datetime.timezone):
            raise NotSerializable("its time zone is a %s" % type(value.tzinfo).__name__)
        if name in TEXTS:
            return [name, TEXTS[name][1](value)]
        for test, write in WRITERS:
            if test(value):
                return write(self, value)
        return self.instance(value)

    def default(self, value):
        return ["default", self.value(value.default_factory), self.pairs(value.items())]

    def array(self, value):
        if value.dtype.hasobject or value.dtype.names:
            raise NotSerializable("an array of %s" % value.dtype)
        data = base64.b64encode(value.tobytes()).decode()
        return ["array", value.dtype.str, list(value.shape), data, type(value).__name__ != "ndarray"]

    def image(self, value):
        import io

        buffer = io.BytesIO()
        value.save(buffer, format="PNG")
        return ["image", base64.b64encode(buffer.getvalue()).decode()]

    def frame(self, value):
        import pandas

        if isinstance(value, pandas.Series):
            return ["series", self.column(value.index), self.column(value), self.value(value.name)]
        columns = [self.column(value.iloc[:, i]) for i in range(value.shape[1])]
        return ["frame", self.column(value.index), self.column(value.columns), columns]

    def column(self, column):
        """Return the values of a series or an index, with its name and type."""
        import numpy

        if not isinstance(column.dtype, numpy.dtype) or getattr(column, "nlevels", 1) > 1:
            raise NotSerializable("a column of %s" % column.dtype)
        objects = column.dtype.hasobject
        values = self.values(column.tolist()) if objects else self.value(column.to_numpy())
        return [values, self.value(column.name), objects]

    def module(self, value):
        if sys.modules.get(value.__name__) is not value:
            raise NotSerializable("import does not find this module")
        return ["module", value.__name__]

    def function(self, value):
        if value.__globals__ is not self.space:
            return self.reference(value)
        code = value.__code__
        file = code.co_filename
        if file not in self.sources.texts:
            lines = linecache.getlines(file)
            if not lines:
                raise NotSerializable("its source is unknown")
            self.sources.texts[file] = self.shell.translate("".join(lines))
        found = self.sources.definitions(file, code.co_firstlineno, code.co_name)
        made = [recompile(n, owner, file, code) for n, owner in found]
        same = [i for i, c in enumerate(made) if c and code_key(c) == code_key(code)]
        # A call of a name that the same cell imports is compiled differently.
        near = [i for i, c in enumerate(made) if c and code_key(c)[1:] == code_key(code)[1:]]
        if not same and len(near) != 1:
            raise NotSerializable("its source has changed")
        cells = [[n, self.value(c)] for n, c in zip(code.co_freevars, value.__closure__ or ())]
        about = {"name": value.__name__, "qualname": value.__qualname__, "doc": value.__doc__}
        about["defaults"] = self.value(value.__defaults__)
        about["kwdefaults"] = self.value(value.__kwdefaults__)
        about["dict"] = self.pairs(value.__dict__.items())
        return ["function", file, code.co_firstlineno, code.co_name, (same or near)[0], cells, about]

    def cell(self, cell):
        try:
            return ["cell", self.value(cell.cell_contents)]
        except ValueError:
            return ["cell"]  # it is still empty

    def reference(self, value):
        """Return a reference to an object that can be imported."""
        around = (value, type(value), type(getattr(value, "__self__", None)))
        for module in [getattr(v, "__module__", None) for v in around]:
            for path in [getattr(value, n, None) for n in ("__qualname__", "__name__", "_name")]:
                if module != "__main__" and resolve(sys.modules.get(module), path) is value:
                    return ["global", module, path]
        raise NotSerializable("import does not find this %s" % type(value).__name__)

    def method(self, value):
        try:
            return self.reference(value)
        except NotSerializable:
            return ["method", self.value(value.__func__), self.value(value.__self__)]

    def kind(self, value):
        """Return a class: an importable one by name, or a complete definition
        of the program's class."""
        if value.__module__ != "__main__":
            return self.reference(value)
        if type(value).__module__ == "enum":
            return self.enum(value)
        if "_fields" in value.__dict__ and value.__bases__ == (tuple,):
            if any(isinstance(v, types.FunctionType) and v.__globals__ is self.space for v in value.__dict__.values()):
                raise NotSerializable("a named tuple with methods of its own")
            defaults = [value._field_defaults[f] for f in value._fields if f in value._field_defaults]
            return ["fields", value.__name__, list(value._fields), self.values(defaults)]
        if is_program_class(type(value)):
            raise NotSerializable("its metaclass belongs to the program")
        if "__del__" in value.__dict__ or "__slots__" in value.__dict__:
            raise NotSerializable("a class that has __del__ or __slots__")
        bases = self.values(value.__bases__)
        about = {"meta": self.value(type(value)), "qualname": value.__qualname__, "data": None}
        params = value.__dict__.get("__dataclass_params__")
        skip = IMPLICIT
        if params is not None:
            about["data"] = self.dataclass(value, params)
            skip = skip | {n for n, v in value.__dict__.items() if is_generated(v)} | set(value.__dataclass_fields__)
        attributes = [[n, self.attribute(v)] for n, v in value.__dict__.items() if n not in skip]
        return ["class", value.__name__, bases, attributes, about]

    def dataclass(self, value, params):
        import dataclasses

        flags = {n: getattr(params, n) for n in ("init", "repr", "eq", "order", "unsafe_hash", "frozen")}
        fields = []
        for name in inspect.get_annotations(value):
            field = value.__dataclass_fields__.get(name)
            if field is None:
                continue
            made = {n: getattr(field, n) for n in ("init", "repr", "compare", "kw_only")}
            default, factory = field.default, field.default_factory
            given = [] if default is dataclasses.MISSING else ["default", self.value(default)]
            given = given if factory is dataclasses.MISSING else ["default_factory", self.value(factory)]
            fields.append([name, made, given])
        return [flags, fields]

    def attribute(self, value):
        if isinstance(value, (staticmethod, classmethod)):
            return [type(value).__name__, self.value(value.__func__)]
        if type(value) is property:
            return ["property", self.values([value.fget, value.fset, value.fdel]), value.__doc__]
        return ["value", self.value(value)]

    def enum(self, value):
        extra = [f for n, v in value.__dict__.items() if n not in value.__members__ for f in functions(v) if f.__globals__ is self.space]
        if extra or len(value.__bases__) != 1:
            raise NotSerializable("an enumeration with methods of its own")
        members = [[n, self.value(m.value)] for n, m in value.__members__.items()]
        return ["enum", value.__name__, self.value(value.__bases__[0]), members]

    def instance(self, value):
        kind = type(value)
        if type(kind).__module__ == "enum":
            # A combination of flags has a name that no single flag has.
            return ["member", self.value(kind), value.name if value.name in kind.__members__ else value.value]
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return ["record", self.value(kind), self.values(value)]
        if not is_plain_class(kind):
            try:
                return self.reference(value)
            except NotSerializable:
                raise NotSerializable("a %s.%s" % (kind.__module__, kind.__qualname__)) from None
        return ["object", self.value(kind), self.pairs(value.__dict__.items())]


def recompile(node, owner, file, code):
    """Compile a definition again. Return None if it cannot be the source of
    code."""
    try:
        return compile_definition(node, owner, file, code.co_freevars)
    except (SyntaxError, StopIteration):
        return None


def code_key(code):
    """Return all properties of a code object. Before Python 3.11 it contains
    the qualified names of its functions, which differ within another
    function."""
    plain = [re.sub(r"^.*<locals>\.", "", c) if isinstance(c, str) else c for c in code.co_consts]
    constants = [code_key(c)[1:] if isinstance(c, types.CodeType) else (type(c), repr(c)) for c in plain]
    return code.co_code, code.co_names, code.co_varnames, constants


def resolve(module, path):
    for part in (path or "").split("."):
        module = getattr(module, part, None)
    return module


def is_program_class(kind):
    """Report whether the program has created a class."""
    return kind.__module__ == "__main__"


def functions(value):
    """Return the functions of a class attribute."""
    within = [getattr(value, n, None) for n in ("__func__", "fget", "fset", "fdel", "func")]
    return [f for f in (value, *within) if isinstance(f, types.FunctionType)]


def abstract_methods(kind):
    """Return the names of a class's abstract methods, without calling its
    code."""
    found = {}
    for c in kind.__mro__:
        for name, value in c.__dict__.items():
            found.setdefault(name, value)
    plain = (types.FunctionType, staticmethod, classmethod, property)
    marks = {n: [f.__dict__.get("__isabstractmethod__") is True for f in functions(v)] for n, v in found.items() if type(v) in plain}
    return frozenset([n for n, marked in marks.items() if any(marked)])


def is_generated(value):
    """Report whether dataclass has generated a method."""
    value = getattr(value, "__wrapped__", value)
    return isinstance(value, types.FunctionType) and value.__code__.co_filename == "<string>"


def is_plain_class(kind):
    """Report whether the objects of a class consist only of their __dict__."""
    hooks = ("__del__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
    return (
        kind.__new__ is object.__new__
        and kind.__dictoffset__ != 0
        and (is_program_class(kind) or kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__)
        and not any(hasattr(kind, h) for h in hooks)
        and not any(c.__dict__.get("__slots__") for c in kind.__mro__)
    )


def is_array(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic))


def is_frame(value):
    pandas = sys.modules.get("pandas")
    return pandas is not None and type(value) in (pandas.DataFrame, pandas.Series)


def is_image(value):
    image = sys.modules.get("PIL.Image")
    return image is not None and isinstance(value, image.Image)


def type_in(*kinds):
    return lambda value: type(value) in kinds


WRITERS = (
    (type_in(types.ModuleType), Writer.module),
    (type_in(types.FunctionType), Writer.function),
    (lambda v: isinstance(v, type), Writer.kind),
    (type_in(types.CellType), Writer.cell),
    (type_in(types.BuiltinFunctionType), Writer.reference),
    (type_in(types.MethodType), Writer.method),
    (type_in(functools.partial), lambda w, v: ["partial", w.value(v.func), w.values(v.args), w.pairs(v.keywords.items())]),
    (type_in(collections.defaultdict), Writer.default),
    (type_in(collections.deque), lambda w, v: ["deque", w.values(v), v.maxlen]),
    (type_in(range), lambda w, v: ["range", v.start, v.stop, v.step]),
    (type_in(slice), lambda w, v: ["slice"] + w.values([v.start, v.stop, v.step])),
    (type_in(datetime.timezone), lambda w, v: ["zone", v.utcoffset(None).total_seconds(), v.tzname(None)]),
    (type_in(datetime.timedelta), lambda w, v: ["span", v.days, v.seconds, v.microseconds]),
    (type_in(re.Pattern), lambda w, v: ["pattern", w.value(v.pattern), v.flags]),
    (lambda v: v is Ellipsis or v is NotImplemented, lambda w, v: ["global", "builtins", repr(v)]),
    (is_array, Writer.array),
    (is_frame, Writer.frame),
    (is_image, Writer.image),
)


# -- Reading ------------------------------------------------------------------


class Reader:
    """Creates the names of a document. A name that is invalid is left out and
    reported."""

    def __init__(self, shell, document, given):
        self.shell = shell
        self.space = shell.space
        self.reserved = given
        self.heap = document.get("heap")
        self.sources = Sources()
        self.sources.texts = document.get("sources")
        self.made = {}
        self.cells = {}
        self.broken = set()
        self.later = [[], [], [], []]

    def restore(self, names):
        """Bind the names. Return the names that failed, with the reasons."""
        missing, values = {}, {}
        for name, word in names.items():
            if not is_program_name(name) or name in self.reserved:
                continue  # not written by this driver
            before = set(self.made)
            try:
                values[name] = self.value(word)
            except Exception as exc:
                missing[name] = driver.error_message(exc) or type(exc).__name__
                self.broken |= set(self.made) - before
        # Objects come first, because sets hash them. Methods come last, and
        # then abstract methods are known.
        for steps in self.later:
            for step in steps:
                driver.ignore_errors(step)
        self.space.update(values)
        for file, text in self.sources.texts.items():
            if not CELL.match(file):
                continue  # a source file: its lines are read from this sandbox
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
            driver.ignore_errors(lambda: self.shell.register_source(file))
        return missing

    def value(self, word):
        if type(word) is not dict:
            return word
        at = word["at"]
        if at in self.broken:
            raise NotSerializable("a part of it could not be restored")
        if at not in self.made:
            node = self.heap[at]
            getattr(self, "make_" + node[0], self.make)(at, *node)
        return self.made[at]

    def values(self, words):
        return [self.value(w) for w in words]

    def pairs(self, pairs):
        return [(self.value(k), self.value(v)) for k, v in pairs]

    def texts(self, pairs):
        return {k: v for k, v in self.pairs(pairs) if type(k) is str}

    def make(self, at, kind, *rest):
        if kind in TEXTS:
            self.made[at] = TEXTS[kind][2](rest[0])
        elif kind in ("tuple", "frozenset"):
            self.made[at] = LISTS[kind](self.values(rest[0]))
        elif kind in LISTS or kind in DICTS:
            made = self.made[at] = (LISTS.get(kind) or DICTS[kind])()
            items = self.values(rest[0]) if kind in LISTS else self.pairs(rest[0])
            self.later[1].append(lambda: made.extend(items) if kind == "list" else made.update(items if kind == "set" else dict(items)))
        else:
            raise NotSerializable("unknown: %r" % (kind,))

    def make_default(self, at, _, factory, pairs):
        made = self.made[at] = collections.defaultdict(self.value(factory))
        items = self.pairs(pairs)
        self.later[1].append(lambda: made.update(items))

    def make_deque(self, at, _, values, most):
        made = self.made[at] = collections.deque([], most)
        items = self.values(values)
        self.later[1].append(lambda: made.extend(items))

    def make_range(self, at, _, *words):
        self.made[at] = range(*words)

    def make_slice(self, at, _, *words):
        self.made[at] = slice(*self.values(words))

    def make_span(self, at, _, *words):
        self.made[at] = datetime.timedelta(*words)

    def make_zone(self, at, _, seconds, name):
        offset = datetime.timedelta(seconds=seconds)
        made = datetime.timezone(offset)
        self.made[at] = made if made.tzname(None) == name else datetime.timezone(offset, name)

    def make_pattern(self, at, _, pattern, flags):
        self.made[at] = re.compile(self.value(pattern), flags & ~re.DEBUG)

    def make_array(self, at, _, dtype, shape, data, scalar):
        import numpy

        made = numpy.frombuffer(base64.b64decode(data), numpy.dtype(str(dtype))).reshape(shape)
        self.made[at] = made[()] if scalar else made.copy()

    def make_image(self, at, _, data):
        import io

        import PIL.Image

        self.made[at] = PIL.Image.open(io.BytesIO(base64.b64decode(data)), formats=["PNG"]).copy()

    def column(self, values, name, objects):
        """Return an index; a column is an index without its name."""
        import pandas

        values = self.values(values) if objects else self.value(values)
        return pandas.Index(values, dtype=object if objects else values.dtype, name=self.value(name))

    def make_series(self, at, _, index, column, name):
        import pandas

        values = self.column(*column).to_numpy()
        index, name = self.column(*index), self.value(name)
        self.made[at] = pandas.Series(values, index=index, name=name)

    def make_frame(self, at, _, index, names, columns):
        import pandas

        index, names = self.column(*index), self.column(*names)
        made = pandas.DataFrame({i: self.column(*c).to_numpy() for i, c in enumerate(columns)}, index=index)
        made.columns = names
        self.made[at] = made

    def make_module(self, at, _, name):
        self.made[at] = importlib.import_module(name)

    def make_global(self, at, _, module, path):
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        self.made[at] = found

    def make_function(self, at, _, file, line, name, nth, cells, about):
        free = [n for n, _ in cells]
        if not all(isinstance(n, str) and n.isidentifier() for n in free):
            raise NotSerializable("an invalid name of a free variable")
        code = self.sources.code(file, line, name, nth, free)
        made = {n: self.closure_cell(c) for n, c in cells}
        closure = tuple([made[n] for n in code.co_freevars])
        function = self.made[at] = types.FunctionType(code, self.space, str(about["name"]), None, closure)
        for _, word in cells:
            self.value(word)  # its content may refer to the function
        defaults, kwdefaults = self.value(about["defaults"]), self.value(about["kwdefaults"])
        its = self.texts(about["dict"])
        qualname, doc = str(about["qualname"]), about["doc"]

        def finish():
            function.__defaults__, function.__kwdefaults__ = defaults, kwdefaults
            function.__dict__.update(its)
            function.__qualname__, function.__doc__ = qualname, doc

        self.later[1].append(finish)

    def closure_cell(self, word):
        """Return the closure cell that a word refers to. Functions that share
        a variable share its cell. Its content is set later."""
        at = word["at"]
        if self.heap[at][0] != "cell":
            raise NotSerializable("an invalid closure cell")
        if at not in self.cells:
            self.cells[at] = types.CellType()
        return self.cells[at]

    def make_cell(self, at, _, *content):
        made = self.made[at] = self.closure_cell({"at": at})
        content = self.values(content)
        if content:
            self.later[1].append(lambda: setattr(made, "cell_contents", content[0]))

    def make_method(self, at, _, function, owner):
        function = self.value(function)
        if type(function) is not types.FunctionType:
            raise NotSerializable("a method without a function")
        self.made[at] = types.MethodType(function, self.value(owner))

    def make_partial(self, at, _, function, args, keywords):
        self.made[at] = functools.partial(self.value(function), *self.values(args), **self.texts(keywords))

    def make_fields(self, at, _, name, fields, defaults):
        made = collections.namedtuple(name, fields, defaults=self.values(defaults), module="__main__")
        self.made[at] = made

    def make_record(self, at, _, kind, values):
        kind = self.value(kind)
        if not (isinstance(kind, type) and issubclass(kind, tuple)):
            raise NotSerializable("a record whose class is no named tuple")
        self.made[at] = tuple.__new__(kind, self.values(values))

    def make_enum(self, at, _, name, base, members):
        import enum

        base = self.value(base)
        if base not in (enum.Enum, enum.IntEnum, enum.Flag, enum.IntFlag, getattr(enum, "StrEnum", None)):
            raise NotSerializable("an enumeration with an unsupported base")
        pairs = [(n, self.value(v)) for n, v in members]
        if not all(is_program_name(n) for n, _ in pairs) or not all(type(v) in (int, str, float, bool) for _, v in pairs):
            raise NotSerializable("an enumeration with unsupported members")
        self.made[at] = base(str(name), pairs, module="__main__")

    def make_member(self, at, _, kind, name):
        import enum

        kind = self.value(kind)
        if not isinstance(kind, enum.EnumMeta):
            raise NotSerializable("a member without an enumeration")
        self.made[at] = kind(name) if type(name) is int and issubclass(kind, enum.Flag) else kind.__members__[name]

    def make_class(self, at, _, name, bases, attributes, about):
        bases, meta = tuple(self.values(bases)), self.value(about["meta"])
        if not all(isinstance(b, type) for b in bases) or not isinstance(meta, type) or not issubclass(meta, type) or is_program_class(meta):
            raise NotSerializable("a class with unsupported bases")
        space = {"__module__": "__main__", "__qualname__": str(about["qualname"])}
        made = self.made[at] = types.new_class(str(name), bases, {"metaclass": meta}, lambda ns: ns.update(space))
        if issubclass(meta, abc.ABCMeta):
            # The class is still empty. Its abstract methods are known when it
            # is complete.
            made.__abstractmethods__ = frozenset()
            self.later[3].append(lambda: type.__setattr__(made, "__abstractmethods__", abstract_methods(made)))
        if about["data"] is not None:
            self.data(made, *about["data"])
        its = [(n, self.attribute(*v)) for n, v in attributes if isinstance(n, str) and n not in FORBIDDEN | IMPLICIT]
        # Call type.__setattr__, because another class may override it.
        self.later[2].append(lambda: [driver.ignore_errors(functools.partial(type.__setattr__, made, n, v)) for n, v in its])

    def data(self, made, flags, fields):
        import dataclasses

        notes = {}
        for name, given, default in fields:
            if not is_program_name(name):
                raise NotSerializable("an invalid name of a field")
            options = {n: bool(given[n]) for n in ("init", "repr", "compare", "kw_only")}
            if default:
                options[str(default[0])] = self.value(default[1])
            notes[name] = object
            setattr(made, name, dataclasses.field(**options))
        made.__annotations__ = notes
        dataclasses.dataclass(made, **{str(n): bool(v) for n, v in flags.items()})

    def attribute(self, kind, value, *rest):
        if kind == "property":
            return property(*self.values(value), *rest)
        if kind in ("staticmethod", "classmethod"):
            return getattr(builtins, kind)(self.value(value))
        return self.value(value)

    def make_object(self, at, _, kind, pairs):
        kind = self.value(kind)
        if not isinstance(kind, type) or not is_plain_class(kind):
            raise NotSerializable("an object of an unsupported class")
        made = self.made[at] = object.__new__(kind)
        its = self.texts(pairs)
        self.later[0].append(lambda: object.__getattribute__(made, "__dict__").update(its))


# -- The interface of the shell -----------------------------------------------


def restore(shell, document, given):
    """Create the names in the document of an earlier step. Return the names that
    failed, with the reasons."""
    if not document:
        return {}
    if type(document) is not dict or document.get("v") != VERSION:
        return {"*": "the state does not have version %d" % VERSION}
    try:
        return Reader(shell, document, given).restore(document["names"])
    except Exception as exc:
        return {"*": "%s: %s" % (type(exc).__name__, driver.error_message(exc))}


def capture(shell, given):
    """Return the state for the next step as JSON, and the names that it leaves
    out."""
    writer = Writer(shell)
    document = writer.document(given)
    return dumps(document), writer.dropped
