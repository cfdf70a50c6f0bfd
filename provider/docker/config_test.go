package docker

import (
	"slices"
	"testing"

	"github.com/brig-run/brig/schema"
)

// TestConfig verifies that all errors of a configuration are reported, each
// under its field.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		name, json string
		wrong      []string
	}{
		{"the least", `{"image":"python:3.12"}`, nil},
		{"a digest", `{"image":"sha256:abc"}`, nil},
		{"all of it", `{"host":"tcp://h:2376","image":"a/b:c","runtime":"runsc","pull":"always","storage":"layer","tls_ca":"/a","tls_cert":"/b","tls_key":"/c","registry":"r","registry_username":"u","registry_password":"p"}`, nil},
		{"no image", `{}`, []string{"image"}},
		{"no reference", `{"image":"A B"}`, []string{"image"}},
		{"not a value that there is", `{"image":"a","pull":"sometimes","storage":"tape"}`, []string{"pull", "storage"}},
		{"another scheme", `{"image":"a","host":"http://h:1"}`, []string{"host"}},
		{"no port", `{"image":"a","host":"tcp://h"}`, []string{"host"}},
		{"a relative socket", `{"image":"a","host":"unix://run/s"}`, []string{"host"}},
		{"half of TLS", `{"image":"a","host":"tcp://h:2376","tls_ca":"/a"}`, []string{"tls_cert", "tls_key"}},
		{"TLS on a socket", `{"image":"a","host":"unix:///s","tls_ca":"/a","tls_cert":"/b","tls_key":"/c"}`, []string{"tls_ca", "tls_cert", "tls_key"}},
		{"relative files", `{"image":"a","host":"tcp://h:1","tls_ca":"a","tls_cert":"/b","tls_key":"/c"}`, []string{"tls_ca"}},
		{"half an account", `{"image":"a","registry":"r"}`, []string{"registry"}},
	} {
		var got []string
		for _, f := range schema.Decode([]byte(c.json), Driver().Config()) {
			got = append(got, f.Field)
		}
		if !slices.Equal(got, c.wrong) {
			t.Errorf("%s: %v, want %v", c.name, got, c.wrong)
		}
	}
}
