package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/seal"
)

// checkSecretsStored returns an error if this engine does not store secrets.
func (vt *vault) checkSecretsStored() error {
	if vt.Options.Keys != nil {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "this process stores no secrets").WithHint("ask a server: brig serve")
}

// secretLocation returns the location of a stored value. The encryption is bound to the location,
// so that a value moved to another row cannot be decrypted.
func secretLocation(tenant, name string, version int) []string {
	return []string{"secrets", tenant, name, strconv.Itoa(version)}
}

// PutSecret implements brig.Service.
func (vt *vault) PutSecret(ctx context.Context, c brig.SecretChange) (*brig.Secret, error) {
	return doWithDetails(ctx, vt.gate, brig.OpPutSecret, "", withDetail(brig.DetailSecrets, truncate(c.Name)), func(v *call) (_ *brig.Secret, err error) {
		if err := vt.checkSecretsStored(); err != nil {
			return nil, err
		}
		done, err := v.account.lockRecords(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		// Wait while another call re-encrypts all secrets, because a secret
		// written at the same time would keep the old key.
		vt.resealMu.RLock()
		defer vt.resealMu.RUnlock()
		for {
			sealed, oldSecret, err := vt.applySecretChange(ctx, v, c)
			if err != nil {
				return nil, err
			}
			v.addDetail(brig.DetailVersion, strconv.Itoa(sealed.Version))
			events := []brig.Event{v.outcomeEvent()}
			if oldSecret != nil && len(oldSecret.Hosts) > 0 && len(sealed.Hosts) == 0 {
				events = append(events, brig.Event{
					At: sealed.Updated, Op: brig.RevealedOp, Actor: v.actor.Name, Tenant: v.actor.Tenant, Phase: brig.Observed,
					Detail: map[string]string{brig.DetailSecrets: sealed.Name, brig.DetailVersion: strconv.Itoa(sealed.Version)},
				})
			}
			version := 0
			if oldSecret != nil {
				version = oldSecret.Version
			} else if err := vt.checkSecretCount(ctx, v.actor.Tenant); err != nil {
				return nil, err
			}
			err = vt.Store.PutSecret(ctx, sealed, version, events...)
			if brig.KindOf(err) != brig.FailedPrecondition { // another change came first
				return &sealed.Secret, err
			}
		}
	})
}

// maxTenantSecrets is the maximum number of secrets of a tenant.
var maxTenantSecrets = 1000

func (vt *vault) checkSecretCount(ctx context.Context, tenant string) error {
	list, err := vt.Store.Secrets(ctx, tenant)
	if err == nil && len(list) >= maxTenantSecrets {
		err = brig.Errorf(brig.FailedPrecondition, "the tenant has %d secrets already", maxTenantSecrets).WithHint("remove those that are not used")
	}
	return err
}

// applySecretChange returns a tenant's secret with a change applied, and its
// previous state, which is nil for a new secret.
func (vt *vault) applySecretChange(ctx context.Context, v *call, c brig.SecretChange) (out, was *brig.SealedSecret, err error) {
	tenant := v.actor.Tenant
	was, err = vt.Store.GetSecret(ctx, tenant, c.Name)
	if err != nil && brig.KindOf(err) != brig.NotFound {
		return nil, nil, err
	}
	now, value := vt.Now().UTC(), c.Value
	s := brig.Secret{Created: now}
	if err == nil {
		s = was.Secret
	} else {
		was = nil
	}
	if was != nil && value == nil {
		if value, err = vt.decryptSecret(was); err != nil {
			return nil, nil, err
		}
	}
	s = c.Apply(s)
	if err := s.Check(value); err != nil {
		return nil, nil, err
	}
	if err := v.noteSecretChange(was, &s, c.Value != nil); err != nil {
		return nil, nil, err
	}
	if was != nil && len(was.Hosts) > 0 && len(s.Hosts) == 0 && !c.Reveal {
		return nil, nil, brig.Errorf(brig.FailedPrecondition, "secret %q is for %s only: without hosts sandboxes would see its value", s.Name, strings.Join(was.Hosts, ", ")).
			WithHint("give hosts, or reveal to let sandboxes see it; a secret of another name leaves this one as it is")
	}
	s.Version, s.Updated = s.Version+1, now
	out = &brig.SealedSecret{Secret: s, Tenant: tenant}
	out.Key, out.Sealed = vt.Options.Keys.Seal(value, secretLocation(tenant, s.Name, s.Version)...)
	return out, was, nil
}

// noteSecretChange adds the hosts of a secret before and after a change to the audit events. It
// returns an error if the change widens the use of the value and the caller has not given the
// value. Otherwise, a caller could learn a value that it does not have.
func (v *call) noteSecretChange(was *brig.SealedSecret, s *brig.Secret, valueGiven bool) error {
	hosts := func(s *brig.Secret) string {
		if len(s.Hosts) == 0 {
			return "-"
		}
		return strings.Join(s.Hosts, ",")
	}
	v.addWholeDetail(brig.DetailHosts, hosts(s))
	if was == nil {
		return nil
	}
	v.addWholeDetail(brig.DetailFormerHosts, hosts(&was.Secret))
	fields, added := s.Widens(was.Secret)
	v.addWholeDetail(brig.DetailWidens, strings.Join(fields, ","))
	if len(fields) == 0 || valueGiven {
		return nil
	}
	return widenedError(s.Name, fields[0], added, was.Hosts)
}

// widenedError returns the error for a change of a field that widens the use of a secret's value.
// added is the new entry of a list.
func widenedError(secret, field, added string, hosts []string) error {
	var reason string
	switch {
	case field == "hosts" && added == "":
		reason = fmt.Sprintf("without hosts sandboxes would see the value of secret %q, which is for %s only", secret, strings.Join(hosts, ", "))
	case field == "hosts":
		reason = fmt.Sprintf("so far %q does not receive the value of secret %q", added, secret)
	case field == "places":
		reason = fmt.Sprintf("so far the value of secret %q is not sent in the place %q", secret, added)
	case field == "allow":
		reason = fmt.Sprintf("so far %q is not sent beside the value of secret %q", added, secret)
	case field == "exclusive":
		reason = fmt.Sprintf("so far no other credentials are sent beside the value of secret %q", secret)
	default:
		reason = fmt.Sprintf("so far the value of secret %q is not sent in plain HTTP", secret)
	}
	return brig.InvalidField(field, "%s", reason).WithHint(brig.HintValueAgain)
}

// Secrets implements brig.Service.
func (vt *vault) Secrets(ctx context.Context) ([]*brig.Secret, error) {
	return do(ctx, vt.gate, brig.OpSecrets, "", func(v *call) ([]*brig.Secret, error) {
		list, err := vt.Store.Secrets(ctx, v.actor.Tenant)
		if err != nil {
			return nil, err
		}
		out := make([]*brig.Secret, 0, len(list))
		for _, s := range list {
			out = append(out, &s.Secret)
		}
		return out, nil
	})
}

// RemoveSecret implements brig.Service.
func (vt *vault) RemoveSecret(ctx context.Context, name string) error {
	return vt.doWithDetails(ctx, brig.OpRemoveSecret, "", withDetail(brig.DetailSecrets, truncate(name)), func(v *call) error {
		return vt.Store.DeleteSecret(ctx, v.actor.Tenant, name, v.outcomeEvent())
	})
}

func (vt *vault) reseal(ctx context.Context, s *brig.SealedSecret) error {
	value, err := vt.decryptSecret(s)
	if err != nil {
		return err
	}
	s.Key, s.Sealed = vt.Options.Keys.Seal(value, secretLocation(s.Tenant, s.Name, s.Version)...)
	err = vt.Store.PutSecret(ctx, s, s.Version)
	if brig.KindOf(err) == brig.FailedPrecondition {
		return nil // removed or replaced since it was read
	}
	return err
}

// decryptSecret decrypts the value of a secret.
func (vt *vault) decryptSecret(s *brig.SealedSecret) ([]byte, error) {
	if err := vt.checkSecretsStored(); err != nil {
		return nil, err
	}
	value, err := vt.Options.Keys.Open(s.Key, s.Sealed, secretLocation(s.Tenant, s.Name, s.Version)...)
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		return nil, brig.Errorf(brig.FailedPrecondition, "secret %q was encrypted with a key that this server does not have", s.Name).
			WithHint("start the server with the key that it had, or set the secret again").Because(err)
	case err != nil:
		return nil, brig.Errorf(brig.FailedPrecondition, "secret %q cannot be decrypted: its record was changed", s.Name).
			WithHint("set the secret again, and find out who wrote to the database").Because(err)
	}
	return value, nil
}

// maxSecrets is the maximum number of secrets of one sandbox.
const maxSecrets = 50

// checkSecretMounts checks the secrets of a request and fills in their variables.
func checkSecretMounts(uses []brig.SecretUse, env map[string]string) ([]brig.SecretUse, error) {
	if len(uses) > maxSecrets {
		return nil, brig.InvalidField("secrets", "%d secrets are too many", len(uses)).WithHint("give at most %d", maxSecrets)
	}
	uses = slices.Clone(uses)
	seen := map[string]bool{}
	for i := range uses {
		u := &uses[i]
		field := "secrets[" + strconv.Itoa(i) + "]"
		if !brig.ValidName(u.Name) {
			return nil, nameError(field+".name", u.Name)
		}
		u.Env = u.Variable()
		if err := brig.CheckEnv(field+".env", map[string]string{u.Env: ""}); err != nil {
			return nil, err
		}
		if _, twice := env[u.Env]; twice || seen[u.Env] {
			return nil, brig.InvalidField(field+".env", "%q is given twice", truncate(u.Env)).WithHint("choose another variable for one of the two")
		}
		seen[u.Env] = true
	}
	return uses, nil
}

// findSecrets checks that the tenant has the requested secrets, and that they
// can be decrypted.
func (vt *vault) findSecrets(ctx context.Context, tenant string, uses []brig.SecretUse) error {
	for i, u := range uses {
		s, err := vt.Store.GetSecret(ctx, tenant, u.Name)
		if brig.KindOf(err) == brig.NotFound {
			return brig.InvalidField("secrets["+strconv.Itoa(i)+"].name", "no secret %q", u.Name).
				WithHint("set it first, or list secrets to see what exists")
		}
		if err == nil {
			_, err = vt.decryptSecret(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
