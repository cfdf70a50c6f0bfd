package e2b

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
)

// cell is a piece of code that a client wants to run.
type cell struct {
	Code      *string           `json:"code"`
	ContextID string            `json:"context_id"`
	Language  string            `json:"language"`
	EnvVars   map[string]string `json:"env_vars"`
}

// execute runs code and streams what it does, one JSON document to a line.
// When the client goes away the code is interrupted.
func (d *Door) execute(w http.ResponseWriter, r *http.Request, s *brig.Sandbox) error {
	var in cell
	if err := readCell(w, r, &in); err != nil {
		return err
	}
	switch {
	case in.Code == nil:
		return door.WithStatus(http.StatusUnprocessableEntity, brig.InvalidField("code", "it is required"))
	case in.ContextID != "" && in.Language != "":
		return brig.Errorf(brig.InvalidArgument, "Only one of context_id or language can be provided")
	}
	code := brig.Code{Context: in.ContextID, Source: *in.Code, Env: in.EnvVars, Timeout: d.Bounds.MaxTimeout}
	if code.Source == "" {
		code.Source = "\n" // to do nothing is allowed here
	}
	wanted := in.Language
	if l, ok := strings.CutPrefix(in.ContextID, defaultPrefix); ok {
		code.Context, wanted = "", l
	}
	var l brig.Language
	if code.Context == "" {
		var err error
		if l, err = language(wanted); err != nil {
			return err
		}
	}
	lines, ctx, stop := newLines(w, r, d.silence, d.gather)
	defer stop()
	res, err := d.run(ctx, s, code, l, lines)
	if err == nil {
		return lines.finish(res)
	}
	if !lines.hasBegun() {
		if brig.KindOf(err) == brig.NotFound && in.ContextID != "" && !d.hasEnded(r, s, err) {
			return errNoContext(in.ContextID)
		}
		if brig.KindOf(err) == brig.InvalidArgument && brig.AsError(err).Field == "language" {
			return errStatus(http.StatusInternalServerError, err)
		}
		if brig.KindOf(err) == brig.PolicyBlocked {
			return lines.fail(err) // who wrote the code reads what it says
		}
		return err
	}
	if r.Context().Err() != nil || d.hasEnded(r, s, err) {
		_ = lines.told()
		door.Abort(w) // an answer that just ended would look like a whole one
		return nil
	}
	door.Log(r, err)
	return lines.fail(err)
}

// run runs code in its context, or in the default one of its language, once
// more if that has been removed since.
func (d *Door) run(ctx context.Context, s *brig.Sandbox, code brig.Code, l brig.Language, lines *lines) (res *brig.CodeResult, err error) {
	if code.Context != "" {
		return d.Service.RunCode(ctx, string(s.ID), code, lines.event)
	}
	stale := ""
	for range 2 {
		if code.Context, err = d.defaultContext(ctx, s, l, stale); err != nil {
			return nil, err
		}
		res, err = d.Service.RunCode(ctx, string(s.ID), code, lines.event)
		if brig.KindOf(err) != brig.NotFound || lines.hasRun() {
			break
		}
		stale = code.Context
	}
	return res, err
}

// stamp is a moment as E2B writes it.
func stamp() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00") }
