package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

func (a *api) createContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.ContextRequest
	if err := door.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	language, err := toLanguage(in.Language)
	if err != nil {
		return err
	}
	c, err := a.Service.CreateContext(r.Context(), param(r, "name"), brig.ContextSpec{Language: language, Dir: in.Cwd, Env: in.Env})
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusCreated, fromContext(c))
}

func (a *api) contexts(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Contexts(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromContexts(list))
}

func fromContexts(list []*brig.CodeContext) wire.Contexts {
	out := wire.Contexts{Contexts: []wire.Context{}}
	for _, c := range list {
		out.Contexts = append(out.Contexts, fromContext(c))
	}
	return out
}

func (a *api) interruptContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.InterruptContext(r.Context(), param(r, "name"), param(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) restartContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	c, err := a.Service.RestartContext(r.Context(), param(r, "name"), param(r, "id"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromContext(c))
}

func (a *api) removeContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveContext(r.Context(), param(r, "name"), param(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) runCode(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.CodeRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	code, err := toCode(in)
	if err != nil {
		return err
	}
	ndjson, sse := accepts(r)
	if !in.Stream && !ndjson && !sse {
		res, err := a.Service.RunCode(r.Context(), param(r, "name"), code, nil)
		if err != nil {
			return err
		}
		return door.WriteJSON(w, http.StatusOK, fromCode(res))
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	res, err := a.streamCode(ctx, param(r, "name"), code, s)
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(fromCode(res), nil)
}

// streamCode runs code and sends what happens as it happens.
func (a *api) streamCode(ctx context.Context, name string, code brig.Code, s *stream) (*brig.CodeResult, error) {
	var all outputs
	stdout, stderr := s.to(wire.EventStdout, true, &all), s.to(wire.EventStderr, true, &all)
	return a.Service.RunCode(ctx, name, code, func(e brig.CodeEvent) error {
		switch {
		case e.Stdout != nil:
			_, err := stdout.Write(e.Stdout)
			return err
		case e.Stderr != nil:
			_, err := stderr.Write(e.Stderr)
			return err
		}
		// What was held back of a character is not going to become whole.
		if err := all.flush(); err != nil {
			return err
		}
		switch {
		case e.Started != nil:
			return s.send(wire.EventCodeStarted, wire.CodeStarted{Context: e.Started.Context, Count: e.Started.Count})
		case e.Output != nil:
			return s.send(wire.EventOutput, wire.Rich{Data: e.Output.Data, Main: e.Output.Main})
		case e.Error != nil:
			return s.send(wire.EventException, wire.Exception(*e.Error))
		}
		return nil
	})
}

func (a *api) pool(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	shelves, err := a.Service.Pool(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromPool(shelves))
}

func fromPool(shelves []brig.PoolShelf) wire.Pool {
	out := wire.Pool{Shelves: []wire.Shelf{}}
	for _, s := range shelves {
		out.Shelves = append(out.Shelves, wire.Shelf{
			Provider: s.Provider, Image: s.Image, Language: string(s.Language), Limits: fromLimits(s.Limits),
			Target: s.Target, Ready: s.Ready, Making: s.Making, Hits: s.Hits, Misses: s.Misses, Failed: s.Failed,
			RefillMS: wire.Millis(s.Refill),
		})
	}
	return out
}

func toLanguage(s string) (brig.Language, error) {
	if s == "" {
		return "", nil
	}
	return brig.ParseContextLanguage(s)
}

func toCode(in wire.CodeRequest) (brig.Code, error) {
	language, err := toLanguage(in.Language)
	if err != nil {
		return brig.Code{}, err
	}
	timeout, err := toDuration("timeout_ms", in.TimeoutMS)
	return brig.Code{Context: in.Context, Language: language, Source: in.Code, Env: in.Env, Timeout: timeout}, err
}

func fromContext(c *brig.CodeContext) wire.Context {
	return wire.Context{
		ID: c.ID, Sandbox: string(c.Sandbox), Language: string(c.Spec.Language), Cwd: c.Spec.Dir, Env: c.Spec.Env,
		State: string(c.State), Flavor: c.Flavor, Version: c.Version, Count: c.Count, Created: c.Created,
	}
}

func fromCode(r *brig.CodeResult) wire.CodeAnswer {
	out := wire.CodeAnswer{
		Context: r.Context, Count: r.Count, Outputs: fromOutputs(r.Stdout, r.Stderr), Results: fromRich(r.Outputs),
		TimedOut: r.TimedOut, Interrupted: r.Interrupted, Lost: r.Lost,
		Started: r.Started, DurationMS: wire.Millis(r.Duration), QueuedMS: wire.Millis(r.Queued),
	}
	for _, o := range r.Outputs {
		if o.Main {
			// A guest may say that its text is something else: then there is none.
			_ = json.Unmarshal(o.Data["text/plain"], &out.Text)
		}
	}
	if r.Error != nil {
		e := wire.Exception(*r.Error)
		out.Error = &e
	}
	return out
}

// fromRich is values in several forms.
func fromRich(values []brig.Rich) []wire.Rich {
	out := make([]wire.Rich, 0, len(values))
	for _, v := range values {
		out = append(out, wire.Rich{Data: v.Data, Main: v.Main})
	}
	return out
}
