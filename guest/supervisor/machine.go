package supervisor

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
	"github.com/brig-run/brig/internal/journal"
	"github.com/brig-run/brig/internal/supervise"
)

// killedCode is the exit code of a machine that was killed.
const killedCode = 137

// Files in a machine's directory.
const (
	logName    = "log" // the output of the main program, a journal, to which the host appends
	endingFile = "ending.json"
	initLog    = "place.log"
)

// machine is an agent and the processes that run under it.
type machine struct {
	k       *Supervisor
	id      string
	dir     string
	started time.Time
	notes   []string
	done    chan struct{}
	cmd     *exec.Cmd
	lease   supervise.Lease
	main    supervise.Main
	call    *wire.Exec // runs the main program; nil if there is none

	control sync.Mutex // serializes messages on the control socket
	agent   *net.UnixConn

	mu     sync.Mutex // guards the fields below
	reason *wire.Ending
	ending *wire.Ending
}

func newMachine(k *Supervisor, id string) *machine {
	dir := filepath.Join(k.dir, machinesDir, id)
	return &machine{k: k, id: id, dir: dir, started: time.Now(), done: make(chan struct{})}
}

func (m *machine) logFile() string { return filepath.Join(m.dir, logName) }

// isValidID reports whether an id is safe as the name of a directory.
func isValidID(s string) bool {
	return len(s) > 0 && len(s) <= 63 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// make creates a machine, and reports its state to the client until the machine
// ends.
func (k *Supervisor) make(c *net.UnixConn, o wire.SupervisorRequest) {
	if o.Make == nil || !isValidID(o.ID) {
		refuse(c, "invalid", "that is no machine's id")
		return
	}
	m := newMachine(k, o.ID)
	// A client that has received the state may start the main program immediately, so set its call
	// here.
	m.call = o.Make.Main
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		refuse(c, "exists", "make a folder for %q: %v", o.ID, err)
		return
	}
	acked, disconnected := awaitAck(c)
	release := k.reserve(m)
	if err := m.boot(*o.Make); err != nil {
		os.RemoveAll(m.dir)
		release(false)
		refuse(c, "internal", "%v", err)
		return
	}
	m.lease.Begin(time.Duration(o.Make.LeaseMS)*time.Millisecond, o.Make.Tethered, func() {
		m.end(wire.Ending{Code: killedCode, Reason: "lease_expired"})
	})
	go m.wait()
	release(true)
	wire.WriteJSON(c, wire.TypeState, m.state())
	select {
	case <-acked:
	case <-disconnected:
		// No client has acknowledged the machine, so no client will remove it.
		if err := k.destroy(m); err != nil {
			os.Stderr.WriteString("brig-agent: erase what nobody waits for: " + err.Error() + "\n")
		}
		return
	}
	if !o.Make.Held {
		m.begin(false)
	}
	m.reportEnd(c, disconnected)
	if m.lease.IsTethered() {
		m.end(wire.Ending{Code: killedCode, Reason: "hung_up"})
	}
}

// bootTimeout is the maximum time from the start of a machine to its agent's first response.
const bootTimeout = 30 * time.Second

// boot starts the agent and waits for its first response.
func (m *machine) boot(o wire.Make) error {
	order, err := json.Marshal(initConfig{Dir: m.dir, Hostname: o.Hostname, Bare: o.Bare, Plain: m.k.plain, Programs: o.Programs})
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
	output, err := os.OpenFile(filepath.Join(m.dir, initLog), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	m.cmd = exec.Command(fmt.Sprintf("/proc/self/fd/%d", m.k.program.Fd()), wire.NamespacesWord, string(order))
	m.cmd.Args[0] = "brig-agent"
	m.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	m.cmd.Dir = "/"
	m.cmd.Stderr = output
	m.cmd.ExtraFiles = []*os.File{theirs}
	m.cmd.SysProcAttr = namespaceAttr(m.k.plain)
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start a machine: %w", err)
	}
	theirs.Close()
	answered := make(chan error, 1)
	go func() { answered <- m.ping() }()
	select {
	case err = <-answered:
	case <-time.After(bootTimeout):
		err = errors.New("its agent does not answer")
	}
	if err == nil {
		return nil
	}
	m.cmd.Process.Kill()
	m.cmd.Wait()
	text, _ := io.ReadAll(io.NewSectionReader(output, 0, 4096))
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
}

// connect opens a connection to the agent and returns the host's end.
func (m *machine) connect() (net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make connection: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "call")
	defer ours.Close()
	defer syscall.Close(fds[1])
	if err := m.passConn(fds[1]); err != nil {
		return nil, err
	}
	return net.FileConn(ours)
}

// passConn passes a connection to the agent.
func (m *machine) passConn(fd int) error {
	m.control.Lock()
	defer m.control.Unlock()
	if _, _, err := m.agent.WriteMsgUnix([]byte{wire.ControlConnect}, syscall.UnixRights(fd), nil); err != nil {
		return fmt.Errorf("hand a connection to the agent: %w", err)
	}
	return nil
}

// passHostConn passes the connection of a host to the agent.
func (m *machine) passHostConn(c *net.UnixConn) error {
	if m.ended() != nil {
		return errors.New("the machine has ended")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if rawErr := raw.Control(func(fd uintptr) { err = m.passConn(int(fd)) }); rawErr != nil {
		return rawErr
	}
	return err
}

// callAgent makes a call to the agent and returns the connection for the
// response.
func (m *machine) callAgent(call wire.Call) (net.Conn, error) {
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
	c, err := m.callAgent(wire.Call{Op: wire.OpPing})
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

// ended returns how the machine ended, or nil if it has not ended.
func (m *machine) ended() *wire.Ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending
}

// wait waits for the machine to end and records how it ended.
func (m *machine) wait() {
	m.cmd.Wait() // ProcessState holds the result
	m.agent.Close()
	m.main.AwaitOutput()
	code := m.cmd.ProcessState.ExitCode()
	if ws, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	m.mu.Lock()
	e := wire.Ending{Code: code, Reason: "crashed"}
	if m.reason != nil {
		e = *m.reason
	}
	e.AtMS = time.Now().UnixMilli()
	m.ending = &e
	m.lease.End()
	m.mu.Unlock()
	m.writeEnding()
	close(m.done)
	m.removeTransient()
}

// end kills the machine, unless it has ended. If end is called several times, the first reason is
// recorded.
func (m *machine) end(reason wire.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending != nil {
		return
	}
	if m.reason == nil {
		m.reason = &reason
	}
	// The agent is the init of a PID namespace, so the kernel kills all
	// processes in that namespace.
	m.cmd.Process.Kill()
}

// stop signals all processes to end, and kills the machine at the end of the grace period.
func (m *machine) stop(grace time.Duration, reason string) {
	killed := killedCode
	select {
	case <-m.main.Done():
		if reason == "exited" {
			killed = m.main.Code()
		}
	default:
	}
	if grace > 0 {
		if c, err := m.callAgent(wire.Call{Op: wire.OpStop, Stop: &wire.Stop{GraceMS: grace.Milliseconds()}}); err == nil {
			select {
			case <-m.done:
			case <-awaitFrame(c):
				m.end(wire.Ending{Reason: reason})
			case <-time.After(grace):
			}
			c.Close()
		}
	}
	m.end(wire.Ending{Code: killed, Reason: reason})
	<-m.done
}

// awaitFrame returns a channel that is closed when a frame arrives or the
// connection fails.
func awaitFrame(c net.Conn) <-chan struct{} {
	connected := make(chan struct{})
	go func() {
		defer close(connected)
		wire.NewReader(c).Read()
	}()
	return connected
}

// awaitAck returns two channels. acked is closed when the client acknowledges the machine. left is
// closed when the client disconnects, before or after the acknowledgment.
func awaitAck(c net.Conn) (acked, disconnected <-chan struct{}) {
	ackCh, disconnectedCh := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(disconnectedCh)
		r := wire.NewReader(c)
		if f, err := r.Read(); err != nil || f.Type != wire.TypeOK {
			return
		}
		close(ackCh)
		r.Read()
	}()
	return ackCh, disconnectedCh
}

// begin starts the main program, if there is one and it has not been started yet.
func (m *machine) begin(linger bool) {
	if m.call != nil {
		m.main.Begin(func() { m.run(*m.call, linger) })
	}
}

// recordMainEnd handles the exit of the main program.
func (m *machine) recordMainEnd(code int, linger bool) {
	m.main.RecordExit(code, linger)
	if !linger {
		m.end(wire.Ending{Code: code, Reason: "exited"})
	}
}

// run runs the main program. The machine ends with the program unless linger is
// set.
func (m *machine) run(call wire.Exec, linger bool) {
	var log io.Writer = io.Discard // the program runs without a log on a full disk
	if w, err := journal.Open(m.logFile()); err == nil {
		defer w.Close()
		log = w
	}
	c, err := m.callAgent(wire.Call{Op: wire.OpExec, Exec: &call})
	if err != nil {
		return // the machine has ended
	}
	defer c.Close()
	// If the agent rejects the call, it has already responded and closed the connection. The reader
	// returns that response, so ignore the failed write.
	wire.Write(c, wire.TypeStdinEOF, nil)
	for r := wire.NewReader(c); ; {
		f, err := r.Read()
		if err != nil {
			return
		}
		switch f.Type {
		case wire.TypeStdout, wire.TypeStderr:
			log.Write(f.Payload)
		case wire.TypeError:
			var e wire.Error
			json.Unmarshal(f.Payload, &e) // e stays empty if the payload is invalid
			log.Write([]byte("brig: the main program did not run: " + e.Message + "\n"))
			m.recordMainEnd(127, linger)
			return
		case wire.TypeExit:
			var e wire.Exit
			json.Unmarshal(f.Payload, &e)
			m.recordMainEnd(e.Status(), linger)
			return
		}
	}
}

func (m *machine) state() wire.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wire.State{
		ID: m.id, Notes: m.notes, Plain: m.k.plain, Tethered: m.lease.IsTethered(), Ended: m.ending,
		LeaseMS: m.lease.Remaining().Milliseconds(), NowMS: time.Now().UnixMilli(),
	}
}

// watch reports the state of the machine to a host, and later its end.
func (m *machine) watch(c net.Conn, disconnected <-chan struct{}) {
	s := m.state()
	if wire.WriteJSON(c, wire.TypeState, s) == nil && s.Ended == nil {
		m.reportEnd(c, disconnected)
	}
}

// reportEnd waits for the machine's end and reports it, unless the host
// disconnects first.
func (m *machine) reportEnd(c net.Conn, disconnected <-chan struct{}) {
	select {
	case <-m.done:
		wire.WriteJSON(c, wire.TypeState, m.state())
	case <-disconnected:
	}
}

func (m *machine) readEnding() *wire.Ending {
	var e wire.Ending
	if ok, err := supervise.ReadRecord(filepath.Join(m.dir, endingFile), &e); err != nil || !ok {
		return nil
	}
	return &e
}

func (m *machine) writeEnding() {
	if err := supervise.WriteRecord(filepath.Join(m.dir, endingFile), m.ending, false); err != nil {
		os.Stderr.WriteString("brig-agent: write down an ending: " + err.Error() + "\n")
	}
}

// remove removes a directory tree. Programs may have removed the permissions of
// their own account on directories in it.
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

// removeTransient removes the files of an ended machine that clients can no
// longer request.
func (m *machine) removeTransient() {
	for _, d := range ownDirs {
		if err := remove(filepath.Join(m.dir, d)); err != nil {
			os.Stderr.WriteString("brig-agent: tidy: " + err.Error() + "\n")
		}
	}
}
