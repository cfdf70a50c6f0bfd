package kernels

import (
	"context"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// kernel is one of either spec.
type kernel interface {
	// model is the kernel as Jupyter's servers tell it.
	model(ctx context.Context) (*model, error)
	// execute runs code. It tells of output as it comes, and says at the end how
	// it went; an error is one of the service's own.
	execute(ctx context.Context, code string, tell teller) (*ended, error)
	interrupt(ctx context.Context) error
	restart(ctx context.Context) error
	remove(ctx context.Context) error
	// gone is closed when the kernel is no more; nil if nobody here knows.
	gone() <-chan struct{}
}

// teller is told what happens while code runs.
type teller struct {
	begins func(count int) error
	stream func(name string, p []byte) error
	shows  func(v brig.Rich) error
}

// ended is how code went.
type ended struct {
	count int
	error *brig.CodeError // nil if it went well
}

// model is a kernel as Jupyter's servers tell it.
type model struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	LastActivity   string `json:"last_activity"`
	ExecutionState string `json:"execution_state"`
	Connections    int    `json:"connections"`
}

// stamp is a moment as Jupyter writes it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// The names of the sandboxes of kernels, and the label that says so.
const (
	prefix = "kernel-"
	label  = "jupyter.kernel"
)

// create makes a kernel.
func (d *Door) create(ctx context.Context, in wanted) (*model, error) {
	id := d.NewID()
	if in.Name == Ephemeral {
		var m *model
		err := d.Service.Visit(ctx, brig.OpCreateKernel, prefix+id, func(of brig.Tenant) error {
			if err := brig.CheckEnv("env", in.Env); err != nil {
				return err // it is kept here, and would be refused with the first code
			}
			n, err := d.newNotebook(of, id, in.Env)
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
	return d.told(b, nil), nil
}

// errMissing says that there is no such kernel.
func errMissing(id string) error {
	return brig.Errorf(brig.NotFound, "Kernel does not exist: %s", brig.Clip(id, 64)).WithHint("create one with POST /api/kernels")
}

// find finds a kernel of the caller's by its id, for op if it is ephemeral.
// Those that are sandboxes are the Service's to show.
func (d *Door) find(ctx context.Context, op brig.Op, id string) (kernel, error) {
	if n := d.notebooks.get(brig.ActorFrom(ctx).Tenant, id); n != nil {
		if err := n.visit(ctx, op, func() error { return nil }); err != nil {
			return nil, err
		}
		return n, nil
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
	return &boxed{d: d, box: b}, nil
}

// all lists the caller's kernels.
func (d *Door) all(ctx context.Context) ([]*model, error) {
	out := []*model{}
	o := brig.ListOptions{Labels: map[string]string{label: Stateful}, States: []brig.State{brig.Running}, Limit: 1000}
	for {
		page, err := d.Service.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Sandboxes {
			if strings.HasPrefix(b.Spec.Name, prefix) {
				m, err := (&boxed{d: d, box: b}).model(ctx)
				switch brig.KindOf(err) {
				case "":
					out = append(out, m)
				case brig.NotFound, brig.FailedPrecondition: // it has ended meanwhile
				default:
					return nil, err
				}
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	err := d.Service.Visit(ctx, brig.OpKernels, "", func(of brig.Tenant) error {
		for _, n := range d.notebooks.of(of) {
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

// boxed is a kernel that is a sandbox.
type boxed struct {
	d   *Door
	box *brig.Sandbox
}

// told is a sandbox as a kernel. One whose interpreter nobody has used has none
// yet.
func (d *Door) told(b *brig.Sandbox, c *brig.CodeContext) *model {
	id := strings.TrimPrefix(b.Spec.Name, prefix)
	m := &model{ID: id, Name: b.Spec.Labels[label], ExecutionState: "idle", Connections: d.open.count(id)}
	// Use renews the lease, which is as long as the kernel may be idle.
	m.LastActivity = stamp(b.Expires.Add(-b.Spec.TTL))
	if c != nil && c.State != brig.ContextIdle {
		m.ExecutionState = string(c.State)
	}
	return m
}

// context is the kernel's interpreter; nil if there is none.
func (k *boxed) context(ctx context.Context) (*brig.CodeContext, error) {
	list, err := k.d.Service.Contexts(ctx, k.name())
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if c.Spec.Language == brig.Python {
			return c, nil
		}
	}
	return nil, nil
}

func (k *boxed) name() string { return k.box.Spec.Name }

// model implements kernel.
func (k *boxed) model(ctx context.Context) (*model, error) {
	c, err := k.context(ctx)
	if err != nil {
		return nil, err
	}
	return k.d.told(k.box, c), nil
}

// execute implements kernel.
func (k *boxed) execute(ctx context.Context, code string, tell teller) (*ended, error) {
	res, err := k.d.Service.RunCode(ctx, k.name(), brig.Code{Language: brig.Python, Source: code, Timeout: k.d.Timeout}, func(e brig.CodeEvent) error {
		switch {
		case e.Started != nil:
			return tell.begins(e.Started.Count)
		case e.Stdout != nil:
			return tell.stream("stdout", e.Stdout)
		case e.Stderr != nil:
			return tell.stream("stderr", e.Stderr)
		case e.Output != nil:
			return tell.shows(*e.Output)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if res.TimedOut {
		return &ended{res.Count, overTime(k.d.Timeout)}, nil
	}
	return &ended{res.Count, res.Error}, nil
}

// overTime is the error of code that did not end.
func overTime(bound time.Duration) *brig.CodeError {
	value := "the code did not end within " + bound.String()
	return &brig.CodeError{Name: "TimeoutError", Value: value, Traceback: "TimeoutError: " + value}
}

// interrupt implements kernel.
func (k *boxed) interrupt(ctx context.Context) error {
	c, err := k.context(ctx)
	if err != nil || c == nil {
		return err
	}
	return k.d.Service.InterruptContext(ctx, k.name(), c.ID)
}

// restart implements kernel.
func (k *boxed) restart(ctx context.Context) error {
	c, err := k.context(ctx)
	if err != nil || c == nil {
		return err
	}
	_, err = k.d.Service.RestartContext(ctx, k.name(), c.ID)
	return err
}

// gone implements kernel. What becomes of a sandbox the Service says.
func (k *boxed) gone() <-chan struct{} { return nil }

// remove implements kernel.
func (k *boxed) remove(ctx context.Context) error { return k.d.Service.Remove(ctx, k.name()) }
