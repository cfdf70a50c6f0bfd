package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
)

// self is this very binary, whatever becomes of its file.
const self = "/proc/self/exe"

// Name is the provider's name.
const Name = "gvisor"

// Options say how to make sandboxes.
type Options struct {
	// DataDir holds a folder per sandbox. It must be on a disk that has room
	// for what the sandboxes write.
	DataDir string
	// Root says where an image's files are.
	Root func(digest string) (Root, error)
	// Engine is the binary that becomes sentry, and gofer and shim where a gofer
	// is needed: one whose main calls Main first. Empty is this very binary.
	Engine string
	// Shim is the binary that becomes shim where no gofer is needed: one whose
	// main is Shim. Empty is the engine.
	Shim string
	// Agent is the binary that is the sandbox's init.
	Agent string
	Log   *slog.Logger
	// Disabled switches protections off, for tests that must see them fail.
	Disabled []string
}

// Provider makes sandboxes with gVisor. It implements brig.Provider.
type Provider struct {
	Options
	rootless bool
	alone    bool // sentries work without a gofer
	cgroups  bool
	held     cgroup.Limits // what a group with every limit turned out to have
	claims   map[brig.Area]brig.Enforcement
	awaited  sync.Map // the sandboxes for which awaitTied runs
}

var _ brig.Provider = (*Provider)(nil)

// Open returns a Provider, after a look at what this machine can do.
func Open(o Options) (*Provider, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, fmt.Errorf("open data folder: %w", err)
	}
	// The name of the cgroup comes from the folder, however it is reached.
	if err := os.MkdirAll(sandboxesDir(dir), 0o700); err != nil {
		return nil, brig.Errorf(brig.NotInitialized, "the data folder cannot be made").
			WithHint("choose a folder that you may write to with --data-dir").Because(err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	o.DataDir = dir
	if o.Engine == "" {
		o.Engine = self
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Engine == self && cgoEnabled {
		// It would need the dynamic loader inside its own empty root.
		return nil, brig.Errorf(brig.NotInitialized, "this brig was built with cgo and cannot start itself in a sandbox").
			WithHint("build it with `make build`, or with CGO_ENABLED=0 go build")
	}
	p := &Provider{Options: o, rootless: os.Geteuid() != 0}
	if !p.rootless {
		p.held, err = tryCgroup(dir)
		p.cgroups = err == nil
	}
	p.alone = !p.rootless && !slices.Contains(p.Disabled, "network") && tryTree(dir) == nil
	// A shim of its own has no engine in it to start by its own name.
	if p.Shim == "" || !p.alone || p.Engine == self {
		p.Shim = p.Engine
	}
	p.claims = p.enforces()
	return p, nil
}

// CheckCgroup reports why sandboxes of a data folder cannot have a cgroup
// with limits, or nil if they can.
func CheckCgroup(dataDir string) error {
	_, err := tryCgroup(dataDir)
	return err
}

// tryCgroup makes a group with every limit, and reads back which it has.
func tryCgroup(dataDir string) (held cgroup.Limits, err error) {
	// Every limit that a sandbox gets: cgroup v2 may delegate memory without
	// the processors, and then no sandbox could start.
	g, err := cgroup.New(cgroupParent(dataDir)+"/probe", cgroup.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 1024})
	if err != nil {
		return held, err
	}
	held, err = g.Limits()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return held, errors.Join(err, g.Destroy(ctx))
}

func (p *Provider) layout(id brig.ID) layout {
	return layout{dir: filepath.Join(sandboxesDir(p.DataDir), string(id))}
}

func (p *Provider) cgroup(id brig.ID) string {
	if !p.cgroups {
		return ""
	}
	return cgroupParent(p.DataDir) + "/" + string(id)
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (_ brig.Instance, err error) {
	if !brig.ValidName(string(id)) {
		return nil, brig.InvalidField("id", "%q cannot name a folder", id)
	}
	root, err := p.Root(spec.Image)
	if err != nil {
		return nil, err
	}
	l := p.layout(id)
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, diskError(err, "make the sandbox's folder")
	}
	lock, err := l.lock()
	if err != nil || lock == nil {
		return nil, errors.Join(fmt.Errorf("folder of %s is in use", id), err)
	}
	defer lock.Close()
	failpoint.Hit("provider.folder")
	i := &instance{p: p, l: l, id: id, done: make(chan struct{})}
	defer func() {
		if err != nil {
			lock.Close() // ours; a shim that still lives has its own
			err = errors.Join(err, p.erase(context.WithoutCancel(ctx), id))
		}
	}()
	host := spec.Name
	if host == "" {
		host = string(id)
	}
	i.order = order{
		Version: orderVersion, ID: string(id), Hostname: host, Root: root, Limits: spec.Limits,
		Env: spec.Env, Command: spec.Command, Lease: lease, Ephemeral: spec.Ephemeral, Blank: spec.Blank, Held: spec.Held,
		Cgroup: p.cgroup(id), Rootless: p.rootless, Agent: p.Agent, Engine: p.Engine, Alone: p.alone, Disabled: p.Disabled,
	}
	private, err := i.order.hide()
	if err != nil {
		return nil, err
	}
	if err := l.writeJSON(orderFile, i.order, false); err != nil {
		return nil, diskError(err, "write the sandbox's order")
	}
	failpoint.Hit("provider.ordered")
	bctx, s := span.Start(ctx, "gvisor.boot")
	err = i.launch(bctx, lock, private)
	if s.End(); err != nil {
		return nil, err
	}
	i.attach()
	if spec.Blank {
		_, err = i.group() // so that Bind need not look for it
		i.ahead.later()
	}
	return i, err
}

// launch starts the shim, tells it what no file has, and waits until its
// sandbox runs.
func (i *instance) launch(ctx context.Context, lock *os.File, private []byte) error {
	ready, theirReady, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer ready.Close()
	defer theirReady.Close()
	out, err := os.OpenFile(i.l.path(shimLogFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return diskError(err, "open the shim's log")
	}
	defer out.Close()

	cmd := exec.Command(i.p.Shim, i.l.dir)
	cmd.Args[0] = shimName
	cmd.Env = append(failpoint.Environment(), "PATH=/usr/bin:/bin") // nothing of the server's
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	if private != nil {
		cmd.Stdin = bytes.NewReader(private)
	}
	cmd.ExtraFiles = []*os.File{theirReady, lock}
	if i.order.Ephemeral {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make tether: %w", err)
		}
		defer r.Close()
		i.tether = w
		cmd.ExtraFiles = append(cmd.ExtraFiles, r)
	}
	cmd.SysProcAttr = shimAttr(i.p.rootless)
	if err := cmd.Start(); err != nil {
		return startError(err, i.p.rootless)
	}
	theirReady.Close()
	lock.Close()
	// Reap it when it ends, if we are still there then.
	i.reaped = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(i.reaped)
	}()
	failpoint.Hit("provider.started")

	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := io.ReadAll(io.LimitReader(ready, 64<<10))
	if ctx.Err() != nil {
		_ = cmd.Process.Kill()
		return context.Cause(ctx)
	}
	var r readiness
	if err != nil || len(b) == 0 || json.Unmarshal(b, &r) != nil {
		_ = cmd.Process.Kill()
		return creationError(fmt.Errorf("the shim ended before its sandbox ran: %s", i.l.tailOf(shimLogFile)))
	}
	if r.Error != "" {
		return creationError(fmt.Errorf("%s; %s", r.Error, i.l.tailOf(panicFile)))
	}
	i.notes = r.Notes
	failpoint.Hit("provider.ready")
	return nil
}

// shimAttr puts the shim apart from the server: a session of its own, so that
// it outlives it, and a mount and a network namespace in which what gVisor
// sets up is seen by nobody else and ends with it.
func shimAttr(rootless bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if !rootless {
		attr.Unshareflags = unix.CLONE_NEWNS | unix.CLONE_NEWNET
		return attr
	}
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	attr.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}
	return attr
}

// Recover implements brig.Provider.
func (p *Provider) Recover(ctx context.Context, id brig.ID, h brig.Handle) (brig.Instance, error) {
	l := p.layout(id)
	var o order
	ok, err := l.readJSON(orderFile, &o)
	if err != nil {
		lock, lockErr := l.lock()
		if lock == nil {
			return nil, errors.Join(err, lockErr)
		}
		lock.Close()
		ok = false // a power cut took half of it, and the sandbox with it
	}
	if !ok || !brig.ValidName(string(id)) {
		if brig.ValidName(string(id)) {
			// Whoever was making or removing it may have died over that, and
			// Sweep leaves alone what the caller knows.
			if err := p.erase(ctx, id); err != nil {
				return nil, err
			}
		}
		return nil, brig.Errorf(brig.NotFound, "sandbox %s left nothing on this machine", id)
	}
	var v handleState
	if len(h.State) > 0 {
		if err := json.Unmarshal(h.State, &v); err != nil {
			return nil, fmt.Errorf("decode handle of %s: %w", id, err)
		}
	}
	i := &instance{p: p, l: l, id: id, order: o, done: make(chan struct{}), notes: v.Notes}
	i.attach()
	return i, nil
}

// Sweep implements brig.Provider.
func (p *Provider) Sweep(ctx context.Context, known map[brig.ID]bool) (int, error) {
	entries, err := os.ReadDir(sandboxesDir(p.DataDir))
	if err != nil {
		return 0, fmt.Errorf("list sandboxes: %w", err)
	}
	var errs []error
	n := 0
	kept := map[string]bool{}
	for _, e := range entries {
		id := brig.ID(e.Name())
		kept[string(id)] = true
		if known[id] {
			continue
		}
		gone, tied, err := p.sweepOne(ctx, id)
		if gone {
			n++
			delete(kept, string(id))
		}
		if tied {
			p.awaitTied(context.WithoutCancel(ctx), id)
		}
		errs = append(errs, err)
	}
	groups, err := cgroup.Children(cgroupParent(p.DataDir))
	errs = append(errs, err)
	for _, name := range groups {
		if kept[filepath.Base(name)] || !p.cgroups {
			continue
		}
		g, err := cgroup.Open(name)
		if err == nil {
			err = g.Destroy(ctx)
		}
		n++
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// sweepOne removes a sandbox that the engine has no record of. A sandbox that is
// tied to a process is left to its shim, which ends with that process.
func (p *Provider) sweepOne(ctx context.Context, id brig.ID) (gone, tied bool, err error) {
	l := p.layout(id)
	lock, err := l.lock()
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil // its shim has just removed it
	}
	if err != nil {
		return false, false, err
	}
	if lock == nil {
		var o order
		if ok, err := l.readJSON(orderFile, &o); !ok || o.Ephemeral {
			return false, err == nil, err
		}
	} else {
		lock.Close()
	}
	return true, false, p.erase(ctx, id)
}

// Sweep leaves a tied sandbox to its shim, and waits tiedTime for the shim to end.
// It removes a folder that still exists tiedGrace after that.
const (
	tiedTime  = time.Minute
	tiedGrace = 5 * time.Second
)

// awaitTied removes a tied sandbox after its shim has ended. Normally the shim
// does that. If the server dies just after the shim has decided to leave the
// folder to it, neither does.
func (p *Provider) awaitTied(ctx context.Context, id brig.ID) {
	if _, waits := p.awaited.LoadOrStore(id, true); waits {
		return
	}
	go func() {
		defer p.awaited.Delete(id)
		for end := time.Now().Add(tiedTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			lock, err := p.layout(id).lock()
			if err != nil {
				return // the folder is gone
			}
			if lock != nil {
				lock.Close()
				time.Sleep(tiedGrace)
				break
			}
		}
		if _, err := os.Stat(p.layout(id).dir); err != nil {
			return
		}
		if _, _, err := p.sweepOne(ctx, id); err != nil {
			p.Log.WarnContext(ctx, "remove a sandbox whose process is gone", "sandbox", id, "err", err)
		}
	}()
}

// erase ends a sandbox by whatever means there are, and removes every trace.
func (p *Provider) erase(ctx context.Context, id brig.ID) error {
	l := p.layout(id)
	i := &instance{p: p, l: l, id: id, done: make(chan struct{})}
	i.attach()
	return i.Destroy(ctx)
}
