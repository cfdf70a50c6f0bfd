package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// files is brig.Files of one sandbox.
type files struct {
	c    *Client
	name string
}

// Files implements brig.Service.
func (c *Client) Files(name string) brig.Files { return files{c, name} }

// request is one about a path, which goes into the query.
func (f files) request(method string, p brig.Path, rest ...string) request {
	q := url.Values{"path": {p.Name}}
	if p.User != "" {
		q.Set("user", p.User)
	}
	return request{method: method, path: sandboxPath(f.name, append([]string{"files"}, rest...)...), query: q}
}

// entry makes a request whose answer is an entry.
func (f files) entry(ctx context.Context, rq request, in any) (*brig.Entry, error) {
	var out wire.Entry
	if err := f.c.call(ctx, rq, in, &out); err != nil {
		return nil, err
	}
	return toEntry(out), nil
}

// Stat implements brig.Files.
func (f files) Stat(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return f.entry(ctx, f.request(http.MethodGet, p, "stat"), nil)
}

// List implements brig.Files.
func (f files) List(ctx context.Context, p brig.Path, depth int) ([]*brig.Entry, error) {
	rq := f.request(http.MethodGet, p)
	if depth > 0 { // less is as good as one
		rq.query.Set("depth", strconv.Itoa(depth))
	}
	var out wire.Entries
	if err := f.c.call(ctx, rq, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Entry
	for _, e := range out.Entries {
		list = append(list, toEntry(e))
	}
	return list, nil
}

// post makes a request that is a document.
func (f files) post(ctx context.Context, what string, in any) (*brig.Entry, error) {
	return f.entry(ctx, request{method: http.MethodPost, path: sandboxPath(f.name, "files", what)}, in)
}

// MakeDir implements brig.Files.
func (f files) MakeDir(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	if err := checkPaths(p); err != nil {
		return nil, err
	}
	return f.post(ctx, "mkdir", wire.MakeDirRequest{Path: p.Name, User: p.User})
}

// Move implements brig.Files.
func (f files) Move(ctx context.Context, from, to brig.Path) (*brig.Entry, error) {
	if err := checkPaths(from, to); err != nil {
		return nil, err
	}
	return f.post(ctx, "move", wire.MoveRequest{From: from.Name, To: to.Name, User: to.User})
}

// Remove implements brig.Files.
func (f files) Remove(ctx context.Context, p brig.Path) error {
	return f.c.call(ctx, f.request(http.MethodDelete, p), nil, nil)
}

// Compose implements brig.Files.
func (f files) Compose(ctx context.Context, from []brig.Path, to brig.Path) (*brig.Entry, error) {
	if err := checkPaths(append([]brig.Path{to}, from...)...); err != nil {
		return nil, err
	}
	in := wire.ComposeRequest{Sources: []string{}, Destination: to.Name, User: to.User}
	for _, p := range from {
		in.Sources = append(in.Sources, p.Name)
	}
	return f.post(ctx, "compose", in)
}

// checkPaths refuses what the wire cannot say: paths that are not text, and
// paths of several users in one request.
func checkPaths(paths ...brig.Path) error {
	var c checker
	for _, p := range paths {
		c.text("path", p.Name)
		c.text("user", p.User)
		if c.err == nil && p.User != paths[0].User {
			c.err = brig.InvalidField("user", "is not the same for all paths").WithHint("give absolute paths and one user")
		}
	}
	return c.err
}

// Watch implements brig.Files.
func (f files) Watch(ctx context.Context, p brig.Path, recursive bool, on func(brig.FileChange) error) error {
	rq := f.request(http.MethodGet, p, "watch")
	if rq.accept = wire.NDJSON; recursive {
		rq.query.Set("recursive", "true")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := f.c.send(ctx, rq)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return f.c.events(ctx, resp.Body, &wire.WatchEnd{}, func(event string, line []byte) error {
		switch event {
		case wire.EventWatching:
			return on(brig.FileChange{})
		case wire.EventChange:
			var c wire.Change
			if err := json.Unmarshal(line, &c); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
			return on(toChange(c))
		}
		return nil
	})
}

func toEntry(e wire.Entry) *brig.Entry {
	return &brig.Entry{
		Name: e.Name, Path: e.Path, Type: brig.EntryType(e.Type), Size: e.Size, Mode: e.Mode, Owner: e.Owner, Group: e.Group,
		Modified: e.Modified, Target: e.Target, Metadata: e.Metadata,
	}
}

func toChange(c wire.Change) brig.FileChange {
	out := brig.FileChange{Name: c.Name}
	for _, k := range c.Kinds {
		out.Kinds = append(out.Kinds, brig.ChangeKind(k))
	}
	if c.Entry != nil {
		out.Entry = toEntry(*c.Entry)
	}
	return out
}
