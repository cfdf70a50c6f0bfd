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

// maxNotebooks is how many ephemeral kernels a tenant may have: each may have
// this door keep a state of some megabytes.
const maxNotebooks = 64

// notebookKey tells ephemeral kernels apart.
type notebookKey struct{ tenant, id string }

// notebooks are the ephemeral kernels. They end with the server.
type notebooks struct {
	mu     sync.Mutex // guards the fields below
	by     map[notebookKey]*notebook
	closed bool
}

// notebook is an ephemeral kernel: what its code has left, and nothing that
// runs.
type notebook struct {
	d     *Door
	key   notebookKey
	since time.Time // when its tenant was made: names come back
	env   map[string]string
	turn  chan struct{} // held by the code that runs
	over  chan struct{} // closed when the kernel has ended
	idle  *time.Timer

	mu    sync.Mutex // guards the fields below
	state json.RawMessage
	// packages are what steps have asked pip for. They stay where variables do
	// not, as they would in a sandbox.
	packages []string
	count    int
	used     time.Time
	epoch    int                     // of restarts
	stop     context.CancelCauseFunc // of the code that runs; nil while none does
}

// newNotebook makes an ephemeral kernel.
func (d *Door) newNotebook(of brig.Tenant, id string, env map[string]string) (*notebook, error) {
	n := &notebook{d: d, key: notebookKey{of.Name, id}, since: of.Created, env: env, turn: make(chan struct{}, 1), over: make(chan struct{}), used: d.Now()}
	s := &d.notebooks
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 0
	for _, other := range s.by {
		if other.belongs(of) {
			count++
		}
	}
	if s.closed || count >= maxNotebooks {
		return nil, brig.Errorf(brig.RateLimited, "there are %d ephemeral kernels already", count).WithHint("remove one that is not used")
	}
	s.by[n.key] = n
	n.idle = time.AfterFunc(d.Idle, func() { n.end(errInterrupted) })
	return n, nil
}

func (s *notebooks) get(tenant, id string) *notebook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[notebookKey{tenant, id}]
}

// of lists a tenant's, by id.
func (s *notebooks) of(tenant brig.Tenant) (out []*notebook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.by {
		if n.belongs(tenant) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *notebook) int { return strings.Compare(a.key.id, b.key.id) })
	return out
}

func (s *notebooks) close() {
	s.mu.Lock()
	s.closed = true
	list := slices.Collect(maps.Values(s.by))
	s.mu.Unlock()
	for _, n := range list {
		n.end(errInterrupted)
	}
}

// end ends the kernel, with code that runs and connections, for good.
func (n *notebook) end(why error) {
	n.d.notebooks.mu.Lock()
	delete(n.d.notebooks.by, n.key)
	n.d.notebooks.mu.Unlock()
	n.idle.Stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended() {
		return
	}
	close(n.over)
	n.state, n.epoch = nil, n.epoch+1
	if n.stop != nil {
		n.stop(why)
	}
}

// ended reports whether the kernel has. It stays so; that it goes on holds for
// who has n.mu.
func (n *notebook) ended() bool {
	select {
	case <-n.over:
		return true
	default:
		return false
	}
}

// belongs reports whether the kernel is a tenant's, and not that of another one
// of the same name, which is gone.
func (n *notebook) belongs(to brig.Tenant) bool {
	return n.key.tenant == to.Name && n.since.Equal(to.Created)
}

// gone implements kernel.
func (n *notebook) gone() <-chan struct{} { return n.over }

// visit has the Service let a call in that is about the kernel, and does it.
func (n *notebook) visit(ctx context.Context, op brig.Op, do func() error) error {
	return n.d.Service.Visit(ctx, op, prefix+n.key.id, func(of brig.Tenant) error {
		if n.ended() || !n.belongs(of) {
			return errMissing(n.key.id)
		}
		return do()
	})
}

// model implements kernel.
func (n *notebook) model(context.Context) (*model, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := &model{ID: n.key.id, Name: Ephemeral, LastActivity: stamp(n.used), ExecutionState: "idle", Connections: n.d.open.count(n.key.id)}
	if n.stop != nil {
		m.ExecutionState = "busy"
	}
	return m, nil
}

// execute implements kernel.
func (n *notebook) execute(ctx context.Context, code string, tell teller) (*ended, error) {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	step, epoch, err := n.begin(cancel)
	if err != nil {
		return nil, err
	}
	defer n.rest()
	if err := tell.begins(step.Count + 1); err != nil {
		return nil, err
	}
	o, err := n.d.Service.Run(ctx, brig.Program{
		Language: brig.Python, Code: code, Step: step, Env: n.env, Image: n.d.Image, Egress: n.d.Egress, Timeout: n.d.Timeout,
		Labels: map[string]string{label: Ephemeral},
	}, brig.IO{Stdout: stream{tell, "stdout"}, Stderr: stream{tell, "stderr"}})
	if context.Cause(ctx) == errInterrupted {
		return &ended{step.Count + 1, &brig.CodeError{Name: "KeyboardInterrupt", Traceback: "KeyboardInterrupt"}}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, v := range outputs(o) {
		if err := tell.shows(v); err != nil {
			return nil, err
		}
	}
	n.keep(o, epoch)
	return &ended{step.Count + 1, n.verdict(o)}, nil
}

// begin says where the notebook stands, for one more step, if it is there.
func (n *notebook) begin(stop context.CancelCauseFunc) (*brig.Step, int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended() {
		return nil, 0, errMissing(n.key.id)
	}
	n.idle.Stop()
	n.stop, n.count = stop, n.count+1
	return &brig.Step{State: n.state, Count: n.count - 1, Packages: n.packages}, n.epoch, nil
}

// rest lets the kernel be idle.
func (n *notebook) rest() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stop, n.used = nil, n.d.Now(); !n.ended() {
		n.idle.Reset(n.d.Idle)
	}
}

// keep keeps what a step has left, unless the kernel was restarted under it. An
// interpreter that died takes the variables with it, as it would have in a
// sandbox of its own; one that was stopped, in the middle of whatever it did,
// leaves them as they were before.
func (n *notebook) keep(o *brig.Outcome, epoch int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.Step != nil && !n.ended() {
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

// verdict says how a step went.
func (n *notebook) verdict(o *brig.Outcome) *brig.CodeError {
	switch e := o.Error; {
	case o.TimedOut:
		return overTime(n.d.Timeout)
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

// stream tells of what is written to it.
type stream struct {
	tell teller
	name string
}

// Write implements io.Writer.
func (s stream) Write(p []byte) (int, error) {
	if err := s.tell.stream(s.name, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// interrupt implements kernel.
func (n *notebook) interrupt(ctx context.Context) error {
	return n.visit(ctx, brig.OpInterruptKernel, func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.stop != nil {
			n.stop(errInterrupted)
		}
		return nil
	})
}

// restart implements kernel.
func (n *notebook) restart(ctx context.Context) error {
	return n.visit(ctx, brig.OpRestartKernel, func() error {
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
func (n *notebook) remove(ctx context.Context) error {
	return n.visit(ctx, brig.OpRemoveKernel, func() error {
		n.end(errInterrupted)
		return nil
	})
}
