package egress

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// One inspected HTTP/2 connection opens at most as many connections to its host
// as the limit allows, and releases them all. The host speaks HTTP/1, so each
// request needs a connection.
func TestInspectedConnectionsAreLimited(t *testing.T) {
	const limit, requests = 8, 20
	run := func(t *testing.T, counted bool) (dialed int64, responses int, s *Session) {
		entered, leave := make(chan struct{}, requests), make(chan struct{})
		l := newLab(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			entered <- struct{}{}
			<-leave
			_, _ = io.WriteString(w, "here")
		}))
		l.server.TLS.NextProtos = []string{"http/1.1"}
		s = &Session{Options: Options{ConnLimiter: NewConnLimiter(limit)}, flows: map[*flow]struct{}{}}
		if reason := s.reserve(); reason != "" { // the guest's own connection
			t.Fatal(reason)
		}
		if counted {
			l.reserveConn = s.reserveConnection
		}
		c := l.client(true)
		var mu sync.Mutex
		var wg sync.WaitGroup
		statuses := map[int]int{}
		for range requests {
			wg.Go(func() {
				resp, err := c.Do(l.request(http.MethodGet, "/", nil))
				status := 0
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					status = resp.StatusCode
				}
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			})
		}
		refused := func() int {
			mu.Lock()
			defer mu.Unlock()
			return statuses[http.StatusBadGateway]
		}
		for end := time.Now().Add(time.Minute); len(entered)+refused() < requests; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d requests are at the host, %d were refused", len(entered), refused())
			}
		}
		dialed = l.dials.Load()
		if counted && s.ConnLimiter.open.Load() != limit {
			t.Errorf("the room has %d connections, want %d", s.ConnLimiter.open.Load(), limit)
		}
		close(leave)
		wg.Wait()
		l.stop() // ends the inspection, and closes its connections
		return dialed, statuses[http.StatusOK], s
	}
	dialed, responses, s := run(t, true)
	if dialed != limit || responses != limit {
		t.Errorf("there were %d connections to the host and %d answers, want %d", dialed, responses, limit)
	}
	for end := time.Now().Add(time.Minute); s.ConnLimiter.open.Load() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the room has %d connections after the end, want the guest's own", s.ConnLimiter.open.Load())
		}
	}
	if s.more != 0 {
		t.Errorf("the sandbox still has %d further connections", s.more)
	}
	t.Run("not counted", func(t *testing.T) {
		if dialed, _, _ := run(t, false); dialed <= limit {
			t.Errorf("the control made %d connections only", dialed)
		}
	})
}
