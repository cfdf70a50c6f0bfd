package guest

import (
	"bytes"
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/supervise"
)

// SupervisedInstance is the server's handle of a supervisor's machine. It implements brig.Instance
// except for the handle, the notes and the enforcement.
type SupervisedInstance struct {
	Guest // its processes, files and trees

	o  *RemoteHost
	id brig.ID
	// dir is the directory with the server's own data about the instance.
	dir    string
	plain  bool
	skew   time.Duration // how far the remote clock is ahead, or slightly less
	path   string
	noLink bool // network links are not available
	isGone func(context.Context) bool
	life   context.Context // the instance's own context, which outlives all calls
	done   chan struct{}

	mu       sync.Mutex // guards the fields below
	exit     *brig.Exit
	lease    time.Time
	tethered bool // the instance ends with its creator's connection
}

// InstanceOptions are the options to create or find an instance.
type InstanceOptions struct {
	ID brig.ID
	// Dir is the directory of the server's data about the instance.
	Dir    string
	Env    map[string]string
	Limits brig.Limits
	// Path is the default PATH of programs.
	Path string
	// NoUplink means that instances on this host cannot have a network link.
	NoUplink bool
	// Gone, if set, reports whether an instance that cannot be reached is known
	// to have ended.
	Gone func(context.Context) bool
}

// stateFile is the file with the savedState.
const stateFile = "machine.json"

// savedState is the server's stored data about an instance.
type savedState struct {
	Env    map[string]string
	Limits brig.Limits
	Plain  bool
}

func (o *RemoteHost) newInstance(ctx context.Context, k InstanceOptions) *SupervisedInstance {
	m := &SupervisedInstance{o: o, id: k.ID, dir: k.Dir, life: context.WithoutCancel(ctx), path: k.Path, noLink: k.NoUplink, isGone: k.Gone, done: make(chan struct{})}
	m.Guest = Guest{Dial: m.dialAgent, Limits: k.Limits, Done: m.done, Remote: true}
	m.setEnv(k.Env)
	return m
}

// setEnv sets the environment of programs.
func (m *SupervisedInstance) setEnv(env map[string]string) {
	if m.Guest.Env = env; m.path != "" && env["PATH"] == "" {
		m.Guest.Env = map[string]string{"PATH": m.path}
		maps.Copy(m.Guest.Env, env)
	}
}

// Create creates an instance according to a Spec.
func (o *RemoteHost) Create(ctx context.Context, k InstanceOptions, spec brig.Spec, lease time.Time, w wire.Make) (*SupervisedInstance, error) {
	k.Env, k.Limits = spec.Env, spec.Limits
	m := o.newInstance(ctx, k)
	m.lease = lease
	w.Hostname, w.LeaseMS, w.Tethered = spec.Name, max(time.Until(lease).Milliseconds(), 0), spec.Ephemeral
	w.Held = spec.Held
	if spec.Command != nil {
		w.Main = m.Guest.newExec("main", *spec.Command, brig.IO{})
	}
	// The connection stays open while the instance and this server exist.
	c, end, err := o.openRequestFrom(ctx, context.WithoutCancel(ctx), wire.SupervisorRequest{Op: wire.SupervisorCreate, ID: string(k.ID), Make: &w})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, end)
	r := wire.NewReader(c)
	s, err := readFirstState(r)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		m.update(s)
		err = m.save()
	}
	if err == nil {
		// From now on the server is responsible for the instance.
		err = wire.Write(c, wire.TypeOK, nil)
	}
	if err != nil {
		end()
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		return nil, errors.Join(o.createError(err), o.Destroy(clean, k.ID))
	}
	m.tethered = spec.Ephemeral
	m.attach(r, end, s)
	return m, nil
}

// createError returns the error for an instance that could not be created.
func (o *RemoteHost) createError(err error) error {
	if _, isReported := errors.AsType[*brig.Error](err); isReported || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return brig.Errorf(brig.CreationFailed, "%s made no sandbox", o.Label).
		WithHint("its kernel must allow this account namespaces and overlays; the server's log has the cause").Because(err)
}

// longestLease is the maximum lease that is accepted from a supervisor.
const longestLease = 366 * 24 * time.Hour

// Attach finds an existing instance. It uses the lease that the supervisor reports, or the given
// lease if the report has none. It returns NotFound if the supervisor does not have the instance.
func (o *RemoteHost) Attach(ctx context.Context, k InstanceOptions, lease time.Time) (*SupervisedInstance, error) {
	m := o.newInstance(ctx, k)
	m.lease = lease
	var (
		r   *wire.Reader
		end func()
		s   wire.State
	)
	err := m.load()
	if err == nil {
		r, end, s, err = m.watch(ctx)
	}
	if brig.KindOf(err) == brig.NotFound {
		// The server that removed the instance may have exited before it removed the directory.
		err = errors.Join(err, os.RemoveAll(m.dir))
	}
	if err != nil {
		return nil, err
	}
	m.update(s)
	if s.LeaseMS > 0 {
		m.lease = time.Now().Add(time.Duration(min(s.LeaseMS, longestLease.Milliseconds())) * time.Millisecond)
	}
	m.attach(r, end, s)
	return m, nil
}

// update applies a supervisor's report about the instance. The reported time is always slightly in
// the past.
func (m *SupervisedInstance) update(s wire.State) {
	m.plain = s.Plain
	m.skew = time.UnixMilli(s.NowMS).Sub(time.Now().Truncate(time.Millisecond))
}

func (m *SupervisedInstance) save() error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	return supervise.WriteRecord(filepath.Join(m.dir, stateFile), savedState{Env: m.Guest.Env, Limits: m.Guest.Limits, Plain: m.plain}, false)
}

// load reads the data that an earlier server stored in the same directory.
func (m *SupervisedInstance) load() error {
	var f savedState
	known, err := supervise.ReadRecord(filepath.Join(m.dir, stateFile), &f)
	if err != nil {
		return fmt.Errorf("read what is known of %s: %w", m.id, err)
	}
	if !known {
		return brig.Errorf(brig.NotFound, "sandbox %s is not known here", m.id)
	}
	m.Guest.Env, m.Guest.Limits = f.Env, f.Limits
	return nil
}

func readFirstState(r *wire.Reader) (wire.State, error) {
	f, err := r.Read()
	if err != nil {
		return wire.State{}, err
	}
	return decodeState(f)
}

// dialAgent connects to the instance's agent.
func (m *SupervisedInstance) dialAgent(ctx context.Context) (net.Conn, error) {
	if e := m.Exit(); e != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the sandbox has ended (%s)", e.Reason).WithHint("see the sandbox's exit and logs")
	}
	c, err := m.o.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := wire.WriteJSON(c, wire.TypeOrder, wire.SupervisorRequest{Version: wire.SupervisorVersion, Op: wire.SupervisorAgent, ID: string(m.id)}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// IsPlain reports whether all programs run under a single account.
func (m *SupervisedInstance) IsPlain() bool { return m.plain }

// Done implements brig.Instance.
func (m *SupervisedInstance) Done() <-chan struct{} { return m.done }

// Exit implements brig.Instance.
func (m *SupervisedInstance) Exit() *brig.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

// Exec implements brig.Instance.
func (m *SupervisedInstance) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res, err := m.Guest.Exec(ctx, id, cmd, sio)
	if !errors.Is(err, ErrLost) {
		return res, err
	}
	if m.Exit() == nil && errors.Is(err, ErrNotReached) && !WaitSelfEnd(ctx, res, m.done) {
		return res, causeOr(ctx, err) // the command was not started, so the instance need not end
	}
	if m.Exit() == nil {
		cause := m.Guest.EndReason(ctx, id, res, err)
		if cause != nil {
			// The end of the process tree cannot be confirmed, so end the
			// instance.
			err = errors.Join(err, m.Stop(context.WithoutCancel(ctx), 0, brig.AgentLost))
		} else if m.Exit() == nil && !res.TimedOut && ctx.Err() == nil {
			return res, brig.Errorf(brig.ConnectionFailed, "the connection to %s was lost while the command ran, and its processes were ended", m.o.Label).
				WithHint("check its effects before you run it again").Because(err)
		}
	}
	if known, verdict := SetLostResult(ctx, res, m.Exit(), err); known {
		return res, verdict
	}
	return res, brig.Errorf(brig.ConnectionFailed, "the connection to %s was lost while the command ran", m.o.Label).
		WithHint("the sandbox ends with its lease; create another one").Because(err)
}

// causeOr returns the cause of ctx if ctx has ended, and otherwise err.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Changed implements brig.Trees. It converts since from the server's clock to
// the remote host's clock.
func (m *SupervisedInstance) Changed(ctx context.Context, paths []string, since time.Time, on func(brig.Node, io.Reader) error) error {
	return m.Guest.Changed(ctx, paths, since.Add(m.skew), on)
}

// Dial implements brig.Instance.
func (m *SupervisedInstance) Dial(ctx context.Context, port int) (net.Conn, error) {
	return m.Guest.DialPort(ctx, port)
}

// Uplink implements brig.Instance.
func (m *SupervisedInstance) Uplink(ctx context.Context, authority []byte) (brig.Uplink, error) {
	if m.noLink {
		return nil, brig.Errorf(brig.Unimplemented, "machines here can have no network but their own loopback").WithHint("/dev/net/tun must be there, for the account that they are of")
	}
	return m.Guest.Uplink(ctx, authority)
}

// Start implements brig.Instance.
func (m *SupervisedInstance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	return m.Guest.StartCarried(ctx, id, cmd, s)
}

// notebook returns the Notebook of the instance, which stores each note in a file.
func (m *SupervisedInstance) notebook() *Notebook {
	return &Notebook{
		Dir: filepath.Join(m.dir, "kept"), Names: base32.HexEncoding, Read: os.ReadFile,
		Write: func(name, _ string, note []byte) error { return supervise.WriteFile(name, note, false) },
	}
}

// Keep implements brig.Instance.
func (m *SupervisedInstance) Keep(ctx context.Context, p brig.Process, note []byte) error {
	return m.Guest.KeepCarried(ctx, p, note, m.notebook().Put)
}

// KeptProcesses implements brig.Instance.
func (m *SupervisedInstance) KeptProcesses(ctx context.Context) ([]brig.KeptProcess, error) {
	return m.notebook().KeptProcesses(ctx, &m.Guest, func(string) {})
}

// Bind implements brig.Instance.
func (m *SupervisedInstance) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	if spec.Name != "" {
		if err := m.Guest.SetHostname(ctx, spec.Name); err != nil {
			return err
		}
	}
	env, limits := m.Guest.Env, m.Guest.Limits
	m.Guest.Limits = spec.Limits
	m.setEnv(spec.Env)
	if err := m.save(); err != nil {
		m.Guest.Env, m.Guest.Limits = env, limits
		return err
	}
	if err := m.o.sendRequest(ctx, m.leaseRequest(lease, !spec.Ephemeral)); err != nil {
		return err
	}
	m.mu.Lock()
	m.tethered = spec.Ephemeral
	m.mu.Unlock()
	return nil
}

func (m *SupervisedInstance) leaseRequest(lease time.Time, untethered bool) wire.SupervisorRequest {
	m.mu.Lock()
	m.lease = lease
	m.mu.Unlock()
	return wire.SupervisorRequest{Op: wire.SupervisorLease, ID: string(m.id), LeaseMS: max(time.Until(lease).Milliseconds(), 0), Own: untethered}
}

// StartMain implements brig.Instance.
func (m *SupervisedInstance) StartMain(ctx context.Context, linger bool) error {
	return m.o.sendRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorStartMain, ID: string(m.id), Linger: linger})
}

// WaitMain implements brig.Instance.
func (m *SupervisedInstance) WaitMain(ctx context.Context) error {
	return m.Guest.AwaitMain(ctx, func() error {
		return m.o.sendRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorWaitMain, ID: string(m.id)})
	})
}

// Extend implements brig.Instance.
func (m *SupervisedInstance) Extend(ctx context.Context, lease time.Time) error {
	return m.o.sendRequest(ctx, m.leaseRequest(lease, false))
}

// Pause implements brig.Instance.
func (m *SupervisedInstance) Pause(context.Context) error { return m.pauseUnsupportedError() }

// Resume implements brig.Instance.
func (m *SupervisedInstance) Resume(context.Context) error { return m.pauseUnsupportedError() }

func (m *SupervisedInstance) pauseUnsupportedError() error {
	return brig.Errorf(brig.Unimplemented, "machines of plain processes cannot be frozen").WithHint("leave freeze_after out, or use another provider")
}

// Usage implements brig.Instance.
func (m *SupervisedInstance) Usage(context.Context) (*brig.Usage, error) {
	return nil, brig.Errorf(brig.Unimplemented, "usage is not measured for plain processes")
}

// stopTimeout is the maximum time, beyond the grace period, for a supervisor to
// end an instance.
const stopTimeout = 10 * time.Second

// Stop implements brig.Instance.
func (m *SupervisedInstance) Stop(ctx context.Context, grace time.Duration, reason brig.ExitReason) error {
	select {
	case <-m.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, grace+stopTimeout)
	defer cancel()
	err := m.o.sendRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorStop, ID: string(m.id), GraceMS: grace.Milliseconds(), Reason: string(reason)})
	if err != nil && brig.KindOf(err) != brig.NotFound {
		return err
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
	case <-time.After(LostTimeout):
		// The watch of the instance may still be trying to reach the
		// supervisor.
		r, end, s, err := m.watch(ctx)
		if err == nil {
			m.attach(r, end, s)
		}
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", m.id, context.Cause(ctx))
	}
}

// Destroy implements brig.Instance.
func (m *SupervisedInstance) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := m.o.Destroy(ctx, m.id); err != nil {
		return err
	}
	select {
	case <-m.done:
	case <-time.After(LostTimeout):
		// The supervisor no longer has the instance, but the watch may still be
		// trying to reach the supervisor.
		m.MarkEnded(brig.Killed)
	}
	return os.RemoveAll(m.dir)
}

// Logs implements brig.Instance.
func (m *SupervisedInstance) Logs(ctx context.Context) (io.ReadCloser, error) {
	return m.log(ctx, false)
}

// TimedLogs implements brig.Instance.
func (m *SupervisedInstance) TimedLogs(ctx context.Context) (io.ReadCloser, error) {
	return m.log(ctx, true)
}

func (m *SupervisedInstance) log(ctx context.Context, timed bool) (io.ReadCloser, error) {
	c, end, err := m.o.openRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorLog, ID: string(m.id), Timed: timed})
	if err != nil {
		return nil, err
	}
	return &content{ctx: ctx, r: wire.NewReader(c), end: end}, nil
}

// maxLogChunk is the maximum amount of log text in one request, in bytes.
const maxLogChunk = 256 << 10

// Log implements brig.Instance.
func (m *SupervisedInstance) Log(p []byte) error {
	ctx, cancel := context.WithTimeout(m.life, openTimeout)
	defer cancel()
	for len(p) > 0 {
		n := min(len(p), maxLogChunk)
		if err := m.o.sendRequest(ctx, wire.SupervisorRequest{Op: wire.SupervisorAppendLog, ID: string(m.id), Text: bytes.Clone(p[:n])}); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Notes returns the gaps in the instance's limits, for the caller.
func (m *SupervisedInstance) Notes() []string {
	notes := []string{"memory, processors and disk: not limited"}
	if m.plain {
		notes = append(notes, "users: there is one account; a program that takes a mark off its environment outlives its timeout until the machine ends")
	}
	return notes
}

// Sweep ends and removes the instances that are not in known, and returns their number. It skips
// instances that are tethered to a connected client. If dir is set, Sweep also removes the data in
// dir of instances that do not exist.
func (o *RemoteHost) Sweep(ctx context.Context, dir string, known map[brig.ID]bool) (int, error) {
	states, err := o.States(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	running := map[brig.ID]bool{}
	for _, s := range states {
		id := brig.ID(s.ID)
		running[id] = true
		if known[id] || s.Tethered && s.Ended == nil {
			continue
		}
		if err := o.Destroy(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
		delete(running, id)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && dir != "" {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if id := brig.ID(e.Name()); !known[id] && !running[id] {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return n, errors.Join(errs...)
}
