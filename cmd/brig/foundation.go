package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/brig-run/brig"
)

// grantSeedFile has the secret with which grants are signed.
const grantSeedFile = "grant.seed"

// foundations make sure of what a server needs before it serves: the
// operator's tenant and key, and the secret with which grants are signed.
func foundations(ctx context.Context, dir string, store brig.Store) (grants []byte, err error) {
	if err := founded(ctx, store); err != nil {
		return nil, err
	}
	if err := adminKey(ctx, dir, store); err != nil {
		return nil, err
	}
	seed, err := secretFile(filepath.Join(dir, grantSeedFile), "the seed of grants", func() string { return randomHex(32) })
	return []byte(seed), err
}

// founded makes sure that the operator's tenant exists, which has no quota.
func founded(ctx context.Context, store brig.Store) error {
	_, err := store.GetTenant(ctx, tenant)
	if brig.KindOf(err) != brig.NotFound {
		return err
	}
	return store.PutTenant(ctx, &brig.Tenant{Name: tenant, Created: time.Now().UTC()})
}

// putFileKey makes a key that is in a file one of the server's. Its id is made
// of it, so that it stays the same.
func putFileKey(ctx context.Context, store brig.Store, secret string, a brig.Actor, kind brig.KeyKind) error {
	hash := sha256.Sum256([]byte(secret))
	a.Key = "k" + hex.EncodeToString(hash[:10])
	k := brig.Key{ID: a.Key, Hash: hash, Kind: kind, Prefix: secret[:9], Actor: a, Created: time.Now().UTC()}
	if old, err := store.FindKey(ctx, hash); err == nil {
		k.Used = old.Used
		if !old.Created.IsZero() {
			k.Created = old.Created
		}
	}
	return store.PutKey(ctx, k)
}
