package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// killedCode is the exit code of what was killed.
const killedCode = 137

// The files of a machine's folder, beside its log.
const (
	endingFile = "ending.json"
	placeLog   = "place.log"
)

// machine is one agent, with all that runs under it.
type machine struct {
	k     *Keeper
	id    string
	dir   string
	begun time.Time
	notes []string
	log   *log
	done  chan struct{}
	over  chan struct{} // closed when a main program that lingers has ended
	cmd   *exec.Cmd

	control sync.Mutex // one connection at a time on the socket
	agent   *net.UnixConn

	mu       sync.Mutex // guards the fields below
	why      *wire.Ending
	ending   *wire.Ending
	lease    *time.Timer
	until    time.Time // when the lease is over
	tethered bool
	main     *wire.Exec    // nil if there is none, or it has begun
	said     chan struct{} // closed when all that it said is in the log; nil before it begins
	code     int           // of the main program that lingers
}

func newMachine(k *Keeper, id string) *machine {
	dir := filepath.Join(k.dir, machinesDir, id)
	return &machine{k: k, id: id, dir: dir, begun: time.Now(), log: &log{name: filepath.Join(dir, "log")}, done: make(chan struct{}), over: make(chan struct{})}
}

// validID reports whether an id is the name of a folder and nothing else.
func validID(s string) bool {
	return len(s) > 0 && len(s) <= 63 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// make makes a machine, and tells its maker of it until it ends.
func (k *Keeper) make(c *net.UnixConn, o wire.Order) {
	if o.Make == nil || !validID(o.ID) {
		refuse(c, "invalid", "that is no machine's id")
		return
	}
	m := newMachine(k, o.ID)
	// Whoever has been told of the machine may begin it at once.
	m.tethered, m.main = o.Make.Tethered, o.Make.Main
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		refuse(c, "exists", "make a folder for %q: %v", o.ID, err)
		return
	}
	taken, left := takes(c)
	made := k.begins(m)
	if err := m.boot(*o.Make); err != nil {
		os.RemoveAll(m.dir)
		made(false)
		refuse(c, "internal", "%v", err)
		return
	}
	lease := time.Duration(o.Make.LeaseMS) * time.Millisecond
	m.mu.Lock()
	m.until = time.Now().Add(lease)
	m.lease = time.AfterFunc(lease, func() {
		m.end(wire.Ending{Code: killedCode, Reason: "lease_expired"})
	})
	m.mu.Unlock()
	go m.wait()
	made(true)
	wire.WriteJSON(c, wire.TypeState, m.state())
	select {
	case <-taken:
	case <-left:
		// Nobody knows of it, and nobody will look for it.
		if err := k.erase(m); err != nil {
			os.Stderr.WriteString("brig-agent: erase what nobody waits for: " + err.Error() + "\n")
		}
		return
	}
	if !o.Make.Held {
		m.begin(false)
	}
	m.tell(c, left)
	m.mu.Lock()
	tethered := m.tethered
	m.mu.Unlock()
	if tethered {
		m.end(wire.Ending{Code: killedCode, Reason: "hung_up"})
	}
}

// bootTime is how long a machine may take until its agent answers.
const bootTime = 30 * time.Second

// boot starts the agent and waits until it answers.
func (m *machine) boot(o wire.Make) error {
	order, err := json.Marshal(placeOrder{Dir: m.dir, Hostname: o.Hostname, Bare: o.Bare, Plain: m.k.plain, Programs: o.Programs})
	if err != nil {
		return err
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "agent control")
	defer ours.Close()
	defer theirs.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return err
	}
	m.agent = c.(*net.UnixConn)
	said, err := os.OpenFile(filepath.Join(m.dir, placeLog), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	m.cmd = exec.Command(fmt.Sprintf("/proc/self/fd/%d", m.k.program.Fd()), wire.PlaceWord, string(order))
	m.cmd.Args[0] = "brig-agent"
	m.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	m.cmd.Dir = "/"
	m.cmd.Stderr = said
	m.cmd.ExtraFiles = []*os.File{theirs}
	m.cmd.SysProcAttr = placeAttr(m.k.plain)
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start a machine: %w", err)
	}
	theirs.Close()
	answered := make(chan error, 1)
	go func() { answered <- m.ping() }()
	select {
	case err = <-answered:
	case <-time.After(bootTime):
		err = errors.New("its agent does not answer")
	}
	if err == nil {
		return nil
	}
	m.cmd.Process.Kill()
	m.cmd.Wait()
	why, _ := io.ReadAll(io.NewSectionReader(said, 0, 4096))
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(why)))
}

// connect makes a connection to the agent and returns the host's end.
func (m *machine) connect() (net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make connection: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "call")
	defer ours.Close()
	defer syscall.Close(fds[1])
	if err := m.hand(fds[1]); err != nil {
		return nil, err
	}
	return net.FileConn(ours)
}

// hand gives the agent a connection.
func (m *machine) hand(fd int) error {
	m.control.Lock()
	defer m.control.Unlock()
	if _, _, err := m.agent.WriteMsgUnix([]byte{0}, syscall.UnixRights(fd), nil); err != nil {
		return fmt.Errorf("hand a connection to the agent: %w", err)
	}
	return nil
}

// handOver gives the agent a host's connection.
func (m *machine) handOver(c *net.UnixConn) error {
	if m.ended() != nil {
		return errors.New("the machine has ended")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if rawErr := raw.Control(func(fd uintptr) { err = m.hand(int(fd)) }); rawErr != nil {
		return rawErr
	}
	return err
}

// ask makes a call to the agent and returns the connection, on which its answer
// comes.
func (m *machine) ask(call wire.Call) (net.Conn, error) {
	c, err := m.connect()
	if err != nil {
		return nil, err
	}
	call.Version = wire.Version
	if err := wire.WriteJSON(c, wire.TypeCall, call); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (m *machine) ping() error {
	c, err := m.ask(wire.Call{Op: wire.OpPing})
	if err != nil {
		return err
	}
	defer c.Close()
	f, err := wire.NewReader(c).Read()
	if err == nil && f.Type != wire.TypeOK {
		err = fmt.Errorf("the agent answers with a frame of type %d", f.Type)
	}
	return err
}

// ended is how the machine ended, nil if it lives.
func (m *machine) ended() *wire.Ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending
}

// wait waits for the machine's end and writes down how it was.
func (m *machine) wait() {
	m.cmd.Wait() // the state says all
	m.agent.Close()
	m.hear()
	code := m.cmd.ProcessState.ExitCode()
	if ws, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	m.mu.Lock()
	e := wire.Ending{Code: code, Reason: "crashed"}
	if m.why != nil {
		e = *m.why
	}
	e.AtMS = time.Now().UnixMilli()
	m.ending = &e
	m.lease.Stop()
	m.mu.Unlock()
	m.writeEnding()
	m.log.close()
	close(m.done)
	m.tidy()
}

// sayTime bounds how long what a main program said last may take from the agent,
// which has ended, to the log.
const sayTime = time.Second

// hear waits until what a main program has said is in the log.
func (m *machine) hear() {
	m.mu.Lock()
	said := m.said
	m.mu.Unlock()
	if said == nil {
		return
	}
	select {
	case <-said:
	case <-time.After(sayTime):
	}
}

// end ends the machine at once, if it has not ended. The first reason counts.
func (m *machine) end(why wire.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending != nil {
		return
	}
	if m.why == nil {
		m.why = &why
	}
	// The agent is the init of a process namespace: the kernel ends all that is
	// in it.
	m.cmd.Process.Kill()
}

// stop asks all that runs to end, and ends it when the grace is over.
func (m *machine) stop(grace time.Duration, reason string) {
	killed := killedCode
	select {
	case <-m.over:
		if reason == "exited" {
			m.mu.Lock()
			killed = m.code
			m.mu.Unlock()
		}
	default:
	}
	if grace > 0 {
		if c, err := m.ask(wire.Call{Op: wire.OpStop, Stop: &wire.Stop{GraceMS: grace.Milliseconds()}}); err == nil {
			select {
			case <-m.done:
			case <-answer(c):
				m.end(wire.Ending{Reason: reason})
			case <-time.After(grace):
			}
			c.Close()
		}
	}
	m.end(wire.Ending{Code: killed, Reason: reason})
	<-m.done
}

// answer is closed when something comes, or nothing can come any more.
func answer(c net.Conn) <-chan struct{} {
	came := make(chan struct{})
	go func() {
		defer close(came)
		wire.NewReader(c).Read()
	}()
	return came
}

// takes is closed when whoever has a machine made says that it knows of it, and
// left when it goes away, before or after that.
func takes(c net.Conn) (taken, left <-chan struct{}) {
	said, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		r := wire.NewReader(c)
		if f, err := r.Read(); err != nil || f.Type != wire.TypeOK {
			return
		}
		close(said)
		r.Read()
	}()
	return said, gone
}

// renew moves the lease.
func (m *machine) renew(lease time.Duration, own bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending != nil {
		return errors.New("the machine has ended")
	}
	m.lease.Reset(lease)
	m.until = time.Now().Add(lease)
	m.tethered = m.tethered && !own
	return nil
}

// begin starts the main program, once, if there is one.
func (m *machine) begin(linger bool) {
	m.mu.Lock()
	call := m.main
	m.main = nil
	if call != nil {
		m.said = make(chan struct{})
	}
	m.mu.Unlock()
	if call != nil {
		go func() {
			defer close(m.said)
			m.run(*call, linger)
		}()
	}
}

// ran is what a main program's end means.
func (m *machine) ran(code int, linger bool) {
	if !linger {
		m.end(wire.Ending{Code: code, Reason: "exited"})
		return
	}
	m.mu.Lock()
	m.code = code
	m.mu.Unlock()
	close(m.over)
}

// run runs the main program. Its end is the machine's, unless that lingers.
func (m *machine) run(call wire.Exec, linger bool) {
	c, err := m.ask(wire.Call{Op: wire.OpExec, Exec: &call})
	if err != nil {
		return // it has ended
	}
	defer c.Close()
	// An agent that refuses has answered and closed already: its answer counts.
	wire.Write(c, wire.TypeStdinEOF, nil)
	for r := wire.NewReader(c); ; {
		f, err := r.Read()
		if err != nil {
			return
		}
		switch f.Type {
		case wire.TypeStdout, wire.TypeStderr:
			m.log.append(f.Payload)
		case wire.TypeError:
			var e wire.Error
			json.Unmarshal(f.Payload, &e) // what it cannot say it does not say
			m.log.append([]byte("brig: the main program did not run: " + e.Message + "\n"))
			m.ran(127, linger)
			return
		case wire.TypeExit:
			var e wire.Exit
			json.Unmarshal(f.Payload, &e)
			m.ran(exitCode(e), linger)
			return
		}
	}
}

// exitCode is a main program's exit code as callers know it.
func exitCode(e wire.Exit) int {
	switch {
	case e.TimedOut && e.Signal == int(syscall.SIGKILL):
		return 124
	case e.Signal != 0:
		return 128 + e.Signal
	default:
		return e.Code
	}
}

func (m *machine) state() wire.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	return wire.State{
		ID: m.id, Notes: m.notes, Plain: m.k.plain, Tethered: m.tethered, Ended: m.ending,
		LeaseMS: max(m.until.Sub(now).Milliseconds(), 0), NowMS: now.UnixMilli(),
	}
}

// watch tells a host of the machine, until its end or the host's.
func (m *machine) watch(c net.Conn, left <-chan struct{}) {
	s := m.state()
	if wire.WriteJSON(c, wire.TypeState, s) == nil && s.Ended == nil {
		m.tell(c, left)
	}
}

// tell says how the machine ended when it does, to who is still there.
func (m *machine) tell(c net.Conn, left <-chan struct{}) {
	select {
	case <-m.done:
		wire.WriteJSON(c, wire.TypeState, m.state())
	case <-left:
	}
}

func (m *machine) readEnding() *wire.Ending {
	b, err := os.ReadFile(filepath.Join(m.dir, endingFile))
	if err != nil {
		return nil
	}
	var e wire.Ending
	if json.Unmarshal(b, &e) != nil {
		return nil
	}
	return &e
}

func (m *machine) writeEnding() {
	b, err := json.Marshal(m.ending)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.dir, endingFile), b, 0o600)
	}
	if err != nil {
		os.Stderr.WriteString("brig-agent: write down an ending: " + err.Error() + "\n")
	}
}

// remove removes a folder with whatever a program has made of it: it may have
// shut out its own account.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// tidy removes what nobody can ask for any more.
func (m *machine) tidy() {
	for _, d := range ownDirs {
		if err := remove(filepath.Join(m.dir, d)); err != nil {
			os.Stderr.WriteString("brig-agent: tidy: " + err.Error() + "\n")
		}
	}
}
