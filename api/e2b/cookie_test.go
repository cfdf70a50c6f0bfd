package e2b

import (
	"net/http"
	"slices"
	"testing"
)

func TestRestrictCookies(t *testing.T) {
	h := http.Header{"Set-Cookie": {
		"a=1; Path=/; Domain=e2b.test; Secure", "b=2;domain=.e2b.test", "c=domain=x; HttpOnly", "d=4; DOMAIN = x ; SameSite=Lax", "e=5",
	}}
	restrictCookies(h)
	want := []string{"a=1; Path=/; Secure", "b=2", "c=domain=x; HttpOnly", "d=4; SameSite=Lax", "e=5"}
	if got := h["Set-Cookie"]; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
