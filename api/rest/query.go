package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// parameter is one parameter that a route takes in the query.
type parameter struct {
	name, doc string
	many      bool // may be given more than once
	number    bool
	yes       bool // true or false
}

// query returns r's query, which may hold only what the route knows.
func query(r *http.Request, known []parameter) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the query is not one").Because(err)
	}
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.name
	}
	for name, values := range q {
		i := slices.Index(names, name)
		switch {
		case i < 0:
			return nil, unknownParameter(name, names)
		case len(values) > 1 && !known[i].many:
			return nil, brig.InvalidField(name, "is given twice")
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			return nil, brig.InvalidField(name, "is not UTF-8")
		}
	}
	return q, nil
}

// read returns r's query, as the route takes it. One that somebody else writes
// may have more than is known of.
func (rt route) read(r *http.Request) (url.Values, error) {
	if !rt.lax {
		return query(r, rt.query)
	}
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the query is not one").Because(err)
	}
	known := url.Values{}
	for _, p := range rt.query {
		if len(all[p.name]) > 0 {
			known[p.name] = all[p.name]
		}
	}
	only := *r
	only.URL = &url.URL{RawQuery: known.Encode()}
	return query(&only, rt.query)
}

func unknownParameter(name string, names []string) error {
	if len(name) > 64 || !utf8.ValidString(name) {
		name = "query"
	}
	e := brig.InvalidField(name, "unknown parameter in the query")
	if near := door.Nearest(name, names); near != "" {
		return e.WithHint("did you mean %q?", near)
	}
	if len(names) == 0 {
		return e.WithHint("this takes no parameters in the query")
	}
	return e.WithHint("known parameters: %s", strings.Join(names, ", "))
}

// yes returns a parameter that is true or false, false when it is not given.
func yes(q url.Values, name string) (bool, error) {
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

// offset returns a parameter that is a number of bytes, not below least, or
// what stands for one that is not given.
func offset(q url.Values, name string, least, absent int64) (int64, error) {
	if !q.Has(name) {
		return absent, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < least {
		return 0, brig.InvalidField(name, "must be a whole number, %d or more", least)
	}
	return n, nil
}

// number returns a parameter that is a whole number, 0 when it is not given.
func number(q url.Values, name string) (int, error) {
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
	o.Limit, err = number(q, "limit")
	return o, err
}

func states() string {
	names := make([]string, len(brig.States))
	for i, s := range brig.States {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
