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

// However many images are asked for, a few are pulled at once, some more wait
// and are pulled then, and the rest are refused.
func TestPullsInLine(t *testing.T) {
	t.Parallel()
	h, a := newHub(t), newArena(t)
	img := imageOf(t, small(t))
	var refs []string
	for i := range atOnce + mostInLine + 1 {
		refs = append(refs, h.push(img, fmt.Sprintf("x:%d", i)))
	}
	var mu sync.Mutex
	asking, most := 0, 0
	gate := make(chan struct{})
	h.put(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		mu.Lock()
		asking++
		most = max(most, asking)
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
	gone := <-waits
	for going := 0; going < len(errs); time.Sleep(time.Millisecond) {
		a.store.flights.mu.Lock()
		going = a.store.flights.going
		a.store.flights.mu.Unlock()
	}
	_, err := a.pull(t, refs[len(errs)])
	a.refused(t, err, brig.RateLimited, "", "36 images are being pulled")
	// Who waits for what somebody else pulls is not one more.
	joined, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer leave()
	if _, err := a.store.Pull(joined, brig.ImagePull{Ref: refs[0]}, nil); brig.KindOf(err) != brig.Timeout {
		t.Errorf("who joins: %v", err)
	}
	cancels[gone]() // who waits in line may go, and leaves the place
	for going := 99; going > len(errs)-1; time.Sleep(time.Millisecond) {
		a.store.flights.mu.Lock()
		going = a.store.flights.going
		a.store.flights.mu.Unlock()
	}
	wg.Go(func() { _, err = a.pull(t, refs[len(errs)]) })
	for n := 0; n < atOnce; time.Sleep(time.Millisecond) {
		mu.Lock()
		n = asking
		mu.Unlock()
	}
	close(gate)
	wg.Wait()
	if brig.KindOf(errs[gone]) != brig.Canceled {
		t.Errorf("who went: %v", errs[gone])
	}
	errs[gone] = err // of the one in its place
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if most != atOnce {
		t.Errorf("%d were pulled at once, want %d", most, atOnce)
	}
	if a.store.flights.going != 0 || len(a.store.flights.slots) != 0 {
		t.Errorf("%d go on, %d places are taken", a.store.flights.going, len(a.store.flights.slots))
	}
}
