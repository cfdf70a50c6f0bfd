package image

import (
	"context"
	"sync"

	"github.com/brig-run/brig"
)

// flights are pulls that go on. Who asks for the same waits for the same.
type flights struct {
	mu sync.Mutex // guards by, and how many wait for each
	by map[flightKey]*flight
}

// flightKey tells what is the same: credentials are part of it, since an
// answer is for who had them.
type flightKey struct {
	pull    brig.ImagePull
	missing bool
}

// flight is one pull, and who waits for it.
type flight struct {
	waiting int
	end     context.CancelFunc
	done    chan struct{}
	img     *brig.Image // this and err are there when done is closed
	err     error

	mu        sync.Mutex // held while it is told how far it is
	listeners map[int]func(brig.Progress)
	next      int
}

// work is what a flight does.
type work func(context.Context, func(brig.Progress)) (*brig.Image, error)

// do has f called once for all who ask at the same time. It ends when it is
// done, or when nobody waits for it any more; the last who goes waits until
// nothing of it is left.
func (fs *flights) do(ctx context.Context, k flightKey, report func(brig.Progress), f work) (*brig.Image, error) {
	fl := fs.join(ctx, k, f)
	stop := fl.listen(report)
	select {
	case <-fl.done:
	case <-ctx.Done():
	}
	stop()
	last := fs.leave(k, fl)
	if ctx.Err() != nil {
		if last {
			<-fl.done
		}
		return nil, context.Cause(ctx)
	}
	if fl.img == nil {
		return nil, fl.err
	}
	img := *fl.img // one for each
	return &img, fl.err
}

func (fs *flights) join(ctx context.Context, k flightKey, f work) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fl := fs.by[k]; fl != nil {
		fl.waiting++
		return fl
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{waiting: 1, end: end, done: make(chan struct{}), listeners: map[int]func(brig.Progress){}}
	if fs.by == nil {
		fs.by = map[flightKey]*flight{}
	}
	fs.by[k] = fl
	go func() {
		defer end()
		fl.img, fl.err = f(ctx, fl.tell)
		fs.mu.Lock()
		if fs.by[k] == fl {
			delete(fs.by, k)
		}
		fs.mu.Unlock()
		close(fl.done)
	}()
	return fl
}

// leave ends the work when nobody else waits for it, and reports that.
func (fs *flights) leave(k flightKey, fl *flight) (last bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fl.waiting--; fl.waiting > 0 {
		return false
	}
	fl.end()
	if fs.by[k] == fl {
		delete(fs.by, k)
	}
	return true
}

// listen has report called until stop has returned.
func (fl *flight) listen(report func(brig.Progress)) (stop func()) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	n := fl.next
	fl.next++
	fl.listeners[n] = report
	return func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		delete(fl.listeners, n)
	}
}

// tell reports to everybody who waits, one report at a time.
func (fl *flight) tell(p brig.Progress) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, report := range fl.listeners {
		report(p)
	}
}
