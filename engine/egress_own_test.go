package engine_test

import (
	"net/netip"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/hostaddr"
)

// The engine rejects a member's rule for an address of the server's host in every
// request that sets rules. Rules that an operator sets are marked as such until a
// member changes them.
func TestMemberCannotAllowHostAddress(t *testing.T) {
	const own = "198.51.100.222"
	hostaddr.Declare([]netip.Prefix{netip.MustParsePrefix(own + "/32")})
	t.Cleanup(func() { hostaddr.Declare(nil) })
	h := newFixture(t, nil)
	rules := func(cidr string) brig.Egress {
		return brig.Egress{Rules: []brig.EgressRule{{CIDR: cidr}}, Operator: true} // Operator must be ignored
	}
	member, operator := withRole(t, brig.Member), withRole(t, brig.Operator)
	refused := func(what string, err error) {
		t.Helper()
		if brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != "egress.rules[0].cidr" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := h.Create(member, brig.Spec{Name: "refused", Egress: rules(own)})
	refused("create", err)
	_, err = h.Run(member, brig.Program{Language: brig.Python, Code: "1", Egress: rules(own)}, brig.IO{})
	refused("run", err)
	if _, err := h.Create(member, brig.Spec{Name: "box", Egress: rules("198.51.100.1")}); err != nil {
		t.Fatal(err)
	}
	_, err = h.SetEgress(member, "box", rules(own))
	refused("change", err)
	for _, c := range []struct {
		by   string
		want bool
	}{{"member", false}, {"operator", true}, {"member", false}} {
		ctx, to := member, "198.51.100.1"
		if c.by == "operator" {
			ctx, to = operator, own
		}
		box, err := h.SetEgress(ctx, "box", rules(to))
		if err != nil {
			t.Fatal(c.by, err)
		}
		if box.Spec.Egress.Operator != c.want {
			t.Errorf("rules of the %s are noted as an operator's: %t", c.by, box.Spec.Egress.Operator)
		}
	}
}

// A session that the tenant's quota has closed stays closed when the rules are
// removed and set again.
func TestExhaustedEgressStaysClosed(t *testing.T) {
	h := newFixture(t, nil)
	const quota = 1 << 20
	ctx := withRole(t, brig.Operator)
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "api.test"}}}
	box, err := h.Create(ctx, brig.Spec{Name: "box", Egress: rules})
	if err != nil {
		t.Fatal(err)
	}
	again := func() {
		t.Helper()
		for _, r := range []brig.Egress{{}, rules} {
			if _, err := h.SetEgress(ctx, "box", r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := h.UpdateTenant(ctx, brig.Tenant{Name: box.Tenant, Quota: brig.Quota{EgressPerDay: quota}}); err != nil {
		t.Fatal(err)
	}
	if again(); h.EgressQuotaUsedUp(box.ID) {
		t.Error("it is closed before the quota is used up")
	}
	_ = h.CountEgress(box.ID, quota+1)
	if again(); !h.EgressQuotaUsedUp(box.ID) {
		t.Error("rules that are given again open it")
	}
}
