package e2b

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/exactjson"
)

// sourceSeparator separates the parts of a source. A source is the text from
// which a sandbox's token was derived. It is the id of a key, or the id of a
// key, a tilde and the remaining rights of one of the key's grants. The token
// contains the source as text, followed by a MAC.
const sourceSeparator = "~"

// source returns the token source for actor a. ok reports whether a may receive
// a token. No actor receives a token that has more rights or a longer lifetime
// than the actor itself.
func (k *tokens) source(a brig.Actor) (source string, ok bool) {
	switch {
	case a.Role < brig.Member:
		return "", false // the holder of a token acts as a member
	case k.Options.KeyActor == nil:
		// The sandbox's own token has all rights on the sandbox and does not
		// expire.
		all := a.Grant == "" && a.Session == "" && a.Person == nil && len(a.Scopes) == 0 && len(a.Sandboxes) == 0 && a.Expires.IsZero()
		return "", all
	case a.Key == "" || a.Session != "" || a.Person != nil:
		return "", false // a token cannot express when these actors become invalid
	case a.Grant == "":
		return a.Key, true
	}
	left, err := json.Marshal(a.DerivedRights())
	return a.Key + sourceSeparator + base64.RawURLEncoding.EncodeToString(left), err == nil
}

// actorOf returns the current actor of a source, which must come from a
// verified token.
func (k *tokens) actorOf(ctx context.Context, source string) (brig.Actor, error) {
	key, text, granted := strings.Cut(source, sourceSeparator)
	if !granted {
		return k.Options.KeyActor(ctx, key)
	}
	var left brig.DerivedRights
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = exactjson.Unmarshal(data, &left)
	}
	if err != nil {
		return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "the access token is not one of this server's").Because(err)
	}
	if err := left.CheckExpiry(k.Clock); err != nil {
		return brig.Actor{}, err
	}
	a, err := k.Options.KeyActor(ctx, key)
	if err != nil {
		return brig.Actor{}, err
	}
	return a.Derive(left)
}

// ofGrant reports whether a source belongs to a grant. A grant's token cannot
// sign a URL, because the URL does not contain the source and grants are not
// stored.
func ofGrant(source string) bool { return strings.Contains(source, sourceSeparator) }
