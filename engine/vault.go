package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// vault stores secrets and provides sandboxes with their values or with
// placeholders.
type vault struct {
	*gate
	// resealMu is held for writing while secrets are re-encrypted.
	resealMu sync.RWMutex
}

// secretEnv returns the environment variables of a sandbox's secrets. A
// variable holds the value, or a placeholder if the value must not enter this
// sandbox. The engine looks up the values for each program that starts, so
// later programs see new values. It does not store them in records or in the
// provider's files.
func (vt *vault) secretEnv(ctx context.Context, rec *brig.Record) (map[string]string, error) {
	if len(rec.Spec.Secrets) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, u := range rec.Spec.Secrets {
		s, err := vt.secretOf(ctx, rec, u)
		if err != nil {
			return nil, err
		}
		if _, see := restrictSecret(rec, s); !see {
			env[u.Variable()] = vt.placeholder(rec.ID, u.Name)
			continue
		}
		value, err := vt.decryptSecret(s)
		if err != nil {
			return nil, err
		}
		env[u.Variable()] = string(value)
	}
	return env, nil
}

// secretOf returns a secret of a sandbox.
func (vt *vault) secretOf(ctx context.Context, rec *brig.Record, u brig.SecretUse) (*brig.SealedSecret, error) {
	s, err := vt.Store.GetSecret(ctx, rec.Tenant, u.Name)
	if brig.KindOf(err) == brig.NotFound {
		return nil, brig.Errorf(brig.FailedPrecondition, "secret %q, which the sandbox has, was removed", u.Name).
			WithHint("set it again, or create a sandbox without it")
	}
	return s, err
}

// grantedSecrets returns the current state of the sandbox's secrets, for its record.
func (vt *vault) grantedSecrets(ctx context.Context, rec *brig.Record) (list []brig.Secret, err error) {
	for _, u := range rec.Spec.Secrets {
		s, err := vt.secretOf(ctx, rec, u)
		if err != nil {
			return nil, err
		}
		list = append(list, s.Secret)
	}
	return list, nil
}

// grantsOfCopy returns the state of the secrets of a copy, for its record. Those of the original keep the
// state that they had when the original got them.
func (vt *vault) grantsOfCopy(ctx context.Context, origin *brig.Record, spec brig.Spec) ([]brig.Secret, error) {
	given := slices.Clone(origin.Given)
	for _, u := range spec.Secrets {
		if slices.ContainsFunc(origin.Spec.Secrets, func(o brig.SecretUse) bool { return o.Name == u.Name }) {
			continue
		}
		s, err := vt.secretOf(ctx, origin, u)
		if err != nil {
			return nil, err
		}
		given = append(given, s.Secret)
	}
	return given, nil
}

// recoverGrants records the grants of a sandbox that an earlier version created without them. A
// removed secret gets no grant, because setting it again requires a value.
func (vt *vault) recoverGrants(ctx context.Context, rec *brig.Record) error {
	if len(rec.Spec.Secrets) == 0 || rec.Given != nil {
		return nil
	}
	granted := []brig.Secret{}
	for _, u := range rec.Spec.Secrets {
		s, err := vt.secretOf(ctx, rec, u)
		if err == nil {
			granted = append(granted, s.Secret)
		} else if brig.KindOf(err) != brig.FailedPrecondition {
			return err
		}
	}
	changed, err := vt.updateRecord(ctx, rec.Tenant, rec.ID, func(r *brig.Record) error {
		r.Given = granted
		return nil
	})
	if err == nil {
		*rec = *changed
	}
	return err
}

// restrictSecret returns a secret as a sandbox may use it: within both the current restrictions and
// those at the creation of the sandbox. see reports whether the sandbox receives the value.
func restrictSecret(rec *brig.Record, s *brig.SealedSecret) (out brig.Secret, see bool) {
	granted := s.Secret
	if i := slices.IndexFunc(rec.Given, func(g brig.Secret) bool { return g.Name == s.Name }); i >= 0 {
		granted = rec.Given[i]
	}
	return s.Within(granted)
}

// withSecrets returns c with the variables of the sandbox's secrets added. The
// variables of c take precedence.
func (vt *vault) withSecrets(ctx context.Context, rec *brig.Record, c brig.Command) (brig.Command, error) {
	env, err := vt.secretEnv(ctx, rec)
	c.Env = mergeEnv(env, c.Env)
	return c, err
}

// mergeEnv returns the merged variables of low and high, in which high takes precedence. It
// modifies neither map.
func mergeEnv(low, high map[string]string) map[string]string {
	if len(low) == 0 {
		return high
	}
	all := maps.Clone(low)
	maps.Copy(all, high)
	return all
}

// placeholder returns the placeholder for a secret in one sandbox, which is
// constant for the sandbox's lifetime. It cannot be computed without the seed.
func (vt *vault) placeholder(id brig.ID, name string) string {
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(vt.deriveKey("placeholder\x00" + string(id) + "\x00" + name))
	return "brig-secret-" + strings.ToLower(text[:32])
}

// deriveKey returns a key for one purpose, which cannot be computed without the
// seed.
func (e *env) deriveKey(purpose string) []byte {
	mac := hmac.New(sha256.New, e.Seed)
	mac.Write([]byte(purpose)) // a hash's Write never fails
	return mac.Sum(nil)
}

// brokeredSecrets returns the secrets of a sandbox that do not enter it, in their current state:
// their placeholders, and the hosts that receive the values. A removed secret is omitted, so that
// its placeholder is not replaced. A secret that cannot be read applies to every host and has no
// value, because its restrictions are unknown; failed is called with its name and the error. The
// guest can cause any number of calls of brokered.
func (vt *vault) brokeredSecrets(rec *brig.Record, failed func(name string, err error)) []egress.Secret {
	var out []egress.Secret
	for _, u := range rec.Spec.Secrets {
		s, err := vt.secretOf(vt.ctx, rec, u)
		if err != nil {
			if brig.KindOf(err) != brig.FailedPrecondition { // a removed secret has this kind
				failed(u.Name, err)
				out = vt.appendSecret(out, rec, egress.Secret{
					Name: u.Name, Hosts: []string{"*"},
					Value: func(context.Context) ([]byte, error) { return nil, err },
				})
			}
			continue
		}
		allowed, see := restrictSecret(rec, s)
		if see {
			continue
		}
		out = vt.appendSecret(out, rec, egress.Secret{
			Name: allowed.Name, Hosts: allowed.Hosts, Places: allowed.Places, Exclusive: allowed.Exclusive, Allow: allowed.Allow, Plain: allowed.Plain,
			Value: func(ctx context.Context) ([]byte, error) {
				now, err := vt.secretOf(ctx, rec, u)
				if err != nil {
					return nil, err
				}
				if narrower, _ := restrictSecret(rec, now); !slices.Equal(narrower.Hosts, allowed.Hosts) || narrower.Plain != allowed.Plain {
					// The earlier hosts may no longer receive the value.
					return nil, brig.Errorf(brig.FailedPrecondition, "the hosts of secret %q were changed", u.Name).
						WithHint("connect again")
				}
				return vt.decryptSecret(now)
			},
		})
	}
	return out
}

// appendSecret appends a secret once for the placeholder of a sandbox and once for the placeholder
// of each sandbox that it was copied from, because copied programs use these placeholders.
func (vt *vault) appendSecret(list []egress.Secret, rec *brig.Record, s egress.Secret) []egress.Secret {
	for _, id := range append([]brig.ID{rec.ID}, rec.Former...) {
		s.Placeholder = vt.placeholder(id, s.Name)
		list = append(list, s)
	}
	return list
}
