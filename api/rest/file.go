package rest

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) files(r *http.Request) brig.Files { return a.Service.Files(param(r, "name")) }

func (a *api) listFiles(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	depth, err := number(q, "depth")
	if err != nil {
		return err
	}
	list, err := a.files(r).List(r.Context(), p, depth)
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromEntries(list))
}

func (a *api) stat(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	e, err := a.files(r).Stat(r.Context(), p)
	return answerEntry(w, http.StatusOK, e, err)
}

func answerEntry(w http.ResponseWriter, status int, e *brig.Entry, err error) error {
	if err != nil {
		return err
	}
	return door.WriteJSON(w, status, fromEntry(e))
}

func (a *api) makeDir(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.MakeDirRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := named("path", in.Path); err != nil {
		return err
	}
	e, err := a.files(r).MakeDir(r.Context(), brig.Path{Name: in.Path, User: in.User})
	return answerEntry(w, http.StatusCreated, e, err)
}

func (a *api) move(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.MoveRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := named("from", in.From, "to", in.To); err != nil {
		return err
	}
	from, to := brig.Path{Name: in.From, User: in.User}, brig.Path{Name: in.To, User: in.User}
	e, err := a.files(r).Move(r.Context(), from, to)
	return answerEntry(w, http.StatusOK, e, err)
}

func (a *api) removeFile(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	if err := named("path", p.Name); err != nil {
		return err
	}
	if err := a.files(r).Remove(r.Context(), p); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) compose(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.ComposeRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := named("destination", in.Destination); err != nil {
		return err
	}
	var from []brig.Path
	for i, name := range in.Sources {
		if err := named(fmt.Sprintf("source_paths[%d]", i), name); err != nil {
			return err
		}
		from = append(from, brig.Path{Name: name, User: in.User})
	}
	e, err := a.files(r).Compose(r.Context(), from, brig.Path{Name: in.Destination, User: in.User})
	return answerEntry(w, http.StatusOK, e, err)
}

func (a *api) upload(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := door.MediaType(r, wire.Octets); err != nil {
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
	door.LongBody(w)
	e, err := a.files(r).Write(r.Context(), p, as, archive{r.Body})
	return answerEntry(w, http.StatusOK, e, err)
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, q url.Values) error {
	p, err := toPath(q)
	if err != nil {
		return err
	}
	recursive, err := yes(q, "recursive")
	if err != nil {
		return err
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	err = a.files(r).Watch(ctx, p, recursive, func(c brig.FileChange) error {
		if len(c.Kinds) == 0 {
			return s.send(wire.EventWatching, struct{}{})
		}
		return s.send(wire.EventChange, fromChange(c))
	})
	return s.end(wire.WatchEnd{}, err)
}
