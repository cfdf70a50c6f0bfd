package rest

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

func (a *sandboxAPI) files(r *http.Request) brig.Files { return a.Service.Files(param(r, "name")) }

func (a *sandboxAPI) listFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
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

func (a *sandboxAPI) stat(w http.ResponseWriter, r *http.Request, q url.Values) error {
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

func (a *sandboxAPI) makeDir(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) move(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) removeFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
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

func (a *sandboxAPI) compose(w http.ResponseWriter, r *http.Request, _ url.Values) error {
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

func (a *sandboxAPI) upload(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := httpapi.MediaType(r, v1.Octets); err != nil {
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
	httpapi.LongBody(r)
	e, err := a.files(r).Write(r.Context(), p, as, archive{r.Body})
	return writeEntry(w, http.StatusOK, e, err)
}

func (a *sandboxAPI) watch(w http.ResponseWriter, r *http.Request, q url.Values) error {
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
