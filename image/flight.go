package image

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// How many images are pulled at once, how many more may wait in line for that,
// and how long one may take: a registry that says a byte now and then is not to
// keep everybody waiting.
const (
	atOnce     = 4
	mostInLine = 32
	longest    = 2 * time.Hour
)

// flights are pulls that go on. Who asks for the same waits for the same.
type flights struct {
	mu    sync.Mutex // guards the fields below, and how many wait for each
	by    map[flightKey]*flight
	slots chan struct{} // held by those that are not in line
	going int           // in line or not
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
	fl, err := fs.join(ctx, k, f)
	if err != nil {
		return nil, err
	}
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

func (fs *flights) join(ctx context.Context, k flightKey, f work) (*flight, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fl := fs.by[k]; fl != nil {
		fl.waiting++
		return fl, nil
	}
	if fs.slots == nil {
		fs.slots = make(chan struct{}, atOnce)
	}
	if fs.going >= atOnce+mostInLine {
		return nil, brig.Errorf(brig.RateLimited, "%d images are being pulled, or wait for that, already", fs.going).
			WithHint("try again when some of them are there")
	}
	fs.going++
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	fl := &flight{waiting: 1, end: end, done: make(chan struct{}), listeners: map[int]func(brig.Progress){}}
	if fs.by == nil {
		fs.by = map[flightKey]*flight{}
	}
	fs.by[k] = fl
	go func() {
		defer end()
		fl.img, fl.err = fs.inTurn(ctx, fl, f)
		fs.mu.Lock()
		fs.going--
		if fs.by[k] == fl {
			delete(fs.by, k)
		}
		fs.mu.Unlock()
		close(fl.done)
	}()
	return fl, nil
}

// inTurn does the work when few enough others are at theirs.
func (fs *flights) inTurn(ctx context.Context, fl *flight, f work) (*brig.Image, error) {
	if err := fs.waitInLine(ctx, fl); err != nil {
		return nil, err
	}
	defer func() { <-fs.slots }()
	ctx, cancel := context.WithTimeoutCause(ctx, longest, errLong)
	defer cancel()
	img, err := f(ctx, fl.tell)
	if err != nil && errors.Is(context.Cause(ctx), errLong) {
		err = brig.Errorf(brig.Timeout, "the image did not come within %v", longest).Because(err)
	}
	return img, err
}

var errLong = errors.New("the pull took too long")

func (fs *flights) waitInLine(ctx context.Context, fl *flight) error {
	select {
	case fs.slots <- struct{}{}:
		return nil
	default:
	}
	fl.tell(brig.Progress{Step: "wait for other pulls"})
	select {
	case fs.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
