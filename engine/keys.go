package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

const (
	// maxKeys is how many keys a tenant may have.
	maxKeys = 1000
	// maxKeyTTL is the longest that a key with an end may be good for.
	maxKeyTTL = 10 * 365 * 24 * time.Hour
	// touchEvery is how coarse the time of a key's last use is.
	touchEvery = time.Minute
	// shownOfKey is how much of a key may be shown.
	shownOfKey = 9
)

// KeyActor says whose a key is, while it is good. It is what doors ask, and
// everything that ends a key's use shows here at once.
func (e *Engine) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	k, err := e.Store.FindKey(ctx, hash)
	if err != nil {
		return brig.Actor{}, err
	}
	return e.vouch(ctx, k)
}

// KeyByID is KeyActor for whoever knows the key by its id alone, and has shown
// something that is bound to it.
func (e *Engine) KeyByID(ctx context.Context, id string) (brig.Actor, error) {
	k, err := e.Store.GetKey(ctx, id)
	if brig.KindOf(err) == brig.NotFound {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the key was revoked").WithHint("ask an administrator for a new one")
	}
	if err != nil {
		return brig.Actor{}, err
	}
	return e.vouch(ctx, k)
}

// vouch returns the actor of a key that is on record, if it is good now.
func (e *Engine) vouch(ctx context.Context, k *brig.Key) (brig.Actor, error) {
	now := e.Now()
	if end := k.Actor.Expires; !end.IsZero() && !now.Before(end) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the key has expired").WithHint("ask an administrator for a new one")
	}
	if err := e.mayExist(ctx, k.Actor.Tenant); err != nil {
		return brig.Actor{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.touched[k.ID]) >= touchEvery && now.Sub(k.Used) >= touchEvery {
		e.usedKeys[k.ID], e.touched[k.ID] = now.UTC(), now
	}
	return k.Actor, nil
}

// mayExist reports why nobody can be of a tenant.
func (e *Engine) mayExist(ctx context.Context, tenant string) error {
	_, err := e.account(ctx, tenant)
	if brig.KindOf(err) == brig.NotFound {
		return brig.Errorf(brig.Unauthenticated, "there is no tenant %q any more, or never was", clip(tenant)).
			WithHint("an operator creates tenants with brig tenant create").Because(err)
	}
	return err
}

// CreateKey implements brig.Service.
func (e *Engine) CreateKey(ctx context.Context, spec brig.KeySpec) (_ *brig.NewKey, err error) {
	v, err := e.enter(ctx, brig.OpCreateKey, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	actor, err := e.checkKey(v, &spec)
	if err != nil {
		return nil, err
	}
	e.tenancy.Lock() // so that no key is left of a tenant that is being removed
	defer e.tenancy.Unlock()
	if err := e.mayTenantLocked(ctx, v, actor.Tenant); err != nil {
		return nil, err
	}
	list, err := e.Store.ListKeys(ctx, actor.Tenant)
	if err != nil {
		return nil, err
	}
	if len(list) >= maxKeys {
		return nil, brig.Errorf(brig.FailedPrecondition, "the tenant has %d keys already", maxKeys).WithHint("revoke those that are not used")
	}
	secret := "brig_" + strings.ToLower(rand.Text()+rand.Text())
	if spec.Kind == brig.E2BKey {
		var b [20]byte
		_, _ = rand.Read(b[:]) // never fails
		secret = "e2b_" + hex.EncodeToString(b[:])
	}
	actor.Key = "k" + strings.ToLower(rand.Text())
	k := brig.Key{
		ID: actor.Key, Hash: sha256.Sum256([]byte(secret)), Kind: spec.Kind, Prefix: secret[:shownOfKey],
		Actor: actor, Created: e.Now().UTC(),
	}
	if err := e.Store.PutKey(ctx, k); err != nil {
		return nil, err
	}
	k.Hash = [32]byte{}
	return &brig.NewKey{Key: k, Secret: secret}, nil
}

// checkKey fills in what is asked for, and returns whom such a key proves.
func (e *Engine) checkKey(v *visit, spec *brig.KeySpec) (brig.Actor, error) {
	var none brig.Actor
	if v.actor.Grant != "" {
		return none, brig.Errorf(brig.PermissionDenied, "keys are not made by grants").WithHint("make a narrower grant instead")
	}
	if err := checkKeyName(spec.Name); err != nil {
		return none, err
	}
	switch spec.Kind {
	case "":
		spec.Kind = brig.NativeKey
	case brig.NativeKey, brig.E2BKey:
	default:
		return none, brig.InvalidField("kind", "no keys of kind %q", clip(string(spec.Kind))).WithHint("use brig or e2b")
	}
	if spec.Role < brig.Viewer || spec.Role > brig.Operator {
		return none, brig.InvalidField("role", "the key needs a role").WithHint("use viewer, member, admin or operator")
	}
	if err := brig.CheckScopes(spec.Scopes); err != nil {
		return none, err
	}
	if spec.TTL < 0 || spec.TTL > maxKeyTTL {
		return none, brig.InvalidField("ttl_ms", "%v is out of bounds", spec.TTL).WithHint("give a time up to ten years, or leave it out for none")
	}
	a := brig.Actor{Name: spec.Name, Tenant: spec.Tenant, Role: spec.Role, Scopes: spec.Scopes}
	if a.Tenant == "" {
		a.Tenant = v.actor.Tenant
	}
	e.narrow(v, &a, spec.TTL)
	if !v.actor.Covers(a) {
		return none, errBeyond()
	}
	return a, nil
}

// narrow fills in what a key or grant that the caller makes has of the
// caller's own bounds.
func (e *Engine) narrow(v *visit, a *brig.Actor, ttl time.Duration) {
	if ttl > 0 {
		a.Expires = e.Now().Add(ttl).UTC()
	}
	if end := v.actor.Expires; !end.IsZero() && (a.Expires.IsZero() || a.Expires.After(end)) {
		a.Expires = end
	}
	if len(a.Scopes) == 0 {
		a.Scopes = v.actor.Scopes
	}
	if len(a.Sandboxes) == 0 {
		a.Sandboxes = v.actor.Sandboxes
	}
}

func errBeyond() error {
	return brig.Errorf(brig.PermissionDenied, "that is more than the caller's own rights").
		WithHint("ask for no higher role and no wider scopes than your own")
}

func checkKeyName(name string) error {
	if name == "" || len(name) > 128 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return brig.InvalidField("name", "%q cannot be a key's name", clip(name)).WithHint("say in 1 to 128 bytes whose it is")
	}
	return nil
}

// Keys implements brig.Service.
func (e *Engine) Keys(ctx context.Context, tenant string) (_ []*brig.Key, err error) {
	v, err := e.enter(ctx, brig.OpKeys, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if tenant, err = e.ofTenant(ctx, v, tenant); err != nil {
		return nil, err
	}
	if err := e.flushUsage(ctx); err != nil { // for when they were used
		return nil, err
	}
	list, err := e.Store.ListKeys(ctx, tenant)
	for _, k := range list {
		k.Hash = [32]byte{}
	}
	return list, err
}

// RevokeKey implements brig.Service.
func (e *Engine) RevokeKey(ctx context.Context, id string) (err error) {
	v, err := e.enter(ctx, brig.OpRevokeKey, "")
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	if v.actor.Grant != "" {
		return brig.Errorf(brig.PermissionDenied, "keys are not revoked by grants").WithHint("use a key")
	}
	k, err := e.Store.GetKey(ctx, id)
	if brig.KindOf(err) == brig.NotFound || err == nil && k.Actor.Tenant != v.actor.Tenant && v.actor.Role < brig.Operator {
		return brig.Errorf(brig.NotFound, "no key %q", clip(id)).WithHint("list keys to see their ids")
	}
	if err != nil {
		return err
	}
	if k.Actor.Role > v.actor.Role {
		return brig.Errorf(brig.PermissionDenied, "the key has the role %s, the caller %s", k.Actor.Role, v.actor.Role).
			WithHint("ask an operator")
	}
	return e.Store.DeleteKey(ctx, id)
}
