package kernels

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// maxEphemeralKernels is the maximum number of ephemeral kernels of a tenant.
// For each kernel, this API may store a state of several megabytes.
const maxEphemeralKernels = 64

// ephemeralKey identifies an ephemeral kernel.
type ephemeralKey struct{ tenant, id string }

// ephemeralKernels are the ephemeral kernels of all tenants. They end with the
// server.
type ephemeralKernels struct {
	mu      sync.Mutex // guards the fields below
	kernels map[ephemeralKey]*ephemeralKernel
	closed  bool
}

// ephemeralKernel is an ephemeral kernel. It consists of the state that its
// code has left and has no running process.
type ephemeralKernel struct {
	d      *API
	key    ephemeralKey
	since  time.Time // creation time of its tenant, because a later tenant may have the same name
	env    map[string]string
	slot   chan struct{} // held by the running code
	closed chan struct{} // closed when the kernel has ended
	idle   *time.Timer

	mu    sync.Mutex // guards the fields below
	state json.RawMessage
	// packages are the packages that steps have installed with pip. They are
	// kept even when the variables are lost, as in a sandbox.
	packages []string
	count    int
	used     time.Time
	epoch    int                     // number of restarts
	open     int                     // number of connections
	stop     context.CancelCauseFunc // interrupts the running code; nil if no code is running
}

// newEphemeralKernel creates an ephemeral kernel.
func (d *API) newEphemeralKernel(of brig.Tenant, id string, env map[string]string) (*ephemeralKernel, error) {
	n := &ephemeralKernel{d: d, key: ephemeralKey{of.Name, id}, since: of.Created, env: env, slot: make(chan struct{}, 1), closed: make(chan struct{}), used: d.Now()}
	s := &d.ephemeralKernels
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, other := range s.kernels {
		if other.belongsTo(of) {
			count++
		}
	}
	if s.closed || count >= maxEphemeralKernels {
		return nil, brig.Errorf(brig.RateLimited, "there are %d ephemeral kernels already", count).WithHint("remove one that is not used")
	}
	s.kernels[n.key] = n
	n.idle = time.AfterFunc(d.Idle, func() { n.end(errInterrupted) })
	return n, nil
}

func (s *ephemeralKernels) get(tenant, id string) *ephemeralKernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kernels[ephemeralKey{tenant, id}]
}

// ofTenant returns a tenant's kernels, sorted by id.
func (s *ephemeralKernels) ofTenant(tenant brig.Tenant) (out []*ephemeralKernel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.kernels {
		if n.belongsTo(tenant) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *ephemeralKernel) int { return strings.Compare(a.key.id, b.key.id) })
	return out
}

func (s *ephemeralKernels) close() {
	s.mu.Lock()
	s.closed = true
	list := slices.Collect(maps.Values(s.kernels))
	s.mu.Unlock()
	for _, n := range list {
		n.end(errInterrupted)
	}
}

// end permanently ends the kernel, its running code and its connections.
func (n *ephemeralKernel) end(cause error) {
	n.d.ephemeralKernels.mu.Lock()
	delete(n.d.ephemeralKernels.kernels, n.key)
	n.d.ephemeralKernels.mu.Unlock()
	n.idle.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hasEnded() {
		return
	}
	close(n.closed)
	n.state, n.epoch = nil, n.epoch+1
	if n.stop != nil {
		n.stop(cause)
	}
}

// hasEnded reports whether the kernel has ended. If the result is false, it
// remains valid only while the caller holds n.mu.
func (n *ephemeralKernel) hasEnded() bool {
	select {
	case <-n.closed:
		return true
	default:
		return false
	}
}

// belongsTo reports whether the kernel belongs to a tenant, rather than to a
// removed tenant of the same name.
func (n *ephemeralKernel) belongsTo(to brig.Tenant) bool {
	return n.key.tenant == to.Name && n.since.Equal(to.Created)
}

// authorize calls do if the Service authorizes op for this kernel.
func (n *ephemeralKernel) authorize(ctx context.Context, op brig.Op, do func() error) error {
	return n.d.Service.Authorize(ctx, op, prefix+n.key.id, func(of brig.Tenant) error {
		if n.hasEnded() || !n.belongsTo(of) {
			return errMissing(n.key.id)
		}
		return do()
	})
}

// model implements kernel.
func (n *ephemeralKernel) model(context.Context) (*model, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := &model{ID: n.key.id, Name: Ephemeral, LastActivity: formatTime(n.used), ExecutionState: "idle", Connections: n.d.open.count(n.key.id)}
	if n.stop != nil {
		m.ExecutionState = "busy"
	}
	return m, nil
}

// execute implements kernel.
func (n *ephemeralKernel) execute(ctx context.Context, code cell, sink eventSink) (*execResult, error) {
	select {
	case n.slot <- struct{}{}:
		defer func() { <-n.slot }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	step, epoch, err := n.begin(cancel, code.uncounted)
	if err != nil {
		return nil, err
	}
	count := step.Count + 1
	if code.uncounted {
		count = step.Count
	}
	defer n.startIdle()
	if err := sink.onStart(count); err != nil {
		return nil, err
	}
	o, err := n.d.Service.Run(ctx, brig.Program{
		Language: brig.Python, Code: code.source, Step: step, Env: n.env, Image: n.d.Image, Egress: n.d.Egress, Timeout: n.d.Timeout,
		Labels: map[string]string{label: Ephemeral},
	}, brig.IO{Stdout: stream{sink, "stdout"}, Stderr: stream{sink, "stderr"}})
	if context.Cause(ctx) == errInterrupted {
		return &execResult{count, &brig.CodeError{Name: "KeyboardInterrupt", Traceback: "KeyboardInterrupt"}}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, v := range outputs(o) {
		if err := sink.onDisplay(v); err != nil {
			return nil, err
		}
	}
	n.saveState(o, epoch)
	return &execResult{count, n.toCodeError(o)}, nil
}

// begin returns the kernel's state for the next step. It returns an error if
// the kernel has ended.
func (n *ephemeralKernel) begin(cancel context.CancelCauseFunc, uncounted bool) (*brig.Step, int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hasEnded() {
		return nil, 0, errMissing(n.key.id)
	}
	n.idle.Stop()
	n.stop = cancel
	step := &brig.Step{State: n.state, Count: n.count, Packages: n.packages}
	if !uncounted {
		n.count++
	}
	return step, n.epoch, nil
}

// startIdle starts the idle timer of the kernel after a step.
func (n *ephemeralKernel) startIdle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stop, n.used = nil, n.d.Now(); !n.hasEnded() {
		n.resetIdle()
	}
}

// resetIdle starts the idle timer, unless code runs. An open connection keeps
// the kernel alive, but an unused kernel lasts no longer than the maximum life
// of a sandbox. The caller holds n.mu.
func (n *ephemeralKernel) resetIdle() {
	switch {
	case n.stop != nil:
	case n.open > 0:
		n.idle.Reset(n.d.LimitRange.MaxLife)
	default:
		n.idle.Reset(n.d.Idle)
	}
}

// hold implements kernel.
func (n *ephemeralKernel) hold(context.Context) (ended <-chan struct{}, release func(), err error) {
	count := func(by int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.open += by; !n.hasEnded() {
			n.resetIdle()
		}
	}
	count(1)
	return n.closed, func() { count(-1) }, nil
}

// saveState stores the state that a step left, unless the kernel was restarted
// in the meantime. If the interpreter died, the variables are lost, as in a
// persistent sandbox. If the step was interrupted, the variables stay as they
// were before the step.
func (n *ephemeralKernel) saveState(o *brig.Outcome, epoch int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.Step != nil && !n.hasEnded() {
		n.packages = o.Step.Packages
	}
	if n.epoch == epoch && !o.TimedOut && o.Step != nil {
		if n.state = o.Step.State; n.state == nil {
			n.count = 0
		}
	}
}

func outputs(o *brig.Outcome) []brig.Rich {
	if o.Step == nil {
		return nil
	}
	return o.Step.Outputs
}

// toCodeError returns the error of a step, if any.
func (n *ephemeralKernel) toCodeError(o *brig.Outcome) *brig.CodeError {
	switch e := o.Error; {
	case o.TimedOut:
		return timeoutError(n.d.Timeout)
	case e != nil && e.Code != "":
		return &brig.CodeError{Name: e.Name, Value: e.Message, Traceback: e.Message}
	case e != nil:
		return &brig.CodeError{Name: e.Name, Value: e.Message, Traceback: e.Traceback}
	case o.Step == nil || o.Step.State == nil:
		value := "the interpreter ended; its variables are gone"
		if o.Signal != "" {
			value = "the interpreter was ended by " + o.Signal + "; its variables are gone"
		}
		return &brig.CodeError{Name: "InterpreterDied", Value: value, Traceback: "InterpreterDied: " + value}
	}
	return nil
}

// stream is a writer that reports its input as output events.
type stream struct {
	sink eventSink
	name string
}

// Write implements io.Writer.
func (s stream) Write(p []byte) (int, error) {
	if err := s.sink.stream(s.name, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// interrupt implements kernel.
func (n *ephemeralKernel) interrupt(ctx context.Context) error {
	return n.authorize(ctx, brig.OpInterruptKernel, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.stop != nil {
			n.stop(errInterrupted)
		}
		return nil
	})
}

// restart implements kernel.
func (n *ephemeralKernel) restart(ctx context.Context) error {
	return n.authorize(ctx, brig.OpRestartKernel, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.state, n.count, n.epoch = nil, 0, n.epoch+1
		if n.stop != nil {
			n.stop(errInterrupted)
		}
		return nil
	})
}

// remove implements kernel.
func (n *ephemeralKernel) remove(ctx context.Context) error {
	return n.authorize(ctx, brig.OpRemoveKernel, func() error {
		n.end(errInterrupted)
		return nil
	})
}
