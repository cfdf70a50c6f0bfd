package e2b

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// codeRequest is a request to run code.
type codeRequest struct {
	Code      *string           `json:"code"`
	ContextID string            `json:"context_id"`
	Language  string            `json:"language"`
	EnvVars   map[string]string `json:"env_vars"`
}

// execute runs code and streams its events, one JSON document per line. If the
// client disconnects, the code is interrupted.
func (i *interpreter) execute(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) error {
	var in codeRequest
	if err := readCodeRequest(w, r, &in); err != nil {
		return err
	}
	switch {
	case in.Code == nil:
		return httpapi.WithStatus(http.StatusUnprocessableEntity, brig.InvalidField("code", "it is required"))
	case in.ContextID != "" && in.Language != "":
		return brig.Errorf(brig.InvalidArgument, "Only one of context_id or language can be provided")
	}
	code := brig.Code{Context: in.ContextID, Source: *in.Code, Env: in.EnvVars, Timeout: i.LimitRange.MaxTimeout}
	if code.Source == "" {
		code.Source = "\n" // E2B allows empty code
	}
	name := in.Language
	if l, ok := strings.CutPrefix(in.ContextID, defaultPrefix); ok {
		code.Context, name = "", l
	}
	var l brig.Language
	if code.Context == "" {
		var err error
		if l, err = language(name); err != nil {
			return err
		}
	}
	lines, ctx, stop := newLines(w, r, i.keepaliveInterval, i.flushDelay, code.Context == "")
	defer stop()
	res, err := i.run(ctx, s, code, l, lines)
	switch {
	case err == nil && res.SandboxEnded != "":
		i.abandon(w, r, s, lines, stop)
		return nil
	case err == nil:
		return lines.finish(res)
	}
	if !lines.hasBegun() {
		if brig.KindOf(err) == brig.NotFound && in.ContextID != "" && !i.finder.hasEnded(r, s, err) {
			return errNoContext(in.ContextID)
		}
		if brig.KindOf(err) == brig.InvalidArgument && brig.AsError(err).Field == "language" {
			return errStatus(http.StatusInternalServerError, err)
		}
		if brig.KindOf(err) == brig.PolicyBlocked {
			return lines.fail(err) // an error for the author of the code
		}
		return err
	}
	if r.Context().Err() != nil || i.finder.hasEnded(r, s, err) {
		_ = lines.flush()
		httpapi.Abort(w) // if the response ended normally, it would look complete
		return nil
	}
	httpapi.Log(r, err)
	return lines.fail(err)
}

// abandon ends the response to code that ended with its sandbox. The client
// receives the output of the code and then loses the connection, as with E2B's
// service. It then requests the state of the sandbox and raises its own error.
// A normal end of the stream would look like finished code.
func (i *interpreter) abandon(w http.ResponseWriter, r *http.Request, s *brig.Sandbox, lines *lines, stop func()) {
	_ = lines.flushText() // fails if the client has disconnected
	stop()                // from here on, no timer begins the response
	if lines.hasBegun() {
		httpapi.Abort(w)
		return
	}
	i.writeGone(w, r, target{id: string(s.ID), port: portCode})
}

// run runs code in the context of its request, or in the default context of its
// language. It retries once if that default context has been removed.
func (i *interpreter) run(ctx context.Context, s *brig.Sandbox, code brig.Code, l brig.Language, lines *lines) (res *brig.CodeResult, err error) {
	if code.Context != "" {
		return i.Service.RunCode(ctx, string(s.ID), code, lines.event)
	}
	stale := ""
	for range 2 {
		if code.Context, err = i.defaultContext(ctx, s, l, stale); err != nil {
			return nil, err
		}
		lines.resolved()
		res, err = i.Service.RunCode(ctx, string(s.ID), code, lines.event)
		if brig.KindOf(err) != brig.NotFound || lines.hasRun() {
			break
		}
		stale = code.Context
	}
	return res, err
}

// timestamp formats the current time as E2B does.
func timestamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00") }
