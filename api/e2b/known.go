package e2b

import (
	"iter"
	"maps"
	"slices"
	"sync"
)

// maxKnown bounds how many ids are remembered, and with that how much work a
// signature makes that nobody has made: some milliseconds.
const maxKnown = 10_000

// knownIDs are the sandboxes that this door has met.
type knownIDs struct {
	mu  sync.Mutex // guards the fields below
	ids map[string]bool
	by  map[string]map[string]bool // the ids of keys that were told a sandbox's token
}

// maxTold bounds the keys that are remembered of one sandbox.
const maxTold = 100

// told remembers that the bearer of a key knows a sandbox's token.
func (k *knownIDs) told(id, key string) {
	k.add(id)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[string]map[string]bool{}
	}
	if k.by[id] == nil || len(k.by[id]) >= maxTold {
		k.by[id] = map[string]bool{}
	}
	k.by[id][key] = true
}

// keys are those that were told a sandbox's token, and none, which is the key
// of tokens that are bound to none.
func (k *knownIDs) keys(id string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(slices.Collect(maps.Keys(k.by[id])), "")
}

func (k *knownIDs) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]bool{}
	}
	if len(k.ids) >= maxKnown {
		for old := range k.ids {
			delete(k.by, old)
			delete(k.ids, old) // any: whoever is used again comes back
			break
		}
	}
	k.ids[id] = true
}

func (k *knownIDs) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, id)
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
