package guest

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/brig-run/brig"
)

// testBudget is a budget of a fixed size.
type testBudget struct {
	mu         sync.Mutex // guards the fields below
	size, held int
	peak       int
}

func (b *testBudget) Charge(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held+n > b.size {
		return false
	}
	b.held += n
	b.peak = max(b.peak, b.held)
	return true
}

func (b *testBudget) Refund(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}

// sendPart adds size bytes without a line feed, and returns the first error.
func sendPart(b *messageBuffer, size int) error {
	part := bytes.Repeat([]byte("x"), pipeCapacity)
	for ; size > 0; size -= len(part) {
		if err := b.add(part[:min(size, len(part))]); err != nil {
			return err
		}
	}
	return nil
}

// TestMessageBudgetIsRefunded verifies that a buffer is charged to its budget, and that the charge
// is refunded when the message was received, when the buffer is closed, and after an error.
func TestMessageBudgetIsRefunded(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		size  int
		after func(t *testing.T, b *messageBuffer)
		least int // the charge before that
		kind  brig.Kind
	}{
		"a small message":           {freeMessages / 2, func(*testing.T, *messageBuffer) {}, 0, ""},
		"a message that is closed":  {2 * mib, func(_ *testing.T, b *messageBuffer) { b.close() }, 2*mib - freeMessages, ""},
		"a message beyond a budget": {9 * mib, func(*testing.T, *messageBuffer) {}, 0, brig.FailedPrecondition},
		"a received message": {3 * mib, func(t *testing.T, b *messageBuffer) {
			if err := b.add([]byte("end\nnext")); err != nil {
				t.Error(err)
			}
			if line, ok := b.line(); !ok || len(line) != 3*mib+3 {
				t.Errorf("received %d bytes, %v", len(line), ok)
			}
			if line, ok := b.line(); ok {
				t.Errorf("received half a message: %q", line)
			}
			if err := b.add([]byte("\n")); err != nil {
				t.Error(err)
			}
			if line, ok := b.line(); !ok || string(line) != "next" {
				t.Errorf("received %q, %v", line, ok)
			}
		}, 3*mib - freeMessages, ""},
		"a message whose end comes with the next one": {3 * mib, func(t *testing.T, b *messageBuffer) {
			if err := b.add([]byte("\nend\n")); err != nil {
				t.Error(err)
			}
			for _, want := range []int{3 * mib, 3} {
				if line, ok := b.line(); !ok || len(line) != want {
					t.Errorf("received %d bytes, want %d", len(line), want)
				}
			}
		}, 3*mib - freeMessages, ""},
		"messages whose parts arrive one by one": {3 * mib, func(t *testing.T, b *messageBuffer) {
			for range 3 { // like the messages of a carried process
				if err := b.add([]byte("\n")); err != nil {
					t.Error(err)
				}
				if _, ok := b.line(); !ok {
					t.Error("received no message")
				}
			}
			if cap(b.data) > freeMessages {
				t.Errorf("an empty buffer keeps %d bytes", cap(b.data))
			}
		}, 3*mib - freeMessages, ""},
		"a free message beside a full budget": {freeMessages - 1, func(t *testing.T, b *messageBuffer) {
			if err := b.add([]byte("\n")); err != nil {
				t.Error(err)
			}
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			budget := &testBudget{size: 8 * mib}
			b := &messageBuffer{}
			b.limit(budget)
			if err := sendPart(b, c.size); brig.KindOf(err) != c.kind {
				t.Fatalf("the error is %v, want kind %q", err, c.kind)
			}
			if budget.held < c.least || budget.held > 2*c.size || c.kind != "" && budget.held != 0 {
				t.Errorf("%d bytes of %d are charged", budget.held, c.size)
			}
			if c.kind != "" && b.add([]byte("x")) == nil {
				t.Error("the buffer accepts data after an error")
			}
			c.after(t, b)
			if budget.held != 0 {
				t.Errorf("%d bytes remain charged", budget.held)
			}
		})
	}
}

// TestMessageBufferMemoryIsBounded fills the buffers of many processes and measures the heap. The
// control has no budget.
func TestMessageBufferMemoryIsBounded(t *testing.T) {
	const processes, size, bound = 32, 3 << 20, 16 << 20
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, budget := range map[string]brig.MessageBudget{"bounded": &testBudget{size: bound}, "control": nil} {
		before, refused := heap(), 0
		buffers := make([]messageBuffer, processes)
		for i := range buffers {
			if budget != nil {
				buffers[i].limit(budget)
			}
			if sendPart(&buffers[i], size) != nil {
				refused++
			}
		}
		grown := heap() - before
		t.Logf("%s: the heap grew by %d MiB, %d processes were refused", name, grown>>20, refused)
		if want := budget != nil; want != (grown < bound+processes*freeMessages) || want != (refused > 0) {
			t.Errorf("%s: the heap grew by %d bytes, %d processes were refused", name, grown, refused)
		}
		runtime.KeepAlive(buffers)
	}
}
