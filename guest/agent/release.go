package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// hostCalls contains the host's calls on connections of the control socket, so
// that release can end them.
type hostCalls struct {
	mu      sync.Mutex               // guards the field below
	open    map[net.Conn][]io.Closer // with all other resources that release closes
	running sync.WaitGroup
}

func (h *hostCalls) add(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[net.Conn][]io.Closer{}
	}
	h.open[c] = nil
	h.running.Add(1)
}

// closeWith makes closeAll also close a connection inside the sandbox, on which
// the call on c depends.
func (h *hostCalls) closeWith(c net.Conn, there io.Closer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if more, isOpen := h.open[c]; isOpen {
		h.open[c] = append(more, there)
	}
}

func (h *hostCalls) remove(c net.Conn) {
	h.mu.Lock()
	delete(h.open, c)
	h.mu.Unlock()
	h.running.Done()
}

const (
	// endTimeout is the maximum time that a release waits for ending processes.
	endTimeout = 3 * time.Second
	// closeTimeout is the maximum time for the calls to end after their connections
	// were closed. The host waits 5 s for the response to both.
	closeTimeout = time.Second
)

// closeAll closes the connections of all calls, and reports whether the calls
// have ended. Until then they may have descriptors of the host open.
func (h *hostCalls) closeAll() bool {
	h.mu.Lock()
	for c, more := range h.open {
		c.Close()
		for _, holder := range more {
			holder.Close()
		}
	}
	h.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(closeTimeout):
		return false
	}
}

// closeHostDescriptors responds to ControlCheck and ControlRelease with the processes that prevent
// a save. If there are none, ControlRelease also closes the network interface and the connections
// of all calls. Of the host's descriptors, only the control socket and the standard streams stay
// open. If a process prevents a save, nothing is closed.
func (a *Agent) closeHostDescriptors(op byte, number uint32, ctl net.Conn) error {
	if op == wire.ControlRelease {
		a.awaitEnds()
	}
	r := wire.Release{Number: number, Holders: a.findSaveBlockers(op == wire.ControlCheck)}
	if len(r.Holders) == 0 && op == wire.ControlRelease && !a.calls.closeAll() {
		r.Holders = append(r.Holders, wire.Holder{PID: 1, Name: "brig-agent", Reason: "a connection to the host does not close"})
	}
	if len(r.Holders) > wire.MaxHolders {
		r.Holders = r.Holders[:wire.MaxHolders]
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = ctl.Write(b)
	return err
}

// awaitEnds waits for the executions that are about to end, so that they do not prevent a save.
// These are processes whose end has not been recorded yet, and interpreters that were not parked.
// Before a release the host parks the interpreters that it uses. It has closed its ends of the
// others, so they exit by themselves.
func (a *Agent) awaitEnds() {
	until := time.Now().Add(endTimeout)
	for _, x := range a.listExecutions() {
		if (x.isInterpreter() || x.isUnrecorded()) && !isClosedBefore(x.done, until) {
			return
		}
	}
}

// listExecutions returns the retained executions.
func (a *Agent) listExecutions() []*execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.execs))
}

// isUnrecorded reports whether the process has ended but its end has not been recorded yet.
func (x *execution) isUnrecorded() bool {
	pid := x.pid()
	return pid > 1 && !isClosed(x.done) && hasEnded(pid)
}

// findSaveBlockers lists the processes that prevent a save: those with descriptors
// of the host, and commands whose output or time limit depends on a call. If
// beforePark is set, the host parks the interpreters before the save.
func (a *Agent) findSaveBlockers(beforePark bool) (out []wire.Holder) {
	seen := map[int]bool{1: true} // the agent itself
	shells := map[int]bool{}      // the drivers of bash, which park their bash too
	for _, x := range a.listExecutions() {
		x.mu.Lock()
		// Read all fields under one lock, because an execution may end at any time.
		running, pid := x.reaped == nil && x.exit == nil, x.leader
		parked, interpreter := x.call.Donated && x.parked == nil, x.canBeParked()
		x.mu.Unlock()
		switch {
		case !running || x.call.Carried || parked || x.isUnrecorded():
			continue
		case beforePark && interpreter:
			shells[pid] = len(x.call.Argv) > 0 && x.call.Argv[0] == wire.AgentFile
		case x.call.Donated:
			out = append(out, wire.Holder{PID: pid, Name: readProcessName(pid), Reason: "its streams belong to the host"})
		default:
			out = append(out, wire.Holder{PID: pid, Name: readProcessName(pid), Reason: "it is a command that still runs"})
		}
		seen[pid] = true
	}
	for _, pid := range listPIDs() {
		if !seen[pid] && hasHostFile(pid) && !(shells[readParent(pid)] && readProcessName(pid) == "bash") {
			out = append(out, wire.Holder{PID: pid, Name: readProcessName(pid), Reason: "it has a stream of the host open"})
		}
	}
	return out
}

// readProcessName returns the name of the program that a process runs.
func readProcessName(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return "a program"
	}
	return strings.TrimSpace(string(b))
}

// readParent returns the id of a process's parent, or 0 if the process has ended.
func readParent(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(parent)) // gVisor writes a number
			return n
		}
	}
	return 0
}

// hasHostFile reports whether a process has a descriptor of the host open. gVisor
// shows such descriptors as links to host:[number].
func hasHostFile(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	f, err := os.Open(dir)
	if err != nil {
		return false // the process has ended
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1) // an error means that the process has ended
	for _, name := range names {
		if to, err := os.Readlink(dir + "/" + name); err == nil && strings.HasPrefix(to, "host:[") {
			return true
		}
	}
	return false
}

// renew gives a copy of a sandbox its own host name and generation. The time limits
// of the agent need no change: only commands have them, and a running command prevents
// the save.
func (a *Agent) renew(r wire.Renew) error {
	if err := syscall.Sethostname([]byte(r.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return a.exchange(wire.GenerationFile, []byte(r.Generation+"\n"))
}
