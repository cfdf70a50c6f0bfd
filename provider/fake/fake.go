// Package fake makes machines of goroutines, for tests of everything above a
// provider. Its commands are a little language (see run.go), and its machines
// survive a Provider's user the way real ones do: Recover finds them again.
// It isolates nothing and must never run what it was not made for.
package fake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// Name is the provider's name.
const Name = "fake"

// Provider makes fake machines. Its zero value is ready. The fields are set
// before it is used.
type Provider struct {
	// CreateError, when set, is what Create returns.
	CreateError error
	// OnCreate, when set, is called by Create before the machine exists.
	OnCreate func(brig.ID)
	// OnInstall, when set, is called while packages of tools are installed.
	OnInstall func()
	// Enforces replaces what the provider says of itself, and Holds what its
	// machines turn out to do. NoUplink takes their way out, and Ruled that of
	// those which are made without rules.
	Enforces, Holds map[brig.Area]brig.Enforcement
	NoUplink, Ruled bool
	// Posture, when set, is what its machines' probe finds.
	Posture func(user string, look wire.Look) wire.Posture

	mu       sync.Mutex // guards the field below
	machines map[brig.ID]*instance
}

var _ brig.Provider = (*Provider)(nil)

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	if p.OnCreate != nil {
		p.OnCreate(id)
	}
	if p.CreateError != nil {
		return nil, p.CreateError
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	in := &instance{p: p, id: id, spec: spec, done: make(chan struct{}), over: make(chan struct{}), files: map[string][]byte{}}
	in.mu.Lock() // a lease may be over before it is stored
	in.lease = time.AfterFunc(time.Until(lease), func() { in.finish(brig.LeaseExpired, 137) })
	in.mu.Unlock()
	p.mu.Lock()
	if p.machines == nil {
		p.machines = map[brig.ID]*instance{}
	}
	p.machines[id] = in
	p.mu.Unlock()
	if !spec.Held {
		if err := in.Begin(ctx, false); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// Recover implements brig.Provider.
func (p *Provider) Recover(_ context.Context, id brig.ID, _ brig.Handle) (brig.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in := p.machines[id]; in != nil {
		return in, nil
	}
	return nil, brig.Errorf(brig.NotFound, "no machine %s", id)
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	p.mu.Lock()
	var orphans []*instance
	for id, in := range p.machines {
		if !known[id] {
			orphans = append(orphans, in)
		}
	}
	p.mu.Unlock()
	for _, in := range orphans {
		if err := in.Destroy(ctx); err != nil {
			return 0, err
		}
	}
	return len(orphans), nil
}

// Machines lists the ids of machines that are not destroyed.
func (p *Provider) Machines() []brig.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []brig.ID
	for id := range p.machines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// instance is one fake machine. It implements brig.Instance.
type instance struct {
	p     *Provider
	id    brig.ID
	spec  brig.Spec
	lease *time.Timer
	done  chan struct{}
	over  chan struct{} // closed when a main program that lingers has ended
	pids  atomic.Int64

	mu    sync.Mutex // guards the fields below
	exit  *brig.Exit
	log   bytes.Buffer
	timed bytes.Buffer // the same, with times
	files map[string][]byte
	execs []*brig.Execution
	kept  map[string]brig.Kept
	link  *Link // nil until there was one
	begun bool  // the main program was started
	code  int   // its exit code
}

var _ brig.Instance = (*instance)(nil)

// Handle implements brig.Instance.
func (in *instance) Handle() brig.Handle { return brig.Handle{Provider: Name, Version: 1} }

// Notes implements brig.Instance.
func (in *instance) Notes() []string { return []string{"nothing is isolated"} }

// Done implements brig.Instance.
func (in *instance) Done() <-chan struct{} { return in.done }

// Exit implements brig.Instance.
func (in *instance) Exit() *brig.Exit {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.exit
}

// finish ends the machine, once.
func (in *instance) finish(why brig.ExitReason, code int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.exit != nil {
		return
	}
	in.lease.Stop()
	in.exit = &brig.Exit{Code: code, Reason: why, OOMKilled: why == brig.OutOfMem, At: time.Now().UTC()}
	close(in.done)
}

// Begin implements brig.Instance.
func (in *instance) Begin(ctx context.Context, linger bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.spec.Command != nil && !in.begun {
		in.begun = true
		go in.main(context.WithoutCancel(ctx), linger)
	}
	return nil
}

// Over implements brig.Instance.
func (in *instance) Over(ctx context.Context) error {
	select {
	case <-in.over:
		return nil
	case <-in.done:
		return fmt.Errorf("%s has ended", in.id)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (in *instance) main(ctx context.Context, linger bool) {
	res, err := in.Exec(ctx, "main", *in.spec.Command, brig.IO{Stdout: logOf{in}, Stderr: logOf{in}})
	code := 127
	if err == nil {
		code = res.ExitCode
	}
	if !linger {
		in.finish(brig.Exited, code)
		return
	}
	in.mu.Lock()
	in.code = code
	in.mu.Unlock()
	close(in.over)
}

type logOf struct{ in *instance }

// Write implements io.Writer.
func (l logOf) Write(p []byte) (int, error) { return len(p), l.in.Log(p) }

// Execs implements brig.Instance.
func (in *instance) Execs(context.Context) ([]*brig.Execution, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.execs), nil
}

// Put implements brig.Instance.
func (in *instance) Put(_ context.Context, dir string, files []brig.File) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range files {
		in.files[path.Join(dir, f.Path)] = bytes.Clone(f.Data)
	}
	return nil
}

// Collect implements brig.Instance.
func (in *instance) Collect(_ context.Context, dir string) ([]brig.File, []string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []brig.File
	for name, data := range in.files {
		if path.Dir(name) == dir && brig.ArtifactTypes[strings.ToLower(path.Ext(name))] != "" {
			out = append(out, brig.File{Path: path.Base(name), Data: data, Mode: 0o644})
		}
	}
	slices.SortFunc(out, func(a, b brig.File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil, nil
}

// Logs implements brig.Instance.
func (in *instance) Logs(context.Context) (io.ReadCloser, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return io.NopCloser(bytes.NewReader(bytes.Clone(in.log.Bytes()))), nil
}

// TimedLogs implements brig.Instance.
func (in *instance) TimedLogs(context.Context) (io.ReadCloser, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return io.NopCloser(bytes.NewReader(bytes.Clone(in.timed.Bytes()))), nil
}

// Log implements brig.Instance.
func (in *instance) Log(p []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for line := range bytes.Lines(p) {
		if b := in.log.Bytes(); len(b) == 0 || b[len(b)-1] == '\n' {
			in.timed.WriteString(brig.LogTime(time.Now()))
		}
		in.log.Write(line)
		in.timed.Write(line)
	}
	return nil
}

// Extend implements brig.Instance.
func (in *instance) Extend(_ context.Context, lease time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.exit != nil {
		return fmt.Errorf("extend %s: it has ended", in.id)
	}
	in.lease.Reset(time.Until(lease))
	return nil
}

// Stop implements brig.Instance.
func (in *instance) Stop(_ context.Context, _ time.Duration, why brig.ExitReason) error {
	code := 137
	if why == brig.Exited {
		in.mu.Lock()
		code = in.code
		in.mu.Unlock()
	}
	in.finish(why, code)
	return nil
}

// Destroy implements brig.Instance.
func (in *instance) Destroy(context.Context) error {
	in.finish(brig.Killed, 137)
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	delete(in.p.machines, in.id)
	return nil
}
