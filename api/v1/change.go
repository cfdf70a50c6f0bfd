package v1

import (
	"reflect"
	"strings"

	"github.com/brig-run/brig"
)

// A change contains only the fields to change. A field that is missing in the
// body keeps its value, so the body is decoded over the current value. A client
// that replaces a whole value sends all fields, including those that are zero.

// Explicit converts v, a struct, to a document with all of its fields, except
// nil pointers.
func Explicit(v any) map[string]any {
	out := map[string]any{}
	for s, i := reflect.Indirect(reflect.ValueOf(v)), 0; i < s.NumField(); i++ {
		name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		switch f := s.Field(i); {
		case f.Kind() == reflect.Pointer && f.IsNil():
		case f.Kind() == reflect.Pointer && f.Elem().Kind() == reflect.Struct:
			out[name] = Explicit(f.Interface())
		case f.Kind() == reflect.Slice && f.IsNil():
			out[name] = []any{}
		case f.Kind() == reflect.Map && f.IsNil():
			out[name] = map[string]any{}
		default:
			out[name] = f.Interface()
		}
	}
	return out
}

// ChangeOf returns a change with t's current values. The body of a request is
// decoded over it.
func ChangeOf(t *brig.Tenant) *TenantChange {
	q, c := FromQuota(t.Quota), FromCeilings(t.Ceilings)
	return &TenantChange{Quota: &q, Budget: t.Budget, Ceilings: &c}
}

// Domain returns the tenant after the change. was is the tenant from which
// ChangeOf made the change. A null field is the same as a missing field.
func (t *TenantChange) Domain(was *brig.Tenant) brig.Tenant {
	old := ChangeOf(was)
	if t.Quota == nil {
		t.Quota = old.Quota
	}
	if t.Ceilings == nil {
		t.Ceilings = old.Ceilings
	}
	c := t.Ceilings
	if c.Images == nil {
		c.Images = old.Ceilings.Images
	}
	if c.Limits == nil {
		c.Limits = old.Ceilings.Limits
	}
	if c.Screening == nil {
		c.Screening = old.Ceilings.Screening
	}
	if t.Unscreened {
		c.Screening = nil
	}
	out := brig.Tenant{Name: was.Name, Quota: t.Quota.Domain(), Budget: t.Budget, Ceilings: c.Domain(), Rev: was.Rev}
	setIfGiven(&out.Rev, t.Rev)
	return out
}

// FullTenant returns a body that replaces all changeable fields of a tenant
// with those of t.
func FullTenant(t brig.Tenant) map[string]any {
	in := ChangeOf(&t)
	in.Unscreened, in.Rev = in.Ceilings.Screening == nil, revOf(t.Rev)
	out := Explicit(in)
	if in.Ceilings.Limits == nil {
		out["ceilings"].(map[string]any)["limits"] = Explicit(MostLimits{})
	}
	return out
}

// Apply returns was with the changes of r applied.
func (r RoutingChange) Apply(was brig.Routing) brig.Routing {
	setListIfGiven(&was.Order, r.Order)
	setListIfGiven(&was.Overflow, r.Overflow)
	setListIfGiven(&was.Regions, r.Regions)
	if r.Split != nil {
		was.Split = r.Split
	}
	setIfGiven(&was.Prefer, (*brig.Preference)(r.Prefer))
	setIfGiven(&was.Attempts, r.Attempts)
	setIfGiven(&was.Rev, r.Rev)
	// An empty list becomes nil.
	for _, list := range []*[]string{&was.Order, &was.Overflow, &was.Regions} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(was.Split) == 0 {
		was.Split = nil
	}
	return was
}

// Apply returns was with the changes of t applied.
func (t TermsChange) Apply(was brig.Terms) brig.Terms {
	setIfGiven(&was.Region, t.Region)
	setIfGiven(&was.Max, t.Max)
	setIfGiven(&was.Second, t.Second)
	return was
}

// Domain converts e to the domain type. The rules of the result are nil if e
// has none.
func (e EgressChange) Domain() brig.Egress {
	out := (&Egress{Rules: e.Rules}).Domain()
	out.Bandwidth = brig.SameBandwidth
	setIfGiven(&out.Bandwidth, (*int64)(e.Bandwidth))
	return out
}

// FromEgressChange is the inverse of EgressChange.Domain.
func FromEgressChange(e brig.Egress) map[string]any {
	same := e.Bandwidth == brig.SameBandwidth
	e.Bandwidth = max(e.Bandwidth, 0)
	in := FromEgress(e)
	if in == nil {
		in = &Egress{}
	}
	out := Explicit(in)
	if same {
		delete(out, "bandwidth")
	}
	return out
}

// revOf returns the revision for a body, or nil for 0.
func revOf(rev int64) *int64 {
	if rev == 0 {
		return nil
	}
	return &rev
}

func setIfGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func setListIfGiven[T any](to *[]T, from []T) {
	if from != nil {
		*to = from
	}
}
