package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// parameter is a query parameter of a route.
type parameter struct {
	name, doc string
	required  bool
	repeated  bool // may be repeated
	number    bool
	min, max  int64 // bounds of a number; max 0 means unlimited
	boolean   bool  // true or false
	nonempty  bool
	maxLength int // used only in the document, like the fields below
	pattern   string
	format    string   // JSON Schema format
	enum      []string // allowed values, alone or in a comma-separated list
	example   any
}

// check returns an error for values that the document does not allow.
func (p parameter) check(values []string) error {
	if p.required && len(values) == 0 {
		return brig.InvalidField(p.name, "is missing").WithHint("give it in the query: ?%s=%v", p.name, p.example)
	}
	for _, v := range values {
		switch {
		case !utf8.ValidString(v):
			return brig.InvalidField(p.name, "is not UTF-8")
		case p.nonempty && v == "":
			return brig.InvalidField(p.name, "is empty").WithHint("for example %s=%v", p.name, p.example)
		case p.number:
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < p.min || p.max > 0 && n > p.max {
				return p.outOfRangeError()
			}
		case p.boolean && v != "true" && v != "false":
			return brig.InvalidField(p.name, "must be true or false")
		}
	}
	return nil
}

func (p parameter) outOfRangeError() error {
	if p.max > 0 && p.max < 1<<31-1 {
		return brig.InvalidField(p.name, "must be a whole number from %d to %d", p.min, p.max)
	}
	return brig.InvalidField(p.name, "must be a whole number, %d or more", p.min)
}

// query returns r's query. It rejects unknown parameters.
func query(r *http.Request, allowed []parameter) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the query is not one").Because(err)
	}
	names := make([]string, len(allowed))
	for i, p := range allowed {
		names[i] = p.name
	}
	for name, values := range q {
		i := slices.Index(names, name)
		switch {
		case i < 0:
			return nil, unknownParameterError(name, names)
		case len(values) > 1 && !allowed[i].repeated:
			return nil, brig.InvalidField(name, "is given twice")
		}
	}
	for _, p := range allowed {
		if err := p.check(q[p.name]); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// read returns the parameters of r's query that the route accepts. A lax route
// ignores unknown parameters, because another server creates its query.
func (rt route) read(r *http.Request) (url.Values, error) {
	if !rt.lax {
		return query(r, rt.query)
	}
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the query is not one").Because(err)
	}
	accepted := url.Values{}
	for _, p := range rt.query {
		if len(all[p.name]) > 0 {
			accepted[p.name] = all[p.name]
		}
	}
	only := *r
	only.URL = &url.URL{RawQuery: accepted.Encode()}
	return query(&only, rt.query)
}

func unknownParameterError(name string, names []string) error {
	if len(name) > 64 || !utf8.ValidString(name) {
		name = "query"
	}
	e := brig.InvalidField(name, "unknown parameter in the query")
	if near := httpapi.Nearest(name, names); near != "" {
		return e.WithHint("did you mean %q?", near)
	}
	if len(names) == 0 {
		return e.WithHint("this route has no query parameters")
	}
	return e.WithHint("known parameters: %s", strings.Join(names, ", "))
}

// boolean returns a boolean parameter, false by default.
func boolean(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	if q.Has(name) {
		return false, brig.InvalidField(name, "must be true or false")
	}
	return false, nil
}

// offset returns a parameter that is a number of bytes, which must be at least
// least. It returns absent if the parameter is missing.
func offset(q url.Values, name string, minimum, absent int64) (int64, error) {
	if !q.Has(name) {
		return absent, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < minimum {
		return 0, brig.InvalidField(name, "must be a whole number, %d or more", minimum)
	}
	return n, nil
}

// intParameter returns an integer parameter, 0 by default.
func intParameter(q url.Values, name string) (int, error) {
	if !q.Has(name) {
		return 0, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 0 {
		return 0, brig.InvalidField(name, "must be a whole number that is not negative")
	}
	return n, nil
}

// listOptions reads the query of a list of sandboxes.
func listOptions(q url.Values) (o brig.ListOptions, err error) {
	for _, l := range q["label"] {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return o, brig.InvalidField("label", "must be of the form key=value")
		}
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		if old, twice := o.Labels[k]; twice && old != v {
			return o, brig.InvalidField("label", "gives the same key two values")
		}
		o.Labels[k] = v
	}
	for _, list := range q["state"] {
		for s := range strings.SplitSeq(list, ",") {
			if !slices.Contains(brig.States, brig.State(s)) {
				return o, brig.InvalidField("state", "unknown state").WithHint("use one of: %s", states())
			}
			o.States = append(o.States, brig.State(s))
		}
	}
	o.Cursor = q.Get("cursor")
	o.Limit, err = intParameter(q, "limit")
	return o, err
}

func states() string {
	names := make([]string, len(brig.States))
	for i, s := range brig.States {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// Formats of parameters for the document. Handlers and the engine check them.
const (
	labelPattern = "^[^=]+=[^=]*$"
	namePattern  = "^[a-z0-9][a-z0-9-]{0,62}$"
	pathPattern  = "^[^\\x00]*$"
	maxPath      = 4096 // bytes, including the home directory
)
