package e2b

import (
	"iter"
	"maps"
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

// all returns a copy of the set.
func (k *knownIDs) all() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string]bool{}
	maps.Copy(ids, k.ids)
	return ids
}

// candidates are the ids of sandboxes that may run, each once.
func (d *Door) candidates() iter.Seq[string] {
	ids := d.known.all()
	if d.Live != nil {
		for _, id := range d.Live() {
			ids[id] = true
		}
	}
	return maps.Keys(ids)
}
