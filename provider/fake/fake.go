// Package fake creates instances from goroutines, for tests of the code above a
// provider. Commands use a small language (see run.go). Like real instances,
// fake instances outlive a server: Recover finds them again. Commands are not
// isolated, so the package must never run real code.
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

// Provider creates fake instances. The zero value is ready to use. Set the
// fields before the first call.
type Provider struct {
	// CreateError, if set, is the error that Create returns.
	CreateError error
	// BuildRights makes the provider accept Spec.BuildRights, without any effect on programs.
	BuildRights bool
	// Volumes makes the provider accept Spec.Volumes, without any effect on programs.
	Volumes bool
	// OnCreate, if set, is called by Create before the instance exists.
	OnCreate func(brig.ID)
	// OnInstall, if set, is called during the installation of packages for
	// tools.
	OnInstall func()
	// Enforces overrides the provider's claims, and Holds the results of
	// attestation. NoUplink disables the network of all instances, and Ruled
	// the network of instances without rules.
	Enforces, Holds map[brig.Area]brig.Enforcement
	NoUplink, Ruled bool
	// Refused is the initial Refusals of new instances; see Refuse.
	Refused brig.Refusals
	// Posture, if set, returns the result of an instance's probe.
	Posture func(user string, look wire.Look) wire.Posture

	// OnSave, if set, is called by Save. If it returns an error, Save returns
	// that error.
	OnSave func(brig.SaveID) error
	// OnPack, if set, is called by Pack. If it returns an error, Pack returns
	// that error.
	OnPack func(context.Context, brig.SaveID) error
	// OnUplink, if set, is called by Uplink. If it returns an error, Uplink returns
	// that error.
	OnUplink func(context.Context, brig.ID) error
	// OnRestore, if set, is called by Restore. If it returns an error, Restore returns
	// that error.
	OnRestore func(brig.ID) error

	mu       sync.Mutex // guards the fields below
	machines map[brig.ID]*instance
	saves    map[brig.SaveID]*save
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
	if spec.BuildRights && !p.BuildRights {
		return nil, brig.NoBuildRights(Name)
	}
	if len(spec.Volumes) > 0 && !p.Volumes {
		return nil, brig.NoVolumes(Name)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	in := &instance{p: p, id: id, spec: spec, done: make(chan struct{}), mainDone: make(chan struct{}), files: map[string][]byte{}, refused: p.Refused}
	in.mu.Lock() // the lease may expire before the instance is stored
	in.lease = time.AfterFunc(time.Until(lease), func() { in.finish(brig.LeaseExpired, 137) })
	in.mu.Unlock()
	p.mu.Lock()
	if p.machines == nil {
		p.machines = map[brig.ID]*instance{}
	}
	p.machines[id] = in
	p.mu.Unlock()
	if !spec.Held {
		if err := in.StartMain(ctx, false); err != nil {
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

// Machines lists the IDs of the instances that were not destroyed.
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

// instance is one fake instance. It implements brig.Instance.
type instance struct {
	p        *Provider
	id       brig.ID
	spec     brig.Spec
	lease    *time.Timer
	done     chan struct{}
	mainDone chan struct{} // closed when a lingering main program has ended
	pids     atomic.Int64

	mu          sync.Mutex // guards the fields below
	exit        *brig.Exit
	refused     brig.Refusals
	log         bytes.Buffer
	timed       bytes.Buffer // log with timestamps
	files       map[string][]byte
	execs       []*brig.Execution
	kept        map[string]brig.KeptProcess
	carried     map[string]brig.KeptProcess // background commands of a pausable instance
	link        *Link                       // nil until Uplink is first called
	mainStarted bool                        // whether the main program has started
	code        int                         // its exit code
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

// finish ends the instance once.
func (in *instance) finish(reason brig.ExitReason, code int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.exit != nil {
		return
	}
	in.lease.Stop()
	in.exit = &brig.Exit{Code: code, Reason: reason, OOMKilled: reason == brig.OutOfMem, At: time.Now().UTC()}
	close(in.done)
}

// StartMain implements brig.Instance.
func (in *instance) StartMain(ctx context.Context, linger bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.spec.Command != nil && !in.mainStarted {
		in.mainStarted = true
		go in.runMain(context.WithoutCancel(ctx), linger)
	}
	return nil
}

// WaitMain implements brig.Instance.
func (in *instance) WaitMain(ctx context.Context) error {
	select {
	case <-in.mainDone:
		return nil
	case <-in.done:
		return fmt.Errorf("%s has ended", in.id)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (in *instance) runMain(ctx context.Context, linger bool) {
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
	close(in.mainDone)
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
func (in *instance) Stop(_ context.Context, _ time.Duration, reason brig.ExitReason) error {
	code := 137
	if reason == brig.Exited {
		in.mu.Lock()
		code = in.code
		in.mu.Unlock()
	}
	in.finish(reason, code)
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

// Refuse sets the Refusals of an instance.
func (p *Provider) Refuse(id brig.ID, r brig.Refusals) {
	p.mu.Lock()
	in := p.machines[id]
	p.mu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refused = r
}

// Refusals implements brig.Refuser.
func (in *instance) Refusals(context.Context) (*brig.Refusals, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.refused
	return &r, nil
}
