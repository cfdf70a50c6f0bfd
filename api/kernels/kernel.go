package kernels

import (
	"context"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// kernel runs code for Jupyter clients. Each kernel spec has an implementation.
type kernel interface {
	// model returns the description of the kernel in Jupyter's format.
	model(ctx context.Context) (*model, error)
	// execute runs code. It reports output as it arrives and returns how the
	// code ended. The error is an error of the Service, not of the code.
	execute(ctx context.Context, code cell, sink eventSink) (*execResult, error)
	interrupt(ctx context.Context) error
	restart(ctx context.Context) error
	remove(ctx context.Context) error
	// hold counts an open connection as use of the kernel until release is
	// called. ended is closed when the kernel ends.
	hold(ctx context.Context) (ended <-chan struct{}, release func(), err error)
}

// cell is a piece of code.
type cell struct {
	source    string
	uncounted bool // it does not change the execution count
}

// eventSink receives events of running code.
type eventSink struct {
	onStart   func(count int) error
	stream    func(name string, p []byte) error
	onDisplay func(v brig.Rich) error
	onClear   func(wait bool) error
}

// execResult describes how code ended.
type execResult struct {
	count int
	error *brig.CodeError // nil if the code succeeded
}

// model is the description of a kernel in Jupyter's format.
type model struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	LastActivity   string `json:"last_activity"`
	ExecutionState string `json:"execution_state"`
	Connections    int    `json:"connections"`
}

// formatTime formats a time in Jupyter's format.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// Prefix of the names of the kernels' sandboxes, and the label that marks the
// sandboxes.
const (
	prefix = "kernel-"
	label  = "jupyter.kernel"
)

// create creates a kernel.
func (d *API) create(ctx context.Context, in kernelRequest) (*model, error) {
	id := d.NewID()
	if in.Name == Ephemeral {
		var m *model
		err := d.Service.Authorize(ctx, brig.OpCreateKernel, prefix+id, func(of brig.Tenant) error {
			if err := brig.CheckEnv("env", in.Env); err != nil {
				return err // the Service would reject it only with the first run
			}
			n, err := d.newEphemeralKernel(of, id, in.Env)
			if err == nil {
				m, err = n.model(ctx)
			}
			return err
		})
		return m, err
	}
	b, err := d.Service.Create(ctx, brig.Spec{
		Name: prefix + id, Image: d.Image, Env: in.Env, Egress: d.Egress, TTL: d.Idle, Labels: map[string]string{label: in.Name},
	})
	if err != nil {
		return nil, err
	}
	return d.modelOf(b, nil), nil
}

// errMissing returns the error for an unknown kernel.
func errMissing(id string) *brig.Error {
	return brig.Errorf(brig.NotFound, "Kernel does not exist: %s", brig.Clip(id, 64)).WithHint("create one with POST /api/kernels")
}

// find returns a kernel of the caller by its id. For an ephemeral kernel, it
// checks that the caller may call op. For a kernel that is a sandbox, the
// Service authorizes the calls. If the caller may not see ephemeral kernels,
// the error for one is the same as for a missing kernel.
func (d *API) find(ctx context.Context, op brig.Op, id string) (kernel, error) {
	actor := brig.ActorFrom(ctx)
	if n := d.ephemeralKernels.get(actor.Tenant, id); n != nil {
		err := n.authorize(ctx, op, func() error { return nil })
		if err == nil {
			return n, nil
		}
		if brig.KindOf(err) != brig.PermissionDenied || actor.Authorize(brig.OpGetKernel) == nil {
			return nil, err
		}
	}
	missing := errMissing(id)
	if !brig.ValidName(prefix + id) {
		return nil, missing
	}
	b, err := d.Service.Get(ctx, prefix+id)
	switch {
	case brig.KindOf(err) == brig.NotFound:
		return nil, missing
	case err != nil:
		return nil, err
	case b.State == brig.Ended || b.Spec.Labels[label] == "":
		return nil, missing
	}
	k := &sandboxKernel{d: d, box: b}
	if op == brig.OpOpenKernel {
		return k, k.check(ctx, brig.OpRunCode)
	}
	return k, nil
}

// listModels returns the descriptions of the caller's kernels.
func (d *API) listModels(ctx context.Context) ([]*model, error) {
	out := []*model{}
	o := brig.ListOptions{Labels: map[string]string{label: Stateful}, States: []brig.State{brig.Running}, Limit: 1000}
	for {
		page, err := d.Service.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Sandboxes {
			if strings.HasPrefix(b.Spec.Name, prefix) {
				m, err := (&sandboxKernel{d: d, box: b}).model(ctx)
				switch brig.KindOf(err) {
				case "":
					out = append(out, m)
				case brig.NotFound, brig.FailedPrecondition: // the kernel has ended since it was listed
				default:
					return nil, err
				}
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	err := d.Service.Authorize(ctx, brig.OpKernels, "", func(of brig.Tenant) error {
		for _, n := range d.ephemeralKernels.ofTenant(of) {
			m, err := n.model(ctx)
			if err != nil {
				return err
			}
			out = append(out, m)
		}
		return nil
	})
	return out, err
}

// sandboxKernel is a kernel that is a sandbox.
type sandboxKernel struct {
	d   *API
	box *brig.Sandbox
}

// modelOf returns the description of a kernel that is a sandbox. c is its
// interpreter, or nil before its first use.
func (d *API) modelOf(b *brig.Sandbox, c *brig.CodeContext) *model {
	id := strings.TrimPrefix(b.Spec.Name, prefix)
	m := &model{ID: id, Name: b.Spec.Labels[label], ExecutionState: "idle", Connections: d.open.count(id)}
	// Each use renews the lease for the time that a kernel may be idle, so the
	// last activity can be computed from the end of the lease.
	m.LastActivity = formatTime(b.Expires.Add(-b.Spec.TTL))
	if c != nil && c.State != brig.ContextIdle {
		m.ExecutionState = string(c.State)
	}
	return m
}

// findContext returns the kernel's interpreter, or nil if it has none.
func (k *sandboxKernel) findContext(ctx context.Context) (*brig.CodeContext, error) {
	list, err := k.d.Service.Contexts(ctx, k.name())
	if err != nil {
		return nil, k.explain(ctx, err)
	}
	for _, c := range list {
		if c.Spec.Language == brig.Python {
			return c, nil
		}
	}
	return nil, nil
}

func (k *sandboxKernel) name() string { return k.box.Spec.Name }

func (k *sandboxKernel) id() string { return strings.TrimPrefix(k.name(), prefix) }

// model implements kernel.
func (k *sandboxKernel) model(ctx context.Context) (*model, error) {
	c, err := k.findContext(ctx)
	if err != nil {
		return nil, err
	}
	return k.d.modelOf(k.box, c), nil
}

// execute implements kernel.
func (k *sandboxKernel) execute(ctx context.Context, code cell, sink eventSink) (*execResult, error) {
	res, err := k.d.Service.RunCode(ctx, k.name(), brig.Code{Language: brig.Python, Source: code.source, Uncounted: code.uncounted, Timeout: k.d.Timeout}, func(e brig.CodeEvent) error {
		switch {
		case e.Started != nil:
			return sink.onStart(e.Started.Count)
		case e.Stdout != nil:
			return sink.stream("stdout", e.Stdout)
		case e.Stderr != nil:
			return sink.stream("stderr", e.Stderr)
		case e.Output != nil:
			return sink.onDisplay(*e.Output)
		case e.Cleared != nil:
			return sink.onClear(e.Cleared.Wait)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, k.explain(ctx, err)
	case res.SandboxEnded != "" && !res.OOMKilled:
		return &execResult{res.Count, deadError(res.SandboxEnded)}, nil
	case res.TimedOut:
		return &execResult{res.Count, timeoutError(k.d.Timeout)}, nil
	}
	return &execResult{res.Count, res.Error}, nil
}

// deadError returns the error of code that ended with its kernel.
func deadError(reason brig.ExitReason) *brig.CodeError {
	value := "the kernel ended while the code ran (" + string(reason) + ")"
	return &brig.CodeError{Name: "DeadKernelError", Value: value, Traceback: "DeadKernelError: " + value}
}

// timeoutError returns the error of code that did not end before its timeout.
func timeoutError(timeout time.Duration) *brig.CodeError {
	value := "the code did not end within " + timeout.String()
	return &brig.CodeError{Name: "TimeoutError", Value: value, Traceback: "TimeoutError: " + value}
}

// check verifies with the Service that the caller may call op on the kernel's
// sandbox. It is used by requests that do not call op immediately.
func (k *sandboxKernel) check(ctx context.Context, op brig.Op) error {
	return k.explain(ctx, httpapi.CheckCall(ctx, k.d.Service, k.name(), op))
}

// interrupt implements kernel.
func (k *sandboxKernel) interrupt(ctx context.Context) error {
	c, err := k.findContext(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return k.check(ctx, brig.OpInterrupt)
	}
	return k.explain(ctx, k.d.Service.InterruptContext(ctx, k.name(), c.ID))
}

// restart implements kernel.
func (k *sandboxKernel) restart(ctx context.Context) error {
	c, err := k.findContext(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return k.check(ctx, brig.OpRestart)
	}
	_, err = k.d.Service.RestartContext(ctx, k.name(), c.ID)
	return k.explain(ctx, err)
}

// hold implements kernel. The connection does not keep the sandbox from being paused,
// because the next message resumes it.
func (k *sandboxKernel) hold(ctx context.Context) (ended <-chan struct{}, release func(), err error) {
	if h, ok := k.d.Service.(brig.Holder); ok {
		ended, release, err = h.Hold(ctx, brig.OpRunCode, k.name())
		return ended, release, k.explain(ctx, err)
	}
	return nil, func() {}, nil
}

// remove implements kernel.
func (k *sandboxKernel) remove(ctx context.Context) error {
	return k.explain(ctx, k.d.Service.Remove(ctx, k.name()))
}

// explain returns the error for a missing kernel instead of err if the kernel's
// sandbox has ended. Clients never receive the name of the sandbox, so errors
// must not contain it.
func (k *sandboxKernel) explain(ctx context.Context, err error) error {
	switch brig.KindOf(err) {
	case brig.NotFound, brig.FailedPrecondition, brig.ConnectionFailed, brig.Unavailable, brig.Internal:
		now, getErr := k.d.Service.Get(ctx, k.name())
		if brig.KindOf(getErr) == brig.NotFound || getErr == nil && !now.State.IsActive() {
			return errMissing(k.id()).Because(err)
		}
	}
	return err
}
