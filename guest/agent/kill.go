package agent

import (
	"bytes"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// firstTag is one less than the first supplementary group that marks a process
// tree. The tags are far above the groups of real systems.
const firstTag = 1 << 30

const (
	// treeTimeout is how long the agent tries to kill a tree. Afterwards the host
	// repeats the call.
	treeTimeout = 10 * time.Second
	// stopPasses is the maximum number of attempts to stop a whole tree before
	// the tree is killed without being stopped.
	stopPasses = 50
	// startTimeout is the maximum time that a process may spend without an
	// environment while it starts a program. The kernel sets the new environment
	// last.
	startTimeout = 100 * time.Millisecond
)

// killer kills process trees. A single pass over all processes serves all pending trees. The agent
// competes with those trees for CPU time, so a separate search for each tree would be too
// expensive.
type killer struct {
	mu      sync.Mutex     // guards the fields below
	next    []*pendingKill // trees that killAll has not taken yet
	running bool
}

// pendingKill is a process tree to be killed.
type pendingKill struct {
	leader   int
	reaped   bool // the leader has ended, so that its id may be reused
	tag      uint32
	plain    bool
	until    time.Time
	done     chan struct{} // closed when the attempt has ended
	treeGone bool          // whether the whole tree is gone, valid once done is closed

	passes, calm int // number of attempts to stop the tree, and of consecutive attempts that found it stopped
	killing      bool
}

// kill kills the process tree of an execution, and reports whether the whole tree has ended.
func (k *killer) kill(x *execution) bool {
	t := k.begin(x)
	if t == nil {
		return true
	}
	<-t.done
	return t.treeGone
}

// begin starts to kill the process tree of an execution. It returns nil if the
// execution has no process.
func (k *killer) begin(x *execution) *pendingKill {
	x.mu.Lock()
	leader, reaped, ended := x.leader, x.reaped != nil, x.exit != nil
	x.mu.Unlock()
	if leader <= 1 || ended { // before the start there is no id, and after the end the id may be reused
		return nil
	}
	t := &pendingKill{leader: leader, reaped: reaped, tag: x.tag, plain: x.plain, until: time.Now().Add(treeTimeout), done: make(chan struct{})}
	// Most processes stay in their original process group. This call kills them and leaves time to
	// search for the rest, even if the tree is busy. It also kills the first process. If the first
	// process were stopped instead, the end of its children could send it SIGHUP, and its exit
	// status would be wrong.
	t.killGroup()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = append(k.next, t)
	if !k.running {
		k.running = true
		go k.killAll()
	}
	return t
}

// killGroup kills the first process group of a tree. It repeats the signal,
// because the group may grow between two signals.
func (t *pendingKill) killGroup() {
	if t.reaped {
		return
	}
	for range 3 {
		syscall.Kill(-t.leader, syscall.SIGKILL)
	}
}

// killAll kills all pending trees, including those that are added while it
// runs.
func (k *killer) killAll() {
	var trees []*pendingKill
	s := search{excluded: map[int]bool{}, withoutEnv: map[int]time.Time{}}
	for {
		k.mu.Lock()
		if len(k.next) > 0 {
			// A process that was excluded for the earlier trees may belong to one of the new trees.
			trees, s.excluded = append(trees, k.next...), map[int]bool{}
			k.next = nil
		}
		if len(trees) == 0 {
			k.running = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		found, isComplete := s.findTagged(trees)
		pause := true
		remaining := trees[:0:0]
		for _, t := range trees {
			switch {
			case len(found[t]) == 0 && isComplete:
				t.treeGone = true
				close(t.done)
			case time.Now().After(t.until):
				t.release(found[t])
				close(t.done)
			default:
				remaining = append(remaining, t)
				t.advance(found[t], isComplete)
				pause = pause && t.killing
			}
		}
		if trees = remaining; pause && len(remaining) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// advance performs the next step on a tree. A tree is stopped before it is
// killed, so that it cannot fork faster than it is killed. A stopped process
// neither forks nor frees its slot under RLIMIT_NPROC. A process may fork after
// it was listed and before it is stopped, so the list is complete only when two
// consecutive passes find the whole tree stopped.
func (t *pendingKill) advance(tree []pid, isComplete bool) {
	if !t.killing {
		for _, p := range tree {
			if !p.stopped {
				syscall.Kill(p.id, syscall.SIGSTOP)
				isComplete = false
			}
		}
		if t.calm++; !isComplete {
			t.calm = 0
		}
		t.passes++
		t.killing = t.calm >= 2 || t.passes >= stopPasses
		if !t.killing {
			return
		}
	}
	if !t.reaped {
		syscall.Kill(-t.leader, syscall.SIGKILL)
	}
	for _, p := range tree {
		syscall.Kill(p.id, syscall.SIGKILL)
	}
}

// release sends SIGKILL to the remaining processes once more when treeTimeout has
// passed.
func (t *pendingKill) release(tree []pid) {
	t.killGroup()
	for _, p := range tree {
		syscall.Kill(p.id, syscall.SIGKILL)
	}
}

type pid struct {
	id      int
	stopped bool
}

// search repeatedly searches for processes that have the tags of trees.
type search struct {
	excluded   map[int]bool      // processes that have ended or have none of the tags
	withoutEnv map[int]time.Time // when a process was first found without an environment
}

// isStarting reports whether a process without an environment may still be
// starting a program. The program's environment may contain a tag.
func (s *search) isStarting(id int) bool {
	if _, seen := s.withoutEnv[id]; !seen {
		s.withoutEnv[id] = time.Now()
	}
	return time.Since(s.withoutEnv[id]) < startTimeout
}

// findTagged groups the live processes by the tree whose tag they have. sure is false if a process
// ended after it was listed, because it may have forked a child that is not on the list. It is also
// false while a process may be starting a program.
func (s *search) findTagged(trees []*pendingKill) (found map[*pendingKill][]pid, isComplete bool) {
	byGroup, byMark := map[string]*pendingKill{}, map[string]*pendingKill{}
	for _, t := range trees {
		if t.plain {
			byMark[treeMark(t.tag)] = t
		} else {
			byGroup[strconv.FormatUint(uint64(t.tag), 10)] = t
		}
	}
	found, isComplete = map[*pendingKill][]pid{}, true
	for _, id := range listPIDs() {
		b, err := readStatus(id)
		state, threads, groups := parseStatus(b)
		if err != nil || isDead(state, threads) {
			isComplete = isComplete && s.excluded[id]
			s.excluded[id] = true
			continue
		}
		s.excluded[id] = true
		t := taggedTree(byGroup, bytes.Fields(groups))
		if t == nil && len(byMark) > 0 {
			env, err := readEnvironment(id)
			t = taggedTree(byMark, bytes.Split(env, []byte{0}))
			if err == nil && len(env) == 0 && s.isStarting(id) {
				isComplete = false
				delete(s.excluded, id)
			}
		}
		if t != nil {
			found[t] = append(found[t], pid{id: id, stopped: state == 'T'})
			delete(s.excluded, id)
		}
	}
	return found, isComplete
}

// isDead reports whether a process with the given status has ended. If only the first thread has
// ended, the kernel reports a zombie although the process still runs.
func isDead(state byte, threads int) bool { return state == 'X' || state == 'Z' && threads < 2 }

// hasEnded reports whether a process has ended and thus has no descriptors, whether or not its
// parent has waited for it.
func hasEnded(id int) bool {
	b, err := readStatus(id)
	state, threads, _ := parseStatus(b)
	return err != nil || isDead(state, threads)
}

// isClosedBefore waits until a channel is closed or a time is reached, and reports whether the
// channel was closed.
func isClosedBefore(c <-chan struct{}, end time.Time) bool {
	select {
	case <-c:
		return true
	case <-time.After(time.Until(end)):
		return isClosed(c)
	}
}

// taggedTree returns the tree whose tag is among the given names, or nil.
func taggedTree(trees map[string]*pendingKill, names [][]byte) *pendingKill {
	for _, n := range names {
		if t := trees[string(n)]; t != nil {
			return t
		}
	}
	return nil
}

// kill kills the process trees of executions. It succeeds for executions without processes. A tree
// ends before its end is recorded, and kill waits for the record. Otherwise the execution could
// prevent the caller's next step, a save of the sandbox.
func (a *Agent) kill(call wire.Kill) error {
	type fight struct {
		*pendingKill
		done <-chan struct{}
	}
	var fights []fight
	for _, id := range append([]string{call.ID}, call.More...) {
		a.mu.Lock()
		x := a.execs[id]
		a.mu.Unlock()
		if x == nil {
			continue
		}
		if t := a.killer.begin(x); t != nil {
			fights = append(fights, fight{t, x.done})
		}
	}
	survivors := 0
	for _, t := range fights {
		if <-t.done; !t.treeGone || !isClosedBefore(t.done, t.until) {
			survivors++
		}
	}
	if survivors > 0 {
		return newFailure("internal", "", "%d process trees have not ended in %v", survivors, treeTimeout)
	}
	return nil
}
