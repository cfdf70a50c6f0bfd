package agent

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// treeMark returns the environment variable that marks a process tree if groups
// are not available.
func treeMark(tag uint32) string { return "BRIG_TREE=" + strconv.FormatUint(uint64(tag), 10) }

// readEnvironment returns the initial environment of a process. It is empty while
// the process starts a program.
func readEnvironment(id int) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(id) + "/environ")
}

// readStatus reads the status of a process with as few system calls as possible: in a busy sandbox
// each call may have to wait for CPU time.
func readStatus(id int) ([]byte, error) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(id)+"/status", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	b := make([]byte, 4096)
	n, err := syscall.Read(fd, b)
	return b[:max(n, 0)], err
}

func parseStatus(b []byte) (state byte, threads int, groups []byte) {
	for line := range bytes.Lines(b) {
		name, v, _ := bytes.Cut(line, []byte(":"))
		v = bytes.TrimSpace(v)
		switch string(name) {
		case "State":
			if len(v) > 0 {
				state = v[0]
			}
		case "Threads":
			threads, _ = strconv.Atoi(string(v))
		case "Groups":
			groups = v
		}
	}
	return state, threads, groups
}

// listPIDs lists every process except init.
func listPIDs() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var out []int
	for _, n := range names {
		if id, err := strconv.Atoi(n); err == nil && id > 1 {
			out = append(out, id)
		}
	}
	return out
}

// listGuestPIDs lists all processes except the agent's own. Besides the agent, only the relays of
// its sessions run as the agent's user.
func listGuestPIDs() []int {
	var out []int
	for _, id := range listPIDs() {
		var st syscall.Stat_t
		if err := syscall.Stat("/proc/"+strconv.Itoa(id), &st); err == nil && st.Uid != agentID {
			out = append(out, id)
		}
	}
	return out
}

// stop sends SIGTERM to every process. It returns when all processes have ended or at the end of
// the grace period. It also sends SIGCONT, so that stopped processes receive the signal.
func stop(s wire.Stop) {
	deadline := time.Now().Add(time.Duration(s.GraceMS) * time.Millisecond)
	for _, id := range listGuestPIDs() {
		syscall.Kill(id, syscall.SIGTERM)
		syscall.Kill(id, syscall.SIGCONT)
	}
	for time.Now().Before(deadline) && len(listGuestPIDs()) > 0 {
		time.Sleep(5 * time.Millisecond)
	}
}

// deliverTimeout is the maximum time that a stop waits for the last output of
// ended processes. slack is how long a stop may exceed the grace period. It is
// less than the host allows.
const (
	deliverTimeout = 2 * time.Second
	slack          = 300 * time.Millisecond
)

// stop signals every process to end. It waits until the callers have received the remaining output,
// because the agent's exit would truncate it.
func (a *Agent) stop(s wire.Stop) {
	deadline := time.Now().Add(time.Duration(s.GraceMS)*time.Millisecond + slack)
	stop(s)
	if len(listGuestPIDs()) > 0 {
		return // these processes are killed with the agent and write no more output
	}
	if latest := time.Now().Add(deliverTimeout); deadline.After(latest) {
		deadline = latest
	}
	for a.deliveringOutput.Load() > 0 && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
	}
}

// endAllProcesses ends every process except the agent. It first sends SIGTERM, and kills the
// remaining processes after the grace period. It returns an error if processes fork faster than
// they are killed.
func endAllProcesses(s wire.Stop) error {
	for deadline := time.Now().Add(time.Duration(s.GraceMS)*time.Millisecond + quietTimeout); time.Now().Before(deadline); {
		if s.GraceMS > 0 {
			stop(s)
			s.GraceMS = 0
		}
		running := listGuestPIDs()
		if len(running) == 0 {
			return nil
		}
		for _, id := range running {
			syscall.Kill(id, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return newFailure("internal", "", "processes are made faster than they end")
}

// quietTimeout is how long endAllProcesses continues to kill processes after the grace period.
const quietTimeout = 5 * time.Second
