package e2b

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// A source is what a sandbox's token was made of: the id of a key, or of a key
// and, behind a tilde, what a grant of it leaves of its rights. It is in the
// token as text, and the token signs it.
const tilde = "~"

// source is what a token is made of that a is told; ok says whether a may be told
// one. Nobody is told a token that could do more than a, or for longer.
func (d *Door) source(a brig.Actor) (source string, ok bool) {
	switch {
	case a.Role < brig.Member:
		return "", false // whoever shows a token acts as a member
	case d.Options.KeyActor == nil:
		// The sandbox's own token has all rights there, and no end.
		all := a.Grant == "" && a.Session == "" && a.Person == nil && len(a.Scopes) == 0 && len(a.Sandboxes) == 0 && a.Expires.IsZero()
		return "", all
	case a.Key == "" || a.Session != "" || a.Person != nil:
		return "", false // a token could not tell when that ends
	case a.Grant == "":
		return a.Key, true
	}
	left, err := json.Marshal(a.Narrowing())
	return a.Key + tilde + base64.RawURLEncoding.EncodeToString(left), err == nil
}

// actorOf says whom a source proves now. It was signed by this door.
func (d *Door) actorOf(ctx context.Context, source string) (brig.Actor, error) {
	key, text, granted := strings.Cut(source, tilde)
	if !granted {
		return d.Options.KeyActor(ctx, key)
	}
	var left brig.Narrowing
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &left)
	}
	if err != nil {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the access token is not one of this server's").Because(err)
	}
	if err := left.Ended(time.Now()); err != nil {
		return brig.Actor{}, err
	}
	a, err := d.Options.KeyActor(ctx, key)
	if err != nil {
		return brig.Actor{}, err
	}
	return a.Narrowed(left)
}

// ofGrant reports whether a source is a grant's. No URL is signed with the token
// of a grant: a URL names no source, and grants are kept nowhere.
func ofGrant(source string) bool { return strings.Contains(source, tilde) }
