package storetest

import (
	"reflect"
	"testing"

	"github.com/brig-run/brig"
)

func sealed(tenant, name string, version int) *brig.SealedSecret {
	return &brig.SealedSecret{
		Secret: brig.Secret{
			Name: name, Hosts: []string{"api.example.com"}, Places: []brig.SecretPlace{brig.SecretHeader}, Exclusive: true, Plain: true, Allow: []string{"X-Tenant"},
			Version: version, Created: birth, Updated: birth,
		},
		Tenant: tenant, Key: "k1", Sealed: everyByte(),
	}
}

func testSecrets(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.GetSecret(ctx, "t", "a")
	kind(t, err, brig.NotFound)
	kind(t, s.DeleteSecret(ctx, "t", "a", event("delete")), brig.NotFound)
	in := sealed("t", "a", 1)
	kind(t, s.PutSecret(ctx, in, 1, event("moved")), brig.FailedPrecondition)
	mustSucceed(t, s.PutSecret(ctx, in, 0, event("put")))
	mutate(reflect.ValueOf(in))
	for range 2 {
		got, err := s.GetSecret(ctx, "t", "a")
		mustSucceed(t, err)
		checkEqual(t, "a secret", got, sealed("t", "a", 1))
		mutate(reflect.ValueOf(got))
	}
	kind(t, s.PutSecret(ctx, sealed("t", "a", 1), 0, event("taken")), brig.FailedPrecondition)
	mustSucceed(t, s.PutSecret(ctx, sealed("t", "a", 2), 1))
	mustSucceed(t, s.PutSecret(ctx, sealed("t", "Z", 1), 0))
	mustSucceed(t, s.PutSecret(ctx, sealed("u", "a", 1), 0))
	list, err := s.Secrets(ctx, "t")
	mustSucceed(t, err)
	checkEqual(t, "a tenant's secrets", list, []*brig.SealedSecret{sealed("t", "Z", 1), sealed("t", "a", 2)})
	list, err = s.AllSecrets(ctx)
	mustSucceed(t, err)
	checkEqual(t, "all secrets", list, []*brig.SealedSecret{sealed("t", "Z", 1), sealed("t", "a", 2), sealed("u", "a", 1)})
	mustSucceed(t, s.DeleteSecret(ctx, "t", "a", event("delete")))
	_, err = s.GetSecret(ctx, "t", "a")
	kind(t, err, brig.NotFound)
	_, err = s.GetSecret(ctx, "u", "a")
	mustSucceed(t, err)
	checkEqual(t, "events", ops(t, s, 99), []string{"delete", "put"})
}
