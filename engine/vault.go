package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
)

// secretEnv are the variables that a sandbox's secrets make: a value, or a
// placeholder of one that does not enter sandboxes. They are looked up
// whenever something is started, and kept nowhere: not in records, not in the
// provider's files. So a new value is seen by what comes next.
func (e *Engine) secretEnv(ctx context.Context, rec *brig.Record) (map[string]string, error) {
	if len(rec.Spec.Secrets) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, u := range rec.Spec.Secrets {
		s, err := e.used(ctx, rec, u)
		if err != nil {
			return nil, err
		}
		if len(s.Hosts) > 0 {
			env[u.Variable()] = e.placeholder(rec.ID, u.Name)
			continue
		}
		value, err := e.unseal(s)
		if err != nil {
			return nil, err
		}
		env[u.Variable()] = string(value)
	}
	return env, nil
}

// used finds a secret of a sandbox.
func (e *Engine) used(ctx context.Context, rec *brig.Record, u brig.SecretUse) (*brig.SealedSecret, error) {
	s, err := e.Store.GetSecret(ctx, rec.Tenant, u.Name)
	if brig.KindOf(err) == brig.NotFound {
		return nil, brig.Errorf(brig.FailedPrecondition, "secret %q, which the sandbox has, was removed", u.Name).
			WithHint("set it again, or create a sandbox without it")
	}
	return s, err
}

// withSecrets returns c with the variables of the sandbox's secrets beneath its own.
func (e *Engine) withSecrets(ctx context.Context, rec *brig.Record, c brig.Command) (brig.Command, error) {
	env, err := e.secretEnv(ctx, rec)
	c.Env = layer(env, c.Env)
	return c, err
}

// layer returns the variables of low and high, of which high's win. It changes
// neither.
func layer(low, high map[string]string) map[string]string {
	if len(low) == 0 {
		return high
	}
	all := maps.Clone(low)
	maps.Copy(all, high)
	return all
}

// placeholder stands for a secret in one sandbox, for as long as it lives.
// Nobody who does not know the seed can make it.
func (e *Engine) placeholder(id brig.ID, name string) string {
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(e.derive("placeholder\x00" + string(id) + "\x00" + name))
	return "brig-secret-" + strings.ToLower(text[:32])
}

// derive makes of the seed what only who knows it can make, for one purpose.
func (e *Engine) derive(purpose string) []byte {
	mac := hmac.New(sha256.New, e.Seed)
	mac.Write([]byte(purpose)) // a hash's Write never fails
	return mac.Sum(nil)
}

// brokered are the secrets of a sandbox that do not enter it, as they are now:
// what its placeholders stand for, for which hosts. One that was removed is none,
// so that a placeholder stays one. One that cannot be read is every host's, and
// has no value: what it forbids is not known, so nothing goes out by name.
func (e *Engine) brokered(rec *brig.Record) []egress.Secret {
	var out []egress.Secret
	for _, u := range rec.Spec.Secrets {
		s, err := e.used(e.ctx, rec, u)
		if err != nil {
			e.Log.Warn("a secret of a sandbox cannot be read", "sandbox", rec.ID, "secret", u.Name, "err", err)
			if brig.KindOf(err) != brig.FailedPrecondition { // as one has that was removed
				out = append(out, egress.Secret{
					Name: u.Name, Placeholder: e.placeholder(rec.ID, u.Name), Hosts: []string{"*"},
					Value: func(context.Context) ([]byte, error) { return nil, err },
				})
			}
			continue
		}
		if len(s.Hosts) == 0 {
			continue
		}
		out = append(out, egress.Secret{
			Name: s.Name, Placeholder: e.placeholder(rec.ID, u.Name), Hosts: s.Hosts, Places: s.Places, Exclusive: s.Exclusive, Plain: s.Plain,
			Value: func(ctx context.Context) ([]byte, error) {
				now, err := e.used(ctx, rec, u)
				if err != nil {
					return nil, err
				}
				if !slices.Equal(now.Hosts, s.Hosts) || now.Plain != s.Plain {
					// The value may not be for these any more.
					return nil, brig.Errorf(brig.FailedPrecondition, "the hosts of secret %q were changed", u.Name).
						WithHint("connect again")
				}
				return e.unseal(now)
			},
		})
	}
	return out
}
