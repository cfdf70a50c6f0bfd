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

// Bounds of lists.
const (
	mostListed = 100    // sandboxes on a page
	mostRead   = 50_000 // sandboxes that are looked through for one
	readPage   = 1000
)

// selection is what a client wants to see.
type selection struct {
	metadata map[string]string
	template string
	running  bool
	after    time.Time // the first moment that counts
	limit    int
	asc      bool
	from     *cursor
}

func (d *Door) listV1(w http.ResponseWriter, r *http.Request) error {
	metadata, err := parseMetadata(r.URL.Query().Get("metadata"))
	if err != nil {
		return err
	}
	all, err := d.all(r.Context(), selection{metadata: metadata, running: true})
	if err != nil {
		return err
	}
	d.writeList(w, r, all)
	return nil
}

func (d *Door) listV2(w http.ResponseWriter, r *http.Request) error {
	sel, err := parseSelection(r.URL.Query())
	if err != nil {
		return err
	}
	all, err := d.all(r.Context(), sel)
	if err != nil {
		return err
	}
	if sel.running {
		w.Header().Set("X-Total-Running", strconv.Itoa(len(all)))
	}
	page, next := sel.page(all)
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	d.writeList(w, r, page)
	return nil
}

func (d *Door) writeList(w http.ResponseWriter, r *http.Request, sandboxes []*brig.Sandbox) {
	out := make([]listedSandbox, 0, len(sandboxes))
	for _, s := range sandboxes {
		out = append(out, listed(s))
	}
	d.write(w, r, http.StatusOK, out)
}

func parseSelection(q url.Values) (selection, error) {
	sel := selection{template: q.Get("template"), limit: mostListed, running: true}
	var err error
	if sel.metadata, err = parseMetadata(q.Get("metadata")); err != nil {
		return sel, err
	}
	if states := q.Get("state"); states != "" {
		sel.running = false
		for s := range strings.SplitSeq(states, ",") {
			switch s {
			case stateRunning:
				sel.running = true
			case "paused": // none ever is
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
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		sel.asc = true
	default:
		return sel, brig.InvalidField("order", "give asc or desc")
	}
	if s := q.Get("limit"); s != "" {
		if sel.limit, err = strconv.Atoi(s); err != nil || sel.limit < 1 || sel.limit > mostListed {
			return sel, brig.InvalidField("limit", "give 1 to %d", mostListed)
		}
	}
	if s := q.Get("nextToken"); s != "" {
		c, err := parseCursor(s)
		if err != nil {
			return sel, err
		}
		if c.asc != sel.asc {
			return sel, brig.InvalidField("nextToken", "it is of a list in the other order")
		}
		sel.from = &c
	}
	return sel, nil
}

// all reads the tenant's sandboxes that are wanted, in the order that is
// wanted. The answer says how many there are, so no page alone would do.
func (d *Door) all(ctx context.Context, sel selection) (out []*brig.Sandbox, err error) {
	if !sel.running {
		return nil, nil
	}
	o := brig.ListOptions{States: []brig.State{brig.Running}, Limit: readPage, Labels: map[string]string{labelDoor: "true"}}
	for k, v := range sel.metadata {
		o.Labels[k] = v
	}
	if sel.template != "" {
		o.Labels[labelTemplate] = d.templateName(sel.template)
	}
	after := sel.after.Truncate(time.Microsecond) // clients know no finer times
	for read := 0; read < mostRead; {
		page, err := d.Service.List(ctx, o)
		if err != nil {
			return nil, err
		}
		read += max(1, len(page.Sandboxes))
		for _, s := range page.Sandboxes {
			if !s.Created.Truncate(time.Microsecond).Before(after) {
				out = append(out, s)
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	slices.SortFunc(out, func(a, b *brig.Sandbox) int {
		if sel.asc {
			return older(a, b)
		}
		return older(b, a)
	})
	return out, nil
}

// older orders sandboxes by their age, and those of one moment by their ids.
func older(a, b *brig.Sandbox) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// page cuts a page out of all, and returns where the next one begins.
func (sel selection) page(all []*brig.Sandbox) ([]*brig.Sandbox, string) {
	if sel.from != nil {
		last := &brig.Sandbox{ID: brig.ID(sel.from.id), Created: sel.from.started}
		begin := slices.IndexFunc(all, func(s *brig.Sandbox) bool {
			if sel.asc {
				return older(s, last) > 0
			}
			return older(s, last) < 0
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
