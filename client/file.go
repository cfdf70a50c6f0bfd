package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// fileCalls are the calls for files.
type fileCalls struct{ *conn }

// files implements brig.Files for one sandbox.
type files struct {
	c    *conn
	name string
}

// Files implements brig.Service.
func (c fileCalls) Files(name string) brig.Files { return files{c.conn, name} }

// newRequest returns a request with a path in its query.
func (f files) newRequest(method string, p brig.Path, rest ...string) request {
	q := url.Values{"path": {p.Name}}
	if p.User != "" {
		q.Set("user", p.User)
	}
	return request{method: method, path: sandboxPath(f.name, append([]string{"files"}, rest...)...), query: q}
}

// sendEntry sends a request whose response is an entry.
func (f files) sendEntry(ctx context.Context, rq request, in any) (*brig.Entry, error) {
	var out v1.Entry
	if err := f.c.call(ctx, rq, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Stat implements brig.Files.
func (f files) Stat(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return f.sendEntry(ctx, f.newRequest(http.MethodGet, p, "stat"), nil)
}

// List implements brig.Files.
func (f files) List(ctx context.Context, p brig.Path, depth int) ([]*brig.Entry, error) {
	rq := f.newRequest(http.MethodGet, p)
	if depth > 0 { // lower values mean 1
		rq.query.Set("depth", strconv.Itoa(depth))
	}
	var out v1.Entries
	if err := f.c.call(ctx, rq, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.Entry
	for _, e := range out.Entries {
		list = append(list, e.Domain())
	}
	return list, nil
}

// postJSON sends a request with a JSON document.
func (f files) postJSON(ctx context.Context, what string, in any) (*brig.Entry, error) {
	return f.sendEntry(ctx, request{method: http.MethodPost, path: sandboxPath(f.name, "files", what)}, in)
}

// MakeDir implements brig.Files.
func (f files) MakeDir(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	if err := checkPaths(p); err != nil {
		return nil, err
	}
	return f.postJSON(ctx, "mkdir", v1.MakeDirRequest{Path: p.Name, User: p.User})
}

// Move implements brig.Files.
func (f files) Move(ctx context.Context, from, to brig.Path) (*brig.Entry, error) {
	if err := checkPaths(from, to); err != nil {
		return nil, err
	}
	return f.postJSON(ctx, "move", v1.MoveRequest{From: from.Name, To: to.Name, User: to.User})
}

// Remove implements brig.Files.
func (f files) Remove(ctx context.Context, p brig.Path) error {
	return f.c.call(ctx, f.newRequest(http.MethodDelete, p), nil, nil)
}

// Compose implements brig.Files.
func (f files) Compose(ctx context.Context, from []brig.Path, to brig.Path) (*brig.Entry, error) {
	if err := checkPaths(append([]brig.Path{to}, from...)...); err != nil {
		return nil, err
	}
	in := v1.ComposeRequest{Sources: []string{}, Destination: to.Name, User: to.User}
	for _, p := range from {
		in.Sources = append(in.Sources, p.Name)
	}
	return f.postJSON(ctx, "compose", in)
}

// checkPaths rejects paths that a request cannot represent: paths that are not
// valid UTF-8, and paths of different users in one request.
func checkPaths(paths ...brig.Path) error {
	var c checker
	for _, p := range paths {
		c.checkText("path", p.Name)
		c.checkText("user", p.User)
		if c.err == nil && p.User != paths[0].User {
			c.err = brig.InvalidField("user", "is not the same for all paths").WithHint("give absolute paths and one user")
		}
	}
	return c.err
}

// Watch implements brig.Files.
func (f files) Watch(ctx context.Context, p brig.Path, recursive bool, on func(brig.FileChange) error) error {
	rq := f.newRequest(http.MethodGet, p, "watch")
	if rq.accept = v1.NDJSON; recursive {
		rq.query.Set("recursive", "true")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := f.c.send(ctx, rq)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return f.c.readEvents(ctx, resp.Body, &v1.WatchEnd{}, func(event string, line []byte) error {
		switch event {
		case v1.EventWatching:
			return on(brig.FileChange{})
		case v1.EventChange:
			var c v1.Change
			if err := json.Unmarshal(line, &c); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
			return on(c.Domain())
		}
		return nil
	})
}
