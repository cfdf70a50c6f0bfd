package httpapi

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/brig-run/brig"
)

// maxLimited is the maximum number of addresses in a Limit. The least recently
// used address is removed first.
const maxLimited = 10_000

// Limit limits the rate of an address's requests that cause work before
// authentication.
type Limit struct {
	rate  rate.Limit
	burst int

	mu        sync.Mutex // guards the fields below
	byAddress map[string]*list.Element
	order     list.List // list of limited values, most recently used first
}

type limited struct {
	addr string
	*rate.Limiter
}

// NewLimit returns a Limit of perSecond requests per address, with bursts of up
// to burst requests.
func NewLimit(perSecond float64, burst int) *Limit {
	return &Limit{rate: rate.Limit(perSecond), burst: burst, byAddress: map[string]*list.Element{}}
}

// Reserve counts a request of r's address, or returns RateLimited with the time
// to wait.
func (l *Limit) Reserve(r *http.Request) error {
	now := time.Now()
	if x := l.findLimiter(clientAddress(r)); !x.AllowN(now, 1) {
		return l.tooManyError(x, now)
	}
	return nil
}

// Hold is like Reserve, but release undoes the count if the request did not
// need to be limited.
func (l *Limit) Hold(r *http.Request) (release func(), err error) {
	now := time.Now()
	x := l.findLimiter(clientAddress(r))
	held := x.ReserveN(now, 1)
	if !held.OK() || held.DelayFrom(now) > 0 {
		held.CancelAt(now)
		return nil, l.tooManyError(x, now)
	}
	return func() { held.CancelAt(now) }, nil
}

// Check returns the error that Reserve would return, but does not count the
// request.
func (l *Limit) Check(r *http.Request) error {
	now := time.Now()
	if x := l.findLimiter(clientAddress(r)); x.TokensAt(now) < 1 {
		return l.tooManyError(x, now)
	}
	return nil
}

// SecondChance gives another chance to requests whose address was limited by a Limit,
// so that wrong credentials from an address do not block a valid one. It admits
// one request at a time, and then rests for restFactor times as long as the
// request worked, but at most for maxRest. The requests of all limited
// addresses together thus use a small part of one CPU.
type SecondChance struct {
	turn chan struct{} // holds a value while a request works or while the SecondChance rests
	wait time.Duration

	mu         sync.Mutex     // guards the fields below
	waiting    map[string]int // waiting requests by address
	allWaiting int            // all waiting requests
}

const (
	restFactor = 9 // 10 % of one CPU
	// maxRest limits the rest, so that valid credentials get their turn even on
	// a slow machine.
	maxRest = 2 * time.Second
	// maxWaitingPerAddress and maxWaiting are the maximum numbers of waiting requests of
	// one address and of all addresses.
	maxWaitingPerAddress = 16
	maxWaiting           = 256
)

// NewSecondChance returns a SecondChance in which a request waits for its turn for at most wait.
func NewSecondChance(wait time.Duration) *SecondChance {
	return &SecondChance{turn: make(chan struct{}, 1), wait: wait, waiting: map[string]int{}}
}

// Begin waits for r's turn and returns false if the turn does not come in time.
// The caller calls End after its work.
func (s *SecondChance) Begin(r *http.Request) (_ *SecondChanceTurn, ok bool) {
	addr := clientAddress(r)
	s.mu.Lock()
	if s.waiting[addr] >= maxWaitingPerAddress || s.allWaiting >= maxWaiting {
		s.mu.Unlock()
		return nil, false
	}
	s.waiting[addr]++
	s.allWaiting++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.allWaiting--
		if s.waiting[addr]--; s.waiting[addr] == 0 {
			delete(s.waiting, addr)
		}
	}()
	ctx, cancel := context.WithTimeout(r.Context(), s.wait)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	return &SecondChanceTurn{second: s, since: time.Now()}, true
}

// SecondChanceTurn is the turn of one request, which one goroutine uses. A nil turn measures
// nothing.
type SecondChanceTurn struct {
	second *SecondChance
	since  time.Time     // when the current work began; zero while the request waits
	worked time.Duration // work time before since
	ended  bool
}

// Wait excludes the time until the caller calls resume from the request's work.
// The request uses no CPU during that time, so no rest needs to follow.
func (t *SecondChanceTurn) Wait() (resume func()) {
	if t == nil {
		return func() {}
	}
	t.stop()
	return func() { t.since = time.Now() }
}

func (t *SecondChanceTurn) stop() {
	if !t.since.IsZero() {
		t.worked += time.Since(t.since)
		t.since = time.Time{}
	}
}

// End ends the turn, even while the request waits. Further calls do nothing.
func (t *SecondChanceTurn) End() {
	if t.ended {
		return
	}
	t.ended = true
	t.stop()
	time.AfterFunc(min(restFactor*t.worked, maxRest), func() { <-t.second.turn })
}

func (l *Limit) tooManyError(x *rate.Limiter, now time.Time) error {
	e := brig.Errorf(brig.RateLimited, "too many requests of this kind from this address").WithHint("wait, and try again")
	e.RetryAfter = max(time.Duration((1-x.TokensAt(now))/float64(l.rate)*float64(time.Second)), time.Millisecond)
	return e
}

func (l *Limit) findLimiter(addr string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byAddress[addr]; ok {
		l.order.MoveToFront(e)
		return e.Value.(limited).Limiter
	}
	if l.order.Len() >= maxLimited {
		oldest := l.order.Back()
		delete(l.byAddress, l.order.Remove(oldest).(limited).addr)
	}
	x := limited{addr, rate.NewLimiter(l.rate, l.burst)}
	l.byAddress[addr] = l.order.PushFront(x)
	return x.Limiter
}
