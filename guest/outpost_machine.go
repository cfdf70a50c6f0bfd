package guest

import (
	"bytes"
	"context"
	"encoding/base32"
	"encoding/json"
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
)

// OutpostMachine is a machine that a keeper keeps, seen from a server. It is all of a
// brig.Instance but for its handle, its notes and what is enforced.
type OutpostMachine struct {
	Guest // of its processes, files and trees

	o  *Outpost
	id brig.ID
	// dir is where the server has what is only its own of the machine.
	dir   string
	plain bool
	skew  time.Duration // how far its clock is ahead, or a little less
	path  string
	alone bool // it has no uplink
	gone  func(context.Context) bool
	life  context.Context // its own, which nobody's call ends
	done  chan struct{}

	mu    sync.Mutex // guards the fields below
	exit  *brig.Exit
	lease time.Time
	tied  bool // it ends with its maker's connection
}

// MachineOptions say how a machine is made, or found.
type MachineOptions struct {
	ID brig.ID
	// Dir is a folder for what the server keeps of the machine.
	Dir    string
	Env    map[string]string
	Limits brig.Limits
	// Path is the PATH of programs that are not given another.
	Path string
	// NoUplink says that machines there can have none.
	NoUplink bool
	// Gone, when set, says of a machine that cannot be reached whether it is
	// known to have ended.
	Gone func(context.Context) bool
}

// keptFile is what a server remembers of a machine.
type keptFile struct {
	Env    map[string]string
	Limits brig.Limits
	Plain  bool
}

func (o *Outpost) kept(ctx context.Context, k MachineOptions) *OutpostMachine {
	m := &OutpostMachine{o: o, id: k.ID, dir: k.Dir, life: context.WithoutCancel(ctx), path: k.Path, alone: k.NoUplink, gone: k.Gone, done: make(chan struct{})}
	m.Guest = Guest{Dial: m.dialAgent, Limits: k.Limits}
	m.setEnv(k.Env)
	return m
}

// setEnv sets what programs have in their environment.
func (m *OutpostMachine) setEnv(env map[string]string) {
	if m.Guest.Env = env; m.path != "" && env["PATH"] == "" {
		m.Guest.Env = map[string]string{"PATH": m.path}
		maps.Copy(m.Guest.Env, env)
	}
}

// Make makes a machine, with what a Spec says of it.
func (o *Outpost) Make(ctx context.Context, k MachineOptions, spec brig.Spec, lease time.Time, w wire.Make) (*OutpostMachine, error) {
	k.Env, k.Limits = spec.Env, spec.Limits
	m := o.kept(ctx, k)
	m.lease = lease
	w.Hostname, w.LeaseMS, w.Tethered = spec.Name, max(time.Until(lease).Milliseconds(), 0), spec.Ephemeral
	w.Held = spec.Held
	if spec.Command != nil {
		w.Main = m.Guest.request("main", *spec.Command, brig.IO{})
	}
	// The connection is the machine's for as long as it lives, or is here.
	c, end, err := o.order(context.WithoutCancel(ctx), wire.Order{Op: wire.KeeperMake, ID: string(k.ID), Make: &w})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, end)
	r := wire.NewReader(c)
	s, err := firstState(r)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		m.know(s)
		err = m.remember()
	}
	if err == nil {
		// Now its keeper may leave it to us.
		err = wire.Write(c, wire.TypeOK, nil)
	}
	if err != nil {
		end()
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
		defer cancel()
		return nil, errors.Join(o.madeNothing(err), o.Erase(clean, k.ID))
	}
	m.tied = spec.Ephemeral
	m.attach(r, end, s)
	return m, nil
}

// madeNothing is why there is no machine.
func (o *Outpost) madeNothing(err error) error {
	if _, told := errors.AsType[*brig.Error](err); told || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return brig.Errorf(brig.CreationFailed, "%s made no sandbox", o.Where).
		WithHint("its kernel must allow this account namespaces and overlays; the server's log has the cause").Because(err)
}

// longestLease bounds what a keeper says of a lease.
const longestLease = 366 * 24 * time.Hour

// Find finds a machine again, whose lease is what its keeper says, or else as
// given. It is NotFound when the keeper knows of none.
func (o *Outpost) Find(ctx context.Context, k MachineOptions, lease time.Time) (*OutpostMachine, error) {
	m := o.kept(ctx, k)
	m.lease = lease
	var (
		r   *wire.Reader
		end func()
		s   wire.State
	)
	err := m.recall()
	if err == nil {
		r, end, s, err = m.watch(ctx)
	}
	if brig.KindOf(err) == brig.NotFound {
		// Whoever removed it may have died over that.
		err = errors.Join(err, os.RemoveAll(m.dir))
	}
	if err != nil {
		return nil, err
	}
	m.know(s)
	if s.LeaseMS > 0 {
		m.lease = time.Now().Add(time.Duration(min(s.LeaseMS, longestLease.Milliseconds())) * time.Millisecond)
	}
	m.attach(r, end, s)
	return m, nil
}

// know takes over what a keeper says of the machine. It said so at some time in
// the past, however short.
func (m *OutpostMachine) know(s wire.State) {
	m.plain = s.Plain
	m.skew = time.UnixMilli(s.NowMS).Sub(time.Now().Truncate(time.Millisecond))
}

func (m *OutpostMachine) remember() error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	b, err := json.Marshal(keptFile{Env: m.Guest.Env, Limits: m.Guest.Limits, Plain: m.plain})
	if err != nil {
		return err
	}
	return replace(filepath.Join(m.dir, "machine.json"), b)
}

// recall reads what an earlier server remembered, if it was this one's folder.
func (m *OutpostMachine) recall() error {
	b, err := os.ReadFile(filepath.Join(m.dir, "machine.json"))
	if errors.Is(err, os.ErrNotExist) {
		return brig.Errorf(brig.NotFound, "sandbox %s is not known here", m.id)
	}
	var f keptFile
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return fmt.Errorf("read what is known of %s: %w", m.id, err)
	}
	m.Guest.Env, m.Guest.Limits = f.Env, f.Limits
	return nil
}

// replace writes a file that is there as a whole or as it was.
func replace(name string, b []byte) error {
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return os.Rename(name+".new", name)
}

func firstState(r *wire.Reader) (wire.State, error) {
	f, err := r.Read()
	if err != nil {
		return wire.State{}, err
	}
	return state(f)
}

// dialAgent connects to the machine's agent.
func (m *OutpostMachine) dialAgent(ctx context.Context) (net.Conn, error) {
	if e := m.Exit(); e != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the sandbox has ended (%s)", e.Reason).WithHint("see the sandbox's exit and logs")
	}
	c, err := m.o.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := wire.WriteJSON(c, wire.TypeOrder, wire.Order{Version: wire.KeeperVersion, Op: wire.KeeperAgent, ID: string(m.id)}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Plain reports whether there is only one account.
func (m *OutpostMachine) Plain() bool { return m.plain }

// Done implements brig.Instance.
func (m *OutpostMachine) Done() <-chan struct{} { return m.done }

// Exit implements brig.Instance.
func (m *OutpostMachine) Exit() *brig.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exit
}

// Exec implements brig.Instance.
func (m *OutpostMachine) Exec(ctx context.Context, id string, cmd brig.Command, sio brig.IO) (*brig.Result, error) {
	res, err := m.Guest.Exec(ctx, id, cmd, sio)
	if !errors.Is(err, ErrLost) {
		return res, err
	}
	if m.Exit() == nil && !EndsItself(ctx, res, m.done) {
		if errors.Is(err, ErrUnasked) {
			return res, orCause(ctx, err) // nothing has begun that the machine would have to end for
		}
		// Nothing says that the process tree is gone, and nobody will.
		err = errors.Join(err, m.Stop(context.WithoutCancel(ctx), 0, brig.Killed))
	}
	if known, verdict := Verdict(ctx, res, m.Exit(), err); known {
		return res, verdict
	}
	return res, brig.Errorf(brig.ConnectionFailed, "the connection to %s was lost while the command ran", m.o.Where).
		WithHint("its lease ends the sandbox where it is; make another one").Because(err)
}

// orCause is why a call failed: its caller's end, if that was it.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Changed implements brig.Trees. The moment is the server's, and files have the
// times of where they are.
func (m *OutpostMachine) Changed(ctx context.Context, paths []string, since time.Time, on func(brig.Node, io.Reader) error) error {
	return m.Guest.Changed(ctx, paths, since.Add(m.skew), on)
}

// Dial implements brig.Instance.
func (m *OutpostMachine) Dial(ctx context.Context, port int) (net.Conn, error) {
	return m.Guest.Port(ctx, port)
}

// Uplink implements brig.Instance.
func (m *OutpostMachine) Uplink(ctx context.Context, authority []byte) (brig.Uplink, error) {
	if m.alone {
		return nil, brig.Errorf(brig.Unimplemented, "machines here can have no network but their own loopback").WithHint("/dev/net/tun must be there, for the account that they are of")
	}
	return m.Guest.Uplink(ctx, authority)
}

// Start implements brig.Instance.
func (m *OutpostMachine) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	p, err := m.Guest.StartCarried(ctx, id, cmd, s)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// noteFile is where the note of a process is.
func (m *OutpostMachine) noteFile(id string) string {
	return filepath.Join(m.dir, "kept", base32.HexEncoding.EncodeToString([]byte(id)))
}

// Keep implements brig.Instance.
func (m *OutpostMachine) Keep(ctx context.Context, p brig.Process, note []byte) error {
	c, ok := p.(*Carried)
	if !ok {
		return fmt.Errorf("keep: %T is not a process of this provider", p)
	}
	name := m.noteFile(c.ID())
	if len(note) == 0 {
		err := m.Guest.KeepCarried(ctx, c.ID(), false)
		if rmErr := os.Remove(name); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	if err := replace(name, note); err != nil {
		return err
	}
	return m.Guest.KeepCarried(ctx, c.ID(), true)
}

// Kept implements brig.Instance.
func (m *OutpostMachine) Kept(ctx context.Context) ([]brig.Kept, error) {
	entries, err := os.ReadDir(filepath.Join(m.dir, "kept"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what is kept: %w", err)
	}
	var out []brig.Kept
	for _, e := range entries {
		id, err := base32.HexEncoding.DecodeString(e.Name())
		if err != nil {
			continue // half of one
		}
		note, err := os.ReadFile(filepath.Join(m.dir, "kept", e.Name()))
		if err != nil {
			return out, fmt.Errorf("read what is kept: %w", err)
		}
		p, err := m.Guest.Readopt(ctx, string(id))
		if e := brig.AsError(err); e != nil && (e.Kind == brig.NotFound || e.Kind == brig.InvalidArgument) {
			continue // its server died before it was kept
		}
		if err != nil {
			return out, err
		}
		out = append(out, brig.Kept{ID: string(id), Note: note, Process: p})
	}
	return out, nil
}

// Bind implements brig.Instance.
func (m *OutpostMachine) Bind(ctx context.Context, spec brig.Spec, lease time.Time) error {
	if spec.Name != "" {
		if err := m.Guest.Name(ctx, spec.Name); err != nil {
			return err
		}
	}
	env, limits := m.Guest.Env, m.Guest.Limits
	m.Guest.Limits = spec.Limits
	m.setEnv(spec.Env)
	if err := m.remember(); err != nil {
		m.Guest.Env, m.Guest.Limits = env, limits
		return err
	}
	if err := m.o.tell(ctx, m.leaseOrder(lease, !spec.Ephemeral)); err != nil {
		return err
	}
	m.mu.Lock()
	m.tied = spec.Ephemeral
	m.mu.Unlock()
	return nil
}

func (m *OutpostMachine) leaseOrder(lease time.Time, own bool) wire.Order {
	m.mu.Lock()
	m.lease = lease
	m.mu.Unlock()
	return wire.Order{Op: wire.KeeperLease, ID: string(m.id), LeaseMS: max(time.Until(lease).Milliseconds(), 0), Own: own}
}

// Begin implements brig.Instance.
func (m *OutpostMachine) Begin(ctx context.Context, linger bool) error {
	return m.o.tell(ctx, wire.Order{Op: wire.KeeperBegin, ID: string(m.id), Linger: linger})
}

// Over implements brig.Instance.
func (m *OutpostMachine) Over(ctx context.Context) error {
	for {
		err := m.o.tell(ctx, wire.Order{Op: wire.KeeperOver, ID: string(m.id)})
		if err == nil {
			return nil
		}
		select {
		case <-m.done:
			return fmt.Errorf("wait for the main program of %s: %w", m.id, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(LostTime): // its keeper cannot be reached just now
		}
	}
}

// Extend implements brig.Instance.
func (m *OutpostMachine) Extend(ctx context.Context, lease time.Time) error {
	return m.o.tell(ctx, m.leaseOrder(lease, false))
}

// Freeze implements brig.Instance.
func (m *OutpostMachine) Freeze(context.Context) error { return m.noFreezer() }

// Thaw implements brig.Instance.
func (m *OutpostMachine) Thaw(context.Context) error { return m.noFreezer() }

func (m *OutpostMachine) noFreezer() error {
	return brig.Errorf(brig.Unimplemented, "machines of plain processes cannot be frozen").WithHint("leave freeze_after out, or use another provider")
}

// Usage implements brig.Instance.
func (m *OutpostMachine) Usage(context.Context) (*brig.Usage, error) {
	return nil, brig.Errorf(brig.Unimplemented, "nobody counts what a machine of plain processes uses")
}

// stopTime is how long a keeper may take, beyond the grace, to end a machine.
const stopTime = 10 * time.Second

// Stop implements brig.Instance.
func (m *OutpostMachine) Stop(ctx context.Context, grace time.Duration, why brig.ExitReason) error {
	select {
	case <-m.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, grace+stopTime)
	defer cancel()
	err := m.o.tell(ctx, wire.Order{Op: wire.KeeperStop, ID: string(m.id), GraceMS: grace.Milliseconds(), Reason: string(why)})
	if err != nil && brig.KindOf(err) != brig.NotFound {
		return err
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
	case <-time.After(LostTime):
		// Who waits to be told may be looking for the keeper still.
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
func (m *OutpostMachine) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := m.o.Erase(ctx, m.id); err != nil {
		return err
	}
	select {
	case <-m.done:
	case <-time.After(LostTime):
		// The keeper has no such machine. Who waits to be told how it ended may
		// be looking for the keeper still.
		m.Ended(brig.Killed)
	}
	return os.RemoveAll(m.dir)
}

// Logs implements brig.Instance.
func (m *OutpostMachine) Logs(ctx context.Context) (io.ReadCloser, error) { return m.log(ctx, false) }

// TimedLogs implements brig.Instance.
func (m *OutpostMachine) TimedLogs(ctx context.Context) (io.ReadCloser, error) {
	return m.log(ctx, true)
}

func (m *OutpostMachine) log(ctx context.Context, timed bool) (io.ReadCloser, error) {
	c, end, err := m.o.order(ctx, wire.Order{Op: wire.KeeperLog, ID: string(m.id), Timed: timed})
	if err != nil {
		return nil, err
	}
	return &content{ctx: ctx, r: wire.NewReader(c), end: end}, nil
}

// saidAtOnce is how much of a log goes into one order, in bytes.
const saidAtOnce = 256 << 10

// Log implements brig.Instance.
func (m *OutpostMachine) Log(p []byte) error {
	ctx, cancel := context.WithTimeout(m.life, openTime)
	defer cancel()
	for len(p) > 0 {
		n := min(len(p), saidAtOnce)
		if err := m.o.tell(ctx, wire.Order{Op: wire.KeeperSay, ID: string(m.id), Text: bytes.Clone(p[:n])}); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Notes are what a caller should know of the machine's limits.
func (m *OutpostMachine) Notes() []string {
	notes := []string{"memory, processors and disk: not limited"}
	if m.plain {
		notes = append(notes, "users: there is one account; a program that takes a mark off its environment outlives its timeout until the machine ends")
	}
	return notes
}

// Sweep ends and removes the machines that none of known owns, and reports how
// many those were. One that is somebody's who is there is left alone. What is in
// dir, if one is given, of machines that are not there goes, too.
func (o *Outpost) Sweep(ctx context.Context, dir string, known map[brig.ID]bool) (int, error) {
	states, err := o.States(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	there := map[brig.ID]bool{}
	for _, s := range states {
		id := brig.ID(s.ID)
		there[id] = true
		if known[id] || s.Tethered && s.Ended == nil {
			continue
		}
		if err := o.Erase(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
		delete(there, id)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && dir != "" {
		errs = append(errs, err)
	}
	for _, e := range entries {
		if id := brig.ID(e.Name()); !known[id] && !there[id] {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return n, errors.Join(errs...)
}
