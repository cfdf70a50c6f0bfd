package supervisor

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// connectTimeout is the maximum time from the start of a supervisor until it
// listens.
const connectTimeout = 20 * time.Second

// Connect is the main function of a process that relays connections between its standard streams
// and the supervisor of a directory. It starts a supervisor if none is running. If the second
// argument is a number of seconds, the process exits after that time without a new connection,
// because some hosts do not report disconnections. It returns the exit code.
func Connect(args []string) int {
	if len(args) < 1 {
		return 2
	}
	idle := time.Duration(0)
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return 2
		}
		idle = time.Duration(n) * time.Second
	}
	if err := connectTo(args[0], idle); err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	return 0
}

func connectTo(dir string, idle time.Duration) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := checkOwner(dir); err != nil {
		return err
	}
	c, err := dial(dir)
	for begin := time.Now(); err != nil; {
		if time.Since(begin) > connectTimeout {
			return fmt.Errorf("reach the supervisor: %w", err)
		}
		if err := startSupervisor(dir); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
		c, err = dial(dir)
	}
	c.Close()
	if _, err := os.Stdout.WriteString(wire.Reached); err != nil {
		return err
	}
	m := wire.NewMux(stdio{}, true)
	used := func() {}
	if idle > 0 {
		exitTimer := time.AfterFunc(idle, func() { os.Exit(0) })
		used = func() { exitTimer.Reset(idle) }
	}
	for call, acceptErr := m.Accept(); acceptErr == nil; call, acceptErr = m.Accept() {
		used()
		go relay(call, dir)
	}
	return nil
}

// checkOwner checks that only this user can access the directory. In /tmp it
// might belong to another user.
func checkOwner(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a folder of this account alone", dir)
	}
	return nil
}

// startSupervisor starts a supervisor that outlives this process. If a
// supervisor is already running, the new one exits immediately.
func startSupervisor(dir string) error {
	out, err := os.OpenFile(filepath.Join(dir, supervisorLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the supervisor's log: %w", err)
	}
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, wire.SupervisorWord, dir)
	cmd.Args[0] = "brig-agent"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a supervisor: %w", err)
	}
	go cmd.Wait()
	return nil
}

// relay relays one connection to the supervisor.
func relay(call net.Conn, dir string) {
	defer call.Close()
	c, err := dial(dir)
	if err != nil {
		refuse(call, "internal", "reach the supervisor: %v", err)
		return
	}
	defer c.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A peer that has stopped reading may still write.
		if _, err := io.Copy(c, call); err == nil {
			c.CloseWrite()
		}
		// If the client has disconnected, the response is no longer needed.
		if call, ok := call.(interface{ WaitPeerClosed() }); ok {
			call.WaitPeerClosed()
		}
		c.Close()
	}()
	if _, err := io.Copy(call, c); err != nil {
		return
	}
	// Keep the other direction open.
	if half, ok := call.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	<-done
}

// stdio is a stream over the standard input and output of this process.
type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { os.Stdin.Close(); return os.Stdout.Close() }
