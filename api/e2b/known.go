package e2b

import (
	"iter"
	"sync"
)

// maxKnown bounds how many ids are remembered, and with that how much work a
// signature makes that nobody has made: some milliseconds.
const maxKnown = 10_000

// knownIDs are the sandboxes that this door has met.
type knownIDs struct {
	mu  sync.Mutex // guards the field below
	ids map[string]bool
}

func (k *knownIDs) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]bool{}
	}
	if len(k.ids) >= maxKnown {
		for old := range k.ids {
			delete(k.ids, old) // any: whoever is used again comes back
			break
		}
	}
	k.ids[id] = true
}

func (k *knownIDs) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ids, id)
}

func (k *knownIDs) list() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := make([]string, 0, len(k.ids))
	for id := range k.ids {
		ids = append(ids, id)
	}
	return ids
}

// candidates are the ids of sandboxes that may run.
func (d *Door) candidates() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, id := range d.known.list() {
			if !yield(id) {
				return
			}
		}
		if d.Live == nil {
			return
		}
		for _, id := range d.Live() {
			if !yield(id) {
				return
			}
		}
	}
}
