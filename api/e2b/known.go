package e2b

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// maxCachedSandboxes is the maximum number of cached ids. It also limits the
// work that a wrong signature causes.
const maxCachedSandboxes = 10_000

// sandboxCache caches the ids of the sandboxes that this API has served, and of
// those that existed before it.
type sandboxCache struct {
	mu  sync.Mutex                 // guards the fields below
	ids map[string]string          // the tenant of each id; empty if it is not known yet
	by  map[string]map[string]bool // ids of the keys that received a sandbox's token
	// keys are the keys that may have received a token of a tenant's sandboxes.
	keys map[string]*tenantKeys
	// loaded reports whether ids contains the sandboxes that existed before this
	// API.
	loaded bool
}

// tenantKeys are the ids of a tenant's keys.
type tenantKeys struct {
	ids    map[string]bool
	loaded bool // ids contains the keys that existed before this API
}

const (
	// maxKeysPerSandbox limits the cached keys of one sandbox.
	maxKeysPerSandbox = 100
	// maxKeysPerTenant limits the cached keys of one tenant. It exceeds the
	// number of keys that a tenant may have.
	maxKeysPerTenant = 4000
)

// recordKey records that the holder of a key received the token of a tenant's
// sandbox.
func (k *sandboxCache) recordKey(id, tenant, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addLocked(id, tenant)
	if k.by == nil {
		k.by = map[string]map[string]bool{}
	}
	if k.by[id] == nil || len(k.by[id]) >= maxKeysPerSandbox {
		k.by[id] = map[string]bool{}
	}
	k.by[id][key] = true
	k.addKeysLocked(tenant, key)
}

// addKeysLocked adds keys of a tenant. If there are too many, it drops the
// earlier ones, which are loaded again when needed.
func (k *sandboxCache) addKeysLocked(tenant string, keys ...string) *tenantKeys {
	if k.keys == nil {
		k.keys = map[string]*tenantKeys{}
	}
	of := k.keys[tenant]
	if of == nil || len(of.ids) >= maxKeysPerTenant {
		of = &tenantKeys{ids: map[string]bool{}}
		k.keys[tenant] = of
	}
	for _, key := range keys {
		of.ids[key] = true
	}
	return of
}

// addKeys adds the keys of a tenant that the store contains.
func (k *sandboxCache) addKeys(tenant string, keys []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addKeysLocked(tenant, keys...).loaded = true
}

// keysOf returns the cached keys of a tenant. loaded reports whether they
// include those of the store.
func (k *sandboxCache) keysOf(tenant string) (keys []string, loaded bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.keys[tenant]
	if of == nil {
		return nil, false
	}
	return slices.Collect(maps.Keys(of.ids)), of.loaded
}

// receivers returns the ids of the keys that received a sandbox's token from
// this API. It also returns the empty id, which represents tokens that belong
// to no key.
func (k *sandboxCache) receivers(id string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(slices.Collect(maps.Keys(k.by[id])), "")
}

// add adds a sandbox, whose tenant may be empty.
func (k *sandboxCache) add(id, tenant string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addLocked(id, tenant)
}

func (k *sandboxCache) addLocked(id, tenant string) {
	if k.ids == nil {
		k.ids = map[string]string{}
	}
	cachedTenant, cached := k.ids[id]
	if !cached && len(k.ids) >= maxCachedSandboxes {
		for old := range k.ids {
			delete(k.by, old)
			delete(k.ids, old) // an arbitrary id: it is added again when it is used
			break
		}
	}
	k.ids[id] = cmp.Or(tenant, cachedTenant)
}

// load calls existing once and adds the ids that it returns.
func (k *sandboxCache) load(existing func() ([]string, error)) error {
	k.mu.Lock()
	loaded := k.loaded
	k.mu.Unlock()
	if loaded {
		return nil
	}
	ids, err := existing()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loaded = true
	for _, id := range ids {
		k.addLocked(id, "")
	}
	return nil
}

func (k *sandboxCache) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.by, id)
	delete(k.ids, id)
}

// copyIDs returns a copy of the ids with their tenants.
func (k *sandboxCache) copyIDs() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := map[string]string{}
	maps.Copy(ids, k.ids)
	return ids
}

// candidates returns the ids of sandboxes that may exist, with their tenants. A
// tenant is empty if it is not known yet.
func (k *tokens) candidates() map[string]string {
	ids := k.cache.copyIDs()
	if k.Live != nil {
		for _, id := range k.Live() {
			if _, cached := ids[id]; !cached {
				ids[id] = ""
			}
		}
	}
	return ids
}
