package httpapi_test

import (
	"reflect"
	"testing"

	"github.com/brig-run/brig/api/httpapi"
)

// owner is embedded in a body.
type owner struct {
	UID *uint32 `json:"uid,omitempty" maximum:"9"`
}

// body has the fields of an embedded struct.
type body struct {
	Path string `json:"path"`
	owner
}

// TestDecodeEmbeddedFields verifies that the fields of embedded structs are known, with their
// constraints, and that numbers that are not negative are checked.
func TestDecodeEmbeddedFields(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"path":"a"}`: true, `{"path":"a","uid":7}`: true, `{"path":"a","uid":4294967295}`: true,
		`{"path":"a","uid":-1}`: false, `{"path":"a","uid":4294967296}`: false, `{"path":"a","uid":"7"}`: false, `{"path":"a","uid":1.5}`: false,
		`{"path":"a","owner":{}}`: false, `{"path":"a","gid":7}`: false,
	} {
		var out body
		if err := httpapi.DecodeDescribed([]byte(text), &out); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
	var out body
	if err := httpapi.DecodeDescribed([]byte(`{"path":"a","uid":7}`), &out); err != nil || out.UID == nil || *out.UID != 7 {
		t.Errorf("decoded %+v, %v", out, err)
	}
	if c := httpapi.Constraints(reflect.TypeFor[body]())["uid"]; c == nil || c.Maximum == nil || *c.Maximum != 9 {
		t.Errorf("the constraints of an embedded field: %+v", c)
	}
}
