package httpapi_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

type constrainedBody struct {
	Name   string            `json:"name" pattern:"^[a-z]+$" doc:"of a-z"`
	Role   string            `json:"role,omitempty" enum:"viewer,member"`
	List   []string          `json:"list,omitempty" minItems:"1"`
	Map    map[string]string `json:"map,omitempty"`
	Port   int               `json:"port,omitempty" minimum:"1"`
	Any    int64             `json:"any,omitempty"`
	Inner  *constrainedBody  `json:"inner,omitempty"`
	Inners []constrainedBody `json:"inners,omitempty"`
}

// DecodeDescribed is stricter than Decode only for values that a handler cannot
// distinguish from a missing field.
func TestDecodeDescribedRejectsAmbiguousZeros(t *testing.T) {
	for doc, field := range map[string]string{
		`{"name":"a","role":"member","list":["x"],"map":{},"port":1,"any":0,"inner":{"name":"b"}}`: "",
		`{"name":"a","port":2.0,"any":-30.000}`:                                                    "",
		`{}`:                                                                                       "name",
		`{"name":null}`:                                                                            "name",
		`{"name":""}`:                                                                              "name",
		`{"name":"a","role":""}`:                                                                   "role",
		`{"name":"a","role":null}`:                                                                 "role",
		`{"name":"a","list":[]}`:                                                                   "list",
		`{"name":"a","list":[ ]}`:                                                                  "list",
		`{"name":"a","map":null}`:                                                                  "map",
		`{"name":"a","port":0}`:                                                                    "port",
		`{"name":"a","port":0.0}`:                                                                  "port",
		`{"name":"a","inner":{}}`:                                                                  "inner.name",
		`{"name":"a","inner":null}`:                                                                "inner",
		`{"name":"a","inners":[{},1]}`:                                                             "inners[0].name",
	} {
		var v constrainedBody
		err := httpapi.DecodeDescribed([]byte(doc), &v)
		if field == "" {
			if err != nil || v.Port == 2 && v.Any != -30 {
				t.Errorf("%s: %v, %+v", doc, err, v)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s is accepted", doc)
		} else if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != field {
			t.Errorf("%s: %v, not about %s", doc, err, field)
		}
		if strings.Contains(doc, ".0") || strings.Contains(doc, "1]") {
			continue // both functions reject the value
		}
		if err := httpapi.Decode([]byte(doc), &constrainedBody{}); err != nil {
			t.Errorf("%s: Decode refuses it, too: %v", doc, err)
		}
	}
}
