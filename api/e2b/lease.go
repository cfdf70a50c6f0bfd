package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/brig-run/brig"
)

// sandboxHandlers handles the requests that change the lifetime of sandboxes.
type sandboxHandlers struct {
	*env
	finder    *finder
	sandboxes *sandboxes
}

// timeout changes the end of a sandbox. The new end may be earlier than the
// current one.
func (l *sandboxHandlers) timeout(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int64 `json:"timeout"`
	}
	s, err := l.finder.findRunning(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Timeout == nil {
		return brig.InvalidField("timeout", "it is required")
	}
	switch {
	case *in.Timeout > 0:
		err = l.extend(r.Context(), s, *in.Timeout)
	case s.Spec.PauseAtEnd:
		_, err = l.pauseSandbox(r.Context(), s, brig.PauseOptions{FilesOnly: s.Spec.PauseFilesOnly})
	default:
		err = l.sandboxes.end(r.Context(), s)
	}
	if err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}

// extend sets the end of a sandbox to the given number of seconds from now.
func (l *sandboxHandlers) extend(ctx context.Context, s *brig.Sandbox, seconds int64) error {
	ttl, err := l.sandboxes.lease(seconds)
	if err != nil {
		return err
	}
	_, err = l.Service.Extend(ctx, string(s.ID), ttl)
	return endedError(s.ID, err)
}

// extendAtLeast is like extend, but never shortens the lifetime.
func (l *sandboxHandlers) extendAtLeast(ctx context.Context, s *brig.Sandbox, seconds int64) error {
	ttl, err := l.sandboxes.lease(seconds)
	if err != nil || !time.Now().Add(ttl).After(s.Expires) {
		return err
	}
	return l.extend(ctx, s, seconds)
}

// refresh extends the lifetime of a sandbox for old clients.
func (l *sandboxHandlers) refresh(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Duration int64 `json:"duration"`
	}{leaseV1}
	s, err := l.finder.findRunning(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Duration < 0 {
		return brig.InvalidField("duration", "it is negative")
	}
	if err := l.extendAtLeast(r.Context(), s, in.Duration); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}
