package agent

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// firstTag is below the first supplementary group that marks a process tree.
// It is far above any group of a real system.
const firstTag = 1 << 30

// treeTime is how long a tree is fought. The host gives up on the sandbox
// before.
const treeTime = 10 * time.Second

// killTree kills everything that carries the tag. What has left the group of
// the first process it stops before it kills, so that the tree cannot grow
// faster than it is cut: a stopped process neither forks nor frees its place
// under RLIMIT_NPROC.
func killTree(leader int, s search) {
	// Most trees stay in the group that they began in. One call ends those,
	// and leaves time to look for the rest even when the tree is busy. The
	// first process is among them: were it stopped, the end of its children
	// could hang it up, and it would seem to have ended otherwise.
	for range 3 {
		syscall.Kill(-leader, syscall.SIGKILL)
	}
	// A process may fork between being listed and being stopped, so only the
	// second look at a tree that is all stopped shows all of it.
	for passes, calm := 0, 0; passes < 50 && calm < 2; passes++ {
		tree, sure := s.look()
		for _, p := range tree {
			if !p.stopped {
				syscall.Kill(p.id, syscall.SIGSTOP)
				sure = false
			}
		}
		if calm++; !sure {
			calm = 0
		}
	}
	for deadline := time.Now().Add(treeTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		syscall.Kill(-leader, syscall.SIGKILL)
		tree, sure := s.look()
		if len(tree) == 0 && sure {
			return
		}
		for _, p := range tree {
			syscall.Kill(p.id, syscall.SIGKILL)
		}
	}
}

type pid struct {
	id      int
	stopped bool
}

// search looks for what carries a tag, again and again.
type search struct {
	tag      uint32
	plain    bool         // the tag is in the environment, not among the groups
	harmless map[int]bool // that had ended, or did not carry the tag
}

// look lists the processes that live and carry the tag. It is not sure that
// these are all when one ended after it had been listed: it may have forked
// a child that is not on the list.
func (s *search) look() (tree []pid, sure bool) {
	want := []byte(strconv.FormatUint(uint64(s.tag), 10))
	sure = true
	for _, id := range pids() {
		b, err := status(id)
		state, threads, groups := parseStatus(b)
		// The first thread may end before the others: then it is a zombie,
		// and its process is not.
		if err != nil || state == 'X' || state == 'Z' && threads < 2 {
			sure = sure && s.harmless[id]
			s.harmless[id] = true
			continue
		}
		s.harmless[id] = true
		if s.plain && marked(id, s.tag) || !s.plain && slices.ContainsFunc(bytes.Fields(groups), func(g []byte) bool { return bytes.Equal(g, want) }) {
			tree = append(tree, pid{id: id, stopped: state == 'T'})
			delete(s.harmless, id)
		}
	}
	return tree, sure
}

// treeMark is the variable that marks a process tree where groups cannot.
func treeMark(tag uint32) string { return "BRIG_TREE=" + strconv.FormatUint(uint64(tag), 10) }

// marked reports whether a process has a tree's mark in the environment that it
// was started with.
func marked(id int, tag uint32) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/environ")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return string(v) == treeMark(tag) })
}

// status reads a process's status with as few calls as there can be: in a
// sandbox that is busy each may wait for its turn.
func status(id int) ([]byte, error) {
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

// pids lists every process but init.
func pids() []int {
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

// guests lists the processes that are not the agent's own: those that carry its
// sessions are of its user, and nobody else is.
func guests() []int {
	var out []int
	for _, id := range pids() {
		var st syscall.Stat_t
		if err := syscall.Stat("/proc/"+strconv.Itoa(id), &st); err == nil && st.Uid != agentID {
			out = append(out, id)
		}
	}
	return out
}

// stop asks every process to end and returns when they have, or when the
// grace is over. Stopped processes are woken so that they can hear.
func stop(s wire.Stop) {
	deadline := time.Now().Add(time.Duration(s.GraceMS) * time.Millisecond)
	for _, id := range guests() {
		syscall.Kill(id, syscall.SIGTERM)
		syscall.Kill(id, syscall.SIGCONT)
	}
	for time.Now().Before(deadline) && len(guests()) > 0 {
		time.Sleep(5 * time.Millisecond)
	}
}

// tellTime is how long a stop waits at most for the last output of processes
// that have ended, and slack how long beyond the grace, less than the host does.
const (
	tellTime = 2 * time.Second
	slack    = 300 * time.Millisecond
)

// stop asks every process to end, and waits until those who had them run have
// been told all that they said on their way: the agent's own end cuts that off.
func (a *Agent) stop(s wire.Stop) {
	deadline := time.Now().Add(time.Duration(s.GraceMS)*time.Millisecond + slack)
	stop(s)
	if len(guests()) > 0 {
		return // they are killed with the agent, and say no more
	}
	if most := time.Now().Add(tellTime); deadline.After(most) {
		deadline = most
	}
	for a.telling.Load() > 0 && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
	}
}

// quiet ends every process but the agent: they are asked, then killed until
// none is left. What forks faster than it is killed stays.
func quiet(s wire.Stop) error {
	for deadline := time.Now().Add(time.Duration(s.GraceMS)*time.Millisecond + quietTime); time.Now().Before(deadline); {
		if s.GraceMS > 0 {
			stop(s)
			s.GraceMS = 0
		}
		left := guests()
		if len(left) == 0 {
			return nil
		}
		for _, id := range left {
			syscall.Kill(id, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return failure("internal", "", "processes are made faster than they end")
}

// quietTime is how long quiet goes on killing.
const quietTime = 5 * time.Second
