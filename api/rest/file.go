package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// fileAPI has the handlers for files in sandboxes.
type fileAPI struct{ *base }

// routes returns the routes of files in sandboxes.
func (a fileAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	file := []parameter{
		{name: "path", doc: "absolute, or relative to the sandbox's working directory (default_cwd or /workspace); ~ is the user's home", required: true, maxLength: maxPath, pattern: pathPattern, example: "/workspace/a"},
		{name: "user", doc: "user whose rights and home apply, and who owns new files: user (the default), root, or the IDs of another user and its group, such as 1001:1001"},
	}
	return []route{
		{id: "read-file", method: get, pattern: "/v1/sandboxes/{name}/files/content", tag: "files", summary: "Download a regular file",
			notes:  "A Range header with one range works, but not together with offset and length. The header X-Entry has the file's Entry, as JSON in ASCII. If a download fails midway, the connection breaks.",
			handle: a.download, file: true, query: append(slices.Clone(file),
				parameter{name: "offset", doc: "offset of the first byte; default 0", number: true, example: 0},
				parameter{name: "length", doc: "maximum number of bytes; default: to the end", number: true, example: 1024})},
		{id: "write-file", method: put, pattern: "/v1/sandboxes/{name}/files/content", tag: "files", summary: "Upload a file",
			notes:  "Replaces an existing file in place, and creates missing directories. Headers X-Metadata-… become the file's metadata, with names in lower case.",
			handle: a.upload, op: brig.OpWrite, octets: true, out: v1.Entry{}, query: append(slices.Clone(file),
				parameter{name: "mode", doc: "permission bits in octal digits; default 0644 for a new file, unchanged for an existing one", pattern: "^[0-7]{1,3}$|^0[0-7]{3}$", example: "0644"})},
		{id: "list-files", method: get, pattern: "/v1/sandboxes/{name}/files", tag: "files", summary: "List a directory",
			handle: a.listFiles, out: v1.Entries{}, query: append(slices.Clone(file),
				parameter{name: "depth", doc: "number of levels; default 1", number: true, max: 1<<31 - 1, example: 1})},
		{id: "stat-file", method: get, pattern: "/v1/sandboxes/{name}/files/stat", tag: "files", summary: "Get a file's properties",
			handle: a.stat, out: v1.Entry{}, query: file},
		{id: "make-directory", method: post, pattern: "/v1/sandboxes/{name}/files/mkdir", tag: "files", summary: "Create a directory and its parents",
			handle: a.makeDir, op: brig.OpMakeDir, in: v1.MakeDirRequest{}, out: v1.Entry{}, status: http.StatusCreated},
		{id: "move-file", method: post, pattern: "/v1/sandboxes/{name}/files/move", tag: "files", summary: "Move a file or directory",
			handle: a.move, op: brig.OpMove, in: v1.MoveRequest{}, out: v1.Entry{}},
		{id: "remove-file", method: del, pattern: "/v1/sandboxes/{name}/files", tag: "files", summary: "Remove a file or directory",
			handle: a.removeFile, status: http.StatusNoContent, query: append([]parameter{{name: "path", doc: file[0].doc, required: true, nonempty: true, maxLength: maxPath, pattern: pathPattern, example: file[0].example}}, file[1:]...)},
		{id: "compose-file", method: post, pattern: "/v1/sandboxes/{name}/files/compose", tag: "files", summary: "Join files",
			handle: a.compose, op: brig.OpCompose, in: v1.ComposeRequest{}, out: v1.Entry{}},
		{id: "watch-files", method: get, pattern: "/v1/sandboxes/{name}/files/watch", tag: "files", summary: "Watch a directory for changes",
			handle: a.watch, longLived: true, out: v1.WatchEnd{}, events: []string{v1.EventWatching, v1.EventChange, v1.EventPing},
			query: append(slices.Clone(file), parameter{name: "recursive", doc: "true to include its subdirectories", boolean: true})},
	}
}

func (a fileAPI) files(r *http.Request) brig.Files { return a.Service.Files(param(r, "name")) }

func (a fileAPI) listFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	depth, err := intParameter(q, "depth")
	if err != nil {
		return err
	}
	list, err := a.files(r).List(r.Context(), p, depth)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromEntries(list))
}

func (a fileAPI) stat(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	e, err := a.files(r).Stat(r.Context(), p)
	return writeEntry(w, http.StatusOK, e, err)
}

func writeEntry(w http.ResponseWriter, status int, e *brig.Entry, err error) error {
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, status, v1.FromEntry(e))
}

func (a fileAPI) makeDir(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.MakeDirRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := requirePath("path", in.Path); err != nil {
		return err
	}
	e, err := a.files(r).MakeDir(r.Context(), brig.Path{Name: in.Path, User: in.User})
	return writeEntry(w, http.StatusCreated, e, err)
}

func (a fileAPI) move(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.MoveRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := requirePath("from", in.From, "to", in.To); err != nil {
		return err
	}
	from, to := brig.Path{Name: in.From, User: in.User}, brig.Path{Name: in.To, User: in.User}
	e, err := a.files(r).Move(r.Context(), from, to)
	return writeEntry(w, http.StatusOK, e, err)
}

func (a fileAPI) removeFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	if err := requirePath("path", p.Name); err != nil {
		return err
	}
	if err := a.files(r).Remove(r.Context(), p); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a fileAPI) compose(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ComposeRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := requirePath("destination", in.Destination); err != nil {
		return err
	}
	var from []brig.Path
	for i, name := range in.Sources {
		if err := requirePath(fmt.Sprintf("source_paths[%d]", i), name); err != nil {
			return err
		}
		from = append(from, brig.Path{Name: name, User: in.User})
	}
	e, err := a.files(r).Compose(r.Context(), from, brig.Path{Name: in.Destination, User: in.User})
	return writeEntry(w, http.StatusOK, e, err)
}

func (a fileAPI) upload(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := httpapi.CheckMediaType(r, v1.Octets); err != nil {
		return err
	}
	p, err := toPath(q)
	if err != nil {
		return err
	}
	as, err := toFileWrite(r, q)
	if err != nil {
		return err
	}
	httpapi.AllowLongBody(r)
	e, err := a.files(r).Write(r.Context(), p, as, archive{r.Body})
	return writeEntry(w, http.StatusOK, e, err)
}

func (a fileAPI) watch(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	recursive, err := boolean(q, "recursive")
	if err != nil {
		return err
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	err = a.files(r).Watch(ctx, p, recursive, func(c brig.FileChange) error {
		if len(c.Kinds) == 0 {
			return s.send(v1.EventWatching, struct{}{})
		}
		return s.send(v1.EventChange, v1.FromChange(c))
	})
	return s.end(v1.WatchEnd{}, err)
}
