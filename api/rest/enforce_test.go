package rest_test

import (
	"reflect"
	"testing"
)

// The client returns the enforcement that the server reports without changes.
func TestClientEnforcement(t *testing.T) {
	s, c := pair(t)
	ctx := t.Context()
	want, err := s.Capabilities(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Capabilities(ctx); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	box, err := s.Attest(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Attest(ctx, "box")
	if err != nil || !reflect.DeepEqual(got.Enforcement, box.Enforcement) || !reflect.DeepEqual(got.Spec.Require, box.Spec.Require) {
		t.Errorf("%+v, %v; want %+v", got, err, box)
	}
}
