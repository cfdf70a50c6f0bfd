package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/seal"
)

// noSecrets is what callers are told where values cannot be kept.
func (e *Engine) noSecrets() error {
	if e.Options.Keys != nil {
		return nil
	}
	return brig.Errorf(brig.FailedPrecondition, "secrets are not kept here").WithHint("ask a server: brig serve")
}

// address names where a value is kept: a row that is moved to another does not
// open.
func address(tenant, name string, version int) []string {
	return []string{"secrets", tenant, name, strconv.Itoa(version)}
}

// PutSecret implements brig.Service.
func (e *Engine) PutSecret(ctx context.Context, c brig.SecretChange) (_ *brig.Secret, err error) {
	v, err := e.enter(ctx, brig.OpPutSecret, "", func(v *visit) { v.say(brig.DetailSecrets, clip(c.Name)) })
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := e.noSecrets(); err != nil {
		return nil, err
	}
	// Not while everything is encrypted anew: what came late would stay as it is.
	e.sealing.RLock()
	defer e.sealing.RUnlock()
	for {
		sealed, was, err := e.changed(ctx, v.actor.Tenant, c)
		if err != nil {
			return nil, err
		}
		v.say(brig.DetailVersion, strconv.Itoa(sealed.Version))
		events := []brig.Event{v.outcome()}
		if was != nil && len(was.Hosts) > 0 && len(sealed.Hosts) == 0 {
			events = append(events, brig.Event{
				At: sealed.Updated, Op: brig.RevealedOp, Actor: v.actor.Name, Tenant: v.actor.Tenant, Phase: brig.Observed,
				Detail: map[string]string{brig.DetailSecrets: sealed.Name, brig.DetailVersion: strconv.Itoa(sealed.Version)},
			})
		}
		version := 0
		if was != nil {
			version = was.Version
		}
		err = e.Store.PutSecret(ctx, sealed, version, events...)
		if brig.KindOf(err) != brig.FailedPrecondition { // somebody else was faster
			return &sealed.Secret, err
		}
	}
}

// changed returns what a change makes of a tenant's secret, and what that was
// before, nil of a new one.
func (e *Engine) changed(ctx context.Context, tenant string, c brig.SecretChange) (out, was *brig.SealedSecret, err error) {
	was, err = e.Store.GetSecret(ctx, tenant, c.Name)
	if err != nil && brig.KindOf(err) != brig.NotFound {
		return nil, nil, err
	}
	now, value := e.Now().UTC(), c.Value
	s := brig.Secret{Created: now}
	if err == nil {
		s = was.Secret
	} else {
		was = nil
	}
	if was != nil && value == nil {
		if value, err = e.unseal(was); err != nil {
			return nil, nil, err
		}
	}
	s = c.Apply(s)
	if err := s.Check(value); err != nil {
		return nil, nil, err
	}
	if was != nil && len(was.Hosts) > 0 && len(s.Hosts) == 0 && !c.Reveal {
		return nil, nil, brig.Errorf(brig.FailedPrecondition, "secret %q is for %s only: without hosts sandboxes would see its value", s.Name, strings.Join(was.Hosts, ", ")).
			WithHint("give hosts, or reveal to let sandboxes see it; a secret of another name leaves this one as it is")
	}
	s.Version, s.Updated = s.Version+1, now
	out = &brig.SealedSecret{Secret: s, Tenant: tenant}
	out.Key, out.Sealed = e.Options.Keys.Seal(value, address(tenant, s.Name, s.Version)...)
	return out, was, nil
}

// Secrets implements brig.Service.
func (e *Engine) Secrets(ctx context.Context) (_ []*brig.Secret, err error) {
	v, err := e.enter(ctx, brig.OpSecrets, "")
	if err != nil {
		return nil, err
	}
	defer func() { v.leave(ctx, &err) }()
	list, err := e.Store.Secrets(ctx, v.actor.Tenant)
	if err != nil {
		return nil, err
	}
	out := make([]*brig.Secret, 0, len(list))
	for _, s := range list {
		out = append(out, &s.Secret)
	}
	return out, nil
}

// RemoveSecret implements brig.Service.
func (e *Engine) RemoveSecret(ctx context.Context, name string) (err error) {
	v, err := e.enter(ctx, brig.OpRemoveSecret, "", func(v *visit) { v.say(brig.DetailSecrets, clip(name)) })
	if err != nil {
		return err
	}
	defer func() { v.leave(ctx, &err) }()
	return e.Store.DeleteSecret(ctx, v.actor.Tenant, name, v.outcome())
}

// RotateKey implements brig.Service.
func (e *Engine) RotateKey(ctx context.Context) (n int, err error) {
	v, err := e.enter(ctx, brig.OpRotateKey, "")
	if err != nil {
		return 0, err
	}
	defer func() { v.leave(ctx, &err) }()
	if err := e.noSecrets(); err != nil {
		return 0, err
	}
	// A caller who goes away leaves no work half done.
	ctx = context.WithoutCancel(ctx)
	err = e.Options.Keys.Rotate(ctx, func() error {
		e.sealing.Lock()
		defer e.sealing.Unlock()
		all, err := e.Store.AllSecrets(ctx)
		for _, s := range all {
			if err == nil && s.Key != e.Options.Keys.Primary() {
				n++
				err = e.reseal(ctx, s)
			}
		}
		if err == nil {
			err = e.resealSettings(ctx)
		}
		if err == nil {
			err = e.resealVariables(ctx)
		}
		return err
	})
	if errors.Is(err, seal.ErrFixed) {
		err = brig.Errorf(brig.FailedPrecondition, "the key came with the server's environment").
			WithHint("start the server with BRIG_MASTER_KEY=NEW,OLD; every secret that is set again is sealed with the new one")
	}
	v.say(brig.DetailVersion, e.Options.Keys.Primary())
	return n, err
}

func (e *Engine) reseal(ctx context.Context, s *brig.SealedSecret) error {
	value, err := e.unseal(s)
	if err != nil {
		return err
	}
	s.Key, s.Sealed = e.Options.Keys.Seal(value, address(s.Tenant, s.Name, s.Version)...)
	err = e.Store.PutSecret(ctx, s, s.Version)
	if brig.KindOf(err) == brig.FailedPrecondition {
		return nil // removed meanwhile
	}
	return err
}

// unseal decrypts a value.
func (e *Engine) unseal(s *brig.SealedSecret) ([]byte, error) {
	if err := e.noSecrets(); err != nil {
		return nil, err
	}
	value, err := e.Options.Keys.Open(s.Key, s.Sealed, address(s.Tenant, s.Name, s.Version)...)
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		return nil, brig.Errorf(brig.FailedPrecondition, "secret %q was encrypted with a key that this server does not have", s.Name).
			WithHint("start the server with the key that it had, or set the secret again").Because(err)
	case err != nil:
		return nil, brig.Errorf(brig.FailedPrecondition, "secret %q does not open: what is kept of it was changed", s.Name).
			WithHint("set the secret again, and find out who wrote to the database").Because(err)
	}
	return value, nil
}

// maxSecrets is how many one sandbox may have.
const maxSecrets = 50

// checkUses checks what is asked for and fills in the variables.
func checkUses(uses []brig.SecretUse, env map[string]string) ([]brig.SecretUse, error) {
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
			return nil, brig.InvalidField(field+".env", "%q is given twice", clip(u.Env)).WithHint("choose another variable for one of the two")
		}
		seen[u.Env] = true
	}
	return uses, nil
}

// findSecrets checks that the tenant has what a sandbox asks for, and that it
// opens.
func (e *Engine) findSecrets(ctx context.Context, tenant string, uses []brig.SecretUse) error {
	for i, u := range uses {
		s, err := e.Store.GetSecret(ctx, tenant, u.Name)
		if brig.KindOf(err) == brig.NotFound {
			return brig.InvalidField("secrets["+strconv.Itoa(i)+"].name", "no secret %q", u.Name).
				WithHint("set it first, or list secrets to see what exists")
		}
		if err == nil {
			_, err = e.unseal(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
