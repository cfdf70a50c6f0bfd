package engine

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/exactjson"
)

// Default and maximum lifetime of a grant.
const (
	grantTTL    = time.Hour
	maxGrantTTL = 24 * time.Hour
)

// grant is the signed content of a grant. The server does not store grants, but only the keys from
// which they are derived. A grant ends with its key.
type grant struct {
	Key string `json:"key"`
	brig.DerivedRights
}

// CreateGrant implements brig.Service.
func (d *identity) CreateGrant(ctx context.Context, spec brig.GrantSpec) (*brig.NewGrant, error) {
	return do(ctx, d.gate, brig.OpCreateGrant, "", func(v *call) (*brig.NewGrant, error) {
		switch {
		case len(d.GrantSeed) == 0:
			return nil, brig.Errorf(brig.Unimplemented, "this server does not issue grants")
		case v.actor.Key == "":
			return nil, brig.Errorf(brig.FailedPrecondition, "only a caller with a key can create a grant").WithHint("ask a server, with a key")
		case v.actor.Session != "":
			// The grant would remain valid after the end of the session.
			return nil, brig.Errorf(brig.PermissionDenied, "a session cannot create a grant").WithHint("use the key itself")
		case spec.TTL < 0 || spec.TTL > maxGrantTTL:
			return nil, brig.InvalidField("ttl_ms", "%v is out of bounds", spec.TTL).WithHint("give up to %v, or leave it out for %v", maxGrantTTL, grantTTL)
		}
		if spec.TTL == 0 {
			spec.TTL = grantTTL
		}
		if spec.Role == brig.Nobody {
			spec.Role = v.actor.Role
		}
		if err := brig.CheckScopes(spec.Scopes); err != nil {
			return nil, err
		}
		if err := checkSandboxNames(spec.Sandboxes); err != nil {
			return nil, err
		}
		a := v.actor
		a.Role, a.Scopes, a.Sandboxes, a.Expires = spec.Role, spec.Scopes, spec.Sandboxes, time.Time{}
		a.Grant = "g" + strings.ToLower(rand.Text())
		d.narrowToCaller(v, &a, spec.TTL)
		if a.Role < brig.Viewer || !v.actor.Covers(a) {
			return nil, errExceedsRights()
		}
		payload, err := json.Marshal(grant{a.Key, a.DerivedRights()})
		if err != nil {
			return nil, err
		}
		enc := base64.RawURLEncoding
		return &brig.NewGrant{Actor: a, Secret: brig.GrantPrefix + enc.EncodeToString(payload) + "." + enc.EncodeToString(d.sign(payload))}, nil
	})
}

func checkSandboxNames(names []string) error {
	if len(names) > 64 {
		return brig.InvalidField("sandboxes", "%d sandboxes are too many", len(names)).WithHint("give at most 64")
	}
	for _, n := range names {
		if !brig.ValidName(n) {
			return nameError("sandboxes", n)
		}
	}
	return nil
}

// sign signs the content of a grant. The prefix separates grants from all other
// uses of the seed.
func (d *identity) sign(payload []byte) []byte {
	m := hmac.New(sha256.New, d.GrantSeed)
	m.Write([]byte("grant:"))
	m.Write(payload)
	return m.Sum(nil)
}

// GrantActor returns the actor that a grant authenticates. It fails if the
// grant or its key is no longer valid.
func (d *identity) GrantActor(ctx context.Context, token string) (brig.Actor, error) {
	bad := brig.Errorf(brig.Unauthenticated, "the grant is from another server").WithHint("ask its issuer for a new one")
	text, ok := strings.CutPrefix(token, brig.GrantPrefix)
	body, mac, cut := strings.Cut(text, ".")
	enc := base64.RawURLEncoding.Strict()
	payload, err := enc.DecodeString(body)
	if !ok || !cut || err != nil || len(d.GrantSeed) == 0 {
		return brig.Actor{}, bad
	}
	if sum, err := enc.DecodeString(mac); err != nil || !hmac.Equal(sum, d.sign(payload)) {
		return brig.Actor{}, bad
	}
	var g grant
	if err := exactjson.Unmarshal(payload, &g); err != nil {
		return brig.Actor{}, bad.Because(err)
	}
	if err := g.CheckExpiry(d.Clock); err != nil {
		return brig.Actor{}, brig.MarkGenuine(err)
	}
	a, err := d.KeyByID(ctx, g.Key)
	if err == nil {
		a, err = a.Derive(g.DerivedRights)
	}
	return a, brig.MarkGenuine(err)
}
