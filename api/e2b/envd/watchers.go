package envd

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/brig-run/brig"
	pb "github.com/brig-run/brig/api/e2b/envd/filesystempb"
	"github.com/brig-run/brig/door"
)

// What watchers may cost: how many each sandbox has, how many events each
// keeps, and how long it lives without being asked.
const (
	mostWatchers = 64
	mostEvents   = 10_000
	mostHeld     = 4 << 20 // bytes of them, as they are sent
	idle         = 10 * time.Minute
)

// watchers are those that are asked for what has changed, of every sandbox.
// They live in memory only.
type watchers struct {
	mu  sync.Mutex // guards what is below, and what the watchers hold
	all map[string]map[string]*watcher
}

type watcher struct {
	token  string // with which it was made: who shows another one may less, or more
	cancel func()
	events []*pb.FilesystemEvent
	held   int       // bytes of events
	heard  time.Time // when the last of them came
	timer  *time.Timer
}

func newWatchers() *watchers { return &watchers{all: map[string]map[string]*watcher{}} }

// add makes a watcher of a sandbox.
func (ws *watchers) add(box, token string, cancel func()) (id string, w *watcher, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all[box]) >= mostWatchers {
		return "", nil, brig.Errorf(brig.RateLimited, "a sandbox cannot have more than %d watchers", mostWatchers)
	}
	if ws.all[box] == nil {
		ws.all[box] = map[string]*watcher{}
	}
	id = "w" + strings.ToLower(rand.Text()[:20])
	w = &watcher{token: token, cancel: cancel, timer: time.AfterFunc(idle, func() { ws.remove(box, id) })}
	ws.all[box][id] = w
	return id, w, nil
}

// remove ends a watcher, if there is such a one.
func (ws *watchers) remove(box, id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[box][id]
	if w == nil {
		return false
	}
	w.timer.Stop()
	w.cancel()
	if delete(ws.all[box], id); len(ws.all[box]) == 0 {
		delete(ws.all, box)
	}
	return true
}

// find returns a watcher that was made with a token; nil for none. The caller
// holds the lock.
func (ws *watchers) find(box, token, id string) *watcher {
	if w := ws.all[box][id]; w != nil && same(w.token, token) {
		return w
	}
	return nil
}

// has reports whether there is a watcher that was made with a token.
func (ws *watchers) has(box, token, id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.find(box, token, id) != nil
}

// keep holds events until somebody asks; of too many the oldest are dropped.
func (ws *watchers) keep(w *watcher, evs []*pb.FilesystemEvent) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.heard = time.Now()
	for _, ev := range evs {
		w.events = append(w.events, ev)
		w.held += proto.Size(ev)
	}
	for len(w.events) > mostEvents || w.held > mostHeld {
		w.held -= proto.Size(w.events[0])
		w.events = w.events[1:]
	}
}

// How long nothing must come before a watcher is asked what it has, and how long
// that is waited for: what was done before the question is on its way, and who
// has done it wants to see it.
const (
	quietTime  = 25 * time.Millisecond
	settleTime = 250 * time.Millisecond
)

// settle waits until nothing more comes to a watcher, if there is such a one.
func (ws *watchers) settle(ctx context.Context, box, token, id string) {
	begun := time.Now()
	for wait := quietTime; wait > 0 && time.Since(begun) < settleTime; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		ws.mu.Lock()
		w := ws.find(box, token, id)
		wait = 0
		if w != nil {
			wait = quietTime - time.Since(w.heard)
		}
		ws.mu.Unlock()
	}
}

// take returns what a watcher holds.
func (ws *watchers) take(box, token, id string) ([]*pb.FilesystemEvent, bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.find(box, token, id)
	if w == nil {
		return nil, false
	}
	w.timer.Reset(idle)
	evs := w.events
	w.events, w.held = nil, 0
	return evs, true
}

func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, box := range ws.all {
		for _, w := range box {
			w.timer.Stop()
			w.cancel()
		}
	}
	clear(ws.all)
}

// CreateWatcher implements filesystem.Filesystem.
func (s filesystem) CreateWatcher(ctx context.Context, r *pb.CreateWatcherRequest) (*pb.CreateWatcherResponse, error) {
	c := callOf(ctx)
	dir, err := c.path(r.GetPath())
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	// It outlives the request, whose actor and sandbox it keeps, and not the key or
	// grant behind the request's token.
	longer, cancel := door.Outlive(ctx)
	id, w, err := s.watchers.add(c.box.ID, c.box.Token, cancel)
	if err != nil {
		cancel()
		return nil, s.failure(ctx, err)
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	first := sync.OnceFunc(func() { close(begun) })
	go func() {
		err := s.of(c).Watch(longer, dir, r.GetRecursive(), func(change brig.FileChange) error {
			first()
			s.watchers.keep(w, events(change, r.GetIncludeEntry()))
			return nil
		})
		ended <- err
		// What it has seen of a directory that is gone can still be asked for.
		if longer.Err() != nil || s.dead(longer, err) {
			s.watchers.remove(c.box.ID, id)
		}
	}()
	select {
	case <-begun:
		return &pb.CreateWatcherResponse{WatcherId: id}, nil
	case err = <-ended:
		if err == nil {
			err = brig.Errorf(brig.Internal, "a watch ended before it began")
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.watchers.remove(c.box.ID, id)
	return nil, s.missing(ctx, dir.Name, err)
}

// GetWatcherEvents implements filesystem.Filesystem.
func (s filesystem) GetWatcherEvents(ctx context.Context, r *pb.GetWatcherEventsRequest) (*pb.GetWatcherEventsResponse, error) {
	box := callOf(ctx).box
	s.watchers.settle(ctx, box.ID, box.Token, r.GetWatcherId())
	evs, ok := s.watchers.take(box.ID, box.Token, r.GetWatcherId())
	if !ok {
		return nil, noWatcher(r.GetWatcherId())
	}
	return &pb.GetWatcherEventsResponse{Events: evs}, nil
}

// RemoveWatcher implements filesystem.Filesystem.
func (s filesystem) RemoveWatcher(ctx context.Context, r *pb.RemoveWatcherRequest) (*pb.RemoveWatcherResponse, error) {
	box := callOf(ctx).box
	if !s.watchers.has(box.ID, box.Token, r.GetWatcherId()) || !s.watchers.remove(box.ID, r.GetWatcherId()) {
		return nil, noWatcher(r.GetWatcherId())
	}
	return &pb.RemoveWatcherResponse{}, nil
}

func noWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, errors.New("watcher with id "+clip(id)+" not found"))
}
