package e2b

import (
	"iter"
	"maps"
	"slices"
	"sync"
)

// maxCachedSandboxes is the maximum number of cached ids. It also limits the
// work that a wrong signature causes to a few milliseconds.
const maxCachedSandboxes = 10_000

// sandboxCache caches the ids of the sandboxes that this API has served.
type sandboxCache struct {
	mu  sync.Mutex // guards the fields below
	ids map[string]bool
	by  map[string]map[string]bool // ids of the keys that received a sandbox's token
}

// maxKeysPerSandbox limits the cached keys of one sandbox.
const maxKeysPerSandbox = 100

// recordKey records that the holder of a key received a sandbox's token.
func (k *sandboxCache) recordKey(id, key string) {
	k.add(id)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[string]map[string]bool{}
	}
	if k.by[id] == nil || len(k.by[id]) >= maxKeysPerSandbox {
		k.by[id] = map[string]bool{}
	}
	k.by[id][key] = true
}

// keys returns the ids of the keys that received a sandbox's token, and the
// empty id, which represents tokens that belong to no key.
func (k *sandboxCache) keys(id string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(slices.Collect(maps.Keys(k.by[id])), "")
}

func (k *sandboxCache) add(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = map[string]bool{}
	}
	if len(k.ids) >= maxCachedSandboxes {
		for old := range k.ids {
			delete(k.by, old)
			delete(k.ids, old) // an arbitrary id: it is added again when it is used
			break
		}
	}
	k.ids[id] = true
}

func (k *sandboxCache) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, id)
	delete(k.ids, id)
}

// copyIDs returns a copy of the set.
func (k *sandboxCache) copyIDs() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string]bool{}
	maps.Copy(ids, k.ids)
	return ids
}

// candidates returns the ids of sandboxes that may be running, each once.
func (k *tokens) candidates() iter.Seq[string] {
	ids := k.cache.copyIDs()
	if k.Live != nil {
		for _, id := range k.Live() {
			ids[id] = true
		}
	}
	return maps.Keys(ids)
}
