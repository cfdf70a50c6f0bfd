package main

import (
	"context"
	"crypto/sha256"
	"path/filepath"
	"time"

	"github.com/brig-run/brig"
)

// grantSeedFile contains the secret that signs grants.
const grantSeedFile = "grant.seed"

// bootstrap creates, unless they exist, the records that a server needs
// before it serves: the operator's tenant and API key, and the secret that
// signs grants.
func bootstrap(ctx context.Context, dir string, store brig.Store) (grants []byte, err error) {
	if err := ensureOperatorTenant(ctx, store); err != nil {
		return nil, err
	}
	if err := keyFileSpecs()[0].make(ctx, dir, store); err != nil {
		return nil, err
	}
	seed, err := readSecretFile(filepath.Join(dir, grantSeedFile), "the seed of grants", func() string { return randomHex(32) })
	return []byte(seed), err
}

// ensureOperatorTenant creates the operator's tenant, which has no quota, unless it exists.
func ensureOperatorTenant(ctx context.Context, store brig.Store) error {
	_, err := store.GetTenant(ctx, tenant)
	if brig.KindOf(err) != brig.NotFound {
		return err
	}
	return store.PutTenant(ctx, &brig.Tenant{Name: tenant, Created: time.Now().UTC()})
}

// putFileKey registers a key from a file with the server. The ID is derived
// from the key, so that it is stable.
func putFileKey(ctx context.Context, store brig.Store, secret string, a brig.Actor, kind brig.KeyKind) error {
	hash := sha256.Sum256([]byte(secret))
	a.Key = fileKeyID(secret)
	k := brig.Key{ID: a.Key, Hash: hash, Kind: kind, Prefix: secret[:9], Actor: a, Created: time.Now().UTC()}
	if old, err := store.FindKey(ctx, hash); err == nil {
		k.Used = old.Used
		if !old.Created.IsZero() {
			k.Created = old.Created
		}
	}
	return store.PutKey(ctx, k)
}
