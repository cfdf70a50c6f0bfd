package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/webhook"
)

const secret = "0123456789abcdef"

var when = time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)

// received is one request to a receiver.
type received struct {
	event, kind, delivery string
	at                    time.Time
}

// receiver records the deliveries that it gets, and responds as a test wants.
type receiver struct {
	t       *testing.T
	server  *httptest.Server
	respond func(n int, w http.ResponseWriter, r *http.Request)

	mu  sync.Mutex
	got []received
}

func newReceiver(t *testing.T, respond func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{t: t, respond: respond}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, rq *http.Request) {
	b, err := io.ReadAll(rq.Body)
	var p struct{ ID, Type string }
	if err != nil || json.Unmarshal(b, &p) != nil {
		r.t.Errorf("body %q, %v", b, err)
	}
	if got := rq.Header.Get(webhook.E2BSignature); got != webhook.SignE2B(secret, b) {
		r.t.Errorf("signature %q", got)
	}
	if got := rq.Header.Get(webhook.Signature); !strings.HasPrefix(got, "t=") {
		r.t.Errorf("signature %q", got)
	}
	r.mu.Lock()
	r.got = append(r.got, received{p.ID, p.Type, rq.Header.Get("E2b-Delivery-Id"), time.Now()})
	n := len(r.got)
	r.mu.Unlock()
	if r.respond != nil {
		r.respond(n, w, rq)
	}
}

func (r *receiver) list() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// kinds returns the last parts of the types that a receiver has got.
func (r *receiver) kinds() string {
	var out []string
	for _, x := range r.list() {
		out = append(out, strings.TrimPrefix(x.kind, "sandbox.lifecycle."))
	}
	return strings.Join(out, " ")
}

// fixture is a store with a webhook of the tenant "t".
type fixture struct {
	*mem.Store
	t       *testing.T
	options webhook.Options
}

func newFixture(t *testing.T) *fixture {
	s := mem.New()
	return &fixture{s, t, webhook.Options{
		Store: s, Open: func(*brig.Webhook) ([]byte, error) { return []byte(secret), nil }, Private: true,
		Interval: 5 * time.Millisecond, RetryDelay: 10 * time.Millisecond, Timeout: time.Second,
	}}
}

func (f *fixture) addHook(url string, types ...brig.LifecycleType) *brig.Webhook {
	f.t.Helper()
	w := &brig.Webhook{ID: "6f1c2f0a-0000-4000-8000-000000000001", Tenant: "t", Name: "hook", URL: url, Enabled: true, Types: types, Created: when}
	if err := f.PutWebhook(f.t.Context(), w); err != nil {
		f.t.Fatal(err)
	}
	return w
}

// addEvents adds lines to the audit log: of events, and of other calls between them.
func (f *fixture) addEvents(ops ...string) {
	f.t.Helper()
	for _, op := range ops {
		phase := brig.Finish
		if op == brig.EndOp {
			phase = brig.Observed
		}
		if err := f.Append(f.t.Context(),
			brig.Event{At: when, Op: op, Tenant: "t", Sandbox: "sb1", Phase: phase, Detail: map[string]string{brig.DetailName: "one"}},
			brig.Event{At: when, Op: brig.OpExec.Name, Tenant: "t", Sandbox: "sb1", Phase: brig.Finish},
			brig.Event{At: when, Op: op, Tenant: "other", Sandbox: "sb9", Phase: phase}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// run delivers until the function done returns true.
func (f *fixture) run(what string, done func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	var group sync.WaitGroup
	group.Go(func() { webhook.New(f.options).Run(ctx) })
	defer group.Wait()
	defer cancel()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%s: not done", what)
		}
	}
}

func (f *fixture) current() *brig.Webhook {
	f.t.Helper()
	all, err := f.Webhooks(f.t.Context(), "t")
	if err != nil || len(all) != 1 {
		f.t.Fatalf("webhooks %v, %v", all, err)
	}
	return all[0]
}

// isCaughtUp reports whether the webhook has all of its events.
func (f *fixture) isCaughtUp() bool {
	w := f.current()
	lines, err := f.Audit(f.t.Context(), "t", brig.AuditQuery{After: w.Seq})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, l := range lines {
		if e, ok := brig.LifecycleOf(l); ok && (brig.LifecycleQuery{Types: w.Types}).Includes(e) {
			return false
		}
	}
	return true
}

// Events arrive in order and once, also after a restart, and those of other tenants and other types do not.
func TestDeliversInOrder(t *testing.T) {
	f, r := newFixture(t), newReceiver(t, nil)
	f.addHook(r.server.URL, brig.LifecycleCreated, brig.LifecyclePaused, brig.LifecycleEnded)
	f.addEvents(brig.OpCreate.Name, brig.OpExtend.Name, brig.OpPause.Name)
	f.run("the first events", f.isCaughtUp)
	f.addEvents(brig.OpResume.Name, brig.EndOp)
	f.run("the next events", f.isCaughtUp)
	if got := r.kinds(); got != "created paused killed" {
		t.Errorf("received %q", got)
	}
	ids := map[string]bool{}
	for _, x := range r.list() {
		ids[x.event], ids[x.delivery] = true, true
	}
	if len(ids) != 6 {
		t.Errorf("IDs %v", ids)
	}
	list, err := f.Deliveries(t.Context(), "t", f.current().ID)
	if err != nil || len(list) != 3 || !list[0].Delivered || list[0].Status != 200 || list[0].Type != brig.LifecycleEnded || list[0].Attempts != 1 {
		t.Errorf("deliveries %+v, %v", list, err)
	}
}

// An event is tried again with the same IDs until the receiver confirms it, and later events wait.
func TestRetriesUntilConfirmed(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request){
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"a closed connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"silence": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
		"an endless response": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 4096)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.options.Timeout = 200 * time.Millisecond
			r := newReceiver(t, func(n int, w http.ResponseWriter, rq *http.Request) {
				if n <= 3 {
					fail(w, rq)
				}
			})
			f.addHook(r.server.URL)
			f.addEvents(brig.OpCreate.Name, brig.EndOp)
			f.run("all events", f.isCaughtUp)
			got := r.list()
			if len(got) != 5 || r.kinds() != "created created created created killed" {
				t.Fatalf("received %q", r.kinds())
			}
			for _, x := range got[:4] {
				if x.event != got[0].event || x.delivery != got[0].delivery {
					t.Errorf("other IDs: %+v, %+v", x, got[0])
				}
			}
			if d := got[3].at.Sub(got[2].at); d < 40*time.Millisecond {
				t.Errorf("the third retry came after %v", d)
			}
			list, err := f.Deliveries(t.Context(), "t", f.current().ID)
			if err != nil || len(list) != 2 || list[1].Attempts != 4 || !list[1].Delivered || !f.current().FailingSince.IsZero() {
				t.Errorf("deliveries %+v, %v", list, err)
			}
		})
	}
}

// An event that cannot be delivered is abandoned, and the next ones are delivered.
func TestAbandonsEvent(t *testing.T) {
	f := newFixture(t)
	f.options.GiveUp = 50 * time.Millisecond
	first := ""
	r := newReceiver(t, nil)
	r.respond = func(_ int, w http.ResponseWriter, _ *http.Request) {
		got := r.list()
		if first == "" {
			first = got[0].event
		}
		if got[len(got)-1].event == first {
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	f.addHook(r.server.URL)
	f.addEvents(brig.OpCreate.Name, brig.EndOp)
	f.run("all events", f.isCaughtUp)
	list, err := f.Deliveries(t.Context(), "t", f.current().ID)
	if err != nil || len(list) != 2 || list[1].Delivered || list[1].Status != 400 || list[1].Error == "" || !list[0].Delivered {
		t.Errorf("deliveries %+v, %v", list, err)
	}
}

// A server that ends during an attempt loses no event: the next one delivers it again.
func TestRestartDuringDelivery(t *testing.T) {
	f := newFixture(t)
	arrived := make(chan struct{}, 1)
	r := newReceiver(t, func(n int, _ http.ResponseWriter, rq *http.Request) {
		if n == 1 {
			arrived <- struct{}{}
			<-rq.Context().Done()
		}
	})
	f.addHook(r.server.URL)
	f.addEvents(brig.OpCreate.Name)
	f.run("the attempt", func() bool {
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	f.run("the event", f.isCaughtUp)
	if got := r.list(); len(got) != 2 || got[0] != (received{got[1].event, got[1].kind, got[1].delivery, got[0].at}) {
		t.Errorf("received %+v", got)
	}
}

// Receivers at private addresses get nothing unless the operator permits them, and the error does not name
// the address.
func TestPrivateReceiversAreRefused(t *testing.T) {
	f, r := newFixture(t), newReceiver(t, nil)
	f.options.Private = false
	f.addHook(r.server.URL)
	f.addEvents(brig.OpCreate.Name)
	var list []*brig.Delivery
	f.run("an attempt", func() bool {
		var err error
		if list, err = f.Deliveries(t.Context(), "t", f.current().ID); err != nil {
			t.Fatal(err)
		}
		return len(list) > 0
	})
	if len(r.list()) > 0 || list[0].Delivered || strings.Contains(list[0].Error, "127.") || !strings.Contains(list[0].Error, "public") {
		t.Errorf("received %v, delivery %+v", r.list(), list[0])
	}
}

// A webhook that does not respond does not delay another one.
func TestSlowReceiverDelaysNoOther(t *testing.T) {
	f := newFixture(t)
	f.options.Timeout = time.Minute
	slow := newReceiver(t, func(_ int, _ http.ResponseWriter, rq *http.Request) { <-rq.Context().Done() })
	fast := newReceiver(t, nil)
	for i, url := range []string{slow.server.URL, fast.server.URL} {
		if err := f.PutWebhook(t.Context(), &brig.Webhook{ID: fmt.Sprint(i), Tenant: "t", URL: url, Enabled: true, Created: when}); err != nil {
			t.Fatal(err)
		}
	}
	f.addEvents(brig.OpCreate.Name, brig.OpPause.Name, brig.EndOp)
	f.run("the fast receiver", func() bool { return fast.kinds() == "created paused killed" })
}
