package agent

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// account is a user and group of the sandbox.
type account struct{ uid, gid uint32 }

// maxThreads is the maximum number of threads with the permissions of accounts.
// Further operations wait.
const maxThreads = 32

// maxAccounts is the maximum number of accounts whose threads can be found again.
const maxAccounts = 256

// threadIdle is how long such a thread waits for another operation.
const threadIdle = time.Second

// accountThreads runs file operations with the permissions of an account instead of the agent's
// permissions. The kernel checks the effective user, the groups and the capabilities of the calling
// thread, so each operation runs on a thread with the user and the groups of the account. gVisor
// does not support setfsuid. The thread never regains the agent's permissions, and exits after
// threadIdle.
//
// The real and the saved user remain those of the agent, so that programs of the account cannot
// trace or signal the thread.
type accountThreads struct {
	plain bool // the agent's own account is the only one
	slots chan struct{}

	mu    sync.Mutex // guards the field below
	tasks map[account]chan task
}

// task is an operation and the channel for its error.
type task struct {
	do   func() error
	done chan error
}

func newRights(plain bool) *accountThreads {
	return &accountThreads{plain: plain, slots: make(chan struct{}, maxThreads), tasks: map[account]chan task{}}
}

// runAs runs f with the permissions of an account. f must not wait for a
// caller, because the number of threads is limited. A plain agent runs f under
// its own account.
func (r *accountThreads) runAs(who account, f func() error) error {
	if r == nil || r.plain {
		return f()
	}
	t, c := task{f, make(chan error, 1)}, r.queue(who)
	select {
	case c <- t: // passed to an idle thread
	default:
		select {
		case c <- t:
		case r.slots <- struct{}{}:
			go r.serve(who, c, t)
		}
	}
	return <-t.done
}

func (r *accountThreads) queue(who account) chan task {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.tasks[who]
	if c == nil {
		if len(r.tasks) >= maxAccounts {
			clear(r.tasks) // its threads end when they have been idle
		}
		c = make(chan task)
		r.tasks[who] = c
	}
	return c
}

// serve runs tasks on a dedicated thread. When serve returns, the goroutine
// exits while it is locked to the thread, which also ends the thread.
func (r *accountThreads) serve(who account, c chan task, t task) {
	runtime.LockOSThread()
	if syscall.Gettid() == syscall.Getpid() {
		// The first thread never exits, and its ids are those of the process. Run serve in another
		// goroutine, and keep this thread locked until serve returns, so that the other goroutine
		// runs on a different thread.
		done := make(chan struct{})
		go func() { defer close(done); r.serve(who, c, t) }()
		<-done
		runtime.UnlockOSThread()
		return
	}
	defer func() { <-r.slots }()
	if err := assumeAccount(who); err != nil {
		t.done <- fmt.Errorf("take the rights of user %d: %w", who.uid, err)
		return
	}
	idle := time.NewTimer(threadIdle)
	defer idle.Stop()
	for {
		t.done <- t.do()
		idle.Reset(threadIdle)
		select {
		case t = <-c:
		case <-idle.C:
			return
		}
	}
}

// rootCaps are the capabilities that file operations of root keep: root may
// read, write and change the owner of every file in the sandbox, as on any
// machine. Programs that run as root do not have them.
const rootCaps = 1<<0 | 1<<1 | 1<<3 // CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER

// assumeAccount gives the calling thread the permissions of an account.
func assumeAccount(who account) error {
	const keep = ^uintptr(0) // leaves an id unchanged
	groups := []uint32{who.gid}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, keep, uintptr(who.gid), keep); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(who.uid), keep); errno != 0 {
		return errno
	}
	header := struct{ version, pid uint32 }{version: capVersion3}
	var sets [2]struct{ effective, permitted, inheritable uint32 }
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return errno
	}
	has := sets[0].permitted
	clear(sets[:])
	if who.uid == 0 {
		sets[0].permitted = has & rootCaps
		sets[0].effective = sets[0].permitted
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0); errno != 0 {
		return errno
	}
	return nil
}
