package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// sandboxAPI has the handlers for sandboxes.
type sandboxAPI struct{ *base }

// routes returns the routes of sandboxes.
func (a sandboxAPI) routes() []route {
	get, post, put, del := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	return []route{
		{id: "create-sandbox", method: post, pattern: "/v1/sandboxes", tag: "sandboxes", summary: "Create a sandbox",
			handle: a.create, op: brig.OpCreate, in: v1.Spec{}, out: v1.Sandbox{}, status: http.StatusCreated},
		{id: "list-sandboxes", method: get, pattern: "/v1/sandboxes", tag: "sandboxes", summary: "List sandboxes, newest first",
			notes: "A page of sandboxes with large environments is shorter than its limit; next_cursor is set if there are more.",
			large: true, handle: a.list, out: v1.Sandboxes{}, query: []parameter{
				{name: "label", doc: "label as key=value; all must match", repeated: true, pattern: labelPattern, example: []string{"team=search"}},
				{name: "state", doc: "only sandboxes in these states", repeated: true, enum: stateNames(), example: []string{"running"}},
				{name: "limit", doc: "page size; default 100", number: true, min: 1, max: 1000, example: 100},
				{name: "cursor", doc: "next_cursor of the previous page"},
			}},
		{id: "get-sandbox", method: get, pattern: "/v1/sandboxes/{name}", tag: "sandboxes", summary: "Get a sandbox by name or ID",
			handle: a.get, out: v1.Sandbox{}},
		{id: "get-sandbox-usage", method: get, pattern: "/v1/sandboxes/{name}/usage", tag: "sandboxes", summary: "Measure a running sandbox",
			handle: a.sandboxUsage, out: v1.SandboxUsage{}},
		{id: "remove-sandbox", method: del, pattern: "/v1/sandboxes/{name}", tag: "sandboxes", summary: "Remove a sandbox",
			handle: a.remove, status: http.StatusNoContent},
		{id: "stop-sandbox", method: post, pattern: "/v1/sandboxes/{name}/stop", tag: "sandboxes", summary: "Stop a sandbox",
			handle: a.stop, op: brig.OpStop, in: v1.StopRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "kill-sandbox", method: post, pattern: "/v1/sandboxes/{name}/kill", tag: "sandboxes", summary: "Kill a sandbox",
			handle: a.changeHandler(brig.Service.Kill), op: brig.OpKill, in: v1.KillRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "extend-sandbox", method: post, pattern: "/v1/sandboxes/{name}/extend", tag: "sandboxes", summary: "Extend a sandbox's lease",
			handle: a.extend, op: brig.OpExtend, in: v1.ExtendRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "pause-sandbox", method: post, pattern: "/v1/sandboxes/{name}/pause", tag: "sandboxes", summary: "Save a sandbox's memory and files on disk, and end its processes on the host",
			notes:  "While calls use the sandbox, or a program runs in it that cannot be saved, the answer is 409 and the sandbox runs on; the message names the program. With files_only no program prevents the pause: only the files are kept, without /tmp and /dev/shm.",
			handle: a.pause, op: brig.OpPause, in: v1.PauseRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "resume-sandbox", method: post, pattern: "/v1/sandboxes/{name}/resume", tag: "sandboxes", summary: "Continue a paused sandbox, as each use of it does",
			handle: a.changeHandler(brig.Service.Resume), op: brig.OpResume, in: v1.ResumeRequest{}, optional: true, out: v1.Sandbox{}},
		{id: "fork-sandbox", method: post, pattern: "/v1/sandboxes/{name}/fork", tag: "sandboxes", summary: "Create copies of a running sandbox",
			notes:  "While calls use the sandbox, or a program runs in it that cannot be saved, the answer is 409 and the sandbox runs on; the message names the program. After an error there are no copies.",
			handle: a.fork, op: brig.OpFork, in: v1.ForkRequest{}, optional: true, out: v1.Copies{}, status: http.StatusCreated},
		{id: "set-egress", method: put, pattern: "/v1/sandboxes/{name}/egress", tag: "sandboxes", summary: "Change a sandbox's egress rules",
			handle: a.setEgress, op: brig.OpSetEgress, in: v1.EgressChange{}, out: v1.Sandbox{}},
		{id: "logs", method: get, pattern: "/v1/sandboxes/{name}/logs", tag: "sandboxes", summary: "Get a sandbox's logs",
			notes:  "With follow=true, or with an Accept header for it, the answer is a stream of events. A log that is followed counts as use of the sandbox.",
			handle: a.logs, text: true, out: v1.LogEnd{}, events: []string{v1.EventLog, v1.EventPing}, query: []parameter{
				{name: "tail", doc: "number of last lines; 0 for all", number: true, max: 1<<31 - 1, example: 100},
				{name: "times", doc: "true to prefix each line with its time in UTC", boolean: true},
				{name: "follow", doc: "true to continue with the later output of the programs, until the sandbox ends", boolean: true},
			}},
	}
}

func (a sandboxAPI) create(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.Spec
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := in.Check(); err != nil {
		return err
	}
	s, err := a.Service.Create(r.Context(), in.Domain())
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/sandboxes/"+url.PathEscape(s.Spec.Name))
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromSandbox(s))
}

func (a sandboxAPI) get(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	s, err := a.Service.Get(r.Context(), param(r, "name"))
	return writeSandbox(w, s, err)
}

func (a sandboxAPI) sandboxUsage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	u, err := a.Service.Usage(r.Context(), param(r, "name"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromSandboxUsage(u))
}

func (a sandboxAPI) list(w http.ResponseWriter, r *http.Request, q url.Values) error {
	o, err := listOptions(q)
	if err != nil {
		return err
	}
	page, err := a.Service.List(r.Context(), o)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromPage(page))
}

func (a sandboxAPI) remove(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.Remove(r.Context(), param(r, "name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a sandboxAPI) stop(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.StopRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	if err := v1.CheckDuration("grace_ms", in.GraceMS); err != nil {
		return err
	}
	s, err := a.Service.Stop(r.Context(), param(r, "name"), v1.ToDuration(in.GraceMS))
	return writeSandbox(w, s, err)
}

// changeHandler returns the handler for a call that changes a sandbox and whose
// request has no fields.
func (a sandboxAPI) changeHandler(call func(brig.Service, context.Context, string) (*brig.Sandbox, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, _ url.Values) error {
		if err := httpapi.ReadJSON(w, r, &struct{}{}, true); err != nil {
			return err
		}
		s, err := call(a.Service, r.Context(), param(r, "name"))
		return writeSandbox(w, s, err)
	}
}

func (a sandboxAPI) pause(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.PauseRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	s, err := a.Service.Pause(r.Context(), param(r, "name"), brig.PauseOptions{FilesOnly: in.FilesOnly})
	return writeSandbox(w, s, err)
}

func (a sandboxAPI) extend(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ExtendRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	if err := v1.CheckDuration("ttl_ms", in.TTLMS); err != nil {
		return err
	}
	s, err := a.Service.Extend(r.Context(), param(r, "name"), v1.ToDuration(in.TTLMS))
	return writeSandbox(w, s, err)
}

func (a sandboxAPI) fork(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.ForkRequest
	if err := httpapi.ReadJSON(w, r, &in, true); err != nil {
		return err
	}
	if err := v1.CheckDuration("ttl_ms", in.TTLMS); err != nil {
		return err
	}
	if in.PauseFiles && in.PauseAtEnd == nil {
		return brig.InvalidField("pause_files_only", "it needs pause_at_end").WithHint("add pause_at_end, or leave it out")
	}
	copies, err := a.Service.Fork(r.Context(), param(r, "name"), in.Domain())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusCreated, v1.FromCopies(copies))
}

func (a sandboxAPI) setEgress(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.EgressChange
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	rules := in.Domain()
	if in.Rules == nil {
		now, err := a.Service.Get(r.Context(), param(r, "name"))
		if err != nil {
			return err
		}
		rules.Rules = now.Spec.Egress.Rules
	}
	s, err := a.Service.SetEgress(r.Context(), param(r, "name"), rules)
	return writeSandbox(w, s, trimFieldPrefix(err, "egress"))
}

// trimFieldPrefix removes the prefix noun from the field of an error, for a
// request whose body consists of this object only.
func trimFieldPrefix(err error, noun string) error {
	e, ok := errors.AsType[*brig.Error](err)
	if !ok {
		return err
	}
	field, ok := strings.CutPrefix(e.Field, noun+".")
	if !ok {
		return err
	}
	named := *e
	named.Field = field
	return &named
}

func writeSandbox(w http.ResponseWriter, s *brig.Sandbox, err error) error {
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromSandbox(s))
}

// streamLogs sends a log as events.
func (a sandboxAPI) streamLogs(w http.ResponseWriter, r *http.Request, o brig.LogOptions) error {
	s, ctx, stop := newStream(w, r)
	defer stop()
	logs, err := a.Service.Logs(ctx, param(r, "name"), o)
	if err != nil {
		return err
	}
	defer logs.Close()
	if err := s.send(v1.EventPing, struct{}{}); err != nil { // the log may be silent for a long time
		return s.end(nil, err)
	}
	out := &output{s: s, event: v1.EventLog}
	_, err = io.Copy(out, logs)
	if err == nil {
		err = out.flush()
	}
	return s.end(v1.LogEnd{}, err)
}

func (a sandboxAPI) logs(w http.ResponseWriter, r *http.Request, q url.Values) error {
	tail, err := intParameter(q, "tail")
	if err != nil {
		return err
	}
	timed, err := boolean(q, "times")
	if err != nil {
		return err
	}
	follow, err := boolean(q, "follow")
	if err != nil {
		return err
	}
	o := brig.LogOptions{Tail: tail, Times: timed, Follow: follow && r.Method != http.MethodHead}
	if ndjson, sse := acceptedFormat(r); ndjson || sse || o.Follow {
		return a.streamLogs(w, r, o)
	}
	logs, err := a.Service.Logs(r.Context(), param(r, "name"), o)
	if err != nil {
		return err
	}
	defer logs.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, logs); err != nil && r.Context().Err() == nil {
		return fmt.Errorf("send log: %w", err)
	}
	return nil
}
