package exactjson_test

import (
	"encoding/json"
	"testing"

	"github.com/brig-run/brig/internal/exactjson"
)

type inner struct {
	Kind string `json:"kind"`
}

type outer struct {
	inner
	Iss   string `json:"iss"`
	Plain int
	List  []inner          `json:"list"`
	Map   map[string]inner `json:"map"`
	Raw   json.RawMessage  `json:"raw"`
	Ptr   *inner           `json:"ptr"`
}

func TestUnmarshalRejectsInexactNames(t *testing.T) {
	for doc, ok := range map[string]bool{
		`{"iss":"a","Plain":1,"kind":"x","list":[{"kind":"y"}],"map":{"K":{"kind":"z"},"k":{}},"raw":{"Iss":1},"ptr":{"kind":"p"}}`: true,
		`{"other":{"iss":1,"ISS":2}}`: true,
		`{"iss":"a","ISS":"b"}`:       false,
		`{"Iss":"b"}`:                 false,
		`{"i\u017fs":"long s"}`:       false,
		`{"\u212aind":"Kelvin"}`:      false,
		`{"iss":"a","iss":"a"}`:       false,
		`{"iss":"a","\u0069ss":"b"}`:  false,
		`{"plain":1}`:                 false,
		`{"list":[{"Kind":"y"}]}`:     false,
		`{"map":{"a":{"KIND":"y"}}}`:  false,
		`{"map":{"a":{},"a":{}}}`:     false,
		`{"ptr":{"Kind":"y"}}`:        false,
		`{"raw":{"a":1,"a":2}}`:       false,
		`{"other":[{"a":1,"a":2}]}`:   false,
		`{"iss":`:                     false,
		`null`:                        true,
	} {
		if err := exactjson.Unmarshal([]byte(doc), new(outer)); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %v", doc, err, ok)
		}
	}
	// The control: the result of encoding/json.
	var o outer
	if err := json.Unmarshal([]byte(`{"iss":"a","ISS":"b"}`), &o); err != nil || o.Iss != "b" {
		t.Errorf("encoding/json reads %q, %v", o.Iss, err)
	}
}
