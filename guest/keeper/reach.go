package keeper

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

// reachTime is how long a keeper may take until it listens.
const reachTime = 20 * time.Second

// Reach is the main of a process that carries connections to the keeper of a
// folder between its standard streams and that, and starts one if there is none.
// After so many seconds without a new connection, if they are given, it ends:
// there are hosts whose end nobody tells it.
// It returns the exit code.
func Reach(args []string) int {
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
	if err := reach(args[0], idle); err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	return 0
}

func reach(dir string, idle time.Duration) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := mine(dir); err != nil {
		return err
	}
	c, err := dial(dir)
	for begin := time.Now(); err != nil; {
		if time.Since(begin) > reachTime {
			return fmt.Errorf("reach the keeper: %w", err)
		}
		if err := startKeeper(dir); err != nil {
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
		over := time.AfterFunc(idle, func() { os.Exit(0) })
		used = func() { over.Reset(idle) }
	}
	for call, gone := m.Accept(); gone == nil; call, gone = m.Accept() {
		used()
		go relay(call, dir)
	}
	return nil
}

// mine makes sure that a folder is nobody else's: in /tmp it could be.
func mine(dir string) error {
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

// startKeeper starts a keeper that outlives this process. If there is one
// already, the new one ends at once.
func startKeeper(dir string) error {
	out, err := os.OpenFile(filepath.Join(dir, keeperLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the keeper's log: %w", err)
	}
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, wire.KeeperWord, dir)
	cmd.Args[0] = "brig-agent"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a keeper: %w", err)
	}
	go cmd.Wait()
	return nil
}

// relay carries one connection.
func relay(call net.Conn, dir string) {
	defer call.Close()
	c, err := dial(dir)
	if err != nil {
		refuse(call, "internal", "reach the keeper: %v", err)
		return
	}
	defer c.Close()
	there := make(chan struct{})
	go func() {
		defer close(there)
		// Who takes no more may still have something to say.
		if _, err := io.Copy(c, call); err == nil {
			c.CloseWrite()
		}
		// Who has left wants no answer, however long one is in coming.
		if call, ok := call.(interface{ Left() }); ok {
			call.Left()
		}
		c.Close()
	}()
	if _, err := io.Copy(call, c); err != nil {
		return
	}
	// What has ended for one who sends may go on for the other.
	if half, ok := call.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	<-there
}

// stdio is this process's standard streams.
type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { os.Stdin.Close(); return os.Stdout.Close() }
