package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestPullsAreQueued checks the limits of concurrent pulls: a few run at the
// same time, some more wait in a queue, and the rest are refused.
func TestPullsAreQueued(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	img := imageOf(t, smallArchive(t))
	var refs []string
	for i := range maxConcurrentPulls + maxQueuedPulls + 1 {
		refs = append(refs, h.push(img, fmt.Sprintf("x:%d", i)))
	}
	var mu sync.Mutex
	asking, maximum := 0, 0
	gate := make(chan struct{})
	h.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		mu.Lock()
		asking++
		maximum = max(maximum, asking)
		mu.Unlock()
		<-gate
		mu.Lock()
		asking--
		mu.Unlock()
		return false
	})
	var wg sync.WaitGroup
	errs, cancels := make([]error, len(refs)-1), make([]context.CancelFunc, len(refs)-1)
	waits := make(chan int, len(refs))
	for i := range errs {
		var ctx context.Context
		ctx, cancels[i] = context.WithCancel(t.Context())
		defer cancels[i]()
		wg.Go(func() {
			_, errs[i] = a.store.Pull(ctx, brig.ImagePull{Ref: refs[i]}, func(p brig.Progress) {
				if strings.HasPrefix(p.Step, "wait") {
					waits <- i
				}
			})
		})
	}
	canceled := <-waits
	for active := 0; active < len(errs); time.Sleep(time.Millisecond) {
		a.store.flights.mu.Lock()
		active = a.store.flights.active
		a.store.flights.mu.Unlock()
	}
	_, err := a.pull(t, refs[len(errs)])
	a.checkRefused(t, err, brig.RateLimited, "", "36 images are being pulled")
	// A caller that joins a running pull does not count as another pull.
	joined, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if _, err := a.store.Pull(joined, brig.ImagePull{Ref: refs[0]}, nil); brig.KindOf(err) != brig.Timeout {
		t.Errorf("who joins: %v", err)
	}
	cancels[canceled]() // a queued caller may leave and free its place
	for active := 99; active > len(errs)-1; time.Sleep(time.Millisecond) {
		a.store.flights.mu.Lock()
		active = a.store.flights.active
		a.store.flights.mu.Unlock()
	}
	wg.Go(func() { _, err = a.pull(t, refs[len(errs)]) })
	for n := 0; n < maxConcurrentPulls; time.Sleep(time.Millisecond) {
		mu.Lock()
		n = asking
		mu.Unlock()
	}
	close(gate)
	wg.Wait()
	if brig.KindOf(errs[canceled]) != brig.Canceled {
		t.Errorf("who went: %v", errs[canceled])
	}
	errs[canceled] = err // the error of the pull that took its place
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if maximum != maxConcurrentPulls {
		t.Errorf("%d were pulled at once, want %d", maximum, maxConcurrentPulls)
	}
	if a.store.flights.active != 0 || len(a.store.flights.slots) != 0 {
		t.Errorf("%d go on, %d places are taken", a.store.flights.active, len(a.store.flights.slots))
	}
}

// A tenant whose registry does not answer holds half of the slots. Other tenants and operators
// can still pull.
func TestSlowPullsHoldAtMostHalfOfSlots(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	a.store.opts.PullMissing, a.store.opts.Registries = true, []string{h.host}
	img := imageOf(t, smallArchive(t))
	var refs []string
	for i := range maxConcurrentPulls + 2 {
		refs = append(refs, h.push(img, fmt.Sprintf("slow:%d", i)))
	}
	fast := []string{h.push(img, "fast:1"), h.push(img, "fast:2")}
	end := make(chan struct{})
	h.setIntercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/slow/") {
			<-end
		}
		return false
	})
	as := func(tenant string) context.Context {
		return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: tenant, Role: brig.Member})
	}
	var wg sync.WaitGroup
	for _, ref := range refs {
		wg.Go(func() { _, _ = a.store.PullMissing(as("acme"), ref) })
	}
	for active := 0; active < len(refs); time.Sleep(time.Millisecond) {
		a.store.flights.mu.Lock()
		active = a.store.flights.active
		a.store.flights.mu.Unlock()
	}
	if _, err := a.store.PullMissing(as("other"), fast[0]); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := a.pull(t, fast[1]); err != nil {
		t.Errorf("an operator: %v", err)
	}
	close(end)
	wg.Wait()
	if n := len(a.store.flights.tenants); n != 0 {
		t.Errorf("%d tenants are still known", n)
	}
}

// A tenant whose registry does not respond does not starve other tenants and operators in the
// queue.
func TestPullQueueIsFair(t *testing.T) {
	t.Parallel()
	var fs flights
	end := make(chan struct{})
	work := func(context.Context, func(brig.Progress)) (*brig.Image, error) { <-end; return &brig.Image{}, nil }
	var wg sync.WaitGroup
	n := 0
	join := func(tenant string, missing bool) error {
		n++
		ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: tenant, Role: brig.Member})
		k := flightKey{pull: brig.ImagePull{Ref: fmt.Sprint("x:", n)}, missing: missing}
		fl, err := fs.join(ctx, k, work)
		if err == nil {
			wg.Go(func() { <-fl.done; fs.leave(k, fl) })
		}
		return err
	}
	for _, tenant := range []string{"acme", "rival"} {
		for range maxConcurrentPulls + maxQueuedPulls {
			_ = join(tenant, true)
		}
		if fs.tenants[tenant].active < maxConcurrentPulls {
			t.Errorf("%s has %d pulls", tenant, fs.tenants[tenant].active)
		}
	}
	for range maxConcurrentPulls {
		if err := join("other", true); err != nil {
			t.Errorf("a third tenant: %v", err)
		}
	}
	for range maxQueuedPulls {
		if err := join("", false); err != nil {
			t.Fatalf("an operator: %v", err)
		}
	}
	for i := range maxQueuedPulls {
		_ = join(fmt.Sprint("t", i), true)
	}
	if err := join("one-more", true); brig.KindOf(err) != brig.RateLimited || fs.active > 2*(maxConcurrentPulls+maxQueuedPulls) {
		t.Errorf("%d pulls, %v", fs.active, err)
	}
	close(end)
	wg.Wait()
	if fs.active != 0 || fs.missed != 0 || len(fs.tenants) != 0 {
		t.Errorf("at the end: %d, %d of missing images, %d tenants", fs.active, fs.missed, len(fs.tenants))
	}
}

// A pull from a registry that trickles data is aborted, like a pull from a registry that sends no
// data.
func TestTricklingRegistryTimesOut(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	a.store.opts.stall = 200 * time.Millisecond
	ref := h.push(imageOf(t, tarOf(t, func(m *maker) { m.addFile("usr/x", strings.Repeat("x", 2<<20)) })), "x:1")
	h.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "1000000")
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte{0})
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
		return true
	})
	done := make(chan error, 1)
	go func() {
		_, err := a.pull(t, ref)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the image was pulled")
		}
	case <-time.After(time.Minute):
		t.Fatal("the pull continues")
	}
	h.setIntercept(nil)
	if _, err := a.pull(t, ref); err != nil {
		t.Errorf("the control: %v", err)
	}
}
