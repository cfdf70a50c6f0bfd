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
	"github.com/brig-run/brig/api/httpapi"
)

// Limits of watchers: the number of watchers of a sandbox, the number of events
// that a watcher buffers, and the time without a poll after which a watcher
// whose watch has ended is removed. Any other watcher lasts as long as its
// sandbox, as in E2B.
const (
	maxWatchers   = 64
	maxEvents     = 10_000
	maxEventBytes = 4 << 20 // bytes of the encoded events
	// maxTenantBytes limits the encoded events of all watchers of a tenant together,
	// because a tenant may have thousands of watchers that no client polls.
	maxTenantBytes = 64 << 20
	endedRetention = 10 * time.Minute
)

// watchers are the polled watchers of all sandboxes. They are kept only in
// memory.
type watchers struct {
	mu  sync.Mutex // guards the fields below and the watchers' fields
	all map[string]map[string]*watcher
	// held is the number of encoded bytes of each tenant's events.
	held map[string]int
}

type watcher struct {
	tenant    string
	token     string // token of the request that created the watcher, because another token may have other rights
	cancel    func()
	events    []*pb.FilesystemEvent
	held      int // encoded bytes of events
	removed   bool
	lastEvent time.Time   // time of the last event
	err       error       // why the watcher can report no more events
	timer     *time.Timer // removes the watcher; nil before err
}

func newWatchers() *watchers {
	return &watchers{all: map[string]map[string]*watcher{}, held: map[string]int{}}
}

// add creates a watcher for a sandbox.
func (ws *watchers) add(tenant, box, token string, cancel func()) (id string, w *watcher, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all[box]) >= maxWatchers {
		return "", nil, brig.Errorf(brig.RateLimited, "a sandbox cannot have more than %d watchers", maxWatchers)
	}
	if ws.all[box] == nil {
		ws.all[box] = map[string]*watcher{}
	}
	id = "w" + strings.ToLower(rand.Text()[:20])
	w = &watcher{tenant: tenant, token: token, cancel: cancel}
	ws.all[box][id] = w
	return id, w, nil
}

// remove ends a watcher and reports whether it existed.
func (ws *watchers) remove(box, id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[box][id]
	if w == nil {
		return false
	}
	w.stop()
	ws.take(w)
	if delete(ws.all[box], id); len(ws.all[box]) == 0 {
		delete(ws.all, box)
	}
	return true
}

// find returns a watcher that was created with the given token, or nil. The
// caller holds the lock.
func (ws *watchers) find(box, token, id string) *watcher {
	if w := ws.all[box][id]; w != nil && equalConstantTime(w.token, token) {
		return w
	}
	return nil
}

// has reports whether a watcher with this id was created with the token.
func (ws *watchers) has(box, token, id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.find(box, token, id) != nil
}

// buffer buffers events until the next poll. If there are too many events, the
// watcher ends, because a client must not miss events without an error.
func (ws *watchers) buffer(w *watcher, evs []*pb.FilesystemEvent) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.lastEvent = time.Now()
	if w.removed {
		return context.Canceled
	}
	for _, ev := range evs {
		w.events = append(w.events, ev)
		w.held += proto.Size(ev)
		ws.held[w.tenant] += proto.Size(ev)
	}
	if len(w.events) > maxEvents || w.held > maxEventBytes || ws.held[w.tenant] > maxTenantBytes {
		ws.take(w)
		return brig.Errorf(brig.FailedPrecondition, "there were too many events between two polls of the watcher").
			WithHint("poll more often, or watch a smaller directory")
	}
	return nil
}

// take returns and removes the events of a watcher. The caller holds the lock.
func (ws *watchers) take(w *watcher) []*pb.FilesystemEvent {
	evs := w.events
	if ws.held[w.tenant] -= w.held; ws.held[w.tenant] == 0 {
		delete(ws.held, w.tenant)
	}
	w.events, w.held = nil, 0
	return evs
}

// end records why a watcher can report no more events. Polls return the buffered
// events first, and then the error.
func (ws *watchers) end(w *watcher, box, id string, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all[box][id] == w {
		w.err, w.timer = err, time.AfterFunc(endedRetention, func() { ws.remove(box, id) })
	}
}

// stop ends the watch. The caller holds the lock.
func (w *watcher) stop() {
	w.removed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel()
}

// quietPeriod is how long a watcher must be silent before a poll returns, and
// settleTimeout is the longest wait for that silence. Events of changes before the
// poll may still be in transit, and the client expects to receive them.
const (
	quietPeriod   = 25 * time.Millisecond
	settleTimeout = 250 * time.Millisecond
)

// waitQuiet waits until a watcher receives no more events, but no longer than
// settleTimeout. It returns immediately if the watcher does not exist.
func (ws *watchers) waitQuiet(ctx context.Context, box, token, id string) {
	begun := time.Now()
	for wait := quietPeriod; wait > 0 && time.Since(begun) < settleTimeout; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		ws.mu.Lock()
		w := ws.find(box, token, id)
		wait = 0
		if w != nil {
			wait = quietPeriod - time.Since(w.lastEvent)
		}
		ws.mu.Unlock()
	}
}

// drain returns and removes the buffered events of a watcher. Without events, it
// returns the reason why the watcher has ended.
func (ws *watchers) drain(box, token, id string) ([]*pb.FilesystemEvent, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.find(box, token, id)
	if w == nil {
		return nil, errNoWatcher(id)
	}
	if w.timer != nil {
		w.timer.Reset(endedRetention)
	}
	evs := ws.take(w)
	if len(evs) == 0 && w.err != nil {
		return nil, w.err
	}
	return evs, nil
}

func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, box := range ws.all {
		for _, w := range box {
			w.stop()
		}
	}
	clear(ws.all)
	clear(ws.held)
}

// CreateWatcher implements filesystem.Filesystem.
func (s filesystem) CreateWatcher(ctx context.Context, r *pb.CreateWatcherRequest) (*pb.CreateWatcherResponse, error) {
	c := callOf(ctx)
	dir, err := c.path(ctx, r.GetPath())
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	// The watcher outlives the request and keeps its actor and sandbox. It ends
	// with the key or grant of the request's token.
	longer, cancel := httpapi.Detach(ctx)
	id, w, err := s.watchers.add(brig.ActorFrom(ctx).Tenant, c.box.ID, c.box.Token, cancel)
	if err != nil {
		cancel()
		return nil, s.failure(ctx, err)
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	first := sync.OnceFunc(func() { close(begun) })
	go func() {
		err := s.filesOf(c).Watch(longer, dir, r.GetRecursive(), func(change brig.FileChange) error {
			first()
			return s.watchers.buffer(w, events(change, r.GetIncludeEntry()))
		})
		ended <- err
		if longer.Err() != nil || s.causedByEnd(longer, err) {
			s.watchers.remove(c.box.ID, id)
			return
		}
		if err == nil {
			err = brig.Errorf(brig.Internal, "a watch ended without an error")
		}
		s.watchers.end(w, c.box.ID, id, s.failure(longer, err)) // buffered events remain available
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
	return nil, s.pathFailure(ctx, dir.Name, err)
}

// GetWatcherEvents implements filesystem.Filesystem.
func (s filesystem) GetWatcherEvents(ctx context.Context, r *pb.GetWatcherEventsRequest) (*pb.GetWatcherEventsResponse, error) {
	box := callOf(ctx).box
	s.watchers.waitQuiet(ctx, box.ID, box.Token, r.GetWatcherId())
	evs, err := s.watchers.drain(box.ID, box.Token, r.GetWatcherId())
	if err != nil {
		return nil, err
	}
	return &pb.GetWatcherEventsResponse{Events: evs}, nil
}

// RemoveWatcher implements filesystem.Filesystem.
func (s filesystem) RemoveWatcher(ctx context.Context, r *pb.RemoveWatcherRequest) (*pb.RemoveWatcherResponse, error) {
	box := callOf(ctx).box
	if !s.watchers.has(box.ID, box.Token, r.GetWatcherId()) || !s.watchers.remove(box.ID, r.GetWatcherId()) {
		return nil, errNoWatcher(r.GetWatcherId())
	}
	return &pb.RemoveWatcherResponse{}, nil
}

func errNoWatcher(id string) error {
	return connect.NewError(connect.CodeNotFound, errors.New("watcher with id "+truncate(id)+" not found"))
}
