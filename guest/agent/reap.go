package agent

import (
	"sync"
	"syscall"
)

// reaper waits for all children, including the children that it inherits as
// init. It reports the exit of a child to the code that started the child.
type reaper struct {
	mu      sync.Mutex // guards the fields below; held across a fork and its registration
	wake    *sync.Cond // signals a change of started
	started int        // number of children started so far
	waits   map[int]chan syscall.WaitStatus
}

// start starts waiting for children. It never stops, because init ends with the
// sandbox.
func (r *reaper) start() {
	r.wake = sync.NewCond(&r.mu)
	r.waits = map[int]chan syscall.WaitStatus{}
	go r.loop()
}

func (r *reaper) loop() {
	seen := 0
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		r.mu.Lock()
		switch {
		case err == syscall.ECHILD:
			// There are no children, not even orphans, so wait until one
			// starts.
			for r.started == seen {
				r.wake.Wait()
			}
			seen = r.started
		case err == nil:
			if c, ok := r.waits[pid]; ok {
				delete(r.waits, pid)
				c <- ws
			}
		}
		r.mu.Unlock()
	}
}

// fork starts a child and returns a channel for its exit status. The lock
// ensures that a child that ends immediately is not reaped before it is
// registered.
func (r *reaper) fork(start func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := start()
	if err != nil {
		return 0, nil, err
	}
	c := make(chan syscall.WaitStatus, 1)
	r.waits[pid] = c
	r.started++
	r.wake.Signal()
	return pid, c, nil
}
