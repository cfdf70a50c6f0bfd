package agent

import (
	"sync"
	"syscall"
)

// reaper waits for every child, those that it inherits as init included, and
// tells whoever started one how it ended.
type reaper struct {
	mu      sync.Mutex // guards the fields below, and fork with its entry here
	wake    *sync.Cond // started has moved
	started int        // how many children there have been
	waits   map[int]chan syscall.WaitStatus
}

// start begins to wait. It never stops: init dies with the sandbox.
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
			// No child at all, orphans included: sleep until there is one.
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

// fork starts a child and returns a channel with its end. The lock makes sure
// that a child that ends at once is not reaped before it is known.
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
