package e2b

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// Limits of lists.
const (
	maxListed  = 100    // sandboxes per page
	maxScanned = 50_000 // sandboxes that one request reads
	readPage   = 1000
)

// selection is the filter and order of a list request.
type selection struct {
	metadata map[string]string
	template string
	states   []brig.State
	after    time.Time // earliest start time
	limit    int
	asc      bool
	from     *cursor
}

func (sb *sandboxes) listV1(w http.ResponseWriter, r *http.Request) error {
	metadata, err := parseMetadata(r.URL.Query().Get("metadata"))
	if err != nil {
		return err
	}
	all, err := sb.listAll(r.Context(), selection{metadata: metadata, states: []brig.State{brig.Running}})
	if err != nil {
		return err
	}
	sb.writeList(w, r, all)
	return nil
}

func (sb *sandboxes) listV2(w http.ResponseWriter, r *http.Request) error {
	sel, err := parseSelection(r.URL.Query())
	if err != nil {
		return err
	}
	all, err := sb.listAll(r.Context(), sel)
	if err != nil {
		return err
	}
	if slices.Contains(sel.states, brig.Running) {
		running := 0
		for _, s := range all {
			if s.State == brig.Running {
				running++
			}
		}
		w.Header().Set("X-Total-Running", strconv.Itoa(running))
	}
	page, next := sel.page(all)
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	sb.writeList(w, r, page)
	return nil
}

func (sb *sandboxes) writeList(w http.ResponseWriter, r *http.Request, sandboxes []*brig.Sandbox) {
	out := make([]listedSandbox, 0, len(sandboxes))
	for _, s := range sandboxes {
		out = append(out, listed(s))
	}
	sb.write(w, r, http.StatusOK, out)
}

func parseSelection(q url.Values) (selection, error) {
	sel := selection{template: q.Get("template"), states: []brig.State{brig.Running, brig.Paused}}
	var err error
	if sel.metadata, err = parseMetadata(q.Get("metadata")); err != nil {
		return sel, err
	}
	if states := q.Get("state"); states != "" {
		sel.states = nil
		for s := range strings.SplitSeq(states, ",") {
			switch s {
			case stateRunning:
				sel.states = append(sel.states, brig.Running)
			case statePaused:
				sel.states = append(sel.states, brig.Paused)
			default:
				return sel, brig.InvalidField("state", "give running, paused, or both")
			}
		}
	}
	if strings.Contains(sel.template, ":") {
		return sel, brig.InvalidField("template", "give an id or an alias, without a tag")
	}
	if s := q.Get("startedAfter"); s != "" {
		if sel.after, err = time.Parse(time.RFC3339, s); err != nil {
			return sel, brig.InvalidField("startedAfter", "it is not a time like 2026-01-02T03:04:05Z").Because(err)
		}
	}
	paged, err := parsePage(q)
	sel.limit, sel.asc, sel.from = paged.limit, paged.asc, paged.from
	return sel, err
}

// parsePage parses the order, the limit and the cursor of a list.
func parsePage(q url.Values) (selection, error) {
	sel := selection{limit: maxListed}
	var err error
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		sel.asc = true
	default:
		return sel, brig.InvalidField("order", "give asc or desc")
	}
	if s := q.Get("limit"); s != "" {
		if sel.limit, err = strconv.Atoi(s); err != nil || sel.limit < 1 || sel.limit > maxListed {
			return sel, brig.InvalidField("limit", "give 1 to %d", maxListed)
		}
	}
	if s := q.Get("nextToken"); s != "" {
		c, err := parseCursor(s)
		if err != nil {
			return sel, err
		}
		if c.asc != sel.asc {
			return sel, brig.InvalidField("nextToken", "the cursor belongs to a list in the other order")
		}
		sel.from = &c
	}
	return sel, nil
}

// listAll returns the tenant's matching sandboxes in the requested order. It
// reads all pages, because the response contains the total number.
func (sb *sandboxes) listAll(ctx context.Context, sel selection) ([]*brig.Sandbox, error) {
	o := brig.ListOptions{States: sel.states, Limit: readPage, Labels: map[string]string{labelAPI: "true"}}
	for k, v := range sel.metadata {
		o.Labels[k] = v
	}
	if sel.template != "" {
		id, err := sb.templates.findID(ctx, sel.template)
		if err != nil {
			return nil, err
		}
		o.Labels[labelTemplate] = id
	}
	after := sel.after.Truncate(time.Microsecond) // clients send times with microsecond resolution
	all, err := sb.scan(ctx, o)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(all, func(s *brig.Sandbox) bool { return s.Created.Truncate(time.Microsecond).Before(after) })
	slices.SortFunc(out, func(a, b *brig.Sandbox) int {
		if sel.asc {
			return compareStart(a, b)
		}
		return compareStart(b, a)
	})
	return out, nil
}

// scan returns the selected sandboxes of all pages, without their environments and commands,
// which may be large, and which no caller needs.
func (e *env) scan(ctx context.Context, o brig.ListOptions) (out []*brig.Sandbox, err error) {
	for read := 0; read < maxScanned; {
		page, err := e.Service.List(ctx, o)
		if err != nil {
			return nil, err
		}
		read += max(1, len(page.Sandboxes))
		for _, s := range page.Sandboxes {
			small := *s
			small.Spec.Env, small.Spec.Command = nil, nil
			out = append(out, &small)
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	return out, nil
}

// compareStart compares sandboxes by start time and then by id.
func compareStart(a, b *brig.Sandbox) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// page returns one page of all and the cursor of the next page.
func (sel selection) page(all []*brig.Sandbox) ([]*brig.Sandbox, string) {
	if sel.from != nil {
		last := &brig.Sandbox{ID: brig.ID(sel.from.id), Created: sel.from.started}
		begin := slices.IndexFunc(all, func(s *brig.Sandbox) bool {
			if sel.asc {
				return compareStart(s, last) > 0
			}
			return compareStart(s, last) < 0
		})
		if begin < 0 {
			return nil, ""
		}
		all = all[begin:]
	}
	if len(all) <= sel.limit {
		return all, ""
	}
	last := all[sel.limit-1]
	return all[:sel.limit], cursor{started: last.Created, id: string(last.ID), asc: sel.asc}.String()
}
