package e2b

import (
	"context"
	"net/http"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

func isFalse(b *bool) bool { return b != nil && !*b }

// resumesByTraffic reports whether a request to a port of a paused sandbox
// resumes it.
func resumesByTraffic(s *brig.Sandbox) bool {
	return s.Spec.Labels[labelResume] != "" && !withoutMemory(s)
}

// withoutMemory reports whether a sandbox is paused with only its files.
func withoutMemory(s *brig.Sandbox) bool { return s.Pause != nil && s.Pause.FilesOnly }

func lifecycleOf(s *brig.Sandbox) lifecycle {
	l := lifecycle{OnTimeout: "kill", AutoResume: s.Spec.Labels[labelResume] != ""}
	if s.Spec.PauseAtEnd {
		l.OnTimeout = "pause"
	}
	return l
}

// pause saves a sandbox, with its memory or without.
func (l *sandboxHandlers) pause(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Memory *bool `json:"memory"`
	}
	s, err := l.finder.findAndRead(w, r, &in)
	if err != nil {
		return err
	}
	if s.State == brig.Paused { // clients report this status as a success without effect
		return errStatus(http.StatusConflict, brig.Errorf(brig.FailedPrecondition, "Error pausing sandbox - sandbox '%s' is already paused", s.ID))
	}
	if _, err := l.pauseSandbox(r.Context(), s, brig.PauseOptions{FilesOnly: isFalse(in.Memory)}); err != nil {
		return err
	}
	writeEmpty(w)
	return nil
}

func (l *sandboxHandlers) pauseSandbox(ctx context.Context, s *brig.Sandbox, o brig.PauseOptions) (*brig.Sandbox, error) {
	paused, err := l.Service.Pause(ctx, string(s.ID), o)
	if brig.KindOf(err) != brig.FailedPrecondition {
		return paused, err
	}
	if now, lookErr := l.finder.lookUp(ctx, string(s.ID)); lookErr == nil && now == nil {
		return nil, errNoSandbox(string(s.ID))
	}
	// With the usual status 409, clients would report that the sandbox is
	// already paused.
	e := brig.AsError(err)
	return nil, errStatus(http.StatusBadRequest, brig.Errorf(e.Kind, "Error pausing sandbox - %s (%s)", e.Message, e.Hint).Because(err))
}

// resumeSandbox resumes a paused sandbox and sets its lifetime.
func (l *sandboxHandlers) resumeSandbox(r *http.Request, s *brig.Sandbox, seconds int64) (*brig.Sandbox, error) {
	ctx := r.Context()
	if _, err := l.sandboxes.lease(seconds); err != nil {
		return nil, err
	}
	if err := httpapi.Check(r, l.Service, string(s.ID), brig.OpExtend); err != nil { // a resume is not undone
		return nil, err
	}
	now, err := l.Service.Resume(ctx, string(s.ID))
	if err != nil {
		if gone, lookErr := l.finder.lookUp(ctx, string(s.ID)); lookErr == nil && gone == nil {
			return nil, errNoSandbox(string(s.ID))
		}
		return nil, err
	}
	return now, l.extend(ctx, now, seconds)
}

// resume resumes a paused sandbox for old clients.
func (l *sandboxHandlers) resume(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Timeout   int64 `json:"timeout"`
		Memory    *bool `json:"memory"`
		AutoPause *bool `json:"autoPause"`
	}{Timeout: leaseV1}
	s, err := l.finder.findAndRead(w, r, &in)
	if err != nil {
		return err
	}
	switch {
	case in.Timeout <= 0:
		return brig.InvalidField("timeout", "it must be greater than 0")
	case isFalse(in.Memory) && !withoutMemory(s):
		return errUnsupported("a resume without the memory of a sandbox that was paused with it")
	case in.AutoPause != nil && *in.AutoPause != s.Spec.PauseAtEnd:
		return errUnsupported("changing autoPause")
	case s.State != brig.Paused:
		return errStatus(http.StatusConflict, brig.Errorf(brig.FailedPrecondition, "Sandbox %s is already running", s.ID))
	}
	if s, err = l.resumeSandbox(r, s, in.Timeout); err != nil {
		return err
	}
	l.write(w, r, http.StatusCreated, l.sandboxes.connected(r.Context(), s))
	return nil
}

// connect returns the connection data of a sandbox. It resumes a paused sandbox
// and then responds with 201. It extends the lifetime of a running sandbox to
// at least the given timeout.
func (l *sandboxHandlers) connect(w http.ResponseWriter, r *http.Request) error {
	in := struct {
		Timeout int64 `json:"timeout"`
		Memory  *bool `json:"memory"`
	}{Timeout: leaseV2}
	s, err := l.finder.findAndRead(w, r, &in)
	if err != nil {
		return err
	}
	if in.Timeout < 0 {
		return brig.InvalidField("timeout", "it is negative")
	}
	status := http.StatusOK
	switch {
	case s.State == brig.Running:
		err = l.extendAtLeast(r.Context(), s, in.Timeout)
	case isFalse(in.Memory) && !withoutMemory(s):
		err = errUnsupported("a resume without the memory of a sandbox that was paused with it")
	default:
		status = http.StatusCreated
		s, err = l.resumeSandbox(r, s, max(in.Timeout, 1))
	}
	if err != nil {
		return err
	}
	l.write(w, r, status, l.sandboxes.connected(r.Context(), s))
	return nil
}

// resumeForTraffic resumes a paused sandbox for an authorized request to one of
// its ports. It acts as the sandbox's tenant, because a client's key need not
// permit a resume.
func (p *ports) resumeForTraffic(tenant context.Context, s *brig.Sandbox) error {
	if s.State != brig.Paused {
		return nil
	}
	_, err := p.Service.Resume(tenant, string(s.ID))
	return err
}
