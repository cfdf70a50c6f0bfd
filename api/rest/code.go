package rest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// codeAPI has the handlers for interpreters that keep their variables.
type codeAPI struct{ *base }

// routes returns the routes of interpreters that keep their variables.
func (a codeAPI) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	return []route{
		{id: "create-context", method: post, pattern: "/v1/sandboxes/{name}/contexts", tag: "code", summary: "Start an interpreter that keeps its variables",
			handle: a.createContext, op: brig.OpCreateContext, in: v1.ContextRequest{}, optional: true, out: v1.Context{}, status: http.StatusCreated},
		{id: "list-contexts", method: get, pattern: "/v1/sandboxes/{name}/contexts", tag: "code", summary: "List a sandbox's contexts, oldest first",
			handle: a.contexts, out: v1.Contexts{}},
		{id: "run-code", method: post, pattern: "/v1/sandboxes/{name}/code", tag: "code", summary: "Run code in a context",
			handle: a.runCode, op: brig.OpRunCode, maxBody: httpapi.MaxBody, in: v1.CodeRequest{}, out: v1.CodeAnswer{},
			events: []string{v1.EventCodeStarted, v1.EventStdout, v1.EventStderr, v1.EventOutput, v1.EventException, v1.EventPing}},
		{id: "interrupt-context", method: post, pattern: "/v1/sandboxes/{name}/contexts/{id}/interrupt", tag: "code", summary: "Interrupt running code, like Ctrl-C",
			handle: a.interruptContext, status: http.StatusNoContent},
		{id: "restart-context", method: post, pattern: "/v1/sandboxes/{name}/contexts/{id}/restart", tag: "code", summary: "Restart an interpreter",
			handle: a.restartContext, out: v1.Context{}},
		{id: "remove-context", method: del, pattern: "/v1/sandboxes/{name}/contexts/{id}", tag: "code", summary: "End an interpreter",
			handle: a.removeContext, status: http.StatusNoContent},
		{id: "pool", method: get, pattern: "/v1/pool", tag: "server", summary: "Get the warm pool",
			handle: a.pool, out: v1.Pool{}},
	}
}

func (a codeAPI) createContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ContextRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	language, err := v1.ToContextLanguage(in.Language)
	if err != nil {
		return err
	}
	c, err := a.Service.CreateContext(r.Context(), param(r, "name"), brig.ContextSpec{Language: language, Dir: in.Cwd, Env: in.Env})
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromContext(c))
}

func (a codeAPI) contexts(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Contexts(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromContexts(list))
}

func (a codeAPI) interruptContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.InterruptContext(r.Context(), param(r, "name"), param(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a codeAPI) restartContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	c, err := a.Service.RestartContext(r.Context(), param(r, "name"), param(r, "id"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromContext(c))
}

func (a codeAPI) removeContext(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveContext(r.Context(), param(r, "name"), param(r, "id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a codeAPI) runCode(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.CodeRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	code, err := in.Domain()
	if err != nil {
		return err
	}
	ndjson, sse := acceptedFormat(r)
	if !in.Stream && !ndjson && !sse {
		res, err := a.Service.RunCode(r.Context(), param(r, "name"), code, nil)
		if err != nil {
			return err
		}
		return httpapi.WriteJSON(w, http.StatusOK, v1.FromCodeResult(res))
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	res, err := a.streamCode(ctx, param(r, "name"), code, s)
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(v1.FromCodeResult(res), nil)
}

// streamCode runs code and sends its events as they happen.
func (a codeAPI) streamCode(ctx context.Context, name string, code brig.Code, s *stream) (*brig.CodeResult, error) {
	var all outputs
	stdout, stderr := s.writerFor(v1.EventStdout, true, &all), s.writerFor(v1.EventStderr, true, &all)
	return a.Service.RunCode(ctx, name, code, func(e brig.CodeEvent) error {
		switch {
		case e.Stdout != nil:
			_, err := stdout.Write(e.Stdout)
			return err
		case e.Stderr != nil:
			_, err := stderr.Write(e.Stderr)
			return err
		}
		// An event follows the output, so flush incomplete characters as they
		// are.
		if err := all.flush(); err != nil {
			return err
		}
		switch {
		case e.Started != nil:
			return s.send(v1.EventCodeStarted, v1.CodeStarted{Context: e.Started.Context, Count: e.Started.Count})
		case e.Output != nil:
			return s.send(v1.EventOutput, v1.FromRichValue(*e.Output))
		case e.Error != nil:
			return s.send(v1.EventException, v1.Exception(*e.Error))
		}
		return nil
	})
}

func (a codeAPI) pool(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	classes, err := a.Service.Pool(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromPool(classes))
}
