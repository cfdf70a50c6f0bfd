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
)

// How long a grant is good for.
const (
	grantTTL    = time.Hour
	maxGrantTTL = 24 * time.Hour
)

// grant is what a grant says, under our signature. Nothing of it is kept: the
// key from which it came is, and the grant ends with that.
type grant struct {
	Key string `json:"key"`
	brig.Narrowing
}

// CreateGrant implements brig.Service.
func (e *Engine) CreateGrant(ctx context.Context, spec brig.GrantSpec) (_ *brig.NewGrant, err error) {
	v, err := e.enter(ctx, brig.OpCreateGrant, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	switch {
	case len(e.GrantSeed) == 0:
		return nil, brig.Errorf(brig.Unimplemented, "this server makes no grants")
	case v.actor.Key == "":
		return nil, brig.Errorf(brig.FailedPrecondition, "a grant comes from a key, and the caller has none").WithHint("ask a server, with a key")
	case v.actor.Session != "":
		// A session can be left at any moment, and the grant would not know.
		return nil, brig.Errorf(brig.PermissionDenied, "a grant is not made in a session").WithHint("use the key itself")
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
	e.narrow(v, &a, spec.TTL)
	if a.Role < brig.Viewer || !v.actor.Covers(a) {
		return nil, errBeyond()
	}
	payload, err := json.Marshal(grant{a.Key, a.Narrowing()})
	if err != nil {
		return nil, err
	}
	enc := base64.RawURLEncoding
	return &brig.NewGrant{Actor: a, Secret: brig.GrantPrefix + enc.EncodeToString(payload) + "." + enc.EncodeToString(e.sign(payload))}, nil
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

// sign is for grants alone, whatever else the seed may be used for.
func (e *Engine) sign(payload []byte) []byte {
	m := hmac.New(sha256.New, e.GrantSeed)
	m.Write([]byte("grant:"))
	m.Write(payload)
	return m.Sum(nil)
}

// GrantActor says what a grant lets its bearer do, while it and its key are
// good.
func (e *Engine) GrantActor(ctx context.Context, token string) (brig.Actor, error) {
	bad := brig.Errorf(brig.Unauthenticated, "the grant is not one of this server's").WithHint("ask whoever gave it for a new one")
	text, ok := strings.CutPrefix(token, brig.GrantPrefix)
	body, mac, cut := strings.Cut(text, ".")
	enc := base64.RawURLEncoding.Strict()
	payload, err := enc.DecodeString(body)
	if !ok || !cut || err != nil || len(e.GrantSeed) == 0 {
		return brig.Actor{}, bad
	}
	if sum, err := enc.DecodeString(mac); err != nil || !hmac.Equal(sum, e.sign(payload)) {
		return brig.Actor{}, bad
	}
	var g grant
	if err := json.Unmarshal(payload, &g); err != nil {
		return brig.Actor{}, bad.Because(err)
	}
	if err := g.Ended(e.Now()); err != nil {
		return brig.Actor{}, err
	}
	a, err := e.KeyByID(ctx, g.Key)
	if err != nil {
		return brig.Actor{}, err
	}
	return a.Narrowed(g.Narrowing)
}
