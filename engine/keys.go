package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// identity authenticates callers, and manages tenants, keys and sessions.
type identity struct {
	*gate
	network *network
	flushMu sync.Mutex // held while usage is written

	mu          sync.Mutex           // guards the fields below
	usedKeys    map[string]time.Time // unwritten times of last use, by key ID
	touchedKeys map[string]time.Time // when the last use was last written, by key ID
	// usedSessions and touchedSessions are the equivalent maps by session ID.
	usedSessions, touchedSessions map[string]time.Time
}

const (
	// maxKeyTTL is the maximum lifetime of a key that expires.
	maxKeyTTL = 10 * 365 * 24 * time.Hour
	// touchInterval is the resolution of the time of a key's last use.
	touchInterval = time.Minute
	// keyPrefixLen is the length of the part of a key that may be displayed.
	keyPrefixLen = 9
)

// maxKeys is the maximum number of keys of a tenant.
var maxKeys = 1000

// KeyActor returns the actor of a valid key. API servers call it to
// authenticate callers, so a revocation or an expiry takes effect immediately.
func (d *identity) KeyActor(ctx context.Context, hash [32]byte) (brig.Actor, error) {
	k, err := d.Store.FindKey(ctx, hash)
	if err != nil {
		return brig.Actor{}, err
	}
	a, err := d.actorOfKey(ctx, k)
	return a, brig.MarkGenuine(err)
}

// KeyByID is like KeyActor, for a caller that has only the key's ID and has
// presented a credential that is bound to the key.
func (d *identity) KeyByID(ctx context.Context, id string) (brig.Actor, error) {
	k, err := d.Store.GetKey(ctx, id)
	if brig.KindOf(err) == brig.NotFound {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the key was revoked").WithHint("ask an administrator for a new one")
	}
	if err != nil {
		return brig.Actor{}, err
	}
	return d.actorOfKey(ctx, k)
}

// actorOfKey returns the actor of a stored key, if the key is valid now.
func (d *identity) actorOfKey(ctx context.Context, k *brig.Key) (brig.Actor, error) {
	if d.Clock.HasPassed(k.Actor.Expires) {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the key has expired").WithHint("ask an administrator for a new one")
	}
	created, err := d.tenantCreationTime(ctx, k.Actor.Tenant)
	if err != nil {
		return brig.Actor{}, err
	}
	k.Actor.Founded = created
	now := d.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.touchedKeys[k.ID]) >= touchInterval && now.Sub(k.Used) >= touchInterval {
		d.usedKeys[k.ID], d.touchedKeys[k.ID] = now.UTC(), now
	}
	return k.Actor, nil
}

// tenantCreationTime returns the time at which a tenant was created, or an error if the
// tenant does not exist.
func (d *identity) tenantCreationTime(ctx context.Context, tenant string) (created time.Time, err error) {
	a, err := d.getAccount(ctx, tenant)
	if err == nil {
		return a.Tenant().Created, nil
	}
	if brig.KindOf(err) == brig.NotFound {
		err = brig.Errorf(brig.Unauthenticated, "there is no tenant %q any more, or never was", truncate(tenant)).
			WithHint("an operator creates tenants with brig tenant create").Because(err)
	}
	return time.Time{}, err
}

// CreateKey implements brig.Service.
func (d *identity) CreateKey(ctx context.Context, spec brig.KeySpec) (*brig.NewKey, error) {
	return do(ctx, d.gate, brig.OpCreateKey, "", func(v *call) (*brig.NewKey, error) {
		actor, err := d.checkKey(v, &spec)
		if err != nil {
			return nil, err
		}
		d.tenantMu.Lock() // prevents the creation of a key for a tenant that is being removed
		defer d.tenantMu.Unlock()
		if err := d.checkTenantAccessLocked(ctx, v, actor.Tenant); err != nil {
			return nil, err
		}
		list, err := d.Store.ListKeys(ctx, actor.Tenant)
		if err != nil {
			return nil, err
		}
		if len(list) >= maxKeys {
			return nil, brig.Errorf(brig.FailedPrecondition, "the tenant has %d keys already", maxKeys).WithHint("revoke those that are not used")
		}
		secret := "brig_" + strings.ToLower(rand.Text()+rand.Text())
		if spec.Kind == brig.E2BKey {
			var b [20]byte
			_, _ = rand.Read(b[:]) // Read never fails
			secret = "e2b_" + hex.EncodeToString(b[:])
		}
		actor.Key = "k" + strings.ToLower(rand.Text())
		k := brig.Key{
			ID: actor.Key, Hash: sha256.Sum256([]byte(secret)), Kind: spec.Kind, Prefix: secret[:keyPrefixLen],
			Actor: actor, Created: d.Now().UTC(),
		}
		if err := d.Store.PutKey(ctx, k); err != nil {
			return nil, err
		}
		k.Hash = [32]byte{}
		return &brig.NewKey{Key: k, Secret: secret}, nil
	})
}

// checkKey validates spec, fills in its defaults, and returns the actor that
// the new key authenticates.
func (d *identity) checkKey(v *call, spec *brig.KeySpec) (brig.Actor, error) {
	var none brig.Actor
	if v.actor.Grant != "" {
		return none, brig.Errorf(brig.PermissionDenied, "a grant cannot create keys").WithHint("create a narrower grant instead")
	}
	if err := checkKeyName(spec.Name); err != nil {
		return none, err
	}
	switch spec.Kind {
	case "":
		spec.Kind = brig.NativeKey
	case brig.NativeKey, brig.E2BKey:
	default:
		return none, brig.InvalidField("kind", "no keys of kind %q", truncate(string(spec.Kind))).WithHint("use brig or e2b")
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
	d.narrowToCaller(v, &a, spec.TTL)
	if !v.actor.Covers(a) {
		return none, errExceedsRights()
	}
	return a, nil
}

// narrowToCaller limits a new key or grant to the caller's own expiry, scopes and
// sandboxes.
func (d *identity) narrowToCaller(v *call, a *brig.Actor, ttl time.Duration) {
	if ttl > 0 {
		a.Expires = d.Clock.Now().Add(ttl).UTC()
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

func errExceedsRights() error {
	return brig.Errorf(brig.PermissionDenied, "the key would have more rights than the caller").
		WithHint("request a role and scopes within your own")
}

// isHidden reports whether a character controls how text is displayed, or is
// invisible.
func isHidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)
}

// checkKeyName checks the length of a key's name, and rejects hidden characters, because the audit
// log and the console display the name as the actor.
func checkKeyName(name string) error {
	if name == "" || len(name) > 128 || !utf8.ValidString(name) || strings.ContainsFunc(name, isHidden) {
		return brig.InvalidField("name", "%q cannot be a key's name", truncate(name)).WithHint("give 1 to 128 bytes without invisible characters")
	}
	return nil
}

// Keys implements brig.Service.
func (d *identity) Keys(ctx context.Context, tenant string) ([]*brig.Key, error) {
	return do(ctx, d.gate, brig.OpKeys, "", func(v *call) (_ []*brig.Key, err error) {
		if tenant, err = d.ofTenant(ctx, v, tenant); err != nil {
			return nil, err
		}
		if err := d.flushUsage(ctx); err != nil { // write the last uses of the keys first
			return nil, err
		}
		list, err := d.Store.ListKeys(ctx, tenant)
		for _, k := range list {
			k.Hash = [32]byte{}
		}
		return list, err
	})
}

// RevokeKey implements brig.Service.
func (d *identity) RevokeKey(ctx context.Context, id string) error {
	return d.do(ctx, brig.OpRevokeKey, "", func(v *call) error {
		if v.actor.Grant != "" {
			return brig.Errorf(brig.PermissionDenied, "a grant cannot revoke keys").WithHint("use a key")
		}
		k, err := d.Store.GetKey(ctx, id)
		if brig.KindOf(err) == brig.NotFound || err == nil && k.Actor.Tenant != v.actor.Tenant && v.actor.Role < brig.Operator {
			return brig.Errorf(brig.NotFound, "no key %q", truncate(id)).WithHint("list keys to see their ids")
		}
		if err != nil {
			return err
		}
		if k.Actor.Role > v.actor.Role {
			return brig.Errorf(brig.PermissionDenied, "the key has the role %s, the caller %s", k.Actor.Role, v.actor.Role).
				WithHint("ask an operator")
		}
		if d.KeyInFile != nil {
			if file, name := d.KeyInFile(id); file != "" {
				return brig.Errorf(brig.FailedPrecondition, "the key is the one in %s of the server's data folder, which makes it again", file).
					WithHint("replace it on the server's machine: brig key rotate %s", name)
			}
		}
		return d.Store.DeleteKey(ctx, id)
	})
}
