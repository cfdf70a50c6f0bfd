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
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/span"
)

// self is the path of this binary. The path remains valid if the file was
// replaced or removed.
const self = "/proc/self/exe"

// Name is the provider's name.
const Name = "gvisor"

// Options are the options of a Provider.
type Options struct {
	// DataDir contains a directory per sandbox. Its disk must have enough space
	// for the data that the sandboxes write.
	DataDir string
	// Root returns the location of an image's files.
	Root func(digest string) (Root, error)
	// Volume returns the path of the image of a volume (see package diskimage). Without it there are
	// no volumes.
	Volume func(id string) string
	// Engine is the binary of the sentry. If a gofer is needed, it is also the
	// binary of the gofer and the shim. Its main function must call Main first.
	// The default is this binary.
	Engine string
	// Shim is the binary of the shim if no gofer is needed. Its main function
	// must call Shim. The default is the engine.
	Shim string
	// Agent is the binary of the sandbox's init process.
	Agent string
	// Programs is the directory with the programs of earlier versions, which can restore saves of
	// these versions. The names of the programs begin with "brig-". Sweep removes unused
	// programs.
	Programs string
	Log      *slog.Logger
	// Disabled lists the protections to disable, for tests that verify that an
	// attack then succeeds. Only builds with the tag failpoints read it.
	Disabled []string
}

// Provider creates sandboxes with gVisor. It implements brig.Provider.
type Provider struct {
	Options
	rootless         bool
	withoutGofer     bool // sentries work without a gofer
	cgroups          bool
	held             cgroup.Limits // the effective limits of a test group with all limits set
	enforcement      map[brig.Area]brig.Enforcement
	awaitingTethered sync.Map // the sandboxes for which awaitTethered runs
	unpacked         sync.Map // the saves whose unpackedDir this process has made
	shares           shares
	contents         contents
}

var _ brig.Provider = (*Provider)(nil)

// Open returns a Provider. It checks the capabilities of this machine.
func Open(o Options) (*Provider, error) {
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, fmt.Errorf("open data folder: %w", err)
	}
	// Resolve symbolic links: the names of cgroups derive from the directory,
	// and must not depend on the path that was given.
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
		// A dynamically linked sentry would need the dynamic loader inside its
		// own empty root.
		return nil, brig.Errorf(brig.NotInitialized, "this brig was built with cgo and cannot start itself in a sandbox").
			WithHint("build it with `make build`, or with CGO_ENABLED=0 go build")
	}
	p := &Provider{Options: o, rootless: os.Geteuid() != 0}
	if !p.rootless {
		p.held, err = tryCgroup(dir)
		p.cgroups = err == nil
	}
	p.withoutGofer = !p.rootless && !p.isDisabled("network") && tryTree(dir) == nil
	// A separate shim binary does not contain an engine to start.
	if p.Shim == "" || !p.withoutGofer || p.Engine == self {
		p.Shim = p.Engine
	}
	p.enforcement = p.enforces()
	return p, nil
}

// CheckCgroup returns nil if the sandboxes of a data folder can have a cgroup
// with limits, and otherwise the reason why they cannot.
func CheckCgroup(dataDir string) error {
	_, err := tryCgroup(dataDir)
	return err
}

// tryCgroup creates a group with every limit, and returns the effective
// limits.
func tryCgroup(dataDir string) (held cgroup.Limits, err error) {
	// Set all limits that a sandbox has: if cgroup v2 delegates the memory
	// controller but not the cpu controller, no sandbox could start.
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

// newCgroup returns the cgroup of a new sandbox, or "" if none can be created.
// A sandbox in the warm pool has no share yet.
func (p *Provider) newCgroup(id brig.ID, share string) string {
	if !p.cgroups {
		return ""
	}
	if p.isDisabled("shares") {
		share = ""
	}
	return cgroupOf(p.DataDir, share, id)
}

// Create implements brig.Provider.
func (p *Provider) Create(ctx context.Context, id brig.ID, spec brig.Spec, lease time.Time) (brig.Instance, error) {
	o, err := p.newOrder(id, spec, lease)
	if err != nil {
		return nil, err
	}
	return p.create(ctx, id, o)
}

// newOrder returns the order for a new sandbox.
func (p *Provider) newOrder(id brig.ID, spec brig.Spec, lease time.Time) (*order, error) {
	if !brig.ValidName(string(id)) {
		return nil, brig.InvalidField("id", "%q cannot name a folder", id)
	}
	if spec.BuildRights && spec.Blank {
		return nil, errors.New("an instance with the rights of a build belongs to one sandbox from its start")
	}
	root, err := p.Root(spec.Image)
	if err != nil {
		return nil, err
	}
	host := spec.Name
	if host == "" {
		host = string(id)
	}
	o := &order{
		Version: orderVersion, ID: string(id), Hostname: host, Image: spec.Image, Root: root, Limits: spec.Limits,
		Env: spec.Env, Command: spec.Command, Lease: lease, Ephemeral: spec.Ephemeral, Blank: spec.Blank, Held: spec.Held, Build: spec.BuildRights,
		Cgroup: p.newCgroup(id, spec.Share), Share: spec.Share, Rootless: p.rootless, Agent: p.Agent, Engine: p.Engine, Shim: p.Shim, Alone: p.withoutGofer, Counted: p.withoutGofer && !p.isDisabled("counters"), Disabled: p.Disabled,
	}
	if len(spec.Volumes) > 0 && !p.canMountVolumes() {
		return nil, brig.NoVolumes(Name)
	}
	for _, v := range spec.Volumes {
		o.Volumes = append(o.Volumes, volume{Image: p.Volume(v.ID), Target: v.Path, ReadOnly: v.ReadOnly})
	}
	if p.canSave() {
		o.AgentAt, o.Carried = agentPath, spec.Pausable
	}
	return o, nil
}

// canMountVolumes reports whether sandboxes can mount volumes. A gofer could not open the images.
func (p *Provider) canMountVolumes() bool { return p.withoutGofer && p.Volume != nil }

// create starts a sandbox according to an order. If the order names a save to
// restore, the sandbox may have had an instance before.
func (p *Provider) create(ctx context.Context, id brig.ID, o *order) (_ brig.Instance, err error) {
	l := p.layout(id)
	_, statErr := os.Stat(l.path(orderFile))
	restored := statErr == nil && (o.From != "" || o.FilesFrom != "")
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, diskError(err, "make the sandbox's folder")
	}
	lock, err := l.lock()
	if restored { // the shim that saved the sandbox reports its end shortly before it exits
		for end := time.Now().Add(stopTimeout); lock == nil && err == nil && ctx.Err() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			lock, err = l.lock()
		}
	}
	if err != nil || lock == nil {
		return nil, errors.Join(fmt.Errorf("folder of %s is in use", id), err)
	}
	defer lock.Close()
	failpoint.Hit("provider.folder")
	i, attached := &instance{p: p, l: l, id: id, order: *o, done: make(chan struct{})}, false
	defer func() {
		if err == nil {
			return
		}
		lock.Close()  // the shim has its own copy
		if restored { // keep the logs: the sandbox can be restored again
			if !attached {
				i.attach()
			}
			err = errors.Join(err, i.end(context.WithoutCancel(ctx)))
			return
		}
		err = errors.Join(err, p.erase(context.WithoutCancel(ctx), id))
	}()
	// A killed shim leaves all of these files, and the next sentry could not create its
	// socket in the old state directory.
	for _, name := range []string{exitFile, socketFile, stateDir, overlayDir, configFile} { // from the previous instance
		if err := os.RemoveAll(l.path(name)); err != nil {
			return nil, diskError(err, "remove "+name)
		}
	}
	private, err := i.order.hide()
	if err != nil {
		return nil, err
	}
	if err := l.writeJSON(orderFile, i.order, false); err != nil {
		return nil, diskError(err, "write the sandbox's order")
	}
	failpoint.Hit("provider.ordered")
	step := "gvisor.boot"
	if o.From != "" || o.FilesFrom != "" {
		step = "gvisor.restore"
	}
	bctx, s := span.Start(ctx, step)
	err = i.launch(bctx, lock, private)
	if s.End(); err != nil {
		return nil, err
	}
	i.attach()
	attached = true
	if o.Blank {
		_, err = i.group() // so that Bind does not have to open the group
		i.preconnect.schedule()
		return i, err
	}
	return i, p.shares.add(i, o.Share, false)
}

// launch starts the shim, sends it the private data that must not be stored in
// a file, and waits until its sandbox runs.
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

	cmd := exec.Command(i.order.Shim, i.l.dir)
	cmd.Args[0] = shimName
	cmd.Env = append(failpoint.Environment(), "PATH=/usr/bin:/bin") // do not pass on the server's environment
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
	// Reap the shim when it exits, if this process still exists then.
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
		err := fmt.Errorf("%s; %s", r.Error, i.l.tailOf(panicFile))
		if i.order.From != "" && len(i.order.Volumes) > 0 {
			return restoreError(err)
		}
		return creationError(err)
	}
	i.notes = r.Notes
	failpoint.Hit("provider.ready")
	return nil
}

// shimAttr separates the shim from the server. The shim has its own session, so
// that it outlives the server. It also has its own mount and network
// namespaces, so that gVisor's setup is invisible to other processes and ends
// with the shim.
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
		ok = false // a power failure truncated the file and ended the sandbox
	}
	if !ok || !brig.ValidName(string(id)) {
		if brig.ValidName(string(id)) {
			// The server that was creating or removing the sandbox may have
			// died, and Sweep skips known sandboxes.
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
	if i.isSaved() { // the shim has completed a save, and is ending the sandbox
		select {
		case <-i.done:
		case <-time.After(stopTimeout):
		}
	}
	if o.Share != "" {
		// A missing weight affects only the priority, so log the error.
		if err := p.shares.add(i, o.Share, i.cgroupName() == cgroupOf(p.DataDir, "", id)); err != nil {
			p.Log.WarnContext(ctx, "failed to set the weight of a sandbox", "sandbox", id, "err", err)
		}
	}
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
		removed, tethered, err := p.sweepOne(ctx, id)
		if removed {
			n++
			delete(kept, string(id))
		}
		if tethered {
			p.awaitTethered(context.WithoutCancel(ctx), id)
		}
		errs = append(errs, err)
	}
	groups, err := p.sweepCgroups(ctx, kept)
	saves, err2 := p.sweepSaves(known)
	files, err3 := p.sweepPrograms()
	return n + groups + saves + files, errors.Join(append(errs, err, err2, err3)...)
}

// sweepCgroups removes the cgroups of sandboxes without a directory, and
// returns their number.
func (p *Provider) sweepCgroups(ctx context.Context, kept map[string]bool) (n int, err error) {
	if !p.cgroups {
		return 0, nil
	}
	groups, shares, err := p.groups()
	errs := []error{err}
	for _, name := range groups {
		if kept[filepath.Base(name)] {
			continue
		}
		g, err := cgroup.Open(name)
		if err == nil {
			err = g.Destroy(ctx)
		}
		n++
		errs = append(errs, err)
	}
	for _, name := range shares {
		errs = append(errs, cgroup.RemoveEmpty(name)) // a power failure may leave an empty parent
	}
	return n, errors.Join(errs...)
}

// groups lists the cgroups of sandboxes and the parent cgroups of shares.
func (p *Provider) groups() (sandboxes, shares []string, err error) {
	all, err := cgroup.Children(cgroupParent(p.DataDir))
	errs := []error{err}
	for _, name := range all {
		if !strings.HasPrefix(filepath.Base(name), shareGroup) {
			sandboxes = append(sandboxes, name)
			continue
		}
		below, err := cgroup.Children(name)
		shares, sandboxes, errs = append(shares, name), append(sandboxes, below...), append(errs, err)
	}
	return sandboxes, shares, errors.Join(errs...)
}

// sweepOne removes a sandbox that the engine does not know. It skips a tethered
// sandbox, whose shim ends when the process that created the sandbox exits.
func (p *Provider) sweepOne(ctx context.Context, id brig.ID) (removed, tethered bool, err error) {
	l := p.layout(id)
	lock, err := l.lock()
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil // the sandbox's shim has just removed the directory
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

// Sweep leaves a tethered sandbox to its shim, and waits in the background for at
// most tetheredTimeout until the shim exits. If the directory still exists
// tetheredGrace later, it is removed.
const (
	tetheredTimeout = time.Minute
	tetheredGrace   = 5 * time.Second
)

// awaitTethered removes a tethered sandbox after its shim has exited. Normally
// the shim removes it. If the server dies just after the shim has decided to
// leave the directory to the server, neither of them removes the directory.
func (p *Provider) awaitTethered(ctx context.Context, id brig.ID) {
	if _, waits := p.awaitingTethered.LoadOrStore(id, true); waits {
		return
	}
	go func() {
		defer p.awaitingTethered.Delete(id)
		for end := time.Now().Add(tetheredTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			lock, err := p.layout(id).lock()
			if err != nil {
				return // the directory has been removed
			}
			if lock != nil {
				lock.Close()
				time.Sleep(tetheredGrace)
				break
			}
		}
		if _, err := os.Stat(p.layout(id).dir); err != nil {
			return
		}
		if _, _, err := p.sweepOne(ctx, id); err != nil {
			p.Log.WarnContext(ctx, "failed to remove a sandbox whose process has ended", "sandbox", id, "err", err)
		}
	}()
}

// erase ends a sandbox by all available means, and removes its data.
func (p *Provider) erase(ctx context.Context, id brig.ID) error {
	l := p.layout(id)
	i := &instance{p: p, l: l, id: id, done: make(chan struct{})}
	var o order
	if ok, err := l.readJSON(orderFile, &o); ok && err == nil {
		i.order.Cgroup = o.Cgroup
	}
	i.attach()
	return i.Destroy(ctx)
}
