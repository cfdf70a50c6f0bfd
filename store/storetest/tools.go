package storetest

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func setup(tenant, id string, kind brig.ToolKind) *brig.ToolSetup {
	return &brig.ToolSetup{
		ID: id, Tenant: tenant, Kind: kind, Config: json.RawMessage(`{"a": [1,  "é"]}`),
		Created: birth, Updated: birth, CreatedBy: "ann", UpdatedBy: "ann",
	}
}

func variable(tenant, id, setup, key string) *brig.SealedToolVariable {
	return &brig.SealedToolVariable{
		ToolVariable: brig.ToolVariable{
			ID: id, Setup: setup, Tenant: tenant, Key: key, Description: "what \xff it is",
			Created: birth, Updated: birth, CreatedBy: "ann", UpdatedBy: "ann",
		},
		SealedBy: "k1", Sealed: everyByte(),
	}
}

// testToolSetups verifies that a tenant has at most one setup of each kind, and that writing a
// second setup changes the first.
func testToolSetups(t *testing.T, s brig.Store) {
	ctx := t.Context()
	_, err := s.GetToolSetup(ctx, "t", "s1")
	kind(t, err, brig.NotFound)
	kind(t, s.DeleteToolSetup(ctx, "t", "s1", event("delete")), brig.NotFound)
	in := setup("t", "s1", brig.ToolLocal)
	mustSucceed(t, s.PutToolSetup(ctx, in, event("put")))
	mutate(reflect.ValueOf(in))
	for range 2 {
		got, err := s.GetToolSetup(ctx, "t", "s1")
		mustSucceed(t, err)
		checkEqual(t, "a setup", got, setup("t", "s1", brig.ToolLocal))
		mutate(reflect.ValueOf(got))
	}
	again := setup("t", "s2", brig.ToolLocal)
	again.Config, again.Created, again.Updated, again.CreatedBy, again.UpdatedBy = json.RawMessage(`{}`), birth.Add(time.Hour), birth.Add(time.Hour), "bob", "bob"
	mustSucceed(t, s.PutToolSetup(ctx, again))
	want := setup("t", "s1", brig.ToolLocal)
	want.Config, want.Updated, want.UpdatedBy = json.RawMessage(`{}`), birth.Add(time.Hour), "bob"
	checkEqual(t, "what the caller has then", again, want)
	later := setup("t", "s0", brig.ToolE2B)
	later.Created = birth.Add(time.Minute)
	mustSucceed(t, s.PutToolSetup(ctx, later))
	mustSucceed(t, s.PutToolSetup(ctx, setup("u", "s3", brig.ToolLocal)))
	list, err := s.ToolSetups(ctx, "t")
	mustSucceed(t, err)
	checkEqual(t, "a tenant's setups", list, []*brig.ToolSetup{want, later})
	_, err = s.GetToolSetup(ctx, "u", "s1")
	kind(t, err, brig.NotFound)
	kind(t, s.DeleteToolSetup(ctx, "u", "s1", event("theirs")), brig.NotFound)
	mustSucceed(t, s.DeleteToolSetup(ctx, "t", "s1", event("delete")))
	_, err = s.GetToolSetup(ctx, "t", "s1")
	kind(t, err, brig.NotFound)
	checkEqual(t, "events", ops(t, s, 99), []string{"delete", "put"})
}

// testToolVariables verifies that a setup has at most one variable for each key, and that
// deleting the setup deletes its variables.
func testToolVariables(t *testing.T, s brig.Store) {
	ctx := t.Context()
	kind(t, s.PutToolVariable(ctx, variable("t", "v1", "s1", "K"), event("none")), brig.NotFound)
	mustSucceed(t, s.PutToolSetup(ctx, setup("t", "s1", brig.ToolLocal)))
	kind(t, s.PutToolVariable(ctx, variable("u", "v1", "s1", "K"), event("theirs")), brig.NotFound)
	in := variable("t", "v1", "s1", "K")
	in.Value = "never kept"
	mustSucceed(t, s.PutToolVariable(ctx, in, event("put")))
	mutate(reflect.ValueOf(in))
	for range 2 {
		got, err := s.GetToolVariable(ctx, "t", "v1")
		mustSucceed(t, err)
		checkEqual(t, "a variable", got, variable("t", "v1", "s1", "K"))
		mutate(reflect.ValueOf(got))
	}
	again := variable("t", "v2", "s1", "K")
	again.Created, again.CreatedBy, again.Description = birth.Add(time.Hour), "bob", "other"
	mustSucceed(t, s.PutToolVariable(ctx, again))
	want := variable("t", "v1", "s1", "K")
	want.Description = "other"
	checkEqual(t, "what the caller has then", again, want)
	mustSucceed(t, s.PutToolVariable(ctx, variable("t", "v0", "s1", "L")))
	kind(t, s.PutToolVariable(ctx, variable("t", "v0", "s1", "K"), event("taken")), brig.AlreadyExists)
	renamed := variable("t", "v0", "s1", "M")
	mustSucceed(t, s.PutToolVariable(ctx, renamed))
	list, err := s.ToolVariables(ctx, "t", "s1")
	mustSucceed(t, err)
	checkEqual(t, "a setup's variables", list, []*brig.SealedToolVariable{renamed, want})
	list, err = s.AllToolVariables(ctx)
	mustSucceed(t, err)
	checkEqual(t, "all variables", list, []*brig.SealedToolVariable{renamed, want})
	_, err = s.GetToolVariable(ctx, "u", "v1")
	kind(t, err, brig.NotFound)
	kind(t, s.DeleteToolVariable(ctx, "u", "v1", event("theirs")), brig.NotFound)
	mustSucceed(t, s.DeleteToolVariable(ctx, "t", "v0", event("delete")))
	kind(t, s.DeleteToolVariable(ctx, "t", "v0", event("again")), brig.NotFound)
	// ChangeToolVariable changes only an existing variable, identified by its
	// ID. It does not restore a deleted variable, and does not change another
	// variable with the same key.
	changed := variable("t", "v1", "s1", "K")
	changed.Description, changed.Created, changed.CreatedBy = "changed", birth.Add(time.Hour), "bob"
	mustSucceed(t, s.ChangeToolVariable(ctx, changed, event("change")))
	want = variable("t", "v1", "s1", "K")
	want.Description = "changed"
	checkEqual(t, "what who changes it has then", changed, want)
	kind(t, s.ChangeToolVariable(ctx, variable("t", "v0", "s1", "M"), event("removed")), brig.NotFound)
	kind(t, s.ChangeToolVariable(ctx, variable("t", "v0", "s1", "K"), event("other")), brig.NotFound)
	kind(t, s.ChangeToolVariable(ctx, variable("u", "v1", "s1", "K"), event("theirs")), brig.NotFound)
	list, err = s.ToolVariables(ctx, "t", "s1")
	mustSucceed(t, err)
	checkEqual(t, "what is there then", list, []*brig.SealedToolVariable{want})
	mustSucceed(t, s.DeleteToolSetup(ctx, "t", "s1"))
	list, err = s.AllToolVariables(ctx)
	mustSucceed(t, err)
	checkEqual(t, "variables without their setup", list, []*brig.SealedToolVariable(nil))
	checkEqual(t, "events", ops(t, s, 99), []string{"change", "delete", "put"})
}

// testToolsOfTenants verifies that deleting a tenant deletes its tool setups and no setups of
// other tenants.
func testToolsOfTenants(t *testing.T, s brig.Store) {
	ctx := t.Context()
	for _, tenant := range []string{"t", "u"} {
		mustSucceed(t, s.PutTenant(ctx, &brig.Tenant{Name: tenant}))
		mustSucceed(t, s.PutToolSetup(ctx, setup(tenant, "s-"+tenant, brig.ToolLocal)))
		mustSucceed(t, s.PutToolVariable(ctx, variable(tenant, "v-"+tenant, "s-"+tenant, "K")))
	}
	list, err := s.ToolVariables(ctx, "u", "s-t")
	mustSucceed(t, err)
	checkEqual(t, "another tenant's variables", list, []*brig.SealedToolVariable(nil))
	mustSucceed(t, s.DeleteTenant(ctx, "t"))
	setups, err := s.ToolSetups(ctx, "t")
	mustSucceed(t, err)
	checkEqual(t, "setups of a tenant that is gone", setups, []*brig.ToolSetup(nil))
	list, err = s.AllToolVariables(ctx)
	mustSucceed(t, err)
	checkEqual(t, "variables of the other", list, []*brig.SealedToolVariable{variable("u", "v-u", "s-u", "K")})
}
