package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/supervise"
)

// serveMain is the main function of an init without a supervisor on its host.
// It accepts sessions, and enforces the sandbox's lease itself.
func serveMain(args []string) int {
	if len(args) < 1 {
		return 2
	}
	ms, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return 2
	}
	a, err := New(Options{KeepCapabilities: slices.Contains(args, "keep-capabilities")})
	if err == nil && slices.Contains(args, wire.UplinkWord) {
		err = a.link.take()
	}
	if err == nil {
		a.term.begin(time.Duration(ms)*time.Millisecond, slices.Contains(args, wire.TetherWord))
		err = a.serveSessions()
	}
	os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
	return 1
}

// serveSessions accepts sessions until an error occurs.
func (a *Agent) serveSessions() error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: wire.SessionSocket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	startThreads()
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		// Every program in the sandbox can connect, so check the peer's user as reported by the
		// kernel.
		if uid, err := peerUID(c); err != nil || uid != agentID {
			c.Close()
			continue
		}
		go a.serveSession(c)
	}
}

// serveSession serves the calls of one session.
func (a *Agent) serveSession(c net.Conn) {
	m := wire.NewMux(c, true)
	a.term.beginSession()
	defer a.term.endSession()
	for {
		call, err := m.Accept()
		if err != nil {
			return
		}
		go a.Serve(call)
	}
}

func peerUID(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	if err2 := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err2 != nil || err != nil {
		return 0, errors.Join(err, err2)
	}
	return cred.Uid, nil
}

// warmThreads is the number of threads that an agent creates at its start. When the sandbox has
// reached its process limit, the agent cannot create threads, and a Go program that cannot create a
// thread crashes.
const warmThreads = 24

// startThreads creates warmThreads threads by blocking in the same number of concurrent system
// calls.
func startThreads() {
	var p [2]int
	if syscall.Pipe2(p[:], syscall.O_CLOEXEC) != nil {
		return
	}
	var started, done sync.WaitGroup
	for range warmThreads {
		started.Add(1)
		done.Go(func() {
			started.Done()
			var b [1]byte
			syscall.Read(p[0], b[:])
		})
	}
	started.Wait()
	time.Sleep(2 * time.Millisecond) // until all goroutines block
	syscall.Close(p[1])
	done.Wait()
	syscall.Close(p[0])
}

// term tracks the lifetime of the sandbox.
type term struct {
	lease supervise.Lease

	mu       sync.Mutex // guards the field below
	sessions int
}

// firstSession is how long a tethered sandbox waits for its first session.
const firstSession = time.Minute

func (t *term) begin(lease time.Duration, tethered bool) {
	t.lease.Begin(lease, tethered, func() { os.Exit(wire.ExitLease) })
	if tethered {
		time.AfterFunc(firstSession, t.endUntethered)
	}
}

func (t *term) beginSession() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions++
}

func (t *term) endSession() {
	t.mu.Lock()
	t.sessions--
	t.mu.Unlock()
	t.endUntethered()
}

// endUntethered ends a tethered sandbox that no longer has a session.
func (t *term) endUntethered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease.IsTethered() && t.sessions == 0 {
		os.Exit(wire.ExitTether)
	}
}

// relayMain relays a session between its standard streams and the init.
func relayMain() int {
	// A signal that is sent to all processes in the sandbox must not end the
	// relay.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	c, err := dialInit()
	if err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	go func() {
		io.Copy(c, os.Stdin)
		c.Close() // the host has disconnected
	}()
	io.Copy(os.Stdout, c)
	return 0
}

// initTimeout is the maximum time from the start of an init until it listens.
const initTimeout = 20 * time.Second

func dialInit() (net.Conn, error) {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("unix", wire.SessionSocket)
		if err == nil || time.Since(begin) > initTimeout {
			return c, err
		}
	}
}

// runMain runs the main program. The sandbox ends with the program unless the call lingers. The
// program writes to the agent's own output, so no client has to be connected.
func (a *Agent) runMain(call wire.Exec, w *writer) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		w.fail(err)
		return
	}
	defer null.Close()
	x, err := a.register(call)
	if err != nil {
		w.fail(err)
		return
	}
	a.shareOutput(call)
	ended, err := a.start(x, []uintptr{null.Fd(), 1, 2})
	w.writeOK()
	if err != nil {
		os.Stderr.WriteString("brig: the main program did not run: " + err.Error() + "\n")
		a.recordMainEnd(127, call.Lingers)
		return
	}
	if call.TimeoutMS > 0 {
		time.AfterFunc(time.Duration(call.TimeoutMS)*time.Millisecond, func() {
			x.mu.Lock()
			x.timedOut = true
			x.mu.Unlock()
			a.killer.kill(x)
		})
	}
	a.recordMainEnd(x.finish(<-ended).Status(), call.Lingers)
}

// shareOutput makes the user of the main program the owner of the agent's output
// if it is a pipe, so that programs can open it by name (/dev/stdout). The owner of
// a file or device outside the sandbox must not change.
func (a *Agent) shareOutput(call wire.Exec) {
	for _, fd := range []int{1, 2} {
		var st syscall.Stat_t
		if !a.plain && syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFIFO {
			_ = syscall.Fchown(fd, int(call.UID), int(call.GID)) // without it, only the open by name fails
		}
	}
}

// recordMainEnd handles the exit of the main program.
func (a *Agent) recordMainEnd(code int, lingers bool) {
	if !lingers {
		os.Exit(code)
	}
	a.main.RecordExit(code, lingers)
}

// reportMainExit waits until a lingering main program has ended, and sends its
// exit.
func (a *Agent) reportMainExit(r *wire.Reader, w *writer) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.Read() // waits for the end of the connection
	}()
	select {
	case <-a.main.Done():
		w.writeJSON(wire.TypeExit, wire.Exit{Code: a.main.Code()})
	case <-closed:
	}
}
